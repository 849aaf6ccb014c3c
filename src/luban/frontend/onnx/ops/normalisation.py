"""Normalisations: shift and scale by statistics of the data or by stored ones."""

from __future__ import annotations

from collections.abc import Sequence

from luban.core import dims
from luban.core.dtypes import DTYPES, DType
from luban.core.errors import ShapeError
from luban.frontend.onnx.arguments import axes_in_order, axis_from
from luban.frontend.onnx.context import NodeContext
from luban.frontend.onnx.registry import op
from luban.graph import build
from luban.graph.ops.reduce import ReduceWindow
from luban.ir.node import Node, node

__all__: list[str] = []


def _along_channels(vector: Node, rank: int) -> Node:
    """A vector as [1, C, 1, 1]."""
    return build.reshape(vector, (1, vector.tensor.shape[0], *(1,) * (rank - 2)))


def _stash_dtype(ctx: NodeContext, x: Node) -> DType:
    """The dtype of the statistics: what `stash_type` says, but never narrower than x."""
    wanted = ctx.dtype("stash_type", DTYPES["f32"])
    return wanted if wanted.bits >= x.tensor.dtype.bits else x.tensor.dtype


def _moments(x: Node, axes: Sequence[int]) -> tuple[Node, Node]:
    """(x - mean, variance), axes kept."""
    centred = build.subtract(x, build.mean(x, axes, keep_axes=True))
    return centred, build.mean(build.multiply(centred, centred), axes, keep_axes=True)


