"""Operators on strings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luban.core.errors import ModelError
from tests.frontend.onnx.ops.comparison import run


def texts(*values: Any) -> Any:
    return np.array(values, object)


def test_concat_broadcasts() -> None:
    (got,) = run("StringConcat", [texts(["a"], ["b"]), texts("x", "y")])
    assert got.tolist() == [["ax", "ay"], ["bx", "by"]]


def test_split_pads_with_empty_texts() -> None:
    pieces, counts = run("StringSplit", [texts("a b c", "", " d ")], results=2)
    assert pieces.tolist() == [["a", "b", "c"], ["", "", ""], ["d", "", ""]]
    assert counts.tolist() == [3, 0, 1]
    pieces, counts = run("StringSplit", [texts("a,b,c")], results=2, delimiter=",", maxsplit=1)
    assert pieces.tolist() == [["a", "b,c"]]
    assert counts.tolist() == [2]


def test_normalizer() -> None:
    words = texts("Monday", "Tuesday", "wednesday")
    options: dict[str, Any] = {"stopwords": ["monday"], "case_change_action": "UPPER"}
    assert run("StringNormalizer", [words], **options)[0].tolist() == ["TUESDAY", "WEDNESDAY"]
    (kept,) = run("StringNormalizer", [words], is_case_sensitive=1, **options)
    assert kept.tolist() == ["MONDAY", "TUESDAY", "WEDNESDAY"]
    nothing = run("StringNormalizer", [texts(["monday"])[None, 0]], stopwords=["monday"])
    assert nothing[0].tolist() == [[""]]
    with pytest.raises(ModelError, match="case_change_action is 'TITLE'"):
        run("StringNormalizer", [words], case_change_action="TITLE")
    with pytest.raises(ModelError, match=r"input is str\[2,1\], expected str\[n\] or str\[1,n\]"):
        run("StringNormalizer", [texts(["a"], ["b"])])


def test_full_match() -> None:
    mails = texts("a@b.org", "nobody", "x@y.org and more")
    assert run("RegexFullMatch", [mails], pattern=r"\w+@\w+\.org")[0].tolist() == [
        True,
        False,
        False,
    ]


def counted(mode: str, **options: Any) -> list[float]:
    """The pool holds 5, 7 and (5, 6)."""
    (got,) = run(
        "TfIdfVectorizer",
        [np.array([5, 6, 7, 5, 6], np.int64)],
        mode=mode,
        min_gram_length=1,
        max_gram_length=2,
        max_skip_count=options.pop("skip", 0),
        ngram_counts=[0, 2],
        ngram_indexes=[0, 1, 2],
        pool_int64s=[5, 7, 5, 6],
        **options,
    )
    found: list[float] = got.tolist()
    return found


def test_ngrams() -> None:
    assert counted("TF") == [2, 1, 2]
    assert counted("TF", skip=3) == [2, 1, 3]
    assert counted("IDF", weights=[0.5, 2.0, 3.0]) == [0.5, 2, 3]
    assert counted("TFIDF", weights=[0.5, 2.0, 3.0]) == [1, 2, 6]
    with pytest.raises(ModelError, match="mode is 'LF', expected TF, IDF or TFIDF"):
        counted("LF")
