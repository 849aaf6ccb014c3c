"""Parts of tensors and their opposite: slices, splits, concatenation, padding, cropping."""

from __future__ import annotations

from collections.abc import Sequence

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.errors import ShapeError
from luban.core.types import TensorType
from luban.frontend.onnx.arguments import axis_from, whole_numbers
from luban.frontend.onnx.context import NodeContext, RunTimeValueNeeded
from luban.frontend.onnx.places import take_in_rows
from luban.frontend.onnx.registry import op
from luban.graph import build
from luban.ir.node import Node

__all__: list[str] = []

_NO_LIMIT = (1 << 31) - 1
"""Exporters state an open end as this or more."""


@op("Concat", since=1)
def concat(ctx: NodeContext, *operands: Node) -> Node:
    """Operands one after the other along `axis`."""
    axis = axis_from(ctx.int("axis", 1), operands[0].tensor.rank)
    return build.concatenate(operands, axis)


@op("Split", since=1)
def split(ctx: NodeContext, x: Node, sizes: Node | None = None) -> tuple[Node, ...]:
    """Consecutive pieces along `axis`, of the stated sizes or equal ones."""
    axis = axis_from(ctx.int("axis", 0), x.tensor.rank)
    total = x.tensor.shape[axis]
    if sizes is not None and ctx.sizes(sizes) is None:
        count = ctx.num_outputs
        raise RunTimeValueNeeded(sizes, [_open_axes(ctx, x, [axis]) for _ in range(count)])
    stated = ctx.ints("split", None) if sizes is None else ctx.static_sizes(sizes)
    pieces = _equal_pieces(ctx, total) if stated is None else tuple(stated)
    missing = total - sum(pieces, start=0)
    if isinstance(missing, int) and missing:
        raise ShapeError(f"pieces {list(pieces)} do not add up to axis {axis} of {x.tensor}")
    return build.split(x, axis, pieces)


def _equal_pieces(ctx: NodeContext, total: DimLike) -> tuple[DimLike, ...]:
    count = ctx.int("num_outputs", ctx.num_outputs)
    if ctx.has("num_outputs"):
        piece = dims.ceil_div(total, count)
        last = dims.maximum(total - piece * (count - 1), 0)
        return (*(piece,) * (count - 1), last)
    if isinstance(total, int) and total % count:
        raise ShapeError(f"size {total} cannot be split into {count} equal pieces")
    return (dims.floor_div(total, count),) * count


def _known_axes(ctx: NodeContext, x: Node, axes: Node | None) -> Sequence[int] | None:
    """The axes from the front, all if none are named; None if only the run knows them."""
    if axes is None:
        return range(x.tensor.rank)
    named = ctx.constant_value(axes)
    return None if named is None else [axis_from(int(a), x.tensor.rank) for a in named.ravel()]


def _open_axes(ctx: NodeContext, x: Node, axes: Sequence[int]) -> TensorType:
    """The type of x with sizes along some axes that only the run knows."""
    shape = [ctx.fresh(f"size_{a}") if a in axes else s for a, s in enumerate(x.tensor.shape)]
    return x.tensor.with_shape(shape)


@op("Slice", since=1)
def slice_by_attributes(ctx: NodeContext, x: Node) -> Node:
    """Every element from `starts` to before `ends` along `axes`."""
    starts, ends = ctx.ints("starts"), ctx.ints("ends")
    axes = ctx.ints("axes", range(len(starts)))
    return _sliced(x, starts, ends, axes, (1,) * len(starts))


@op("Slice", since=10)
def slice_by_inputs(
    ctx: NodeContext,
    x: Node,
    starts: Node,
    ends: Node,
    axes: Node | None = None,
    steps: Node | None = None,
) -> Node:
    """Every `steps`-th element from `starts` to before `ends`; a negative step goes backwards."""
    bounds = [ctx.sizes(starts), ctx.sizes(ends)]
    if any(b is None for b in bounds):
        moved = _known_axes(ctx, x, axes)
        open_axes = range(x.tensor.rank) if moved is None else moved
        raise RunTimeValueNeeded(starts, [_open_axes(ctx, x, open_axes)])
    first, last = (b for b in bounds if b is not None)
    chosen = range(len(first)) if axes is None else whole_numbers(ctx, axes)
    strides = (1,) * len(first) if steps is None else whole_numbers(ctx, steps)
    return _sliced(x, first, last, chosen, strides)


def _sliced(
    x: Node,
    starts: Sequence[DimLike],
    ends: Sequence[DimLike],
    axes: Sequence[int],
    steps: Sequence[int],
) -> Node:
    counts = [len(each) for each in (starts, ends, axes, steps)]
    if len(set(counts)) != 1:
        given = ", ".join(map(str, counts))
        raise ShapeError(f"{given} starts, ends, axes and steps, expected as many of each")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = axis_from(axis, x.tensor.rank)
        if step == 0:
            raise ShapeError(f"step along axis {axis} is 0, expected another number")
        size = x.tensor.shape[axis]
        if step > 0:
            first = _clamped(start, size, 0, size)
            count = _count(first, _clamped(end, size, 0, size), step)
            x = build.slice_axis(x, axis, first, count, step)
        else:
            # Counted from the back of the axis, a negative step is a positive one.
            first = size - 1 - _clamped(start, size, 0, size - 1)  # at the front, unlike numpy
            count = _count(first, size - 1 - _clamped(end, size, -1, size - 1), -step)
            x = build.slice_axis(build.reverse(x, [axis]), axis, first, count, -step)
    return x


def _count(first: DimLike, end: DimLike, step: int) -> DimLike:
    return dims.maximum(dims.ceil_div(end - first, step), 0)


