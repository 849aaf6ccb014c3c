"""Arithmetic, comparison, choice and elementary functions, element by element."""

from __future__ import annotations

import math
from typing import Any

from luban.core.dims import Dim
from luban.core.dtypes import DType, dtype
from luban.frontend.torch.call import Call, Operand
from luban.frontend.torch.registry import aten
from luban.graph import build
from luban.ir.node import Node

__all__: list[str] = []

_UNARY = {
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan",
    "atanh": "atanh", "cos": "cos", "cosh": "cosh", "erf": "erf", "exp": "exp", "expm1": "expm1",
    "log": "log", "log1p": "log1p", "rsqrt": "rsqrt", "sigmoid": "logistic", "sin": "sin",
    "sinh": "sinh", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh",
}  # fmt: skip
_WHOLE = {"ceil": "ceil", "floor": "floor", "round": "round", "trunc": "trunc"}
_COMPARE = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}  # fmt: skip
_LOGICAL = {
    "logical_and": "bitwise_and",
    "logical_or": "bitwise_or",
    "logical_xor": "bitwise_xor",
}
_BITS = {"bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor"}


def common_dtype(x: Operand, y: Operand) -> DType:
    """The dtype that two operands are compared in: numbers and scalars give way to tensors."""
    nodes = [value for value in (x, y) if isinstance(value, Node)]
    ranked = [n for n in nodes if n.tensor.rank] or nodes
    order = ("bool", "uint", "int", "float")
    best = max(ranked, key=lambda n: (order.index(n.tensor.dtype.kind), n.tensor.dtype.bits))
    found = best.tensor.dtype
    for value in (x, y):
        kind = value.tensor.dtype.kind if isinstance(value, Node) else _kind(value)
        if order.index(kind) > order.index(found.kind):
            found = value.tensor.dtype if isinstance(value, Node) else _default(kind)
    return _joined([n.tensor.dtype for n in ranked], found)


def _joined(listed: list[DType], found: DType) -> DType:
    """f16 with bf16 is f32, u8 with i8 is i16."""
    names = {d.name for d in listed}
    if {"f16", "bf16"} <= names:
        return dtype("f32")
    if found.kind == "int" and "u8" in names and found.bits == 8:
        return dtype("i16")
    return found


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "int" if isinstance(value, int | Dim) else "float"


def _default(kind: str) -> DType:
    return dtype({"bool": "bool", "int": "i64", "float": "f32"}[kind])


def truth(x: Node) -> Node:
    """Whether each element is anything but zero."""
    return x if x.tensor.dtype.kind == "bool" else build.not_equal(x, 0)


def _register_tables() -> None:
    for name, primitive in _UNARY.items():
        aten(f"{name}.default")(_unary(primitive))
    for name, primitive in _WHOLE.items():
        aten(f"{name}.default")(_whole(primitive))
    for name, primitive in _COMPARE.items():
        aten(f"{name}.Tensor", f"{name}.Scalar")(_compare(primitive))
    for name, primitive in _LOGICAL.items():
        aten(f"{name}.default")(_logical(primitive))
    for name, primitive in _BITS.items():
        aten(f"{name}.Tensor", f"{name}.Scalar", f"{name}.Scalar_Tensor")(_plain(primitive))
    for name, primitive in (("maximum", "maximum"), ("minimum", "minimum"), ("atan2", "atan2")):
        aten(f"{name}.default")(_plain(primitive))


def _unary(primitive: str) -> Any:
    def handler(call: Call, x: Node) -> Node:
        return build.unary(primitive, call.operand(x, call.type.dtype))

    return handler


def _whole(primitive: str) -> Any:
    def handler(call: Call, x: Node) -> Node:
        return build.unary(primitive, x) if x.tensor.dtype.is_float else x

    return handler


def _compare(primitive: str) -> Any:
    def handler(call: Call, x: Operand, y: Operand) -> Node:
        common = common_dtype(x, y)
        return build.binary(primitive, call.spread(x, common), call.spread(y, common))

    return handler


def _logical(primitive: str) -> Any:
    def handler(call: Call, x: Node, y: Node) -> Node:
        return build.binary(primitive, truth(x), truth(y))

    return handler


