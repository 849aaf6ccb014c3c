"""Reductions, windows, cumulative operations and sorting."""

import functools
import math
from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from luban.core.dims import symbol
from luban.core.errors import ShapeError
from luban.graph import build
from luban.graph.meaning.context import Array
from luban.graph.ops.reduce import ArgReduce, Cumulative, Reduce, ReduceWindow, Sort, TopK
from luban.ir.node import node, results_of
from tests.graph.calls import apply, call

NAN, INF = math.nan, math.inf
F32 = np.float32

KINDS: dict[str, tuple[Callable[[Any, Any], Any], float]] = {
    "sum": (lambda a, b: a + b, 0),
    "product": (lambda a, b: a * b, 1),
    "maximum": (max, -INF),
    "minimum": (min, INF),
}


def small(*shape: int) -> Array:
    """Whole numbers, so that sums are exact in every order."""
    return np.random.default_rng(sum(shape)).integers(-2, 3, shape).astype(F32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axes", [(), (0,), (1,), (0, 2), (0, 1, 2)])
def test_reduce(kind: str, axes: tuple[int, ...]) -> None:
    combine, start = KINDS[kind]
    x = small(2, 3, 4)
    result = apply(Reduce(kind, axes), x)
    kept = [a for a in range(3) if a not in axes]
    assert result.shape == tuple(x.shape[a] for a in kept)
    for place in np.ndindex(*result.shape):
        index: list[Any] = [slice(None)] * 3
        for axis, i in zip(kept, place, strict=True):
            index[axis] = i
        values = np.asarray(x[tuple(index)]).ravel().tolist()
        assert result[place] == functools.reduce(combine, values, start)


@pytest.mark.parametrize(
    ("kind", "element", "expected"),
    [
        ("sum", np.float32, 0),
        ("product", np.float32, 1),
        ("maximum", np.float32, -INF),
        ("minimum", np.float32, INF),
        ("maximum", np.int8, -128),
        ("minimum", np.uint8, 255),
        ("maximum", ml_dtypes.bfloat16, -INF),
        ("maximum", ml_dtypes.float8_e4m3fn, -448),
        ("and", np.bool_, True),
        ("or", np.bool_, False),
        ("and", np.int32, -1),
        ("and", np.uint16, 65535),
        ("or", np.int32, 0),
    ],
)
def test_reduce_of_nothing(kind: str, element: Any, expected: float) -> None:
    result = apply(Reduce(kind, (1,)), np.zeros((3, 0, 2), element))
    assert result.shape == (3, 2)
    assert result.dtype == element
    assert {float(v) for v in result.ravel()} == {float(expected)}


@pytest.mark.parametrize("count", range(1, 6))
@pytest.mark.parametrize("kind", ["maximum", "minimum"])
def test_one_nan_is_enough(kind: str, count: int) -> None:
    for x in ([NAN] * count + [42.0], [42.0] + [NAN] * count, [1.0, *[NAN] * count, 2.0]):
        assert np.isnan(apply(Reduce(kind, (0,)), np.array(x, F32)))


def test_integer_sums_wrap_in_their_own_dtype() -> None:
    result = apply(Reduce("sum", (0,)), np.array([100, 100], np.int8))
    assert (result.dtype, int(result)) == (np.int8, -56)
    assert int(apply(Reduce("product", (0,)), np.array([16, 16, 2], np.uint8))) == 0


def test_half_sums_accumulate_in_f32() -> None:
    x = np.ones(4096, np.float16)
    x[0] = 2048  # one more changes nothing in f16
    assert float(apply(Reduce("sum", (0,)), x)) == 2048 + 4095 + 1  # rounded to even once
    assert apply(Reduce("sum", (0,)), x).dtype == np.float16


def test_bitwise_reductions() -> None:
    x = np.array([[0b110, 0b011], [0b100, 0b001]], np.int32)
    assert apply(Reduce("and", (1,)), x).tolist() == [0b010, 0]
    assert apply(Reduce("or", (0, 1)), x) == 0b111
    assert apply(Reduce("and", (0,)), x > 1).tolist() == [True, False]


@pytest.mark.parametrize(
    ("kind", "last", "x", "expected"),
    [
        ("maximum", False, [1, 3, 3, 2], 1),
        ("maximum", True, [1, 3, 3, 2], 2),
        ("minimum", False, [2, 1, 1], 1),
        ("minimum", True, [2, 1, 1], 2),
        ("maximum", False, [1, NAN, INF, NAN], 1),
        ("minimum", False, [1, NAN, -INF, NAN], 1),
        ("minimum", True, [1, NAN, -INF, NAN], 1),
    ],
)
def test_arg_reduce(kind: str, last: bool, x: list[float], expected: int) -> None:
    for element in (F32, np.float16, ml_dtypes.bfloat16):
        result = apply(ArgReduce(kind, 0, last), np.array(x, element))
        assert (result.dtype, int(result)) == (np.int64, expected)


def test_arg_reduce_of_nothing_is_an_error() -> None:
    with pytest.raises(
        ShapeError, match=r"arg_reduce: maximum of axis 1 of shape \[2, 0\]: the axis is empty"
    ):
        apply(ArgReduce("maximum", 1), np.zeros((2, 0), F32))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumulative(kind: str, exclusive: bool, reverse: bool) -> None:
    combine, start = KINDS[kind]
    x = small(2, 5)
    result = apply(Cumulative(kind, 1, exclusive, reverse), x)
    for row in range(2):
        values = x[row].tolist()[:: -1 if reverse else 1]
        expected = [
            functools.reduce(combine, values[: i + (not exclusive)], start) for i in range(5)
        ]
        assert result[row].tolist() == expected[:: -1 if reverse else 1]


def window_by_definition(op: ReduceWindow, x: Array) -> Array:
    combine, start = KINDS[op.kind]
    low, high = [int(str(v)) for v in op.low], [int(str(v)) for v in op.high]
    rows = list(zip(x.shape, op.window, op.strides, low, high, op.dilation, strict=True))
    shape = [max((n + a + b - (w - 1) * d - 1) // s + 1, 0) for n, w, s, a, b, d in rows]
    result = np.empty(shape, x.dtype)
    for place in np.ndindex(*shape):
        total: Any = start
        for tap in product(*(range(w) for w in op.window)):
            at = tuple(
                p * s + t * d - a for p, t, (_, _, s, a, _, d) in zip(place, tap, rows, strict=True)
            )
            if all(0 <= i < n for i, n in zip(at, x.shape, strict=True)):
                total = combine(total, float(x[at]))
        result[place] = total
    return result


two = st.tuples(st.integers(1, 3), st.integers(1, 3))
edge = st.tuples(st.integers(-1, 2), st.integers(-1, 2))


@given(st.sampled_from(list(KINDS)), two, two, edge, edge, two)
def test_reduce_window(
    kind: str,
    window: tuple[int, int],
    strides: tuple[int, int],
    low: tuple[int, int],
    high: tuple[int, int],
    dilation: tuple[int, int],
) -> None:
    op = ReduceWindow(kind, window, strides, low, high, dilation)
    x = small(5, 4)
    np.testing.assert_array_equal(apply(op, x), window_by_definition(op, x))


def test_a_window_wider_than_the_axis_gives_nothing() -> None:
    op = ReduceWindow("maximum", (9,), (1,), (0,), (0,), (1,))
    assert apply(op, small(4)).shape == (0,)


@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable_and_nan_is_largest(descending: bool) -> None:
    keys = np.array([2, NAN, 1, 2, NAN, -INF, 1], F32)
    places = np.arange(7)
    sorted_keys, order = apply(Sort(0, descending), keys, places)
    if descending:
        assert order.tolist() == [1, 4, 0, 3, 2, 6, 5]
    else:
        assert order.tolist() == [5, 2, 6, 0, 3, 1, 4]
    np.testing.assert_array_equal(sorted_keys, keys[order])


def test_sort_along_an_inner_axis() -> None:
    x = small(3, 4, 2)
    np.testing.assert_array_equal(apply(Sort(1), x), np.sort(x, axis=1))


@pytest.mark.parametrize("largest", [True, False])
def test_top_k_takes_the_lower_index_of_equals(largest: bool) -> None:
    x = np.array([1, 3, 3, 0, 1, 0], F32)
    values, indices = apply(TopK(4, 0, largest), x)
    assert indices.tolist() == ([1, 2, 0, 4] if largest else [3, 5, 0, 4])
    assert values.tolist() == x[indices].tolist()
    assert indices.dtype == np.int64


def test_top_k_at_run_time_binds_its_size() -> None:
    k = symbol("k")

    def function(x: Any, count: Any) -> Any:
        values, _ = results_of(node(TopK(k, 0), x, count))
        return values, build.dimension(k)

    values, size = call(function, np.array([1, 5, 2], F32), np.array(2))
    assert (values.tolist(), int(size)) == ([5, 2], 2)
    with pytest.raises(ShapeError, match="top_k: k is 4, expected 0 to 3, the size of axis 0"):
        call(function, np.array([1, 5, 2], F32), np.array(4))
