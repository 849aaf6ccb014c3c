"""Views, slices, joins: moving elements without changing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from luban.core import dims
from luban.core.dims import DimLike
from luban.frontend.torch.call import Call, Operand, axes_of, axis_of
from luban.frontend.torch.registry import aten
from luban.graph import build
from luban.graph.ops.structure import Pad, Slice
from luban.ir.node import Node, node

__all__: list[str] = []


@aten(
    "view.default",
    "_unsafe_view.default",
    "reshape.default",
    "unsqueeze.default",
    "squeeze.default",
    "squeeze.dim",
    "squeeze.dims",
    "flatten.using_ints",
    "prims.collapse_view.default",
    "prims.split_dim.default",
)
def view(call: Call, x: Node, *_sizes: Any, **_named: Any) -> Node:
    """The same elements in order under another shape."""
    return build.reshape(x, call.type.shape)


@aten("view.dtype")
def view_dtype(call: Call, x: Node, _element: Any) -> Node:
    """The same bits as another dtype of that width."""
    if x.tensor.dtype.bits != call.type.dtype.bits:
        raise call.wrong("bits of another width")
    return build.bitcast(x, call.type.dtype)


@aten("permute.default", "prims.transpose.default")
def permute(call: Call, x: Node, order: Sequence[int]) -> Node:
    """Axes reordered."""
    return build.transpose(x, [axis % x.tensor.rank for axis in order])


@aten("transpose.int")
def transpose(call: Call, x: Node, first: int, second: int) -> Node:
    """Two axes exchanged."""
    rank = x.tensor.rank
    if not rank:
        return x
    order = list(range(rank))
    a, b = first % rank, second % rank
    order[a], order[b] = order[b], order[a]
    return build.transpose(x, order)


@aten("t.default")
def t(call: Call, x: Node) -> Node:
    """A matrix transposed."""
    return build.transpose(x, list(range(x.tensor.rank))[::-1])


@aten("expand.default", "broadcast_in_dim.default")
def expand(call: Call, x: Node, *_sizes: Any, implicit: bool = False) -> Node:
    """Axes of size 1 repeated."""
    return build.broadcast_to(x, call.type.shape)


@aten("prims.broadcast_in_dim.default")
def broadcast_in_dim(call: Call, x: Node, _shape: Any, axes: Sequence[int]) -> Node:
    """Axes placed and repeated."""
    missing = [i for i in range(len(call.type.shape)) if i not in set(axes)]
    return build.broadcast_to(build.expand_dims(x, missing), call.type.shape)


@aten("repeat.default")
def repeat(call: Call, x: Node, counts: Sequence[DimLike]) -> Node:
    """The whole repeated along each axis."""
    missing = len(counts) - x.tensor.rank
    shape = (*(1 for _ in range(missing)), *x.tensor.shape)
    x = build.reshape(x, shape)
    pairs = [size for size in shape for size in (1, size)]
    wide = [part for count, size in zip(counts, shape, strict=True) for part in (count, size)]
    return build.reshape(build.broadcast_to(build.reshape(x, pairs), wide), call.type.shape)


@aten("slice.Tensor")
def slice_tensor(
    call: Call,
    x: Node,
    dim: int = 0,
    start: DimLike | None = None,
    end: DimLike | None = None,
    step: int = 1,
) -> Node:
    """Every `step`-th element from `start` to `end` along an axis."""
    axis = axis_of(dim, x.tensor.rank)
    first = _inside(start, x.tensor.shape[axis])
    return build.slice_axis(x, axis, first, call.type.shape[axis], step)


def _inside(start: DimLike | None, size: DimLike) -> DimLike:
    """A start from 0 to the size; a negative one counts from the end."""
    if start is None or start == 0:
        return 0
    if isinstance(start, int):
        if start < 0:
            return dims.maximum(size + start, 0)
        return min(start, size) if isinstance(size, int) else dims.minimum(size, start)
    return start


@aten("select.int")
def select(call: Call, x: Node, dim: int, index: DimLike) -> Node:
    """One place of an axis, which disappears."""
    axis = axis_of(dim, x.tensor.rank)
    size = x.tensor.shape[axis]
    place = size + index if isinstance(index, int) and index < 0 else index
    return build.reshape(build.slice_axis(x, axis, place, 1), call.type.shape)


@aten("select_scatter.default")
def select_scatter(call: Call, x: Node, y: Node, dim: int, index: DimLike) -> Node:
    """x with one place of an axis replaced by y."""
    axis = axis_of(dim, x.tensor.rank)
    size = x.tensor.shape[axis]
    place = size + index if isinstance(index, int) and index < 0 else index
    return _replaced(x, build.expand_dims(y, [axis]), axis, place, 1)


@aten("slice_scatter.default")
def slice_scatter(
    call: Call,
    x: Node,
    y: Node,
    dim: int = 0,
    start: DimLike | None = None,
    end: DimLike | None = None,
    step: int = 1,
) -> Node:
    """x with a slice replaced by y."""
    axis = axis_of(dim, x.tensor.rank)
    return _replaced(x, y, axis, _inside(start, x.tensor.shape[axis]), step)


def _replaced(x: Node, y: Node, axis: int, start: DimLike, step: int) -> Node:
    """Pad y to the places of x, and take x elsewhere."""
    size, count = x.tensor.shape[axis], y.tensor.shape[axis]
    if count == 0:
        return x
    span = (count - 1) * step + 1
    rank = x.tensor.rank
    low: list[DimLike] = [0] * rank
    high: list[DimLike] = [0] * rank
    interior = [0] * rank
    low[axis], high[axis], interior[axis] = start, size - start - span, step - 1
    inside = build.full(y.tensor.shape, True, "bool")
    values = pad_with(build.cast(y, x.tensor.dtype), low, high, 0, interior)
    return build.select(pad_with(inside, low, high, False, interior), values, x)


@aten("cat.default")
def cat(call: Call, tensors: Sequence[Node], dim: int = 0) -> Node:
    """Tensors one after the other; empty vectors count for nothing."""
    element, rank = call.type.dtype, call.type.rank
    kept = [x for x in tensors if x.tensor.rank == rank]
    return build.concatenate([build.cast(x, element) for x in kept], axis_of(dim, rank))


@aten("stack.default")
def stack(call: Call, tensors: Sequence[Node], dim: int = 0) -> Node:
    """Tensors along a new axis."""
    axis = axis_of(dim, call.type.rank)
    rows = [build.expand_dims(build.cast(x, call.type.dtype), [axis]) for x in tensors]
    return build.concatenate(rows, axis)


@aten("split_with_sizes.default", "split.Tensor", "split.sizes", "chunk.default")
@aten("split_with_sizes_copy.default", "unsafe_split.Tensor", "tensor_split.sections")
def split(call: Call, x: Node, _sizes: Any, dim: int = 0) -> tuple[Node, ...]:
    """Consecutive pieces along an axis."""
    axis = axis_of(dim, x.tensor.rank)
    return build.split(x, axis, [piece.shape[axis] for piece in call.types])


@aten("unbind.int")
def unbind(call: Call, x: Node, dim: int = 0) -> tuple[Node, ...]:
    """Every place of an axis."""
    axis = axis_of(dim, x.tensor.rank)
    pieces = build.split(x, axis, [1] * len(call.types))
    return tuple(build.squeeze(piece, [axis]) for piece in pieces)


@aten("flip.default", "prims.rev.default")
def flip(call: Call, x: Node, dim: Sequence[int]) -> Node:
    """Elements in opposite order along axes."""
    return build.reverse(x, axes_of(list(dim), x.tensor.rank)) if dim else x


@aten("constant_pad_nd.default")
def constant_pad(call: Call, x: Node, pad: Sequence[DimLike], value: Operand = 0) -> Node:
    """Elements added at the ends of the last axes, or removed."""
    rank = x.tensor.rank
    low: list[DimLike] = [0] * rank
    high: list[DimLike] = [0] * rank
    for i in range(len(pad) // 2):
        low[rank - 1 - i], high[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return build.pad(x, low, high, call.operand(value, x.tensor.dtype))


def pad_with(
    x: Node,
    low: Sequence[DimLike],
    high: Sequence[DimLike],
    value: float | bool,
    interior: Sequence[int] | None = None,
) -> Node:
    """Elements added round x and, with `interior`, between neighbours."""
    op = Pad(tuple(low), tuple(high), tuple(interior or (0,) * x.tensor.rank))
    return node(op, x, build.constant(value, x.tensor.dtype))


@aten("diagonal.default", "diagonal_copy.default")
def diagonal(call: Call, x: Node, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Node:
    """The elements whose places along two axes differ by `offset`, along a last axis."""
    rank = x.tensor.rank
    a, b = dim1 % rank, dim2 % rank
    rest = [axis for axis in range(rank) if axis not in (a, b)]
    x = build.transpose(x, [*rest, a, b])
    *outer, rows, columns = x.tensor.shape
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise call.wrong("of a matrix whose size only the run knows")
    count = call.type.shape[-1]
    if count == 0:
        return build.full(call.type.shape, 0, call.type.dtype)
    first = max(-offset, 0) * columns + max(offset, 0)
    flat = build.reshape(x, (*outer, rows * columns))
    starts = (*(0 for _ in outer), first)
    strides = (*(1 for _ in outer), columns + 1)
    return node(Slice(starts, (*outer, count), strides), flat)


@aten("as_strided.default", "as_strided_copy.default")
def as_strided(
    call: Call, x: Node, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Node:
    """Elements of memory at the places that strides state."""
    if not call.row_major():
        raise call.wrong("of memory in another order than row-major")
    if not all(isinstance(v, int) for v in (*size, *stride, offset or 0)):
        raise call.wrong("with sizes or strides that only the run knows")
    places = np.full(tuple(size), offset or 0, np.int64)
    for axis, step in enumerate(stride):
        along = np.arange(size[axis]) * step
        places += along.reshape([-1 if i == axis else 1 for i in range(len(size))])
    count = x.tensor.num_elements
    if places.size and isinstance(count, int) and int(places.max()) >= count:
        raise call.wrong("of memory beyond the tensor")
    if places.size == count and np.array_equal(places.ravel(), np.arange(places.size)):
        return build.reshape(x, tuple(size))
    flat = build.reshape(x, (count,))
    return build.take(flat, build.constant(places, "i64"), 0)


@aten("unfold.default")
def unfold(call: Call, x: Node, dim: int, size: int, step: int) -> Node:
    """Windows along an axis, which stand along a last axis."""
    if not x.tensor.rank:
        return build.expand_dims(x, [0])
    axis = axis_of(dim, x.tensor.rank)
    count = call.type.shape[axis]
    starts = build.multiply(build.iota((count, size), 0), step)
    windows = build.take(x, build.add(starts, build.iota((count, size), 1)), axis)
    rank = windows.tensor.rank
    return build.transpose(windows, [i for i in range(rank) if i != axis + 1] + [axis + 1])


@aten("unfold_backward.default")
def unfold_backward(
    call: Call, grad: Node, _sizes: Sequence[DimLike], dim: int, size: int, step: int
) -> Node:
    """Each element's gradients, summed over the windows that it is in."""
    axis = axis_of(dim, call.type.rank)
    whole, count = call.type.shape[axis], grad.tensor.shape[axis]
    last = grad.tensor.rank - 1
    found: Node | None = None
    for offset in range(size):
        piece = build.squeeze(build.slice_axis(grad, last, offset, 1), [last])
        low: list[DimLike] = [0] * call.type.rank
        high: list[DimLike] = [0] * call.type.rank
        interior = [0] * call.type.rank
        span = (count - 1) * step + 1
        low[axis], high[axis], interior[axis] = offset, whole - offset - span, step - 1
        wide = pad_with(piece, low, high, 0, interior)
        found = wide if found is None else build.add(found, wide)
    assert found is not None
    return found


@aten("diagonal_scatter.default")
def diagonal_scatter(
    call: Call, x: Node, y: Node, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Node:
    """x with a diagonal replaced by y."""
    rank = x.tensor.rank
    a, b = dim1 % rank, dim2 % rank
    order = [*(axis for axis in range(rank) if axis not in (a, b)), a, b]
    planes = build.transpose(x, order)
    shape = planes.tensor.shape
    row, column = (build.iota(shape[-2:], axis) for axis in (0, 1))
    along = build.subtract(build.iota(shape[-2:-1], 0), max(-offset, 0))  # `take` clamps
    values = build.expand_dims(build.take(y, along, rank - 2), [rank - 1])
    on = build.equal(build.subtract(column, row), offset)
    found = build.select(build.broadcast_to(on, shape), build.broadcast_to(values, shape), planes)
    return build.transpose(found, [order.index(axis) for axis in range(rank)])