def _plain(primitive: str) -> Any:
    def handler(call: Call, x: Operand, y: Operand) -> Node:
        element = call.type.dtype
        if element.kind == "bool" and primitive in ("maximum", "minimum"):
            name = "bitwise_or" if primitive == "maximum" else "bitwise_and"
            return build.binary(name, call.spread(x), call.spread(y))
        return build.binary(primitive, call.spread(x), call.spread(y))

    return handler


_register_tables()


@aten("add.Tensor", "add.Scalar")
def add(call: Call, x: Operand, y: Operand, alpha: float = 1) -> Node:
    """x + alpha * y; or, for bool."""
    if call.type.dtype.kind == "bool":
        return build.bitwise_or(call.spread(x), call.spread(y))
    return build.add(call.spread(x), _times(call, y, alpha))


@aten("sub.Tensor", "sub.Scalar")
def sub(call: Call, x: Operand, y: Operand, alpha: float = 1) -> Node:
    """x - alpha * y."""
    return build.subtract(call.spread(x), _times(call, y, alpha))


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(call: Call, x: Operand, y: Operand, alpha: float = 1) -> Node:
    """y - alpha * x."""
    return build.subtract(call.spread(y), _times(call, x, alpha))


def _times(call: Call, y: Operand, alpha: float) -> Node:
    spread = call.spread(y)
    return spread if alpha == 1 else build.multiply(spread, alpha)


@aten("mul.Tensor", "mul.Scalar")
def mul(call: Call, x: Operand, y: Operand) -> Node:
    """x * y; and, for bool."""
    if call.type.dtype.kind == "bool":
        return build.bitwise_and(call.spread(x), call.spread(y))
    return build.multiply(call.spread(x), call.spread(y))


@aten("div.Tensor", "div.Scalar")
def div(call: Call, x: Operand, y: Operand) -> Node:
    """The true quotient, a float."""
    return build.divide(call.spread(x), call.spread(y))


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(call: Call, x: Operand, y: Operand, rounding_mode: str | None = None) -> Node:
    """The quotient, truncated or rounded down if asked."""
    a, b = call.spread(x), call.spread(y)
    if rounding_mode is None:
        return build.divide(a, b)
    if rounding_mode == "trunc":
        quotient = build.divide(a, b)
        return build.unary("trunc", quotient) if quotient.tensor.dtype.is_float else quotient
    if a.tensor.dtype.is_float:
        return _floor_quotient(a, b)
    return build.divide(build.subtract(a, build.floor_mod(a, b)), b)


@aten("floor_divide.default", "floor_divide.Scalar")
def floor_divide(call: Call, x: Operand, y: Operand) -> Node:
    """The quotient rounded down."""
    return div_mode(call, x, y, rounding_mode="floor")


def _floor_quotient(a: Node, b: Node) -> Node:
    """As Python divides floats: what remains is exact, so the quotient is nearly whole."""
    rest = build.remainder(a, b)
    differs = build.not_equal(build.less(b, 0), build.less(rest, 0))
    wrong_way = build.bitwise_and(build.not_equal(rest, 0), differs)
    quotient = build.divide(build.subtract(a, rest), b)
    quotient = build.subtract(quotient, build.cast(wrong_way, a.tensor.dtype))
    whole = build.floor(quotient)
    nearer = build.greater(build.subtract(quotient, whole), 0.5)
    whole = build.add(whole, build.cast(nearer, a.tensor.dtype))
    zero = build.multiply(build.divide(a, b), 0.0)
    whole = build.select(build.equal(quotient, 0), zero, whole)
    return build.select(build.equal(b, 0), build.divide(a, b), whole)


