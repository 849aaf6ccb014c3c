"""Integer and bool arithmetic on registers. Nothing here traps or is undefined, whatever the
operands.
"""

from __future__ import annotations

from luban.codegen.writer import BITS, Value, Writer
from luban.core.dtypes import DType
from luban.core.errors import InternalError

__all__ = ["binary", "clamp", "predicate", "unary"]

_SIMPLE = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}


def predicate(name: str, dtype: DType) -> str:
    """The icmp predicate of a comparison of `dtype`.

    >>> from luban.core.dtypes import dtype
    >>> predicate("lt", dtype("u8")), predicate("lt", dtype("i8")), predicate("eq", dtype("i8"))
    ('ult', 'slt', 'eq')
    """
    if name in ("eq", "ne"):
        return name
    return ("s" if dtype.kind == "int" else "u") + name


def unary(w: Writer, kind: str, dtype: DType, x: Value) -> Value:
    """One integer or bool function of one part."""
    signed = dtype.kind == "int"
    match kind:
        case "neg":
            return w.binary("sub", w.number(0, x), x)
        case "abs":
            return w.call(_named("abs", x), x.elem, x.lanes, x, tail=", i1 false") if signed else x
        case "sign" if signed:
            low = w.intrinsic("smax", x, w.integer(-1, x.elem, x.lanes))
            return w.intrinsic("smin", low, w.number(1, x))
        case "sign":
            return w.intrinsic("umin", x, w.number(1, x))
        case "not":
            ones = w.number(1, x) if x.elem == "i1" else w.integer(-1, x.elem, x.lanes)
            return w.binary("xor", x, ones)
        case "popcount":
            return w.intrinsic("ctpop", x)
    raise InternalError(
        f"no LLVM code for {kind} of {dtype}: add it to src/luban/codegen/integers.py"
    )


def _named(name: str, x: Value) -> str:
    return f"llvm.{name}.{f'v{x.lanes}' if x.lanes else ''}{x.elem}"


def binary(w: Writer, kind: str, dtype: DType, a: Value, b: Value) -> Value:
    """One integer or bool function of two parts."""
    signed = dtype.kind == "int"
    if kind in _SIMPLE:
        return w.binary(_SIMPLE[kind], a, b)
    match kind:
        case "min" | "max":
            return w.intrinsic(("s" if signed else "u") + kind, a, b)
        case "div" | "rem":
            return _divide(w, kind, signed, a, b)
        case "shl" | "shr_logical":
            opcode = "shl" if kind == "shl" else "lshr"
            inside = w.compare("ult", b, w.number(BITS[a.elem], b))
            return w.select(inside, w.binary(opcode, a, b), w.number(0, a))
        case "shr_arithmetic":
            return w.binary("ashr", a, w.intrinsic("umin", b, w.number(BITS[a.elem] - 1, b)))
        case "mulhi":
            return _multiply_high(w, signed, a, b)
    raise InternalError(
        f"no LLVM code for {kind} of {dtype}: add it to src/luban/codegen/integers.py"
    )


def clamp(w: Writer, x: Value, signed: bool, low: int | None, high: int | None) -> Value:
    """x held between bounds, which are None where the type already keeps them."""
    letter = "s" if signed else "u"
    if low is not None:
        x = w.intrinsic(letter + "max", x, w.integer(low, x.elem, x.lanes))
    if high is not None:
        x = w.intrinsic(letter + "min", x, w.integer(high, x.elem, x.lanes))
    return x


def _multiply_high(w: Writer, signed: bool, a: Value, b: Value) -> Value:
    bits = BITS[a.elem]
    wide = f"i{2 * bits}"
    extend = "sext" if signed else "zext"
    product = w.binary("mul", w.convert(extend, a, wide), w.convert(extend, b, wide))
    return w.convert("trunc", w.binary("lshr", product, w.integer(bits, wide, a.lanes)), a.elem)


def _divide(w: Writer, kind: str, signed: bool, a: Value, b: Value) -> Value:
    """Quotient towards zero, or remainder: x / 0 = x rem 0 = min rem -1 = 0, min / -1 = min."""
    if b.is_constant and _safe_divisor(b):
        return w.binary(_opcode(kind, signed), a, b)
    if a.lanes and BITS[a.elem] <= 32:
        return _divide_by_floats(w, kind, signed, a, b)
    zero, one = w.number(0, b), w.number(1, b)
    by_zero = w.compare("eq", b, zero)
    divisor = w.select(by_zero, one, b)
    if signed:
        # Dividing min by -1 overflows and traps; a / -1 = -a wraps, and a rem -1 = 0.
        minus = w.compare("eq", b, w.integer(-1, b.elem, b.lanes))
        divisor = w.select(minus, one, divisor)
    result = w.binary(_opcode(kind, signed), a, divisor)
    if signed and kind == "div":
        result = w.select(minus, w.binary("sub", zero, a), result)
    return w.select(by_zero, zero, result)


def _opcode(kind: str, signed: bool) -> str:
    return ("s" if signed else "u") + kind


def _safe_divisor(b: Value) -> bool:
    text = b.text.removesuffix(")").rsplit(" ", 1)[-1]
    whole = not b.lanes or b.text.startswith("splat (")
    return whole and text not in ("0", "-1")


def _divide_by_floats(w: Writer, kind: str, signed: bool, a: Value, b: Value) -> Value:
    """The same through floats, which vectors can divide.

    With p bits of mantissa and n-bit integers, n + 2 <= p, the rounded quotient cannot reach the
    next whole number, so cutting it gives the exact integer quotient. i32 in f64; i8 and i16 in
    f32.
    """
    bits = BITS[a.elem]
    elem, wide = ("double", "i64") if bits == 32 else ("float", "i32")
    to_float, from_float = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    zero, one = w.number(0, b), w.number(1, b)
    by_zero = w.compare("eq", b, zero)
    divisor = w.select(by_zero, one, b)
    ratio = w.binary("fdiv", w.convert(to_float, a, elem), w.convert(to_float, divisor, elem))
    # min / -1 = 2**(bits - 1) does not fit; in the wider integer it does, and wraps when cut.
    middle = wide if signed and bits < 32 else a.elem
    if signed and bits == 32:
        overflow = w.compare("oge", ratio, w.number(2.0**31, ratio))
        ratio = w.select(overflow, w.number(-(2.0**31), ratio), ratio)
    quotient = w.convert(from_float, ratio, middle)
    if middle != a.elem:
        quotient = w.convert("trunc", quotient, a.elem)
    if kind == "rem":
        product = w.binary("mul", quotient, divisor)
        return w.select(by_zero, zero, w.binary("sub", a, product))
    return w.select(by_zero, zero, quotient)
