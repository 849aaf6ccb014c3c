"""Moving elements: each primitive against plain index arithmetic in Python."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from luban.core.dims import Dim, symbol
from luban.core.errors import ShapeError
from luban.core.types import tensor
from luban.graph import build
from luban.graph.meaning.context import Array
from luban.graph.ops.structure import (
    BroadcastInDim,
    DynamicSlice,
    DynamicUpdateSlice,
    Gather,
    Pad,
    Scatter,
    Slice,
)
from luban.ir.node import node
from tests.graph.calls import apply, call, symbolic


def numbered(*shape: int) -> Array:
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


def test_broadcast_repeats_ones_and_missing_axes() -> None:
    x = numbered(3, 1)
    result = apply(BroadcastInDim((2, 3, 4), (1, 2)), x)
    for i, j, k in product(range(2), range(3), range(4)):
        assert result[i, j, k] == x[j, 0]


def test_broadcast_into_an_earlier_axis() -> None:
    result = apply(BroadcastInDim((3, 2), (0,)), numbered(3))
    np.testing.assert_array_equal(result, [[0, 0], [1, 1], [2, 2]])


def test_broadcast_of_a_symbolic_size_that_is_neither_1_nor_equal_is_refused() -> None:
    def function(x: Any) -> Any:
        return node(BroadcastInDim((4,), (0,)), x)

    np.testing.assert_array_equal(call(function, numbered(1), types=symbolic(numbered(1))), [0] * 4)
    with pytest.raises(
        ShapeError, match=r"broadcast_in_dim: operand of shape \[3\].*axis 0 is 3, expected 1 or 4"
    ):
        call(function, numbered(3), types=symbolic(numbered(3)))


def test_reshape_with_symbols() -> None:
    x = numbered(2, 3, 4)
    n = symbol("n")
    types = [tensor("f32", "n", 3, 4)]
    result = call(lambda a: build.reshape(a, (n * 3, 4)), x, types=types)
    np.testing.assert_array_equal(result, numbered(6, 4))


def test_reshape_to_another_count_is_refused() -> None:
    types = [tensor("f32", "n", 3)]
    with pytest.raises(ShapeError, match=r"reshape: .*\[2, 3\] has 6 elements, \[4, 2\] needs 8"):
        call(lambda a: build.reshape(a, (4, 2)), numbered(2, 3), types=types)


def test_dynamic_reshape_binds_its_symbols() -> None:
    k = symbol("k")

    def function(x: Any, sizes: Any) -> Any:
        y = build.dynamic_reshape(x, sizes, (k, 2))
        return y, build.dimension(k)

    result, size = call(function, numbered(2, 4), np.array([4, 2]))
    np.testing.assert_array_equal(result, numbered(4, 2))
    assert size == 4
    with pytest.raises(ShapeError, match="8 elements"):
        call(function, numbered(2, 4), np.array([3, 2]))
    with pytest.raises(ShapeError, match="result: axis 1 is 4, expected 2"):
        call(function, numbered(2, 4), np.array([2, 4]))


def test_transpose() -> None:
    x = numbered(2, 3, 4)
    result = call(lambda a: build.transpose(a, (2, 0, 1)), x)
    for i, j, k in product(range(4), range(2), range(3)):
        assert result[i, j, k] == x[j, k, i]


def test_slice_with_strides_and_symbols() -> None:
    n = symbol("n")
    x = numbered(7, 5)
    types = [tensor("f32", "n", 5)]

    def function(a: Any) -> Any:
        return node(Slice((n - 3, 1), (2, 2), (2, 3)), a)

    np.testing.assert_array_equal(call(function, x, types=types), x[[4, 6]][:, [1, 4]])
    with pytest.raises(ShapeError, match="axis 0 of size 2: 2 elements from -1 by 2"):
        call(function, numbered(2, 5), types=types)


def test_an_empty_slice_may_start_at_the_end() -> None:
    assert apply(Slice((3,), (0,), (1,)), numbered(3)).shape == (0,)


@given(st.lists(st.integers(-3, 9), min_size=2, max_size=2))
def test_dynamic_slice_clamps_its_start(start: list[int]) -> None:
    x = numbered(5, 6)
    i, j = (max(0, min(s, limit)) for s, limit in zip(start, (3, 3), strict=True))
    result = apply(DynamicSlice((2, 3)), x, np.array(start))
    np.testing.assert_array_equal(result, x[i : i + 2, j : j + 3])
    changed = apply(DynamicUpdateSlice(), x, -result, np.array(start))
    expected = x.copy()
    expected[i : i + 2, j : j + 3] *= -1
    np.testing.assert_array_equal(changed, expected)


amounts = st.tuples(st.integers(-4, 4), st.integers(-4, 4), st.integers(0, 3))


@given(st.integers(0, 5), amounts, st.integers(0, 4), amounts)
def test_pad_with_negative_and_interior_amounts(
    n: int, a: tuple[int, int, int], m: int, b: tuple[int, int, int]
) -> None:
    x = numbered(n, m) + 1
    spread = [[size + max(size - 1, 0) * row[2]] for size, row in ((n, a), (m, b))]
    shape = [s[0] + row[0] + row[1] for s, row in zip(spread, (a, b), strict=True)]
    if min(shape) < 0:
        return
    expected = np.full(shape, -1, np.float32)
    for i, j in product(range(n), range(m)):
        p, q = a[0] + i * (a[2] + 1), b[0] + j * (b[2] + 1)
        if 0 <= p < shape[0] and 0 <= q < shape[1]:
            expected[p, q] = x[i, j]
    op = Pad((a[0], b[0]), (a[1], b[1]), (a[2], b[2]))
    np.testing.assert_array_equal(apply(op, x, np.float32(-1)), expected)


def test_concatenate_and_reverse() -> None:
    x, y = numbered(2, 3), numbered(2, 1)
    result = call(lambda a, b: build.concatenate([a, b, a], 1), x, y)
    np.testing.assert_array_equal(result, np.hstack([x, y, x]))
    np.testing.assert_array_equal(call(lambda a: build.reverse(a, [0]), x), x[::-1])


def test_concatenate_of_run_time_sizes_that_differ_is_refused() -> None:
    x, y = numbered(2, 3), numbered(4, 3)
    with pytest.raises(ShapeError, match=r"concatenate: operands of shape \[2, 3\], \[4, 3\]"):
        call(lambda a, b: build.concatenate([a, b], 1), x, y, types=symbolic(x, y))


# Gather and scatter, against the definition in the StableHLO specification, element by element.


def gather_by_definition(op: Gather, x: Array, indices: Array) -> Array:
    sizes = [s for s in op.slice_sizes if not isinstance(s, Dim)]
    kept = [a for a in range(x.ndim) if a not in (*op.collapsed_axes, *op.operand_batching_axes)]
    batch_shape, offset_shape = indices.shape[:-1], [sizes[a] for a in kept]
    rank = len(batch_shape) + len(kept)
    batch_axes = [i for i in range(rank) if i not in op.offset_axes]
    shape = [0] * rank
    for axis, size in zip(batch_axes, batch_shape, strict=True):
        shape[axis] = size
    for axis, size in zip(op.offset_axes, offset_shape, strict=True):
        shape[axis] = size
    result = np.zeros(shape, x.dtype)
    for place in np.ndindex(*shape):
        batch = tuple(place[a] for a in batch_axes)
        offset = [place[a] for a in op.offset_axes]
        index = [0] * x.ndim
        for position, axis in enumerate(op.start_index_map):
            start = int(indices[(*batch, position)])
            index[axis] = max(0, min(start, x.shape[axis] - sizes[axis]))
        for a, b in zip(op.operand_batching_axes, op.indices_batching_axes, strict=True):
            index[a] = batch[b]
        for axis, o in zip(kept, offset, strict=True):
            index[axis] += o
        result[place] = x[tuple(index)]
    return result


GATHERS: list[tuple[Gather, tuple[int, ...], tuple[int, ...]]] = [
    (Gather((1,), (0,), (), (), (0,), (1, 3)), (5, 3), (4, 1)),  # rows
    (Gather((0, 2), (1,), (), (), (1,), (2, 1, 3)), (2, 5, 3), (4, 1)),  # take axis 1
    (Gather((), (0, 1), (), (), (0, 1), (1, 1)), (5, 3), (4, 2)),  # elements
    (Gather((), (0, 1), (), (), (1, 0), (1, 1)), (5, 3), (2, 3, 2)),  # swapped index order
    (Gather((1, 2), (), (), (), (0, 1), (2, 2)), (5, 4), (3, 2)),  # blocks
    (Gather((0, 2), (), (), (), (1,), (5, 2)), (5, 4), (3, 1)),  # a block on one axis only
    (Gather((1,), (1,), (0,), (0,), (1,), (1, 1, 3)), (4, 5, 3), (4, 1)),  # batched
    (Gather((2,), (2,), (0,), (1,), (2,), (1, 2, 1)), (4, 2, 5), (3, 4, 1)),  # batch axis 1
    (Gather((0, 1), (), (), (), (), (5, 3)), (5, 3), (0,)),  # everything, no index
]


@pytest.mark.parametrize(("op", "shape", "indices_shape"), GATHERS)
def test_gather(op: Gather, shape: tuple[int, ...], indices_shape: tuple[int, ...]) -> None:
    x = numbered(*shape)
    indices = np.random.default_rng(0).integers(-2, 7, indices_shape)
    np.testing.assert_array_equal(apply(op, x, indices), gather_by_definition(op, x, indices))


def test_take_clamps_indices_and_keeps_their_shape() -> None:
    x = numbered(3, 4)
    result = call(lambda a, i: build.take(a, i, 1), x, np.array([[0, 9], [-5, 2]]))
    np.testing.assert_array_equal(result, x[:, [[0, 3], [0, 2]]])


COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "replace": lambda old, new: new,
    "add": lambda old, new: old + new,
    "multiply": lambda old, new: old * new,
    "maximum": max,
    "minimum": min,
}


def scatter_by_definition(op: Scatter, x: Array, indices: Array, updates: Array) -> Array:
    result = x.copy()
    kept = [a for a in range(x.ndim) if a not in (*op.inserted_axes, *op.operand_batching_axes)]
    window_axes = sorted(op.window_axes)
    batch_axes = [i for i in range(updates.ndim) if i not in op.window_axes]
    window = [1] * x.ndim
    for axis, u in zip(kept, window_axes, strict=True):
        window[axis] = updates.shape[u]
    for place in np.ndindex(*updates.shape):
        batch = tuple(place[a] for a in batch_axes)
        start = [0] * x.ndim
        for position, axis in enumerate(op.scatter_axes):
            start[axis] = int(indices[(*batch, position)])
        for a, b in zip(op.operand_batching_axes, op.indices_batching_axes, strict=True):
            start[a] = batch[b]
        if any(s < 0 or s + w > n for s, w, n in zip(start, window, x.shape, strict=True)):
            continue
        for axis, u in zip(kept, window_axes, strict=True):
            start[axis] += place[u]
        old = result[tuple(start)]
        result[tuple(start)] = COMBINE[op.combine](old, updates[place])
    return result


SCATTERS: list[tuple[tuple[Any, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    (((1,), (0,), (), (), (0,)), (5, 3), (4, 1), (4, 3)),  # rows
    (((), (0, 1), (), (), (0, 1)), (3, 3), (9, 2), (9,)),  # elements
    (((), (0, 1), (), (), (1, 0)), (3, 3), (2, 4, 2), (2, 4)),
    (((0, 2), (1,), (), (), (1,)), (2, 5, 3), (4, 1), (2, 4, 3)),
    (((1, 2), (), (), (), (0, 1)), (5, 4), (3, 2), (3, 2, 2)),  # blocks
    (((1,), (1,), (0,), (0,), (1,)), (4, 5, 3), (4, 1), (4, 3)),  # batched
    (((0, 1), (), (), (), ()), (5, 3), (0,), (5, 3)),  # everything
]


@pytest.mark.parametrize("combine", COMBINE)
@pytest.mark.parametrize(("numbers", "shape", "indices_shape", "updates_shape"), SCATTERS)
def test_scatter(
    combine: str,
    numbers: tuple[Any, ...],
    shape: tuple[int, ...],
    indices_shape: tuple[int, ...],
    updates_shape: tuple[int, ...],
) -> None:
    op = Scatter(combine, *numbers)
    generator = np.random.default_rng(1)
    x = generator.integers(-4, 5, shape).astype(np.float32)
    indices = generator.integers(-1, 5, indices_shape)
    updates = generator.integers(-3, 4, updates_shape).astype(np.float32)
    before = x.copy()
    result = apply(op, x, indices, updates)
    np.testing.assert_array_equal(result, scatter_by_definition(op, x, indices, updates))
    np.testing.assert_array_equal(x, before)


def test_scatter_add_with_many_duplicates_is_the_sequential_sum() -> None:
    generator = np.random.default_rng(2)
    indices = generator.integers(0, 10, (1000, 1))
    updates = generator.standard_normal(1000).astype(np.float32)
    expected = np.zeros(10, np.float32)
    for (i,), u in zip(indices, updates, strict=True):
        expected[i] += u
    op = Scatter("add", (), (0,), (), (), (0,))
    for _ in range(3):
        result = apply(op, np.zeros(10, np.float32), indices, updates)
        np.testing.assert_array_equal(result, expected)


def test_scatter_replace_keeps_the_last_of_equal_places() -> None:
    op = Scatter("replace", (), (0,), (), (), (0,))
    result = apply(op, numbered(3), np.array([[1], [1], [1]]), np.array([7, 8, 9], np.float32))
    assert result.tolist() == [0, 9, 2]
