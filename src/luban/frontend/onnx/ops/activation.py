"""Activation functions, in the dtype of their operand."""

from __future__ import annotations

import math

from luban.frontend.onnx.context import NodeContext
from luban.frontend.onnx.registry import op
from luban.graph import build
from luban.ir.node import Node

__all__: list[str] = []


@op("Relu", since=1)
def relu(_ctx: NodeContext, x: Node) -> Node:
    """max(x, 0); NaN stays NaN."""
    return build.maximum(x, 0)


@op("LeakyRelu", since=1)
def leaky_relu(ctx: NodeContext, x: Node) -> Node:
    """x, or alpha * x below 0."""
    return build.select(build.less(x, 0), build.multiply(x, ctx.float("alpha", 0.01)), x)


@op("PRelu", since=1)
def prelu(ctx: NodeContext, x: Node, slope: Node) -> Node:
    """x, or slope * x below 0. Before opset 7 a vector slope belongs to axis 1."""
    if (
        ctx.opset < 7
        and slope.tensor.rank == 1
        and x.tensor.rank > 2
        and slope.tensor.shape != (1,)
    ):
        slope = build.reshape(slope, (*slope.tensor.shape, *(1,) * (x.tensor.rank - 2)))
    return build.select(build.less(x, 0), build.multiply(x, slope), x)


@op("ThresholdedRelu", since=10)
def thresholded_relu(ctx: NodeContext, x: Node) -> Node:
    """x above alpha, else 0."""
    return build.select(build.greater(x, ctx.float("alpha", 1.0)), x, 0)


@op("Elu", since=1)
def elu(ctx: NodeContext, x: Node) -> Node:
    """x, or alpha * (e**x - 1) below 0."""
    return _exponential_below_zero(x, ctx.float("alpha", 1.0), 1.0)


@op("Selu", since=1)
def selu(ctx: NodeContext, x: Node) -> Node:
    """gamma times Elu with alpha."""
    early = ctx.opset < 6
    alpha = ctx.float("alpha", 1.6732 if early else 1.67326319217681884765625)
    gamma = ctx.float("gamma", 1.0507 if early else 1.05070102214813232421875)
    return build.multiply(_exponential_below_zero(x, alpha, 1.0), gamma)


@op("Celu", since=12)
def celu(ctx: NodeContext, x: Node) -> Node:
    """max(0, x) + min(0, alpha * (e**(x / alpha) - 1))"""
    alpha = ctx.float("alpha", 1.0)
    return _exponential_below_zero(x, alpha, alpha)


def _exponential_below_zero(x: Node, scale: float, width: float) -> Node:
    inner = x if width == 1.0 else build.divide(x, width)
    return build.select(build.less(x, 0), build.multiply(build.expm1(inner), scale), x)


@op("Gelu", since=20)
def gelu(ctx: NodeContext, x: Node) -> Node:
    """x times the normal distribution function: exact through erf, or the tanh approximation."""
    if ctx.text("approximate", "none") == "tanh":
        cubic = build.add(x, build.multiply(0.044715, build.multiply(x, build.multiply(x, x))))
        inner = build.tanh(build.multiply(math.sqrt(2 / math.pi), cubic))
    else:
        inner = build.erf(build.divide(x, math.sqrt(2)))
    return build.multiply(build.multiply(0.5, x), build.add(1, inner))


@op("HardSigmoid", since=1)
def hard_sigmoid(ctx: NodeContext, x: Node) -> Node:
    """max(0, min(1, alpha * x + beta))"""
    line = build.add(build.multiply(x, ctx.float("alpha", 0.2)), ctx.float("beta", 0.5))
    return build.maximum(build.minimum(line, 1), 0)


@op("HardSwish", since=14)
def hard_swish(_ctx: NodeContext, x: Node) -> Node:
    """x * max(0, min(1, x / 6 + 1/2))"""
    line = build.add(build.multiply(x, 1 / 6), 0.5)
    return build.multiply(x, build.maximum(build.minimum(line, 1), 0))


@op("Softplus", since=1)
def softplus(_ctx: NodeContext, x: Node) -> Node:
    """log(1 + e**x), without overflow: max(x, 0) + log1p(e**-|x|)"""
    return _softplus(x)


def _softplus(x: Node) -> Node:
    tail = build.log1p(build.exp(build.negative(build.absolute(x))))
    return build.add(build.maximum(x, 0), tail)


@op("Softsign", since=1)
def softsign(_ctx: NodeContext, x: Node) -> Node:
    """x / (1 + |x|)"""
    return build.divide(x, build.add(1, build.absolute(x)))


@op("Mish", since=18)
def mish(_ctx: NodeContext, x: Node) -> Node:
    """x * tanh(softplus(x))"""
    return build.multiply(x, build.tanh(_softplus(x)))


@op("Swish", since=24)
def swish(ctx: NodeContext, x: Node) -> Node:
    """x * sigmoid(alpha * x)"""
    alpha = ctx.float("alpha", 1.0)
    return build.multiply(x, build.logistic(x if alpha == 1.0 else build.multiply(x, alpha)))


@op("Shrink", since=9)
def shrink(ctx: NodeContext, x: Node) -> Node:
    """x + bias below -lambd, x - bias above lambd, else 0."""
    limit, bias = ctx.float("lambd", 0.5), ctx.float("bias", 0.0)
    if x.tensor.dtype.is_integer:
        # The standard allows integers: compare and shift in f32, then cut off.
        inner = _shrink(build.cast(x, "f32"), limit, bias)
        return build.cast(inner, x.tensor.dtype)
    return _shrink(x, limit, bias)


def _shrink(x: Node, limit: float, bias: float) -> Node:
    above = build.select(build.greater(x, limit), build.subtract(x, bias), 0)
    return build.select(build.less(x, -limit), build.add(x, bias), above)
