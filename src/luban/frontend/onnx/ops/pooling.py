"""Pooling: one value from each window or from all of space."""

from __future__ import annotations

from itertools import product

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.types import TensorType
from luban.frontend.onnx.context import NodeContext
from luban.frontend.onnx.registry import op
from luban.frontend.onnx.windows import Windows, windows
from luban.graph import build
from luban.graph.host import regions as host_regions
from luban.graph.ops.reduce import ReduceWindow
from luban.graph.ops.structure import Scatter, Slice
from luban.ir.node import Node, node

__all__: list[str] = []


def _geometry(ctx: NodeContext, x: Node) -> Windows:
    return windows(ctx, x.tensor.shape[2:], ctx.ints("kernel_shape"))


def _windowed(kind: str, x: Node, geometry: Windows) -> Node:
    """The reduction of each window; places outside count as the kind's empty value."""
    reduction = ReduceWindow(
        kind,
        (1, 1, *geometry.sizes),
        (1, 1, *geometry.strides),
        (0, 0, *geometry.low),
        (0, 0, *geometry.all_high),
        (1, 1, *geometry.dilations),
    )
    return node(reduction, x)


@op("MaxPool", since=1)
def max_pool(ctx: NodeContext, x: Node) -> Node | tuple[Node, ...]:
    """The largest element of each window, and if asked for its index in the whole input."""
    geometry = _geometry(ctx, x)
    if not ctx.output_used(1):
        return _windowed("maximum", x, geometry)
    return _max_with_index(x, geometry, column_major=bool(ctx.int("storage_order", 0)))


def _max_with_index(x: Node, geometry: Windows, *, column_major: bool) -> tuple[Node, Node]:
    """Walks the places of a window in order: of equal elements the first wins, padding never."""
    best: Node | None = None
    index: Node | None = None
    padded = _pad_space(x, geometry, build.constant(x.tensor.dtype.lowest, x.tensor.dtype))
    order = _flat_index(x, column_major=column_major)
    places = _pad_space(order, geometry, build.constant(-1, "i64"))
    counts = _windowed("maximum", x, geometry).tensor.shape[2:]
    for offset in product(*(range(size) for size in geometry.sizes)):
        value = _strided(padded, offset, geometry, counts)
        place = _strided(places, offset, geometry, counts)
        if best is None or index is None:
            best, index = value, place
            continue
        inside = build.greater_equal(place, 0)
        better = build.bitwise_or(build.greater(value, best), build.less(index, 0))
        wins = build.bitwise_and(inside, better)
        best = build.select(wins, value, best)
        index = build.select(wins, place, index)
    assert best is not None
    assert index is not None
    return best, index


def _flat_index(x: Node, *, column_major: bool) -> Node:
    """The row-major (or within each plane column-major) index of each element."""
    shape = x.tensor.shape
    axes = list(range(x.tensor.rank))
    if column_major:
        axes = [0, 1, *reversed(axes[2:])]
    index: Node = build.full(shape, 0, "i64")
    step: DimLike = 1
    for axis in reversed(axes):
        index = build.add(index, build.multiply(build.iota(shape, axis), build.dimension(step)))
        step = step * shape[axis]
    return index


def _pad_space(x: Node, geometry: Windows, value: Node) -> Node:
    return build.pad(x, (0, 0, *geometry.low), (0, 0, *geometry.all_high), value)


def _strided(
    x: Node, offset: tuple[int, ...], geometry: Windows, counts: tuple[DimLike, ...]
) -> Node:
    starts = [o * d for o, d in zip(offset, geometry.dilations, strict=True)]
    sizes = (*x.tensor.shape[:2], *counts)
    return node(Slice((0, 0, *starts), sizes, (1, 1, *geometry.strides)), x)


@op("AveragePool", since=1)
def average_pool(ctx: NodeContext, x: Node) -> Node:
    """The mean of each window's elements; with `count_include_pad` padding counts as elements."""
    geometry = _geometry(ctx, x)
    return build.cast(
        _averages(ctx, build.cast(x, build.accumulator_dtype(x)), geometry), x.tensor.dtype
    )


def _averages(ctx: NodeContext, x: Node, geometry: Windows) -> Node:
    total = _windowed("sum", x, geometry)
    element = x.tensor.dtype
    with_padding = bool(ctx.int("count_include_pad", 0))
    reaches_out = any(e != 0 for e in geometry.extra) if with_padding else geometry.is_padded
    if not reaches_out:
        count = 1
        for size in geometry.sizes:
            count *= size
        return build.divide(total, count)
    ones = build.full((1, 1, *x.tensor.shape[2:]), 1, element)
    if with_padding:
        ones = build.pad(ones, (0, 0, *geometry.low), (0, 0, *geometry.high), 1)
        nothing = (0,) * geometry.rank
        geometry = Windows(
            geometry.sizes, geometry.strides, geometry.dilations, nothing, nothing, geometry.extra
        )
    return build.divide(total, _windowed("sum", ones, geometry))


