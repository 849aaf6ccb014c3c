"""Operators of com.microsoft that fuse activations, norms and products in floats."""

from __future__ import annotations

import math
from collections.abc import Sequence

from luban.core import dims
from luban.frontend.onnx.registry import NodeContext, op
from luban.graph import build
from luban.ir.node import Node

__all__ = ["MICROSOFT", "activated", "layer_normal"]

MICROSOFT = "com.microsoft"


def _gelu(x: Node) -> Node:
    """x / 2 * (1 + erf(x / sqrt 2))"""
    half = build.multiply(x, 0.5)
    return build.multiply(half, build.add(build.erf(build.multiply(x, math.sqrt(0.5))), 1))


def _fast_gelu(x: Node) -> Node:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))"""
    cube = build.multiply(build.multiply(x, x), x)
    inner = build.add(x, build.multiply(cube, 0.044715))
    bent = build.tanh(build.multiply(inner, math.sqrt(2 / math.pi)))
    return build.multiply(build.multiply(x, 0.5), build.add(bent, 1))


@op("Gelu", domain=MICROSOFT)
def gelu(_ctx: NodeContext, x: Node) -> Node:
    """The exact form through erf."""
    return _gelu(x)


@op("BiasGelu", domain=MICROSOFT)
def bias_gelu(_ctx: NodeContext, x: Node, bias: Node) -> Node:
    """Gelu of x + bias."""
    return _gelu(build.add(x, bias))


@op("FastGelu", domain=MICROSOFT)
def fast_gelu(_ctx: NodeContext, x: Node, bias: Node | None = None) -> Node:
    """The tanh form of Gelu, of x + bias."""
    return _fast_gelu(x if bias is None else build.add(x, bias))


@op("QuickGelu", domain=MICROSOFT)
def quick_gelu(ctx: NodeContext, x: Node) -> Node:
    """x * sigmoid(alpha * x)"""
    return build.multiply(x, build.logistic(build.multiply(x, ctx.float("alpha", 1.702))))


@op("BiasAdd", domain=MICROSOFT)
def bias_add(_ctx: NodeContext, x: Node, bias: Node, skip: Node) -> Node:
    """x + bias + skip"""
    return build.add(build.add(x, bias), skip)


@op("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(_ctx: NodeContext, x: Node, bias: Node) -> Node:
    """The first half of x + bias, times Gelu of the second."""
    total = build.add(x, bias)
    half = dims.floor_div(total.tensor.shape[-1], 2)
    first, second = build.split(total, total.tensor.rank - 1, (half, half))
    return build.multiply(first, _gelu(second))


def activated(ctx: NodeContext, x: Node) -> Node:
    """x through the activation that a fused operator states, if any."""
    name = ctx.text("activation", "")
    numbers = ctx.floats("activation_params", ())
    match name:
        case "":
            return x
        case "Relu":
            return build.maximum(x, 0)
        case "Tanh":
            return build.tanh(x)
        case "Sigmoid":
            return build.logistic(x)
        case "LeakyRelu":
            slope = numbers[0] if numbers else ctx.float("activation_alpha", 0.01)
            return build.select(build.less(x, 0), build.multiply(x, slope), x)
        case "Clip":
            low, high = numbers
            return build.minimum(build.maximum(x, low), high)
        case "HardSigmoid":
            alpha, beta = numbers
            bent = build.add(build.multiply(x, alpha), beta)
            return build.maximum(build.minimum(bent, 1), 0)
    raise ctx.unsupported(
        f"activation {name!r}", "Relu, Tanh, Sigmoid, LeakyRelu, Clip or HardSigmoid"
    )


@op("FusedConv", domain=MICROSOFT)
def fused_conv(
    ctx: NodeContext, x: Node, filters: Node, bias: Node | None = None, added: Node | None = None
) -> Node:
    """Convolution, bias, a tensor added, an activation."""
    (result,) = ctx.call("Conv", x, filters, bias, attributes=_geometry(ctx))
    return activated(ctx, result if added is None else build.add(result, added))


@op("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def nhwc_conv(
    ctx: NodeContext, x: Node, filters: Node, bias: Node | None = None, added: Node | None = None
) -> Node:
    """Convolution with the channels last; the filters stay [O, C / groups, *K]."""
    rank = x.tensor.rank
    first = build.transpose(x, (0, rank - 1, *range(1, rank - 1)))
    (result,) = ctx.call("Conv", first, filters, bias, attributes=_geometry(ctx))
    last = build.transpose(result, (0, *range(2, rank), 1))
    return activated(ctx, last if added is None else build.add(last, added))


def _geometry(ctx: NodeContext) -> dict[str, object]:
    found: dict[str, object] = {"group": ctx.int("group", 1)}
    for name in ("strides", "dilations", "pads", "kernel_shape"):
        if ctx.has(name):
            found[name] = ctx.ints(name)
    if ctx.has("auto_pad"):
        found["auto_pad"] = ctx.text("auto_pad")
    return found


@op("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(ctx: NodeContext, a: Node, b: Node) -> Node:
    """alpha * A' @ B': ' swaps the last two axes, or moves the first axis before the last."""
    a, b = (
        _transposed(ctx, x, bool(ctx.int(f"trans{n}", 0)), bool(ctx.int(f"transBatch{n}", 0)))
        for x, n in ((a, "A"), (b, "B"))
    )
    result = build.matmul(a, b)
    alpha = ctx.float("alpha", 1.0)
    return result if alpha == 1.0 else build.multiply(result, alpha)


