"""Elementwise arithmetic, with the axis / broadcast attributes of opsets 1 to 6."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from luban.core.dtypes import DType, dtype
from luban.frontend.onnx.context import NodeContext
from luban.frontend.onnx.registry import op
from luban.graph import build
from luban.ir.node import Node

__all__ = ["legacy_broadcast"]

_UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "is_nan",
    "Log": "log",
    "Neg": "negative",
    "Round": "round",
    "Sigmoid": "logistic",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
_BINARY = {"Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide"}


def legacy_broadcast(ctx: NodeContext, x: Node, y: Node) -> Node:
    """y shaped so that numpy's rule does what `broadcast` and `axis` said before opset 7.

    With `broadcast`, the axes of y line up with those of x from `axis` on, or with the last.
    """
    if ctx.opset >= 7 or not ctx.int("broadcast", 0) or not ctx.has("axis"):
        return y
    trailing = x.tensor.rank - y.tensor.rank - ctx.int("axis", 0) % max(x.tensor.rank, 1)
    return build.reshape(y, (*y.tensor.shape, *(1,) * max(trailing, 0)))


def _register_unary(name: str, primitive: str) -> None:
    @op(name, since=1)
    def handler(_ctx: NodeContext, x: Node) -> Node:
        return build.unary(primitive, x)


def _register_binary(name: str, primitive: str) -> None:
    @op(name, since=1)
    def handler(ctx: NodeContext, x: Node, y: Node) -> Node:
        return build.binary(primitive, x, legacy_broadcast(ctx, x, y))


for _name, _primitive in _UNARY.items():
    _register_unary(_name, _primitive)
for _name, _primitive in _BINARY.items():
    _register_binary(_name, _primitive)


@op("Reciprocal", since=1)
def reciprocal(_ctx: NodeContext, x: Node) -> Node:
    """1 / x"""
    return build.divide(1, x)


@op("Erf", since=9)
def erf(_ctx: NodeContext, x: Node) -> Node:
    """Error function; integers, which the standard allows too, go through f32 and are cut off."""
    if x.tensor.dtype.is_float:
        return build.erf(x)
    return build.cast(build.erf(build.cast(x, "f32")), x.tensor.dtype)


@op("IsInf", since=10)
def is_inf(ctx: NodeContext, x: Node) -> Node:
    """x is infinite, of the signs asked for; false for dtypes without infinities."""
    wanted = (bool(ctx.int("detect_negative", 1)), bool(ctx.int("detect_positive", 1)))
    if not x.tensor.dtype.has_infinity or not any(wanted):
        return build.full(x.tensor.shape, False, "bool")
    if all(wanted):
        return build.is_inf(x)
    return build.equal(x, float("-inf") if wanted[0] else float("inf"))


def _power_dtype(x: DType, y: DType) -> DType:
    """The dtype in which x**y is computed before it is cast to that of x."""
    if x.is_float:
        return x
    if y.is_float:
        return dtype("f64")
    return x if x.bits >= y.bits else y


@op("Pow", since=1)
def power(ctx: NodeContext, x: Node, y: Node) -> Node:
    """x**y in the dtype of x; an integer to a float power is computed in f64 and cut off."""
    y = legacy_broadcast(ctx, x, y)
    inner = _power_dtype(x.tensor.dtype, y.tensor.dtype)
    result = build.power(build.cast(x, inner), build.cast(y, inner))
    return build.cast(result, x.tensor.dtype)


@op("Mod", since=10)
def modulus(ctx: NodeContext, x: Node, y: Node) -> Node:
    """The remainder with the sign of y, or with that of x if `fmod`."""
    return build.remainder(x, y) if ctx.int("fmod", 0) else build.floor_mod(x, y)


def _register_variadic(name: str, combine: Callable[[Node, Node], Node]) -> None:
    @op(name, since=1)
    def handler(_ctx: NodeContext, *operands: Node) -> Node:
        return reduce(combine, operands)


_register_variadic("Sum", build.add)
_register_variadic("Max", build.maximum)
_register_variadic("Min", build.minimum)


@op("Mean", since=1)
def mean(_ctx: NodeContext, *operands: Node) -> Node:
    """The arithmetic mean of the operands."""
    return build.divide(reduce(build.add, operands), len(operands))


@op("Clip", since=1)
def clip(ctx: NodeContext, x: Node, low: Node | None = None, high: Node | None = None) -> Node:
    """min(max(x, low), high); a missing bound is none. Bounds are attributes before opset 11."""
    bounds: list[Node | float | None] = [low, high]
    if ctx.opset < 11:
        bounds = [ctx.float(name, 0.0) if ctx.has(name) else None for name in ("min", "max")]
    if bounds[0] is not None:
        x = build.maximum(x, _scalar(bounds[0]))
    return x if bounds[1] is None else build.minimum(x, _scalar(bounds[1]))


def _scalar(bound: Node | float) -> Node | float:
    """A bound of one element in any shape as a scalar, so that it never adds axes."""
    return build.reshape(bound, ()) if isinstance(bound, Node) else bound


@op("Where", since=9)
def where(_ctx: NodeContext, condition: Node, x: Node, y: Node) -> Node:
    """x where the condition holds, else y."""
    return build.select(condition, x, y)
