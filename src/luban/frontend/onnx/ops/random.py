"""Random tensors: Philox bits of a key, the seed if the model states one, else new at every run."""

from __future__ import annotations

import math
import struct

from luban.core.dims import DimLike
from luban.core.dtypes import DTYPES, DType
from luban.core.types import tensor
from luban.frontend.onnx.registry import NodeContext, op
from luban.graph import build
from luban.graph.host import entropy as host_entropy
from luban.graph.ops.data import RandomBits
from luban.ir.node import Node, node

__all__ = ["key_of", "uniform"]

_ = host_entropy  # registers the host function


def key_of(ctx: NodeContext) -> Node:
    """u64[1]: from attribute `seed`, or drawn anew at every run."""
    # Most operators state a float, Dropout an integer.
    is_whole = ctx.op == "Dropout"
    seed = ctx.int("seed", None) if is_whole else ctx.float("seed", None)
    if isinstance(seed, int):
        return build.constant([seed % 2**64], "u64")
    if seed is not None:
        return build.constant([struct.unpack("<I", struct.pack("<f", seed))[0]], "u64")
    return ctx.host_call("random_key", [], [tensor("u64", 1)], place=str(ctx.loc))[0]


def uniform(key: Node, shape: tuple[DimLike, ...], element: DType) -> Node:
    """Multiples of 2**-24 (2**-32 for f64) in [0, 1)."""
    bits = node(RandomBits(shape), key)
    if element.bits == 64:
        return build.multiply(build.cast(bits, element), 2.0**-32)
    # Half floats have 11 digits: more would round up to 1.
    digits = {16: 11 if element.name == "f16" else 8}.get(element.bits, 24)
    kept = build.cast(build.shift_right(bits, 32 - digits), "f32")
    return build.cast(build.multiply(kept, 2.0**-digits), element)


def _normal(key: Node, shape: tuple[DimLike, ...], element: DType) -> Node:
    """Standard normal numbers by Box and Muller's transform, computed in f32 or wider."""
    wide = element if element.bits >= 32 else DTYPES["f32"]
    pair = uniform(key, (2, *shape), wide)
    first, second = (build.reshape(piece, shape) for piece in build.split(pair, 0, (1, 1)))
    radius = build.sqrt(build.multiply(build.log(build.subtract(1.0, first)), -2.0))
    return build.cast(
        build.multiply(radius, build.cos(build.multiply(second, 2 * math.pi))), element
    )


def _float(ctx: NodeContext, element: DType) -> DType:
    if not element.is_float:
        raise ctx.wrong(f"dtype is {element}, expected a float")
    return element


def _between(ctx: NodeContext, shape: tuple[DimLike, ...], element: DType) -> Node:
    low, high = ctx.float("low", 0.0), ctx.float("high", 1.0)
    return build.add(build.multiply(uniform(key_of(ctx), shape, element), high - low), low)


def _about(ctx: NodeContext, shape: tuple[DimLike, ...], element: DType) -> Node:
    mean, scale = ctx.float("mean", 0.0), ctx.float("scale", 1.0)
    return build.add(build.multiply(_normal(key_of(ctx), shape, element), scale), mean)


@op("RandomUniform", since=1)
def random_uniform(ctx: NodeContext) -> Node:
    """Uniform numbers in [low, high)."""
    return _between(ctx, ctx.ints("shape"), _float(ctx, ctx.dtype("dtype", DTYPES["f32"])))


@op("RandomUniformLike", since=1)
def random_uniform_like(ctx: NodeContext, x: Node) -> Node:
    """Uniform numbers in [low, high) in the shape of x."""
    element = _float(ctx, ctx.dtype("dtype", x.tensor.dtype))
    return _between(ctx, x.tensor.shape, element)


@op("RandomNormal", since=1)
def random_normal(ctx: NodeContext) -> Node:
    """Normal numbers about a mean."""
    return _about(ctx, ctx.ints("shape"), _float(ctx, ctx.dtype("dtype", DTYPES["f32"])))


@op("RandomNormalLike", since=1)
def random_normal_like(ctx: NodeContext, x: Node) -> Node:
    """Normal numbers about a mean in the shape of x."""
    return _about(ctx, x.tensor.shape, _float(ctx, ctx.dtype("dtype", x.tensor.dtype)))


@op("Bernoulli", since=15)
def bernoulli(ctx: NodeContext, x: Node) -> Node:
    """1 with the probability that x states, else 0."""
    wide = x.tensor.dtype if x.tensor.dtype.bits >= 32 else DTYPES["f32"]
    drawn = uniform(key_of(ctx), x.tensor.shape, wide)
    hit = build.less(drawn, build.cast(x, wide))
    return build.cast(hit, ctx.dtype("dtype", x.tensor.dtype))


@op("Multinomial", since=7)
def multinomial(ctx: NodeContext, x: Node) -> Node:
    """`sample_size` classes for each row of logarithms of weights, drawn independently."""
    wide = x.tensor.dtype if x.tensor.dtype.bits >= 32 else DTYPES["f32"]
    rows, classes = x.tensor.shape
    count = ctx.int("sample_size", 1)
    # The largest of logits with Gumbel noise is distributed as the weights say.
    drawn = uniform(key_of(ctx), (rows, count, classes), wide)
    noise = build.negative(build.log(build.negative(build.log(build.maximum(drawn, 2.0**-25)))))
    logits = build.reshape(build.cast(x, wide), (rows, 1, classes))
    chosen = build.arg_reduce("maximum", build.add(logits, noise), 2)
    return build.cast(chosen, ctx.dtype("dtype", DTYPES["i32"]))


@op("Dropout", since=12)
def dropout(
    ctx: NodeContext, x: Node, ratio: Node | None = None, training: Node | None = None
) -> tuple[Node, ...]:
    """x itself; in training a random part of it is 0 and the rest scaled up to make up for it."""
    everything = build.full(x.tensor.shape, True, "bool")
    if training is None or _is_false(ctx, training):
        return x, everything
    element = x.tensor.dtype
    wide = element if element.bits >= 32 else DTYPES["f32"]
    part = build.constant(0.5, wide) if ratio is None else build.cast(ratio, wide)
    part = build.reshape(part, ())
    drawn = uniform(key_of(ctx), x.tensor.shape, wide)
    keeps = build.greater_equal(drawn, part)
    grown = build.divide(build.cast(x, wide), build.subtract(1.0, part))
    dropped = build.cast(build.select(keeps, grown, 0), element)
    is_training = build.broadcast_to(build.reshape(training, ()), x.tensor.shape)
    mask = build.bitwise_or(keeps, build.bitwise_not(is_training))
    return build.select(is_training, dropped, x), mask


def _is_false(ctx: NodeContext, x: Node) -> bool:
    value = ctx.constant_value(x)
    return value is not None and not value.any()


@op("Dropout", since=1)
def dropout_of_inference(ctx: NodeContext, x: Node) -> tuple[Node, ...]:
    """Before opset 12 an attribute decides; in inference it is x itself. The mask has its dtype."""
    if ctx.opset < 7 and not ctx.int("is_test", 0):
        raise ctx.unsupported("training (is_test=0)", "is_test=1")
    mask_type = "bool" if ctx.opset >= 10 else x.tensor.dtype
    return x, build.full(x.tensor.shape, 1, mask_type)
