"""Tensors made from sizes and numbers: constants, ranges, masks, one-hot rows."""

from __future__ import annotations

import numpy as np

from luban.core import dims
from luban.core.dtypes import dtype
from luban.core.types import TensorType
from luban.frontend.onnx.arguments import axis_from, partly_known_sizes, whole_number
from luban.frontend.onnx.context import NodeContext, RunTimeValueNeeded
from luban.frontend.onnx.registry import op
from luban.graph import build
from luban.graph.host import counting as host_counting
from luban.ir.node import Node

__all__: list[str] = []


@op("Constant", since=1)
def constant(ctx: NodeContext) -> Node:
    """The tensor or number in the node's one attribute."""
    label = ctx.proto.output[0]
    if ctx.has("sparse_value"):
        return build.constant(
            ctx.importer.source.dense(ctx.attributes["sparse_value"].sparse_tensor), label=label
        )
    array = ctx.array("value")
    if array is not None:
        return build.constant(array, label=label)
    if ctx.has("value_float"):
        return build.constant(ctx.float("value_float"), "f32")
    if ctx.has("value_floats"):
        return build.constant(ctx.floats("value_floats"), "f32")
    if ctx.has("value_int"):
        return build.constant(ctx.int("value_int"), "i64")
    if ctx.has("value_ints"):
        return build.constant(ctx.ints("value_ints"), "i64")
    if ctx.has("value_string"):
        return build.constant(np.array(ctx.text("value_string"), object))
    if ctx.has("value_strings"):
        return build.constant(np.array(ctx.texts("value_strings"), object))
    raise ctx.wrong("no value attribute")


@op("ConstantOfShape", since=9)
def constant_of_shape(ctx: NodeContext, shape: Node) -> Node:
    """One value, by default f32 0, everywhere."""
    array = ctx.array("value")
    value = build.constant(0, "f32") if array is None else build.constant(array.reshape(()))
    sizes = ctx.sizes(shape)
    if sizes is None:
        parts = partly_known_sizes(ctx, shape)
        open_shape = [ctx.fresh(f"size_{i}") if s is None else s for i, s in enumerate(parts)]
        raise RunTimeValueNeeded(shape, [value.tensor.with_shape(open_shape)])
    return build.broadcast_to(value, sizes)


@op("Range", since=11)
def number_range(ctx: NodeContext, start: Node, limit: Node, delta: Node) -> Node:
    """start, start + delta, .. before limit; f16 and bf16 are computed in f32."""
    element = start.tensor.dtype
    if element.is_integer:
        known = _integer_range(ctx, start, limit, delta)
    else:
        known = _float_range(ctx, start, limit, delta)
    return _run_time_range(ctx, start, limit, delta) if known is None else known


def _integer_range(ctx: NodeContext, start: Node, limit: Node, delta: Node) -> Node | None:
    bounds = [ctx.sizes(x) for x in (start, limit, delta)]
    if any(b is None for b in bounds):
        return None
    (first,), (end,), (step,) = (b for b in bounds if b is not None)
    if not isinstance(step, int):
        return None
    if not step:
        raise ctx.wrong("delta is 0, expected another number")
    count = dims.ceil_div(end - first, step) if step > 0 else dims.ceil_div(first - end, -step)
    places = build.iota((dims.maximum(count, 0),), 0)
    scaled = places if step == 1 else build.multiply(places, step)
    moved = scaled if first == 0 else build.add(scaled, build.dimension(first))
    return build.cast(moved, start.tensor.dtype)


def _float_range(ctx: NodeContext, start: Node, limit: Node, delta: Node) -> Node | None:
    values = [ctx.constant_value(x) for x in (start, limit, delta)]
    if any(v is None for v in values):
        return None
    element = start.tensor.dtype
    inner = np.dtype(np.float32) if element.bits < 32 else element.numpy
    first, end, step = (v.reshape(()).astype(inner) for v in values if v is not None)
    if not step:
        raise ctx.wrong("delta is 0, expected another number")
    length = max(int(np.ceil((end - first) / step)), 0)
    return build.constant(first + np.arange(length).astype(inner) * step, element)


def _run_time_range(ctx: NodeContext, start: Node, limit: Node, delta: Node) -> Node:
    """The host says how many there are; the numbers are computed like any others."""
    element = start.tensor.dtype
    inner = element if element.is_integer or element.bits >= 32 else dtype("f32")
    first, end, step = (build.cast(build.reshape(x, ()), inner) for x in (start, limit, delta))
    places = TensorType(dtype("i64"), (ctx.fresh("range"),))
    (counted,) = ctx.host_call(host_counting.COUNT_RANGE, [first, end, step], [places])
    return build.cast(build.add(first, build.multiply(build.cast(counted, inner), step)), element)