@aten("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(call: Call, x: Operand, y: Operand) -> Node:
    """What remains, with the sign of y."""
    a, b = call.spread(x), call.spread(y)
    if not a.tensor.dtype.is_float:
        return build.floor_mod(a, b)
    rest = build.remainder(a, b)
    differs = build.not_equal(build.less(b, 0), build.less(rest, 0))
    wrong = build.bitwise_and(build.not_equal(rest, 0), differs)
    return build.select(wrong, build.add(rest, b), rest)


@aten("fmod.Tensor", "fmod.Scalar")
def fmod(call: Call, x: Operand, y: Operand) -> Node:
    """What remains, with the sign of x."""
    return build.remainder(call.spread(x), call.spread(y))


@aten("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def power(call: Call, x: Operand, y: Operand) -> Node:
    """x**y; small whole exponents by products."""
    if isinstance(y, int | float) and not isinstance(y, bool):
        base = call.spread(x)
        if y == 2:
            return build.multiply(base, base)
        if y == 3:
            return build.multiply(build.multiply(base, base), base)
        if y == 0.5 and base.tensor.dtype.is_float:
            return build.sqrt(base)
        if y == -1 and base.tensor.dtype.is_float:
            return build.divide(build.lift(1.0, base), base)
        if y == 1:
            return base
    return build.power(call.spread(x), call.spread(y))


@aten("neg.default")
def neg(call: Call, x: Node) -> Node:
    """-x."""
    return build.negative(x)


@aten("abs.default")
def absolute(call: Call, x: Node) -> Node:
    """|x|."""
    return build.absolute(x) if x.tensor.dtype.kind in ("float", "int") else x


@aten("sign.default")
def sign(call: Call, x: Node) -> Node:
    """-1, 0 or 1; 0 for NaN."""
    if x.tensor.dtype.kind == "bool":
        return x
    element = x.tensor.dtype
    return build.subtract(
        build.cast(build.greater(x, 0), element), build.cast(build.less(x, 0), element)
    )


@aten("reciprocal.default")
def reciprocal(call: Call, x: Node) -> Node:
    """1 / x."""
    y = call.operand(x, call.type.dtype)
    return build.divide(build.lift(1.0, y), y)


@aten("log2.default")
def log2(call: Call, x: Node) -> Node:
    """Logarithm to base 2."""
    return build.divide(build.log(call.operand(x, call.type.dtype)), math.log(2))


@aten("log10.default")
def log10(call: Call, x: Node) -> Node:
    """Logarithm to base 10."""
    return build.divide(build.log(call.operand(x, call.type.dtype)), math.log(10))


@aten("exp2.default")
def exp2(call: Call, x: Node) -> Node:
    """2**x."""
    y = call.operand(x, call.type.dtype)
    return build.power(build.lift(2.0, y), y)


@aten("erfc.default")
def erfc(call: Call, x: Node) -> Node:
    """1 - erf(x), in double for small values' sake."""
    y = call.operand(x, "f64")
    return build.cast(build.subtract(build.lift(1.0, y), build.erf(y)), call.type.dtype)


@aten("relu.default")
def relu(call: Call, x: Node) -> Node:
    """max(x, 0)."""
    return build.maximum(x, 0)


@aten("clamp.default", "clamp.Tensor", "hardtanh.default")
def clamp(call: Call, x: Node, low: Operand | None = None, high: Operand | None = None) -> Node:
    """x within two bounds; NaN stays."""
    found = call.spread(x)
    if low is not None:
        found = build.maximum(found, call.spread(low))
    if high is not None:
        found = build.minimum(found, call.spread(high))
    return found


@aten("clamp_min.default", "clamp_min.Tensor")
def clamp_min(call: Call, x: Node, low: Operand) -> Node:
    """The larger of x and a bound."""
    return clamp(call, x, low)


@aten("clamp_max.default", "clamp_max.Tensor")
def clamp_max(call: Call, x: Node, high: Operand) -> Node:
    """The smaller of x and a bound."""
    return clamp(call, x, None, high)


@aten("fmax.default")
def fmax(call: Call, x: Node, y: Node) -> Node:
    """The larger; the number if the other is NaN."""
    return _ignoring_nan(call, "maximum", x, y)


@aten("fmin.default")
def fmin(call: Call, x: Node, y: Node) -> Node:
    """The smaller; the number if the other is NaN."""
    return _ignoring_nan(call, "minimum", x, y)


def _ignoring_nan(call: Call, primitive: str, x: Node, y: Node) -> Node:
    a, b = call.spread(x), call.spread(y)
    if call.type.dtype.kind == "bool":
        return build.binary("bitwise_or" if primitive == "maximum" else "bitwise_and", a, b)
    found = build.binary(primitive, a, b)
    if not a.tensor.dtype.is_float:
        return found
    return build.select(build.is_nan(a), b, build.select(build.is_nan(b), a, found))


@aten("isnan.default")
def isnan(call: Call, x: Node) -> Node:
    """Whether x is not a number."""
    if not x.tensor.dtype.is_float:
        return build.full(x.tensor.shape, False, "bool")
    return build.is_nan(x)


@aten("isinf.default")
def isinf(call: Call, x: Node) -> Node:
    """Whether x is infinite."""
    if not x.tensor.dtype.is_float:
        return build.full(x.tensor.shape, False, "bool")
    return build.is_inf(x)


@aten("logical_not.default")
def logical_not(call: Call, x: Node) -> Node:
    """Whether x is zero."""
    return build.bitwise_not(truth(x))


@aten("bitwise_not.default")
def bitwise_not(call: Call, x: Node) -> Node:
    """Every bit flipped; not, for bool."""
    return build.bitwise_not(x)


@aten("bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar", "__lshift__.Scalar")
def left_shift(call: Call, x: Operand, y: Operand) -> Node:
    """x * 2**y."""
    return build.shift_left(call.spread(x), call.spread(y))


@aten("bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar", "__rshift__.Scalar")
def right_shift(call: Call, x: Operand, y: Operand) -> Node:
    """x / 2**y, rounded down."""
    return build.shift_right(call.spread(x), call.spread(y))


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(call: Call, predicate: Node, x: Operand, y: Operand) -> Node:
    """x where the predicate holds, else y."""
    chosen = build.broadcast_to(truth(predicate), call.type.shape)
    return build.select(chosen, call.spread(x), call.spread(y))


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(call: Call, x: Node, mask: Node, value: Operand) -> Node:
    """`value` where the mask is true."""
    return where(call, mask, value, x)


@aten("_to_copy.default", "convert_element_type.default", "prims.convert_element_type.default")
def to_copy(call: Call, x: Node, _element: Any = None, **_options: Any) -> Node:
    """Another dtype: floats to integers are truncated."""
    return build.cast(x, call.type.dtype, saturate=False)


@aten(
    "alias.default",
    "clone.default",
    "detach.default",
    "lift_fresh_copy.default",
    "view_of.default",
    "prims.view_of.default",
    "contiguous.default",
)
def same(call: Call, x: Node, **_options: Any) -> Node:
    """The same values."""
    return x


@aten("copy.default")
def copy(call: Call, _x: Node, y: Node, non_blocking: bool = False) -> Node:
    """y, in the dtype and shape of x."""
    return call.spread(y)


@aten("round.decimals")
def round_decimals(call: Call, x: Node, *, decimals: int) -> Node:
    """The nearest number with so many digits behind the point; ties to even."""
    if not x.tensor.dtype.is_float:
        return x
    scale = float(10 ** abs(decimals))
    wide = build.cast(x, build.accumulator_dtype(x))
    if decimals >= 0:
        return build.divide(build.round_even(build.multiply(wide, scale)), scale)
    return build.multiply(build.round_even(build.divide(wide, scale)), scale)


@aten("hypot.default")
def hypot(call: Call, x: Node, y: Node) -> Node:
    """The length of a vector, without overflow on the way."""
    a, b = build.absolute(call.spread(x)), build.absolute(call.spread(y))
    large, small = build.maximum(a, b), build.minimum(a, b)
    ratio = build.divide(small, large)
    length = build.multiply(large, build.sqrt(build.add(build.multiply(ratio, ratio), 1.0)))
    plain = build.bitwise_or(build.equal(small, 0), build.is_inf(large))
    infinite = build.bitwise_or(build.is_inf(a), build.is_inf(b))
    return build.select(infinite, math.inf, build.select(plain, large, length))


@aten("signbit.default", "prims.signbit.default")
def signbit(call: Call, x: Node) -> Node:
    """Whether the sign is negative, that of zero and NaN too."""
    if not x.tensor.dtype.is_float:
        return build.less(call.operand(x, "i64"), 0)
    bits = build.bitcast(x, f"i{x.tensor.dtype.bits}")
    return build.less(bits, 0)


@aten("copysign.Tensor", "copysign.Scalar")
def copysign(call: Call, x: Operand, y: Operand) -> Node:
    """|x| with the sign of y."""
    size = build.absolute(call.spread(x))
    return build.select(signbit(call, call.spread(y)), build.negative(size), size)
