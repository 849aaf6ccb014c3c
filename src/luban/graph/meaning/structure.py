"""The meaning of the primitives that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.errors import ShapeError
from luban.graph.meaning.context import Array, Context, Meaning, stored, widened
from luban.graph.ops.structure import (
    BroadcastInDim,
    Concatenate,
    DynamicReshape,
    DynamicSlice,
    DynamicUpdateSlice,
    Gather,
    Pad,
    Reshape,
    Reverse,
    Scatter,
    Slice,
    Transpose,
)
from luban.ir.node import Op

__all__ = ["MEANING", "padded", "resolved"]


def resolved(sizes: Sequence[DimLike], context: Context) -> tuple[int, ...]:
    """Every size as an int. Raises ShapeError for an unknown symbol."""
    return tuple(dims.evaluate(size, context.sizes) for size in sizes)


def _broadcast_in_dim(op: BroadcastInDim, operands: list[Array], context: Context) -> Array:
    (x,) = operands
    shape = resolved(op.shape, context)
    aligned = [1] * len(shape)
    for axis, size in zip(op.axes, x.shape, strict=True):
        if size not in (1, shape[axis]):
            raise ShapeError(
                f"operand of shape {list(x.shape)} does not broadcast to {list(shape)}: "
                f"axis {axis} is {size}, expected 1 or {shape[axis]}"
            )
        aligned[axis] = size
    return np.broadcast_to(x.reshape(aligned), shape)


def _reshape(op: Reshape, operands: list[Array], context: Context) -> Array:
    return _reshaped(operands[0], resolved(op.shape, context))


def _dynamic_reshape(_: DynamicReshape, operands: list[Array], __: Context) -> Array:
    x, sizes = operands
    return _reshaped(x, tuple(sizes.tolist()))


def _reshaped(x: Array, shape: tuple[int, ...]) -> Array:
    if any(size < 0 for size in shape) or prod(shape) != x.size:
        raise ShapeError(
            f"operand of shape {list(x.shape)} has {x.size} elements, "
            f"{list(shape)} needs {prod(shape)}"
        )
    return x.reshape(shape)


def _transpose(op: Transpose, operands: list[Array], _: Context) -> Array:
    return operands[0].transpose(op.permutation)


def _slice(op: Slice, operands: list[Array], context: Context) -> Array:
    (x,) = operands
    starts, sizes = resolved(op.starts, context), resolved(op.sizes, context)
    index = []
    for axis, (size, start, count, stride) in enumerate(
        zip(x.shape, starts, sizes, op.strides, strict=True)
    ):
        last = start + (count - 1) * stride
        if count < 0 or start < 0 or (count and last >= size):
            raise ShapeError(
                f"axis {axis} of size {size}: {count} elements from {start} by {stride} "
                "do not lie inside"
            )
        index.append(slice(start, last + 1 if count else start, stride))
    return x[tuple(index)]


def _block(x: Array, start: Array, sizes: Sequence[int]) -> tuple[slice, ...]:
    clamped = [
        max(0, min(int(s), size - count))
        for s, size, count in zip(start.tolist(), x.shape, sizes, strict=True)
    ]
    if any(count > size for count, size in zip(sizes, x.shape, strict=True)):
        raise ShapeError(f"a block of {list(sizes)} does not fit an operand of {list(x.shape)}")
    return tuple(slice(s, s + count) for s, count in zip(clamped, sizes, strict=True))


def _dynamic_slice(op: DynamicSlice, operands: list[Array], context: Context) -> Array:
    x, start = operands
    return x[_block(x, start, resolved(op.sizes, context))]


def _dynamic_update_slice(_: DynamicUpdateSlice, operands: list[Array], __: Context) -> Array:
    x, update, start = operands
    result = x.copy()
    result[_block(x, start, update.shape)] = update
    return result


def padded(
    x: Array, low: Sequence[int], high: Sequence[int], interior: Sequence[int], value: Array
) -> Array:
    """x with elements of `value` before, after and between; negative amounts remove some."""
    if not any((*low, *high, *interior)):
        return x
    inner = [s + max(s - 1, 0) * i for s, i in zip(x.shape, interior, strict=True)]
    shape = [n + a + b for n, a, b in zip(inner, low, high, strict=True)]
    if any(size < 0 for size in shape):
        raise ShapeError(
            f"padding {list(low)}, {list(high)} leaves a negative size of {list(x.shape)}"
        )
    result = np.full(shape, value, x.dtype)
    target, source = [], []
    for size, count, before, gap in zip(x.shape, shape, low, interior, strict=True):
        step = gap + 1
        first = max(0, -(before // step))  # the first element that is not cut off at the front
        last = min(size, (count - before + step - 1) // step)
        last = max(first, last)
        begin = before + first * step
        target.append(slice(begin, begin + (last - first) * step, step))
        source.append(slice(first, last))
    if all(s.stop > s.start for s in source):
        result[tuple(target)] = x[tuple(source)]
    return result


def _pad(op: Pad, operands: list[Array], context: Context) -> Array:
    x, value = operands
    return padded(x, resolved(op.low, context), resolved(op.high, context), op.interior, value)


def _concatenate(op: Concatenate, operands: list[Array], _: Context) -> Array:
    try:
        return np.concatenate(operands, axis=op.axis)
    except ValueError:
        shapes = ", ".join(str(list(x.shape)) for x in operands)
        raise ShapeError(
            f"operands of shape {shapes} differ on another axis than {op.axis}"
        ) from None


def _reverse(op: Reverse, operands: list[Array], _: Context) -> Array:
    return np.flip(operands[0], op.axes)


def _places(
    indices: Array,
    start_index_map: Sequence[int],
    batching: tuple[Sequence[int], Sequence[int]],
    rank: int,
) -> list[Array | None]:
    """For each operand axis the start at each index vector; None where it is always 0."""
    places: list[Array | None] = [None] * rank
    for position, axis in enumerate(start_index_map):
        places[axis] = indices[..., position].astype(np.int64)
    batch_rank = indices.ndim - 1
    for operand_axis, indices_axis in zip(*batching, strict=True):
        shape = [1] * batch_rank
        shape[indices_axis] = indices.shape[indices_axis]
        places[operand_axis] = np.arange(indices.shape[indices_axis]).reshape(shape)
    return places


def _block_index(
    starts: list[Array], window: Sequence[int], dropped: Sequence[bool], batch_rank: int
) -> tuple[Array, ...]:
    """Index arrays over (batch shape, kept window shape), one for each indexed operand axis."""
    num_kept = sum(not d for d in dropped)
    index, position = [], 0
    for start, size, drop in zip(starts, window, dropped, strict=True):
        place = start.reshape((*start.shape, *[1] * num_kept))
        if not drop:
            offset = [1] * (batch_rank + num_kept)
            offset[batch_rank + position] = size
            place = place + np.arange(size).reshape(offset)
            position += 1
        index.append(place)
    return tuple(index)


def _nothing(op: Gather, x: Array, batch: Sequence[int], kept: Sequence[int]) -> Array:
    """A gather without elements: nothing is read, so it does not matter where."""
    places = dict(zip(op.offset_axes, kept, strict=True))
    rest = iter(batch)
    rank = len(batch) + len(kept)
    return np.empty([places[i] if i in places else next(rest) for i in range(rank)], x.dtype)


def _gather(op: Gather, operands: list[Array], context: Context) -> Array:
    x, indices = operands[0], widened(operands[1])
    sizes = resolved(op.slice_sizes, context)
    dropped = {*op.collapsed_axes, *op.operand_batching_axes}
    kept = [size for axis, size in enumerate(sizes) if axis not in dropped]
    if 0 in kept or 0 in indices.shape[:-1]:
        return _nothing(op, x, indices.shape[:-1], kept)
    if any(count > size for count, size in zip(sizes, x.shape, strict=True)):
        raise ShapeError(f"slices of {list(sizes)} do not fit an operand of {list(x.shape)}")
    batching = (op.operand_batching_axes, op.indices_batching_axes)
    places = _places(indices, op.start_index_map, batching, x.ndim)
    indexed = [
        a for a in range(x.ndim) if places[a] is not None or sizes[a] != x.shape[a] or a in dropped
    ]
    whole = [a for a in range(x.ndim) if a not in indexed]
    batch_shape = indices.shape[:-1]
    starts = []
    for axis in indexed:
        place = places[axis]
        start = np.zeros([1] * len(batch_shape), np.int64) if place is None else place
        starts.append(np.clip(start, 0, x.shape[axis] - sizes[axis]))
    drops = [a in dropped for a in indexed]
    index = _block_index(starts, [sizes[a] for a in indexed], drops, len(batch_shape))
    kept_shape = [sizes[a] for a in indexed if a not in dropped]
    full = (*batch_shape, *kept_shape)
    index = tuple(np.broadcast_to(i, full) for i in index)
    # `np.asarray`: one element of an object array comes out bare.
    ordered = x.transpose(*indexed, *whole)
    taken = np.asarray(ordered[index], x.dtype) if index else _repeated(x, batch_shape)
    # Axes now: batch, kept indexed, whole. Put the window axes in operand order at their places.
    window_order = [a for a in indexed if a not in dropped] + whole
    where = {axis: len(batch_shape) + i for i, axis in enumerate(window_order)}
    window = iter([where[a] for a in sorted(window_order)])
    batch = iter(range(len(batch_shape)))
    offset_axes = set(op.offset_axes)
    return taken.transpose(
        [next(window) if i in offset_axes else next(batch) for i in range(taken.ndim)]
    )


def _repeated(x: Array, batch_shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(x, (*batch_shape, *x.shape))


_COMBINE = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


def _scatter(op: Scatter, operands: list[Array], context: Context) -> Array:
    indices = widened(operands[1])
    replace = op.combine == "replace"
    x, updates = (a if replace else widened(a) for a in (operands[0], operands[2]))
    batching = (op.operand_batching_axes, op.indices_batching_axes)
    places = _places(indices, op.scatter_axes, batching, x.ndim)
    dropped = {*op.inserted_axes, *op.operand_batching_axes}
    of_axis = op.windows(x.ndim)
    window = dict.fromkeys(range(x.ndim), 1) | {a: updates.shape[u] for a, u in of_axis.items()}
    if any(window[a] > x.shape[a] for a in of_axis if a not in op.scatter_axes):
        raise ShapeError(f"updates of {list(updates.shape)} do not fit {list(x.shape)}")
    indexed = [
        a for a in range(x.ndim) if places[a] is not None or window[a] != x.shape[a] or a in dropped
    ]
    whole = [a for a in range(x.ndim) if a not in indexed]
    update_batch = [a for a in range(updates.ndim) if a not in op.window_axes]
    order = [*update_batch, *(of_axis[a] for a in indexed if a in of_axis)]
    ordered = updates.transpose(*order, *(of_axis[a] for a in whole))
    batch_shape = indices.shape[:-1]
    inside = np.ones(batch_shape, np.bool_)
    starts = []
    for axis in indexed:
        place = places[axis]
        start = np.zeros([1] * len(batch_shape), np.int64) if place is None else place
        inside &= (start >= 0) & (start + window[axis] <= x.shape[axis])
        starts.append(np.broadcast_to(start, batch_shape)[...])
    result = np.array(x)
    view = result.transpose(*indexed, *whole)
    flat_starts = [s[inside] for s in starts]
    drops = [a in dropped for a in indexed]
    index = _block_index(flat_starts, [window[a] for a in indexed], drops, 1)
    values = ordered[inside]
    if not index:
        index, view = (np.zeros(len(values), np.int64),), view[None]
    _combine_at(op.combine, view, index, values)
    return stored(result, context.result.dtype, context.precision)


def _combine_at(combine: str, view: Array, index: tuple[Array, ...], values: Array) -> None:
    if combine == "replace":
        view[index] = values  # of repeated places the last value stays
    else:
        _COMBINE[combine].at(view, index, values)


MEANING: dict[type[Op], Meaning] = {
    BroadcastInDim: _broadcast_in_dim,
    Reshape: _reshape,
    DynamicReshape: _dynamic_reshape,
    Transpose: _transpose,
    Slice: _slice,
    DynamicSlice: _dynamic_slice,
    DynamicUpdateSlice: _dynamic_update_slice,
    Pad: _pad,
    Concatenate: _concatenate,
    Reverse: _reverse,
    Gather: _gather,
    Scatter: _scatter,
}