@op("BatchNormalization", since=1)
def batch_normalization(
    ctx: NodeContext, x: Node, scale: Node, bias: Node, mean: Node, variance: Node
) -> tuple[Node, ...]:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, a channel of axis 1 at a time.

    In training the statistics are those of the batch, and the running ones follow.
    """
    if ctx.opset < 9 and not ctx.int("spatial", 1):
        return _per_activation(ctx, x, scale, bias, mean, variance)
    if x.tensor.rank < 2:
        x_matrix = build.reshape(x, (*x.tensor.shape, *(1,) * (2 - x.tensor.rank)))
        first, *rest = batch_normalization(ctx, x_matrix, scale, bias, mean, variance)
        return (build.reshape(first, x.tensor.shape), *rest)
    element = x.tensor.dtype
    inner = mean.tensor.dtype if mean.tensor.dtype.bits > element.bits else element
    wide = build.cast(x, inner)
    running: tuple[Node, ...] = ()
    if _is_training(ctx):
        axes = [axis for axis in range(x.tensor.rank) if axis != 1]
        centred, spread = _moments(wide, axes)
        current = build.reshape(build.mean(wide, axes), mean.tensor.shape)
        variance_now = build.reshape(spread, variance.tensor.shape)
        momentum = ctx.float("momentum", 0.9)
        running = tuple(
            build.cast(_blend(old, new, momentum), old.tensor.dtype)
            for old, new in ((mean, current), (variance, variance_now))
        )
    else:
        centred = build.subtract(wide, _along_channels(build.cast(mean, inner), x.tensor.rank))
        variance_now = variance
    deviation = build.sqrt(build.add(build.cast(variance_now, inner), ctx.float("epsilon", 1e-5)))
    factor = build.divide(build.cast(scale, inner), deviation)
    scaled = build.multiply(centred, _along_channels(factor, x.tensor.rank))
    shifted = build.add(scaled, _along_channels(build.cast(bias, inner), x.tensor.rank))
    return (build.cast(shifted, element), *running)


def _is_training(ctx: NodeContext) -> bool:
    if ctx.opset >= 14:
        return bool(ctx.int("training_mode", 0))
    if ctx.opset < 7:
        return not ctx.int("is_test", 0) and any(ctx.output_used(i) for i in range(1, 5))
    return any(ctx.output_used(i) for i in range(1, 5))


def _blend(old: Node, new: Node, momentum: float) -> Node:
    old = build.cast(old, new.tensor.dtype)
    return build.add(build.multiply(old, momentum), build.multiply(new, 1 - momentum))


def _per_activation(
    ctx: NodeContext, x: Node, scale: Node, bias: Node, mean: Node, variance: Node
) -> tuple[Node, ...]:
    """Before opset 9: `spatial=0` has statistics of its own for every place in [C, H, W]."""
    if _is_training(ctx):
        raise ctx.unsupported("training with spatial=0", "spatial=1")
    deviation = build.sqrt(build.add(variance, ctx.float("epsilon", 1e-5)))
    scaled = build.multiply(build.subtract(x, mean), build.divide(scale, deviation))
    return (build.add(scaled, bias),)


@op("InstanceNormalization", since=1)
def instance_normalization(ctx: NodeContext, x: Node, scale: Node, bias: Node) -> Node:
    """Each channel of each sample to mean 0 and variance 1, then scale and bias."""
    rank = x.tensor.rank
    inner = build.accumulator_dtype(x)
    centred, variance = _moments(build.cast(x, inner), range(2, rank))
    deviation = build.sqrt(build.add(variance, ctx.float("epsilon", 1e-5)))
    normal = build.divide(centred, deviation)
    scaled = build.multiply(normal, _along_channels(build.cast(scale, inner), rank))
    shifted = build.add(scaled, _along_channels(build.cast(bias, inner), rank))
    return build.cast(shifted, x.tensor.dtype)


@op("LayerNormalization", since=17)
def layer_normalization(
    ctx: NodeContext, x: Node, scale: Node, bias: Node | None = None
) -> tuple[Node, ...]:
    """From `axis` on to mean 0 and variance 1 in the stash dtype, then scale and bias."""
    element = x.tensor.dtype
    axes = range(axis_from(ctx.int("axis", -1), x.tensor.rank), x.tensor.rank)
    wide = build.cast(x, _stash_dtype(ctx, x))
    mean = build.mean(wide, axes, keep_axes=True)
    centred = build.subtract(wide, mean)
    variance = build.mean(build.multiply(centred, centred), axes, keep_axes=True)
    deviation = build.sqrt(build.add(variance, ctx.float("epsilon", 1e-5)))
    inverse = build.divide(1, deviation)
    normal = build.cast(build.multiply(centred, inverse), element)
    scaled = build.multiply(normal, build.cast(scale, element))
    result = scaled if bias is None else build.add(scaled, build.cast(bias, element))
    return result, mean, inverse


@op("RMSNormalization", since=23)
def rms_normalization(ctx: NodeContext, x: Node, scale: Node) -> Node:
    """x / sqrt(mean(x * x) + epsilon) over everything from `axis` on, then scale."""
    axes = range(axis_from(ctx.int("axis", -1), x.tensor.rank), x.tensor.rank)
    wide = build.cast(x, _stash_dtype(ctx, x))
    power = build.mean(build.multiply(wide, wide), axes, keep_axes=True)
    size = build.sqrt(build.add(power, ctx.float("epsilon", 1e-5)))
    normal = build.cast(build.divide(wide, size), scale.tensor.dtype)
    return build.multiply(normal, scale)


@op("GroupNormalization", since=18)
def group_normalization(ctx: NodeContext, x: Node, scale: Node, bias: Node) -> Node:
    """Each group of channels of each sample to mean 0 and variance 1, then scale and bias.

    Scale and bias have an entry for each group in opsets 18 to 20, one for each channel since.
    """
    groups = ctx.int("num_groups")
    batch, channels, *space = x.tensor.shape
    if isinstance(channels, int) and channels % groups:
        raise ShapeError(f"{x.tensor} has {channels} channels, no multiple of {groups} groups")
    members = dims.floor_div(channels, groups)
    wide = build.cast(x, _stash_dtype(ctx, x)) if ctx.opset >= 21 else x
    grouped = build.reshape(wide, (batch, groups, members, *space))
    centred, variance = _moments(grouped, range(2, grouped.tensor.rank))
    deviation = build.sqrt(build.add(variance, ctx.float("epsilon", 1e-5)))
    normal = build.cast(build.divide(centred, deviation), x.tensor.dtype)
    rank = x.tensor.rank
    if ctx.opset < 21:
        per_group = (1, groups, *(1,) * (rank - 1))
        scaled = build.multiply(normal, build.reshape(scale, per_group))
        return build.reshape(build.add(scaled, build.reshape(bias, per_group)), x.tensor.shape)
    flat = build.reshape(normal, x.tensor.shape)
    scaled = build.multiply(flat, _along_channels(scale, rank))
    return build.add(scaled, _along_channels(bias, rank))


@op("LpNormalization", since=1)
def lp_normalization(ctx: NodeContext, x: Node) -> Node:
    """x divided by its 1-norm or 2-norm along an axis; 0 where the norm is 0."""
    axis = axis_from(ctx.int("axis", -1), x.tensor.rank)
    if ctx.int("p", 2) == 1:
        norm = build.reduce("sum", build.absolute(x), [axis], keep_axes=True)
    else:
        norm = build.sqrt(build.reduce("sum", build.multiply(x, x), [axis], keep_axes=True))
    return build.select(build.equal(norm, 0), 0, build.divide(x, norm))


@op("MeanVarianceNormalization", since=9)
def mean_variance_normalization(ctx: NodeContext, x: Node) -> Node:
    """(x - mean) / (standard deviation + 1e-9) over some axes."""
    axes = axes_in_order(ctx.ints("axes", (0, 2, 3)), x.tensor.rank)
    centred, variance = _moments(x, axes)
    return build.divide(centred, build.add(build.sqrt(variance), 1e-9))


@op("LRN", since=1)
def local_response_normalization(ctx: NodeContext, x: Node) -> Node:
    """x / (bias + alpha / size * sum of squares of the nearest `size` channels)**beta"""
    size = ctx.int("size")
    rank = x.tensor.rank
    low, high = (size - 1) // 2, size // 2
    ones, zeros = (1,) * rank, (0,) * rank
    around = ReduceWindow(
        "sum", _at(ones, 1, size), ones, _at(zeros, 1, low), _at(zeros, 1, high), ones
    )
    squares = node(around, build.multiply(x, x))
    alpha, beta = ctx.float("alpha", 1e-4), ctx.float("beta", 0.75)
    base = build.add(ctx.float("bias", 1.0), build.multiply(squares, alpha / size))
    return build.divide(x, build.power(base, beta))


def _at(values: tuple[int, ...], axis: int, value: int) -> tuple[int, ...]:
    return (*values[:axis], value, *values[axis + 1 :])
