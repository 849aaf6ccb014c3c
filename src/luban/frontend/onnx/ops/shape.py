"""Operators that ask for shapes or change nothing but the shape."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from luban.core import dims
from luban.core.dims import Dim, DimLike
from luban.core.errors import LubanWarning, ShapeError
from luban.frontend.onnx.arguments import (
    axes_in_order,
    axis_from,
    partly_known_sizes,
    quotient,
    whole_numbers,
)
from luban.frontend.onnx.context import NodeContext, RunTimeValueNeeded
from luban.frontend.onnx.registry import op
from luban.graph import build
from luban.graph.infer import broadcast_shapes
from luban.ir.node import Node

__all__: list[str] = []


@op("Identity", since=1)
def identity(_ctx: NodeContext, x: Node) -> Node:
    """x"""
    return x


@op("Shape", since=1)
def shape(ctx: NodeContext, x: Node) -> Node:
    """The sizes of x from axis `start` to before `end`."""
    rank = x.tensor.rank
    bounds = slice(ctx.int("start", 0), ctx.int("end", rank))
    return build.shape_vector(x.tensor.shape[bounds])


@op("Size", since=1)
def size(_ctx: NodeContext, x: Node) -> Node:
    """The number of elements of x."""
    return build.dimension(x.tensor.num_elements)


@op("Reshape", since=1)
def reshape(ctx: NodeContext, x: Node, target: Node | None = None) -> Node:
    """x under another shape: 0 keeps a size (unless `allowzero`), -1 stands for what is left."""
    if target is None:
        return _reshaped(ctx, x, _resolved(x, ctx.ints("shape", ())))
    allow_zero = bool(ctx.int("allowzero", 0))
    sizes = ctx.sizes(target)
    if sizes is not None:
        return _reshaped(ctx, x, _resolved(x, sizes, allow_zero))
    parts = partly_known_sizes(ctx, target)
    shape: list[DimLike] = []
    for axis, size in enumerate(parts):
        if size == 0 and not allow_zero and axis < x.tensor.rank:
            size = x.tensor.shape[axis]
        is_open = size is None or size == -1
        shape.append(ctx.fresh(f"size_{axis}") if is_open or size is None else size)
    return build.dynamic_reshape(x, _resolved_at_run_time(x, target, allow_zero), shape)


def _reshaped(ctx: NodeContext, x: Node, shape: Sequence[DimLike]) -> Node:
    """x in that shape; warns where constants in it leave a symbolic size only one value."""
    total, wanted = x.tensor.num_elements, dims.num_elements(shape)
    if isinstance(wanted, int) and isinstance(total, Dim):
        names = sorted(symbol.name for symbol in dims.symbols(total))
        warnings.warn(
            f"reshape of {x.tensor} to {list(shape)} works for one value of "
            f"{' and '.join(names)} only: {total} must be {wanted}\n"
            "hint: the exporter froze a size; use -1 there, or fix the size of the input\n"
            f"at {ctx.loc}",
            LubanWarning,
            stacklevel=2,
        )
    return build.reshape(x, shape)


def _resolved(x: Node, sizes: tuple[DimLike, ...], allow_zero: bool = False) -> tuple[DimLike, ...]:
    given = x.tensor.shape
    result = list(sizes)
    for axis, wanted in enumerate(sizes):
        if wanted == 0 and not allow_zero:
            if axis >= len(given):
                raise ShapeError(
                    f"reshape of {x.tensor} to {list(sizes)}: "
                    f"axis {axis} is 0, there is no size to keep"
                )
            result[axis] = given[axis]
    open_axes = [axis for axis, wanted in enumerate(sizes) if wanted == -1]
    if len(open_axes) > 1:
        raise ShapeError(f"reshape of {x.tensor} to {list(sizes)}: expected at most one -1")
    if open_axes:
        rest = dims.num_elements(s for axis, s in enumerate(result) if axis != open_axes[0])
        total = x.tensor.num_elements
        if rest == 0:
            raise ShapeError(
                f"reshape of {x.tensor} to {list(sizes)}: -1 beside a size of 0 could be anything",
                hint="state the size, or leave the 0 out",
            )
        if isinstance(total, int) and isinstance(rest, int) and total % rest:
            raise ShapeError(
                f"reshape of {x.tensor} to {list(sizes)}: "
                f"{total} elements are no multiple of {rest}",
                hint=_frozen_batch_hint(x, sizes),
            )
        result[open_axes[0]] = quotient(total, rest)
    low, high = dims.bounds(x.tensor.num_elements - dims.num_elements(result))
    if low > 0 or high < 0:
        raise ShapeError(
            f"reshape of {x.tensor} to {list(sizes)}: {x.tensor.num_elements} elements do not fill "
            f"{result}",
            hint=_frozen_batch_hint(x, sizes),
        )
    return tuple(result)


def _frozen_batch_hint(x: Node, sizes: tuple[DimLike, ...]) -> str | None:
    if sizes and sizes[0] == 1 and x.tensor.rank and x.tensor.shape[0] != 1:
        return "the model was exported with a batch of 1: use 0 or -1 as the first size"
    return None


def _resolved_at_run_time(x: Node, target: Node, allow_zero: bool) -> Node:
    target = build.cast(target, "i64")
    rank = target.tensor.shape[0]
    assert isinstance(rank, int)
    if not allow_zero:
        kept = [x.tensor.shape[i] if i < x.tensor.rank else 0 for i in range(rank)]
        target = build.select(build.equal(target, 0), build.shape_vector(kept), target)
    is_open = build.equal(target, -1)
    rest = build.reduce("product", build.select(is_open, 1, target), [0])
    left = build.divide(build.dimension(x.tensor.num_elements), rest)
    return build.select(is_open, left, target)


@op("Flatten", since=1)
def flatten(ctx: NodeContext, x: Node) -> Node:
    """Two axes: what stands before `axis`, and the rest."""
    rank = x.tensor.rank
    axis = ctx.int("axis", 1)
    axis = rank if axis == rank else axis_from(axis, rank)
    before, after = x.tensor.shape[:axis], x.tensor.shape[axis:]
    return build.reshape(x, (dims.num_elements(before), dims.num_elements(after)))


def _axes_argument(
    ctx: NodeContext, x: Node, axes: Node | None, sign: int
) -> tuple[int, ...] | None:
    """The axes; the result has as many more (sign 1) or fewer (-1) axes than x."""
    if axes is None:
        return ctx.ints("axes", None)
    count = axes.tensor.num_elements
    if ctx.constant_value(axes) is None and isinstance(count, int):
        rank = x.tensor.rank + sign * count
        sizes = [ctx.fresh(f"size_{axis}") for axis in range(rank)]
        raise RunTimeValueNeeded(axes, [x.tensor.with_shape(sizes)])
    return whole_numbers(ctx, axes)


@op("Squeeze", since=1)
def squeeze(ctx: NodeContext, x: Node, axes: Node | None = None) -> Node:
    """x without the axes, which have size 1; without all such axes if none are named."""
    named = _axes_argument(ctx, x, axes, -1)
    rank = x.tensor.rank
    if named is None:
        chosen = tuple(axis for axis in range(rank) if x.tensor.shape[axis] == 1)
    else:
        chosen = axes_in_order(set(named), rank)
    for axis in chosen:
        given = x.tensor.shape[axis]
        if isinstance(given, int) and given != 1:
            raise ShapeError(f"axis {axis} of {x.tensor} is {given}, expected 1 to remove it")
    return build.reshape(x, [s for axis, s in enumerate(x.tensor.shape) if axis not in chosen])


@op("Unsqueeze", since=1)
def unsqueeze(ctx: NodeContext, x: Node, axes: Node | None = None) -> Node:
    """x with axes of size 1 that stand at `axes` of the result."""
    named = _axes_argument(ctx, x, axes, 1)
    if named is None:
        raise ctx.wrong("axes are missing")
    return build.expand_dims(x, axes_in_order(named, x.tensor.rank + len(named)))


@op("Transpose", since=1)
def transpose(ctx: NodeContext, x: Node) -> Node:
    """Axes in another order, by default the opposite one."""
    backwards = tuple(reversed(range(x.tensor.rank)))
    return build.transpose(x, ctx.ints("perm", None) or backwards)


@op("Expand", since=8)
def expand(ctx: NodeContext, x: Node, target: Node) -> Node:
    """x repeated along axes of size 1 and missing ones; a 1 in the target keeps the size of x."""
    sizes = ctx.sizes(target)
    if sizes is None:
        raise RunTimeValueNeeded(target, [x.tensor.with_shape(_expanded(ctx, x, target))])
    return build.broadcast_to(x, broadcast_shapes(x.tensor.shape, sizes))


def _expanded(ctx: NodeContext, x: Node, target: Node) -> list[DimLike]:
    """What is known of the result's shape before the run."""
    parts = partly_known_sizes(ctx, target)
    rank = max(len(parts), x.tensor.rank)
    given = [1] * (rank - x.tensor.rank) + list(x.tensor.shape)
    wanted = (1,) * (rank - len(parts)) + parts
    shape: list[DimLike] = []
    for axis, (size, goal) in enumerate(zip(given, wanted, strict=True)):
        if goal is not None:
            shape.append(dims.broadcast(size, goal))
        else:
            stays = isinstance(size, int) and size != 1
            shape.append(size if stays else ctx.fresh(f"expanded_{axis}"))
    return shape