def _clamped(place: DimLike, size: DimLike, low: DimLike, high: DimLike) -> DimLike:
    """A place as ONNX counts it (negative: from the end), between low and high."""
    if isinstance(place, int):
        if place >= _NO_LIMIT:
            return high
        if place <= -_NO_LIMIT:
            return low
    least, most = dims.bounds(place)
    if most < 0:
        place = place + size
    elif least < 0:
        # The sign is known to the run only: add the size once if the place is below 0.
        place = place + size * dims.minimum(dims.maximum(place * -1, 0), 1)
    return dims.minimum(dims.maximum(place, low), high)


@op("Pad", since=1)
def pad_by_attributes(ctx: NodeContext, x: Node) -> Node:
    """Elements added to both ends of each axis."""
    amounts = ctx.ints("paddings" if ctx.opset < 2 else "pads")
    return _padded(ctx, x, amounts, range(x.tensor.rank), build.lift(ctx.float("value", 0.0), x))


@op("Pad", since=11)
def pad_by_inputs(
    ctx: NodeContext,
    x: Node,
    pads: Node,
    value: Node | None = None,
    axes: Node | None = None,
) -> Node:
    """Elements added to both ends of axes: a value, the edge, a reflection, or the other end."""
    rank = x.tensor.rank
    _pad_mode(ctx)  # a wrong one is said before anything is left to the run
    moved = _known_axes(ctx, x, axes)
    amounts = ctx.sizes(pads)
    if amounts is None or moved is None:
        open_axes = range(rank) if moved is None else moved
        raise RunTimeValueNeeded(pads, [_open_axes(ctx, x, open_axes)])
    filler = build.lift(0, x) if value is None else build.reshape(value, ())
    return _padded(ctx, x, amounts, moved, filler)


def _pad_mode(ctx: NodeContext) -> str:
    mode = ctx.text("mode", "constant")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise ctx.wrong(f"mode is {mode!r}, expected constant, edge, reflect or wrap")
    return mode


def _padded(
    ctx: NodeContext, x: Node, amounts: Sequence[DimLike], axes: Sequence[int], value: Node
) -> Node:
    if len(amounts) != 2 * len(axes):
        raise ShapeError(f"pads are {list(amounts)}, expected 2 for each of {len(axes)} axes")
    low: list[DimLike] = [0] * x.tensor.rank
    high: list[DimLike] = [0] * x.tensor.rank
    for i, axis in enumerate(axes):
        low[axis], high[axis] = amounts[i], amounts[i + len(axes)]
    mode = _pad_mode(ctx)
    if mode == "constant":
        return build.pad(x, low, high, value)
    for axis in range(x.tensor.rank):
        if (low[axis], high[axis]) != (0, 0):
            x = _repeated(x, axis, low[axis], high[axis], mode)
    return x


def _repeated(x: Node, axis: int, low: DimLike, high: DimLike, mode: str) -> Node:
    """x with its own elements added to both ends of one axis."""
    size = x.tensor.shape[axis]
    if size == 0:
        raise ShapeError(f"{mode} padding of axis {axis} of {x.tensor}: there is nothing to repeat")
    places = build.subtract(build.iota((size + low + high,), 0), build.dimension(low))
    last = build.dimension(size - 1)
    if mode == "edge":
        places = build.minimum(build.maximum(places, 0), last)
    elif mode == "wrap":
        places = build.floor_mod(places, build.dimension(size))
    else:
        # Back and forth: 0 1 2 3 2 1 0 1 ..; one element repeats itself.
        turn = build.floor_mod(places, build.dimension(dims.maximum(2 * (size - 1), 1)))
        places = build.subtract(last, build.absolute(build.subtract(turn, last)))
    return build.take(x, places, axis)


@op("CenterCropPad", since=18)
def center_crop_pad(ctx: NodeContext, x: Node, target: Node) -> Node:
    """x cut or padded with 0 round its middle to the stated sizes of some axes."""
    axes = ctx.ints("axes", range(x.tensor.rank))
    sizes = ctx.sizes(target)
    if sizes is None:
        chosen = [axis_from(axis, x.tensor.rank) for axis in axes]
        raise RunTimeValueNeeded(target, [_open_axes(ctx, x, chosen)])
    for wanted, axis in zip(sizes, axes, strict=True):
        axis = axis_from(axis, x.tensor.rank)
        given = x.tensor.shape[axis]
        kept = dims.minimum(given, wanted)
        x = build.slice_axis(x, axis, dims.floor_div(given - kept, 2), kept)
        low = dims.floor_div(wanted - kept, 2)
        x = _pad_axis(x, axis, low, wanted - kept - low)
    return x


def _pad_axis(x: Node, axis: int, low: DimLike, high: DimLike) -> Node:
    rows: list[list[DimLike]] = [[0] * x.tensor.rank, [0] * x.tensor.rank]
    rows[0][axis], rows[1][axis] = low, high
    return build.pad(x, rows[0], rows[1], 0)


@op("ReverseSequence", since=10)
def reverse_sequence(ctx: NodeContext, x: Node, lengths: Node) -> Node:
    """Of each sequence in the batch, the first `lengths` elements in opposite order."""
    batch, time = ctx.int("batch_axis", 1), ctx.int("time_axis", 0)
    order = (batch, time, *(a for a in range(x.tensor.rank) if a not in (batch, time)))
    moved = build.transpose(x, order)
    shape = moved.tensor.shape[:2]
    step = build.iota(shape, 1)
    length = build.reshape(build.cast(lengths, "i64"), (shape[0], 1))
    backwards = build.subtract(build.subtract(length, 1), step)
    places = build.select(build.less(step, length), backwards, step)
    inverse = [order.index(a) for a in range(x.tensor.rank)]
    return build.transpose(take_in_rows(moved, places), inverse)
