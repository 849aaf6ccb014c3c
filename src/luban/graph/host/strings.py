"""Host functions on strings: casts, joining, splitting, normalising, matching, counting n-grams."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import numpy as np

from luban.core.dtypes import dtype
from luban.core.errors import InputError
from luban.graph.host import host
from luban.graph.meaning.elementwise import cast_array

__all__: list[str] = []

Array = np.ndarray[Any, Any]


def _objects(texts: list[Any], shape: tuple[int, ...]) -> Array:
    result = np.empty(len(texts), object)
    result[:] = texts
    return result.reshape(shape)


@host("string_from_numbers")
def string_from_numbers(_options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """Each number in its shortest form that reads back the same: 1.5, NaN, INF, -INF, 1, 0."""
    (x,) = values
    return (_objects([_text(v) for v in x.ravel()], x.shape),)


def _text(value: Any) -> str:
    if isinstance(value, np.bool_):
        return str(int(value))
    if isinstance(value, np.integer):
        return str(int(value))
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "INF" if value > 0 else "-INF"
    number = value if isinstance(value, np.floating) else np.float32(value)
    return str(number)


@host("numbers_from_string")
def numbers_from_string(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """Each text read as a number of options["dtype"]. Raises InputError for text that is none."""
    (x,) = values
    element = dtype(options["dtype"])
    numbers = [_number(str(text), element.is_float) for text in x.ravel()]
    if element.is_float:
        return (cast_array(np.array(numbers, np.float64).reshape(x.shape), element),)
    return (np.array(numbers, element.numpy).reshape(x.shape),)


def _number(text: str, is_float: bool) -> float | int:
    try:
        return float(text) if is_float else int(text)
    except ValueError:
        kind = "a number" if is_float else "a whole number"
        raise InputError(
            f"the text {text!r} is not {kind}", hint="clean the input before the cast"
        ) from None


@host("string_equal")
def string_equal(_options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """bool: equal texts, broadcast."""
    return (np.asarray(np.equal(*values), bool),)


@host("string_concat")
def string_concat(_options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """Texts put together elementwise, broadcast."""
    x, y = np.broadcast_arrays(*values)
    pairs = zip(x.ravel(), y.ravel(), strict=True)
    return (_objects([str(a) + str(b) for a, b in pairs], x.shape),)


@host("string_split")
def string_split(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """Pieces of each text along a new last axis, padded with "", and their i64 counts.

    Without a delimiter runs of white space divide. options["maximum"] limits the number of cuts.
    """
    (x,) = values
    delimiter = options["delimiter"] or None
    pieces = [str(text).split(delimiter, options["maximum"]) for text in x.ravel()]
    width = max((len(p) for p in pieces), default=0)
    flat = [text for p in pieces for text in (*p, *[""] * (width - len(p)))]
    counts = np.array([len(p) for p in pieces], np.int64).reshape(x.shape)
    return _objects(flat, (*x.shape, width)), counts


@host("string_normalize")
def string_normalize(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """Texts without stop words, in one case. A row with nothing left is one empty text."""
    (x,) = values
    is_sensitive = options["is_case_sensitive"]
    stop = {w if is_sensitive else w.lower() for w in options["stopwords"]}
    case = options["case"]
    row = x.reshape(-1)
    kept = [str(t) for t in row if (str(t) if is_sensitive else str(t).lower()) not in stop]
    if case != "NONE":
        kept = [t.lower() if case == "LOWER" else t.upper() for t in kept]
    texts = kept or [""]
    return (_objects(texts, (len(texts),) if x.ndim == 1 else (1, len(texts))),)


@host("regex_full_match")
def regex_full_match(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """bool: whether the whole text matches options["pattern"]."""
    (x,) = values
    pattern = re.compile(options["pattern"])
    found = [pattern.fullmatch(str(text)) is not None for text in x.ravel()]
    return (np.array(found, bool).reshape(x.shape),)


@host("count_ngrams")
def count_ngrams(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """f32 counts (TF), weights if there (IDF) or weighted counts (TFIDF) of n-grams in each row."""
    (x,) = values
    rows = x.reshape(-1, x.shape[-1]) if x.ndim > 1 else x.reshape(1, -1)
    size = max(options["indexes"], default=-1) + 1
    counts = np.zeros((len(rows), size), np.float32)
    places = _pool(options)
    first, last = options["lengths"]
    for row, texts in enumerate(rows.tolist()):
        for length in range(first, last + 1):
            # Single items cannot skip: other distances would only count them again.
            skips = 1 if length == 1 else options["max_skip"] + 1
            for step in range(1, skips + 1):
                for start in range(len(texts) - step * (length - 1)):
                    gram = tuple(texts[start : start + step * length : step][:length])
                    if gram in places:
                        counts[row, places[gram][0]] += 1
    weights = np.zeros(size, np.float32)
    for index, weight in places.values():
        weights[index] = weight
    if options["mode"] != "TF":
        counts = (counts if options["mode"] == "TFIDF" else np.minimum(counts, 1)) * weights
    return (counts.reshape(size) if x.ndim <= 1 else counts,)


def _pool(options: dict[str, Any]) -> dict[tuple[Any, ...], tuple[int, float]]:
    """n-gram -> (place in the result, weight). `starts` says where those of each length begin."""
    pool, starts = options["pool"], (*options["starts"], len(options["pool"]))
    found: dict[tuple[Any, ...], tuple[int, float]] = {}
    number = 0
    for length, (low, high) in enumerate(pairwise(starts), start=1):
        for start in range(low, high, length):
            weight = options["weights"][number] if options["weights"] else 1.0
            found[tuple(pool[start : start + length])] = (options["indexes"][number], weight)
            number += 1
    return found
