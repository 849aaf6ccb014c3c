"""Tables of keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from luban.graph.host import host_function
from luban.graph.host.labels import ENCODE


def encode(x: Any, keys: Any, values: Any, default: Any) -> Any:
    given = [np.asarray(v) for v in (x, keys, values, default)]
    return host_function(ENCODE)({}, given)[0]


def test_the_default_stands_for_what_is_missing() -> None:
    np.testing.assert_array_equal(
        encode([[1, 5], [2, 1]], [1, 2], [10, 20], 0), [[10, 0], [20, 10]]
    )


def test_nan_finds_a_nan_key() -> None:
    np.testing.assert_array_equal(encode([np.nan, 1.0], [1.0, np.nan], [3, 4], 0), [4, 3])


def test_texts_keep_their_dtype() -> None:
    found = encode(
        np.array(["b", "z"], object),
        np.array(["a", "b"], object),
        np.array(["A", "B"], object),
        "?",
    )
    assert found.dtype == object
    assert found.tolist() == ["B", "?"]


def test_nothing_gives_nothing() -> None:
    assert np.shape(encode(np.zeros((0, 2)), [1.0], [2.0], 0.0)) == (0, 2)