@op("Tile", since=6)
def tile(ctx: NodeContext, x: Node, repeats: Node) -> Node:
    """x repeated as a whole, `repeats` times along each axis."""
    counts = ctx.static_sizes(repeats)
    if len(counts) != x.tensor.rank:
        raise ShapeError(
            f"repeats has {len(counts)} counts, expected one for each axis of {x.tensor}"
        )
    return tiled(x, counts)


@op("Tile", since=1)
def tile_one_axis(ctx: NodeContext, x: Node, tiles: Node, axis: Node) -> Node:
    """x repeated along one axis (opset 1)."""
    (count,) = ctx.static_sizes(tiles)
    (chosen,) = whole_numbers(ctx, axis)
    counts: list[DimLike] = [1] * x.tensor.rank
    counts[axis_from(chosen, x.tensor.rank)] = count
    return tiled(x, counts)


def tiled(x: Node, counts: tuple[DimLike, ...] | list[DimLike]) -> Node:
    """x repeated as a whole along each axis."""
    apart: list[DimLike] = []
    repeated: list[DimLike] = []
    for given, count in zip(x.tensor.shape, counts, strict=True):
        apart += [1, given] if count != 1 else [given]
        repeated += [count, given] if count != 1 else [given]
    whole = build.broadcast_to(build.reshape(x, apart), repeated)
    return build.reshape(whole, [s * c for s, c in zip(x.tensor.shape, counts, strict=True)])