@op("EyeLike", since=9)
def eye_like(ctx: NodeContext, x: Node) -> Node:
    """1 where column - row is k, else 0, in the shape of x."""
    element = ctx.dtype("dtype", x.tensor.dtype)
    row, column = (build.iota(x.tensor.shape, axis) for axis in (0, 1))
    on = build.equal(build.subtract(column, row), ctx.int("k", 0))
    return build.cast(on, element)


@op("Trilu", since=14)
def trilu(ctx: NodeContext, x: Node, k: Node | None = None) -> Node:
    """x on one side of a diagonal, 0 on the other."""
    rank = x.tensor.rank
    if rank < 2:
        raise ctx.wrong(f"input is {x.tensor}, expected a matrix")
    offset = build.constant(0, "i64") if k is None else build.reshape(k, ())
    plane = x.tensor.shape[-2:]
    distance = build.subtract(build.iota(plane, 1), build.iota(plane, 0))
    compare = build.greater_equal if ctx.int("upper", 1) else build.less_equal
    return build.select(compare(distance, offset), x, 0)


@op("OneHot", since=9)
def one_hot(ctx: NodeContext, indices: Node, depth: Node, values: Node) -> Node:
    """The on value along a new axis at each index, the off value elsewhere."""
    (count,) = ctx.static_sizes(depth)
    axis = axis_from(ctx.int("axis", -1), indices.tensor.rank + 1)
    places = build.expand_dims(build.cast(indices, "i64"), [axis])
    size = build.dimension(count)
    places = build.select(build.less(places, 0), build.add(places, size), places)
    shape = [*indices.tensor.shape]
    shape.insert(axis, count)
    on = build.equal(places, build.iota(shape, axis))
    pair = [build.reshape(build.slice_axis(values, 0, i, 1), ()) for i in (0, 1)]
    return build.select(on, pair[1], pair[0])


@op("BlackmanWindow", since=17)
def blackman_window(ctx: NodeContext, size: Node) -> Node:
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)"""
    return _window(ctx, size, (0.42, -0.5, 0.08))


@op("HammingWindow", since=17)
def hamming_window(ctx: NodeContext, size: Node) -> Node:
    """25/46 - 21/46 cos(2 pi n / N)"""
    return _window(ctx, size, (25 / 46, -21 / 46))


@op("HannWindow", since=17)
def hann_window(ctx: NodeContext, size: Node) -> Node:
    """0.5 - 0.5 cos(2 pi n / N)"""
    return _window(ctx, size, (0.5, -0.5))


def _window(ctx: NodeContext, size: Node, weights: tuple[float, ...]) -> Node:
    element = ctx.dtype("output_datatype", dtype("f32"))
    if ctx.constant_value(size) is None:
        raise RunTimeValueNeeded(size, [TensorType(element, (ctx.fresh("window"),))])
    count = whole_number(ctx, size)
    span = max(count if ctx.int("periodic", 1) else count - 1, 1)
    angle = 2 * np.pi * np.arange(count) / span
    values = sum(w * np.cos(k * angle) for k, w in enumerate(weights))
    return build.constant(np.asarray(values, np.float64), element)


@op("MelWeightMatrix", since=17)
def mel_weight_matrix(
    ctx: NodeContext,
    num_mel_bins: Node,
    dft_length: Node,
    sample_rate: Node,
    lower_edge_hertz: Node,
    upper_edge_hertz: Node,
) -> Node:
    """Triangles, equally wide in mel, over a spectrum: [dft_length // 2 + 1, num_mel_bins]."""
    element = ctx.dtype("output_datatype", dtype("f32"))
    given = (num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz)
    for value in given:
        if ctx.constant_value(value) is None:
            shape = (ctx.fresh("frequencies"), ctx.fresh("bins"))
            raise RunTimeValueNeeded(value, [TensorType(element, shape)])
    bins, length, rate = (whole_number(ctx, x) for x in (num_mel_bins, dft_length, sample_rate))
    low, high = (float(ctx.static(x).reshape(())) for x in (lower_edge_hertz, upper_edge_hertz))
    mel_low, mel_high = (2595 * np.log10(1 + hertz / 700) for hertz in (low, high))
    mels = mel_low + np.arange(bins + 2) * ((mel_high - mel_low) / (bins + 2))
    hertz_edges = 700 * (10 ** (mels / 2595) - 1)
    edges = np.floor((length + 1) * hertz_edges / rate).astype(np.int64)
    num_rows = length // 2 + 1
    matrix = np.zeros((num_rows, bins))
    rows = np.arange(num_rows)
    for i in range(bins):
        left, middle, right = edges[i : i + 3]
        if left == middle:
            matrix[middle, i] = 1.0
        else:
            rising = (rows >= left) & (rows <= middle)
            matrix[rising, i] = (rows[rising] - left) / (middle - left)
        if middle != right:
            falling = (rows >= middle) & (rows < right)
            matrix[falling, i] = (right - rows[falling]) / (right - middle)
    return build.constant(matrix, element)
