"""Reading between elements: GridSample, AffineGrid and deformable convolution."""

from __future__ import annotations

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.errors import ShapeError
from luban.frontend.onnx.context import NodeContext
from luban.frontend.onnx.ops.convolution import kernel_shape, with_bias
from luban.frontend.onnx.registry import op
from luban.frontend.onnx.sampling import Tap, sample, taps
from luban.frontend.onnx.windows import windows
from luban.graph import build
from luban.ir.node import Node

__all__: list[str] = []

_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@op("GridSample", since=16)
def grid_sample(ctx: NodeContext, x: Node, grid: Node) -> Node:
    """x read at positions that count from -1 to 1 along each axis, the last axis first."""
    batch, channels, *space = x.tensor.shape
    *_, rank = grid.tensor.shape
    if isinstance(rank, int) and rank != len(space):
        raise ShapeError(f"grid is {grid.tensor}, expected a last axis of {len(space)}")
    mode = ctx.text("mode", "linear")
    mode = _MODES.get(mode, mode)
    padding = ctx.text("padding_mode", "zeros")
    if mode not in ("linear", "cubic", "nearest"):
        raise ctx.wrong(f"mode is {mode!r}, expected linear, cubic or nearest")
    if padding not in ("zeros", "border", "reflection"):
        raise ctx.wrong(f"padding_mode is {padding!r}, expected zeros, border or reflection")
    aligned = bool(ctx.int("align_corners", 0))
    outer = grid.tensor.shape[1:-1]
    rank = len(space)
    points = build.reshape(grid, (batch, dims.num_elements(outer), rank))
    axes: list[list[Tap]] = []
    for axis, size in enumerate(space):
        place = build.slice_axis(points, 2, rank - 1 - axis, 1)
        position = _unscaled(build.squeeze(place, [2]), size, aligned=aligned)
        axes.append(_axis_taps(position, size, mode, padding, aligned=aligned))
    return build.reshape(sample(x, axes), (batch, channels, *outer))


def _unscaled(place: Node, size: DimLike, *, aligned: bool) -> Node:
    """-1 .. 1 as an index: of the corner elements' centres, or of their outer edges."""
    length = build.cast(build.dimension(size), place.tensor.dtype)
    above = build.add(place, 1)
    if aligned:
        return build.multiply(build.divide(above, 2), build.subtract(length, 1))
    return build.divide(build.subtract(build.multiply(above, length), 1), 2)


def _axis_taps(
    position: Node, size: DimLike, mode: str, padding: str, *, aligned: bool
) -> list[Tap]:
    if mode == "nearest":
        position = build.round_even(position)
    last = build.cast(build.dimension(size - 1), position.tensor.dtype)
    if padding == "border" and mode != "cubic":  # a cubic position keeps its share, as in PyTorch
        position = build.minimum(build.maximum(position, 0), last)
    elif padding == "reflection":
        position = _reflected(position, size, aligned=aligned)
    if mode == "nearest":
        found = [Tap(build.cast(position, "i64"), None)]
    else:
        offsets = (0, 1) if mode == "linear" else (-1, 0, 1, 2)
        found = taps(position, offsets, mode)
    return [_kept_inside(tap, size, padding, aligned=aligned) for tap in found]


def _reflected(position: Node, size: DimLike, *, aligned: bool) -> Node:
    """The position mirrored at the borders until it lies between them."""
    element = position.tensor.dtype
    low = 0.0 if aligned else -0.5
    span = build.cast(build.dimension(size - 1 if aligned else size), element)
    safe = build.select(build.equal(span, 0), 1, span)
    distance = build.floor_mod(build.subtract(position, low), build.multiply(safe, 2))
    turned = build.minimum(distance, build.subtract(build.multiply(safe, 2), distance))
    return build.select(build.equal(span, 0), low, build.add(turned, low))


def _kept_inside(tap: Tap, size: DimLike, padding: str, *, aligned: bool) -> Tap:
    last = build.dimension(size - 1)
    index = tap.index
    inside: Node | None = None
    if padding == "zeros":
        inside = build.bitwise_and(build.greater_equal(index, 0), build.less_equal(index, last))
    elif padding == "reflection":
        mirrored = _reflected(build.cast(index, "f64"), size, aligned=aligned)
        index = build.cast(mirrored, "i64")
    return Tap(build.minimum(build.maximum(index, 0), last), tap.weight, inside)