@op("LpPool", since=1)
def lp_pool(ctx: NodeContext, x: Node) -> Node:
    """The p-norm of each window."""
    power = ctx.float("p", 2.0) if ctx.opset < 2 else float(ctx.int("p", 2))
    if power == 0:
        raise ctx.wrong("p is 0, expected another norm")
    wide = _powered(build.cast(x, build.accumulator_dtype(x)), power)
    result = _root(_windowed("sum", wide, _geometry(ctx, x)), power)
    return build.cast(result, x.tensor.dtype)


def _powered(x: Node, power: float) -> Node:
    if power == 2:
        return build.multiply(x, x)
    return build.power(build.absolute(x), power) if power != 1 else build.absolute(x)


def _root(x: Node, power: float) -> Node:
    if power == 2:
        return build.sqrt(x)
    return build.power(x, 1 / power) if power != 1 else x


def _space(x: Node) -> range:
    return range(2, x.tensor.rank)


@op("GlobalAveragePool", since=1)
def global_average_pool(_ctx: NodeContext, x: Node) -> Node:
    """The mean over all of space."""
    return build.mean(x, _space(x), keep_axes=True)


@op("GlobalMaxPool", since=1)
def global_max_pool(_ctx: NodeContext, x: Node) -> Node:
    """The largest element over all of space."""
    return build.reduce("maximum", x, _space(x), keep_axes=True)


@op("GlobalLpPool", since=1)
def global_lp_pool(ctx: NodeContext, x: Node) -> Node:
    """The p-norm over all of space."""
    power = ctx.float("p", 2.0) if ctx.opset < 2 else float(ctx.int("p", 2))
    wide = _powered(build.cast(x, build.accumulator_dtype(x)), power)
    result = _root(build.reduce("sum", wide, _space(x), keep_axes=True), power)
    return build.cast(result, x.tensor.dtype)


@op("MaxUnpool", since=9)
def max_unpool(ctx: NodeContext, x: Node, indices: Node, output_shape: Node | None = None) -> Node:
    """Each element at its index in a larger tensor of zeros: what MaxPool undid.

    Indices count in the shape that the window attributes give; a larger `output_shape` pads it.
    """
    sizes = ctx.ints("kernel_shape")
    rank = len(sizes)
    strides = ctx.ints("strides", (1,) * rank)
    pads = ctx.ints("pads", (0,) * (2 * rank))
    space = [
        (count - 1) * stride + size - low - high
        for count, stride, size, low, high in zip(
            x.tensor.shape[2:], strides, sizes, pads[:rank], pads[rank:], strict=True
        )
    ]
    shape = (*x.tensor.shape[:2], *space)
    count = x.tensor.num_elements
    zeros = build.full((dims.num_elements(shape),), 0, x.tensor.dtype)
    places = build.reshape(indices, (count, 1))
    scattered = node(
        Scatter("replace", (), (0,), (), (), (0,)), zeros, places, build.reshape(x, (count,))
    )
    result = build.reshape(scattered, shape)
    if output_shape is None:
        return result
    wanted = ctx.static_sizes(output_shape)
    low = (0,) * len(shape)
    return build.pad(result, low, [w - s for w, s in zip(wanted, shape, strict=True)], 0)


@op("MaxRoiPool", since=1)
def max_roi_pool(ctx: NodeContext, x: Node, regions: Node) -> tuple[Node, ...]:
    """The largest element in each cell of a grid over each region: [num_rois, C, *pooled_shape]."""
    pooled = ctx.ints("pooled_shape")
    result = TensorType(x.tensor.dtype, (regions.tensor.shape[0], x.tensor.shape[1], *pooled))
    return ctx.host_call(
        host_regions.MAX_ROI_POOL,
        [x, regions],
        [result],
        pooled=pooled,
        scale=ctx.float("spatial_scale", 1.0),
    )


@op("RoiAlign", since=10)
def roi_align(ctx: NodeContext, x: Node, regions: Node, batches: Node) -> tuple[Node, ...]:
    """The mean or maximum of bilinear samples in each cell of a grid over each region."""
    height, width = ctx.int("output_height", 1), ctx.int("output_width", 1)
    half_pixel = "half_pixel" if ctx.opset >= 16 else "output_half_pixel"
    result = TensorType(x.tensor.dtype, (regions.tensor.shape[0], x.tensor.shape[1], height, width))
    return ctx.host_call(
        host_regions.ROI_ALIGN,
        [x, regions, batches],
        [result],
        mode=ctx.text("mode", "avg"),
        sampling_ratio=ctx.int("sampling_ratio", 0),
        scale=ctx.float("spatial_scale", 1.0),
        half_pixel=ctx.text("coordinate_transformation_mode", half_pixel) == "half_pixel",
        size=(height, width),
    )