def _transposed(ctx: NodeContext, x: Node, swap: bool, batch: bool) -> Node:
    rank = x.tensor.rank
    if rank < 2 or not (swap or batch):
        return x
    order = list(range(rank))
    if batch:
        if rank < 3:
            raise ctx.wrong(f"transBatch of {x.tensor}: expected at least 3 axes")
        order = [*range(1, rank - 1), 0, rank - 1]
    if swap:
        order[-1], order[-2] = order[-2], order[-1]
    return build.transpose(x, order)


@op("FusedGemm", domain=MICROSOFT)
def fused_gemm(ctx: NodeContext, a: Node, b: Node, c: Node | None = None) -> Node:
    """Gemm and an activation."""
    numbers = {name: ctx.float(name, 1.0) for name in ("alpha", "beta")}
    flags = {name: ctx.int(name, 0) for name in ("transA", "transB")}
    (result,) = ctx.call("Gemm", a, b, c, attributes={**numbers, **flags})
    return activated(ctx, result)


def layer_normal(
    x: Node, scale: Node, bias: Node | None, axes: Sequence[int], epsilon: float, *, centre: bool
) -> tuple[Node, Node, Node]:
    """The normal form in the dtype of x, the mean and 1 / deviation; computed in f32 at least.

    Without `centre` the mean is not taken off: 1 / deviation is 1 / sqrt(mean(x * x) + epsilon).
    """
    element = x.tensor.dtype
    wide = x if element.bits >= 32 else build.cast(x, "f32")
    mean = build.mean(wide, axes, keep_axes=True)
    centred = build.subtract(wide, mean) if centre else wide
    power = build.mean(build.multiply(centred, centred), axes, keep_axes=True)
    inverse = build.divide(1, build.sqrt(build.add(power, epsilon)))
    scaled = build.multiply(build.multiply(centred, inverse), build.cast(scale, wide.tensor.dtype))
    if bias is not None:
        scaled = build.add(scaled, build.cast(bias, wide.tensor.dtype))
    return build.cast(scaled, element), mean, inverse


@op("LayerNormalization", since=1)
@op("LayerNormalization", domain=MICROSOFT)
def layer_normalization(
    ctx: NodeContext, x: Node, scale: Node, bias: Node | None = None
) -> tuple[Node, ...]:
    """As in opset 17; files from before it hold the operator too."""
    return _layer_normalization(ctx, x, scale, bias, centre=True)