@op("AffineGrid", since=20)
def affine_grid(ctx: NodeContext, theta: Node, size: Node) -> Node:
    """The positions from -1 to 1 of every element of [N, C, *S], moved by each sample's matrix."""
    batch, _, *space = ctx.static_sizes(size)
    element = theta.tensor.dtype
    rank = len(space)
    aligned = bool(ctx.int("align_corners", 0))
    rows: list[Node] = []
    for axis in reversed(range(rank)):
        place = build.iota(space, axis, element)
        count = build.cast(build.dimension(space[axis]), element)
        if aligned:
            steps = build.maximum(build.subtract(count, 1), 1)
            rows.append(build.subtract(build.divide(build.multiply(place, 2), steps), 1))
        else:
            middle = build.add(build.multiply(place, 2), 1)
            rows.append(build.subtract(build.divide(middle, count), 1))
    rows.append(build.full(space, 1, element))
    points = build.concatenate([build.expand_dims(row, [rank]) for row in rows], rank)
    flat = build.reshape(points, (dims.num_elements(space), rank + 1))
    moved = build.dot_general(theta, flat, ([2], [1]))
    return build.reshape(build.transpose(moved, (0, 2, 1)), (batch, *space, rank))


@op("DeformConv", since=19)
def deform_conv(
    ctx: NodeContext,
    x: Node,
    filters: Node,
    offset: Node,
    bias: Node | None = None,
    mask: Node | None = None,
) -> Node:
    """A convolution whose filters read at places moved by `offset`, weighted by `mask`."""
    batch, channels, *space = x.tensor.shape
    sizes = kernel_shape(ctx, filters, x)
    geometry = windows(ctx, space, sizes)
    parts, groups = ctx.int("offset_group", 1), ctx.int("group", 1)
    out = offset.tensor.shape[2:]
    rank, elements = len(sizes), dims.num_elements(sizes)
    assert isinstance(elements, int)
    field = (batch * parts, *sizes, *out)
    moved = build.reshape(offset, (batch * parts, *sizes, rank, *out))
    axes: list[list[Tap]] = []
    for axis in range(rank):
        shift = build.squeeze(build.slice_axis(moved, 1 + rank, axis, 1), [1 + rank])
        start = build.multiply(
            build.iota(field, 1 + rank + axis, x.tensor.dtype), geometry.strides[axis]
        )
        inner = build.multiply(
            build.iota(field, 1 + axis, x.tensor.dtype), geometry.dilations[axis]
        )
        low = build.cast(build.dimension(geometry.low[axis]), x.tensor.dtype)
        position = build.add(build.subtract(build.add(start, inner), low), shift)
        flat = build.reshape(position, (batch * parts, elements * dims.num_elements(out)))
        axes.append(_axis_taps(flat, space[axis], "linear", "zeros", aligned=True))
    each = dims.floor_div(channels, parts)
    read = sample(build.reshape(x, (batch * parts, each, *space)), axes)
    if mask is not None:
        read = build.multiply(read, build.reshape(mask, (batch * parts, 1, read.tensor.shape[2])))
    return with_bias(_contracted(read, filters, groups, batch, out, elements), bias)


def _contracted(
    read: Node,
    filters: Node,
    groups: int,
    batch: DimLike,
    out: tuple[DimLike, ...],
    elements: int,
) -> Node:
    """The product of what was read, [.., elements * places], with grouped filters: [N, O, *out]."""
    outputs, inputs = filters.tensor.shape[:2]
    places = dims.num_elements(out)
    columns = build.reshape(read, (batch, groups, inputs * elements, places))
    each = dims.floor_div(outputs, groups)
    weights = build.reshape(filters, (groups, each, inputs * elements))
    summed = build.dot_general(weights, columns, ([2], [2]), ([0], [1]))
    ordered = build.transpose(summed, (2, 0, 1, 3))
    return build.reshape(ordered, (batch, outputs, *out))
