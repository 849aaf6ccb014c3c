"""Elementwise primitives of the graph as tile operations: one row per name."""

from __future__ import annotations

from collections.abc import Callable

from luban.core.dtypes import DType
from luban.graph.ops.elementwise import TRANSCENDENTAL
from luban.lower.trace import Declined
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr
from luban.tile.op import computes
from luban.tile.ops import BinaryKind, Predicate, UnaryKind

__all__ = ["apply", "check"]

_UNARY: dict[str, UnaryKind] = {
    "negative": "neg",
    "bitwise_not": "not",
    **{
        name: name  # type: ignore[misc]
        for name in (
            *("abs", "sqrt", "rsqrt", "floor", "ceil", "round", "trunc", "is_nan", "is_inf"),
            *sorted(TRANSCENDENTAL - {"power", "atan2"}),
        )
    },
}
_BINARY: dict[str, BinaryKind] = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "remainder": "rem",
    "maximum": "max",
    "minimum": "min",
    "power": "pow",
    "atan2": "atan2",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "shift_left": "shl",
}
_COMPARE: dict[str, Predicate] = {
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
}
HEAVY = TRANSCENDENTAL | {"divide", "remainder", "floor_mod"}


def check(name: str, operands: tuple[DType, ...]) -> None:
    """Raises Declined for an elementwise op that tile programs do not compute on these dtypes."""
    for dtype in operands:
        if dtype.kind in ("complex", "string"):
            raise Declined(f"{name} of {dtype} has no kernel")
        if (
            name not in ("cast", "select", "bitcast")
            and dtype.kind != "bool"
            and not computes(dtype)
        ):
            raise Declined(f"{name} of {dtype}: the type is for storage only")


def apply(b: FunctionBuilder, name: str, args: tuple[Expr, ...]) -> Expr:
    """The tile value of one elementwise primitive; operands broadcast."""
    if name in _UNARY:
        return b.unary(_UNARY[name], args[0])
    if name in _COMPARE:
        return _compare(b, _COMPARE[name], *args)
    if name == "power" and args[0].dtype.is_integer:
        return _integer_power(b, *args)
    if name in _BINARY:
        return b.binary(_BINARY[name], *args)
    return _SPECIAL[name](b, *args)


def _compare(b: FunctionBuilder, predicate: Predicate, x: Expr, y: Expr) -> Expr:
    if x.dtype.kind == "bool" and predicate not in ("eq", "ne"):
        x, y = b.cast(x, "u8"), b.cast(y, "u8")
    return b.compare(predicate, x, y)


def _sign(b: FunctionBuilder, x: Expr) -> Expr:
    zero = b.full(x.shape, 0.0 if x.dtype.is_float else 0, x.dtype)
    return b.select(b.compare("eq", x, zero), x, b.unary("sign", x))


def _floor_mod(b: FunctionBuilder, x: Expr, y: Expr) -> Expr:
    rest = b.binary("rem", x, y)
    zero = b.full((), 0.0 if x.dtype.is_float else 0, x.dtype)
    apart = b.compare("ne", b.compare("lt", rest, zero), b.compare("lt", y, zero))
    fix = b.binary("and", apart, b.compare("ne", rest, zero))
    return b.select(fix, b.binary("add", rest, y), rest)


def _integer_power(b: FunctionBuilder, x: Expr, y: Expr) -> Expr:
    """x**y by squaring, wrapped; for y < 0 what 1 / x**-y truncates to: 1, -1 or 0."""
    exponent = y.known
    one = b.full(x.shape, 1, x.dtype)
    if isinstance(exponent, int) and exponent >= 0:
        result, square = one, x
        while exponent:
            result = b.binary("mul", result, square) if exponent & 1 else result
            square, exponent = b.binary("mul", square, square), exponent >> 1
        return result
    shape = x.shape or y.shape
    base, rest = b.broadcast(x, shape), b.broadcast(y, shape)
    one, zero = b.full(shape, 1, x.dtype), b.full(shape, 0, x.dtype)
    if y.dtype.kind == "int":
        rest = b.binary("max", rest, zero)
    with b.while_([one, base, rest]) as loop:
        with loop.condition() as (_, _, left):
            most = left
            for _ in shape:
                most = b.reduce("or", most, 0)
            loop.test(b.compare("ne", most, 0))
        with loop.body() as (result, square, left):
            odd = b.compare("ne", b.binary("and", left, one), zero)
            loop.yield_(
                b.select(odd, b.binary("mul", result, square), result),
                b.binary("mul", square, square),
                b.binary("shr_logical", left, one),
            )
    whole = loop.results[0]
    if y.dtype.kind != "int":
        return whole
    odd = b.compare("ne", b.binary("and", b.broadcast(y, shape), one), zero)
    minus = b.full(shape, -1, x.dtype)
    unit = b.select(b.compare("eq", base, one), one, zero)
    unit = b.select(b.compare("eq", base, minus), b.select(odd, minus, one), unit)
    return b.select(b.compare("lt", b.broadcast(y, shape), zero), unit, whole)


def _shift_right(b: FunctionBuilder, x: Expr, y: Expr) -> Expr:
    return b.binary("shr_arithmetic" if x.dtype.kind == "int" else "shr_logical", x, y)


def _select(b: FunctionBuilder, condition: Expr, x: Expr, y: Expr) -> Expr:
    return b.select(condition, x, y)


_SPECIAL: dict[str, Callable[..., Expr]] = {
    "sign": _sign,
    "floor_mod": _floor_mod,
    "shift_right": _shift_right,
    "select": _select,
}