@op("SimplifiedLayerNormalization", since=1)
@op("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_normalization(ctx: NodeContext, x: Node, scale: Node) -> tuple[Node, ...]:
    """x / sqrt(mean(x * x) + epsilon) * scale, and 1 / deviation."""
    normal, _, inverse = _layer_normalization(ctx, x, scale, None, centre=False)
    return normal, inverse


def _layer_normalization(
    ctx: NodeContext, x: Node, scale: Node, bias: Node | None, *, centre: bool
) -> tuple[Node, Node, Node]:
    axes = range(ctx.int("axis", -1) % x.tensor.rank, x.tensor.rank)
    return layer_normal(x, scale, bias, axes, ctx.float("epsilon", 1e-5), centre=centre)


@op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    ctx: NodeContext,
    x: Node,
    skip: Node,
    gamma: Node,
    beta: Node | None = None,
    bias: Node | None = None,
) -> tuple[Node, ...]:
    """The layer norm of x + skip + bias, its mean and 1 / deviation, and that sum."""
    total = _sum(x, skip, bias)
    axis = total.tensor.rank - 1
    epsilon = ctx.float("epsilon", 1e-12)
    return (*layer_normal(total, gamma, beta, [axis], epsilon, centre=True), total)


@op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(
    ctx: NodeContext, x: Node, skip: Node, gamma: Node, bias: Node | None = None
) -> tuple[Node, ...]:
    """The same without taking the mean off."""
    total = _sum(x, skip, bias)
    axis = total.tensor.rank - 1
    epsilon = ctx.float("epsilon", 1e-12)
    return (*layer_normal(total, gamma, None, [axis], epsilon, centre=False), total)


def _sum(x: Node, skip: Node, bias: Node | None) -> Node:
    total = build.add(x, skip)
    return total if bias is None else build.add(total, bias)


@op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    ctx: NodeContext,
    words: Node,
    segments: Node | None,
    word_table: Node,
    place_table: Node,
    segment_table: Node | None,
    gamma: Node,
    beta: Node,
    mask: Node | None = None,
    positions: Node | None = None,
) -> tuple[Node, ...]:
    """The layer norm of summed embeddings, the lengths by mask, and that sum."""
    batch, length = words.tensor.shape
    total = build.take(word_table, words, 0)
    if positions is None:
        positions = build.iota((1, length), 1, "i64")
    total = build.add(total, build.take(place_table, positions, 0))
    if segments is not None and segment_table is not None:
        total = build.add(total, build.take(segment_table, segments, 0))
    epsilon = ctx.float("epsilon", 1e-12)
    normal, _, _ = layer_normal(total, gamma, beta, [2], epsilon, centre=True)
    if mask is None:
        lengths = build.full((batch,), 0, "i32")
    else:
        lengths = build.reduce("sum", build.cast(mask, "i32"), [1])
    return normal, lengths, total


@op("GroupNorm", domain=MICROSOFT)
def group_norm(ctx: NodeContext, x: Node, gamma: Node, beta: Node) -> Node:
    """Groups of the last (or with channels_last=0 second) axis normalised; Swish if asked for."""
    last = bool(ctx.int("channels_last", 1))
    rank, groups = x.tensor.rank, ctx.int("groups")
    first = build.transpose(x, (0, rank - 1, *range(1, rank - 1))) if last else x
    batch, channels, *space = first.tensor.shape
    members = dims.floor_div(channels, groups)
    grouped = build.cast(build.reshape(first, (batch, groups, members, *space)), "f32")
    one = build.constant(1.0, "f32")
    axes = range(2, rank + 1)
    normal, _, _ = layer_normal(grouped, one, None, axes, ctx.float("epsilon", 1e-5), centre=True)
    flat = build.reshape(normal, first.tensor.shape)
    along = (1, channels, *(1,) * len(space))
    scaled = build.multiply(flat, build.reshape(build.cast(gamma, "f32"), along))
    shifted = build.add(scaled, build.reshape(build.cast(beta, "f32"), along))
    if ctx.int("activation", 0):
        shifted = build.multiply(shifted, build.logistic(shifted))
    result = build.cast(shifted, x.tensor.dtype)
    return build.transpose(result, (0, *range(2, rank), 1)) if last else result


@op("ExpandDims", domain=MICROSOFT)
def expand_dims(ctx: NodeContext, x: Node, axis: Node) -> Node:
    """An axis of size 1 put in."""
    place = int(ctx.static(axis).reshape(()))
    return build.expand_dims(x, [place % (x.tensor.rank + 1)])
