"""The meaning of the elementwise primitives."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from luban.core.dtypes import DTYPES, DType
from luban.graph.meaning.context import (
    Array,
    Context,
    Meaning,
    Precision,
    storage,
    stored,
    to_narrow_float,
    widened,
)
from luban.graph.ops.elementwise import (
    BINARY,
    COMPARE,
    UNARY,
    UNARY_BOOL,
    Bitcast,
    Cast,
    ElementwiseOp,
    Select,
)
from luban.ir.node import Op

__all__ = ["MEANING", "cast_array"]


def _sign(x: Array) -> Array:
    return np.where(x == 0, x, np.sign(x))  # numpy turns -0.0 into 0.0


def _erf(x: Array) -> Array:
    exact = np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size)
    return exact.reshape(x.shape).astype(x.dtype)


def _logistic(x: Array) -> Array:
    small = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


UNARY_MEANING: dict[str, Callable[[Array], Array]] = {
    "negative": np.negative,
    "abs": np.abs,
    "sign": _sign,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _erf,
    "logistic": _logistic,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "bitwise_not": np.invert,
    "is_nan": np.isnan,
    "is_inf": np.isinf,
}


def _divide(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.divide(x, y)
    divisor = np.where(y == 0, 1, y).astype(y.dtype)
    quotient = np.floor_divide(x, divisor)
    inexact = quotient * divisor != x
    towards_zero = quotient + (inexact & ((x < 0) != (divisor < 0))).astype(x.dtype)
    return np.where(y == 0, 0, towards_zero).astype(x.dtype)


def _remainder(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.fmod(x, y)
    return np.where(y == 0, 0, np.fmod(x, np.where(y == 0, 1, y))).astype(x.dtype)


def _floor_mod(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.mod(x, y)
    return np.where(y == 0, 0, np.mod(x, np.where(y == 0, 1, y))).astype(x.dtype)


def _power(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.power(x, y)
    if x.dtype.kind == "u":
        return np.power(x, y)
    whole = np.power(x, np.maximum(y, 0))
    odd = (y & 1) == 1
    unit = np.where(x == 1, 1, np.where(x == -1, np.where(odd, -1, 1), 0))
    return np.where(y < 0, unit, whole).astype(x.dtype)


def _maximum(x: Array, y: Array) -> Array:
    """-0.0 is below 0.0: numpy returns either of two zeros."""
    chosen = np.maximum(x, y)
    return np.where((x == 0) & (y == 0), x + y, chosen) if x.dtype.kind == "f" else chosen


def _minimum(x: Array, y: Array) -> Array:
    return -_maximum(-x, -y) if x.dtype.kind == "f" else np.minimum(x, y)


BINARY_MEANING: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": _divide,
    "remainder": _remainder,
    "floor_mod": _floor_mod,
    "power": _power,
    "maximum": _maximum,
    "minimum": _minimum,
    "atan2": np.arctan2,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}


def _elementwise(op: ElementwiseOp, operands: list[Array], context: Context) -> Array:
    wide = [widened(x) for x in operands]
    if op.arity == 1:
        result = UNARY_MEANING[op.name](wide[0])
    else:
        result = BINARY_MEANING[op.name](wide[0], wide[1])
    return stored(result, context.result.dtype, context.precision)


def _rsqrt(_: Op, operands: list[Array], context: Context) -> Array:
    element = context.result.dtype
    root = stored(np.sqrt(widened(operands[0])), element, context.precision)
    return stored(1 / widened(root), element, context.precision)


def _shift(op: ElementwiseOp, operands: list[Array], context: Context) -> Array:
    element = context.result.dtype
    x, amount = (widened(a) for a in operands)
    too_far = (amount < 0) | (amount >= element.bits)  # a negative amount counts as a huge one
    safe = np.where(too_far, element.bits - 1, amount).astype(x.dtype)
    if op.name == "shift_right":
        fill = np.where(x < 0, -1, 0).astype(x.dtype)
        return stored(np.where(too_far, fill, x >> safe), element, context.precision)
    shifted = np.where(too_far, 0, x << safe).astype(x.dtype)
    return stored(shifted, element, context.precision)


def _select(_: Select, operands: list[Array], __: Context) -> Array:
    predicate, x, y = operands
    return np.where(predicate, x, y)


def _cast(op: Cast, operands: list[Array], context: Context) -> Array:
    return cast_array(operands[0], op.dtype, saturate=op.saturate, precision=context.precision)


def cast_array(
    x: Array, element: DType, *, saturate: bool = True, precision: Precision = "model"
) -> Array:
    """The values in another dtype, as `Cast` documents it.

    >>> from luban.core.dtypes import dtype
    >>> cast_array(np.array([np.nan, np.inf, -1.5, 3e9]), dtype("i32"))
    array([         0, 2147483647,         -1, 2147483647], dtype=int32)
    """
    with np.errstate(all="ignore"):
        return _converted(widened(x), element, saturate, precision)


def _converted(wide: Array, element: DType, saturate: bool, precision: Precision) -> Array:
    if wide.dtype.kind == "c" and element.kind != "complex":
        wide = wide.real
    if element.kind == "bool":
        return np.asarray(wide != 0)
    if element.is_integer and wide.dtype.kind == "f":
        holder = element if saturate or element.name == "u64" else DTYPES["i64"]
        return _clamped(wide, int(holder.lowest), int(holder.highest)).astype(element.numpy)
    if element.is_float and element.bits <= 8:
        return _to_tiny_float(wide, element, saturate).astype(storage(element, precision))
    return stored(wide, element, precision)


def _clamped(x: Array, low: int, high: int) -> Array:
    """Towards zero and clamped, as i64, or as u64 where i64 is too narrow; NaN gives 0."""
    whole = np.trunc(x.astype(np.float64))
    holder = np.uint64 if high > np.iinfo(np.int64).max else np.int64
    above, below = whole >= float(high), whole <= float(low)
    inside = np.where(above | below | np.isnan(whole), 0, whole).astype(holder)
    return np.where(above, holder(high), np.where(below, holder(low), inside))


def _to_tiny_float(x: Array, element: DType, saturate: bool) -> Array:
    if x.dtype.kind in "iub":
        x = x.astype(np.float64)
    if saturate:
        if element.name == "f8e8m0":
            largest, smallest = 2.0**127, 2.0**-127
        else:
            largest = float(np.asarray(_largest_finite(element)))
            smallest = -largest
        x = np.clip(x, x.dtype.type(smallest), x.dtype.type(largest))
    return to_narrow_float(x, element.numpy)


def _largest_finite(element: DType) -> float:
    return 57344.0 if element.has_infinity else float(element.highest)


def _bitcast(op: Bitcast, operands: list[Array], context: Context) -> Array:
    source = context.operand(0).dtype
    bits = np.ascontiguousarray(stored(operands[0], source, "model")).reshape(operands[0].shape)
    if source.bits >= 8:
        return stored(bits.view(op.dtype.numpy), op.dtype, context.precision)
    # Below 8 bits numpy holds one element a byte; the bits are the low ones.
    low = bits.view(np.uint8) & np.uint8((1 << source.bits) - 1)
    if op.dtype.is_float:
        return stored(low.view(op.dtype.numpy), op.dtype, context.precision)
    return low.astype(op.dtype.numpy)


MEANING: dict[type[Op], Meaning] = {
    **dict.fromkeys((UNARY | UNARY_BOOL | BINARY | COMPARE).values(), _elementwise),
    UNARY["rsqrt"]: _rsqrt,
    BINARY["shift_left"]: _shift,
    BINARY["shift_right"]: _shift,
    Select: _select,
    Cast: _cast,
    Bitcast: _bitcast,
}