@op("DepthToSpace", since=1)
def depth_to_space(ctx: NodeContext, x: Node) -> Node:
    """Blocks of channels spread over space: depth first (DCR) or channel first (CRD)."""
    block = ctx.int("blocksize")
    batch, channels, *space = x.tensor.shape
    count = len(space)
    inner = _divided(x, channels, block**count)
    blocks = (block,) * count
    spatial = [count + 2 + i for i in range(count)]
    if ctx.text("mode", "DCR") == "CRD":
        split = build.reshape(x, (batch, inner, *blocks, *space))
        offsets, channel = [2 + i for i in range(count)], 1
    else:
        split = build.reshape(x, (batch, *blocks, inner, *space))
        offsets, channel = [1 + i for i in range(count)], count + 1
    order = [axis for pair in zip(spatial, offsets, strict=True) for axis in pair]
    moved = build.transpose(split, (0, channel, *order))
    return build.reshape(moved, (batch, inner, *(s * block for s in space)))


@op("SpaceToDepth", since=1)
def space_to_depth(ctx: NodeContext, x: Node) -> Node:
    """Blocks of space moved into channels, block position first."""
    block = ctx.int("blocksize")
    batch, channels, *space = x.tensor.shape
    count = len(space)
    outer = [_divided(x, s, block) for s in space]
    split = build.reshape(x, (batch, channels, *(part for s in outer for part in (s, block))))
    offsets = [3 + 2 * i for i in range(count)]
    spatial = [2 + 2 * i for i in range(count)]
    if ctx.text("mode", "DCR") == "CRD":
        order = (0, 1, *offsets, *spatial)
    else:
        order = (0, *offsets, 1, *spatial)
    return build.reshape(build.transpose(split, order), (batch, channels * block**count, *outer))


def _divided(x: Node, given: DimLike, count: int) -> DimLike:
    if isinstance(given, int) and given % count:
        raise ShapeError(f"{x.tensor}: size {given} is no multiple of {count}")
    return dims.floor_div(given, count)
