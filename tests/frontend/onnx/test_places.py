"""Indices that wrap, and reading and writing along an axis."""

from __future__ import annotations

import numpy as np
import pytest

from luban.core.dims import symbol
from luban.core.errors import ShapeError
from luban.core.types import tensor
from luban.frontend.onnx.places import put_each, take_each, take_in_rows, wrapped
from luban.graph import build
from luban.graph.evaluate import evaluate
from luban.graph.ops.data import Constant
from luban.ir.node import Graph

INDICES = build.parameter("i", tensor("i64", 3))


def test_constants_that_are_not_negative_stay() -> None:
    indices = build.constant([0, 2], "i64")
    assert wrapped(indices, symbol("n")) is indices


def test_negative_constants_stay_constants() -> None:
    result = wrapped(build.constant([0, -1], "i64"), 4)
    assert isinstance(result.op, Constant)
    np.testing.assert_array_equal(result.op.value.array, [0, 3])


def test_unsigned_indices_stay() -> None:
    indices = build.parameter("u", tensor("u8", 3))
    assert wrapped(indices, 4) is indices


def test_run_time_indices_wrap_at_run_time() -> None:
    graph = Graph("wrap", (INDICES,), (wrapped(INDICES, 5),))
    np.testing.assert_array_equal(evaluate(graph, [np.array([-1, 0, -5])])[0], [4, 0, 0])


def test_take_is_numpys_take_along_axis() -> None:
    data = np.arange(24.0).reshape(2, 3, 4)
    places = np.random.default_rng(0).integers(0, 3, (2, 5, 4))
    x, i = build.constant(data), build.constant(places)
    (result,) = evaluate(Graph("take", (), (take_each(x, i, 1),)), [])
    np.testing.assert_array_equal(result, np.take_along_axis(data, places, 1))


def test_put_is_the_other_way() -> None:
    data, places = np.zeros((2, 4)), np.array([[3, 0], [1, 2]])
    updates = np.array([[1.0, 2.0], [3.0, 4.0]])
    x, i, u = (build.constant(v) for v in (data, places, updates))
    (result,) = evaluate(Graph("put", (), (put_each(x, i, u, 1, "add"),)), [])
    np.testing.assert_array_equal(result, [[2, 0, 0, 1], [0, 3, 4, 0]])


def test_rows_read_their_own_places() -> None:
    data, places = np.arange(12.0).reshape(2, 3, 2), np.array([[2, 0], [1, 1]])
    graph = Graph("rows", (), (take_in_rows(build.constant(data), build.constant(places)),))
    wanted = np.stack([data[b][places[b]] for b in range(2)])
    np.testing.assert_array_equal(evaluate(graph, [])[0], wanted)


def test_another_rank_is_an_error() -> None:
    x = build.parameter("x", tensor("f32", 2, 2))
    with pytest.raises(ShapeError, match=r"indices are i64\[3\], expected the rank of f32\[2,2\]"):
        take_each(x, INDICES, 0)
