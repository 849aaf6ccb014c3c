"""f16, bf16, fp8 and f4: between memory, registers and f32.

f16 and bf16 are kept in registers as f32 numbers that the narrow type can hold: loading widens,
`round_carrier` restores that after an op, storing is exact. fp8, f4, i4 and i2 are kept as bytes
and only `decode` and `encode` look inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from luban.codegen.writer import Value, Writer
from luban.core.dtypes import DType

__all__ = [
    "decode",
    "encode",
    "from_memory",
    "is_stored_float",
    "odd_f32",
    "round_carrier",
    "to_memory",
    "wrap_small",
]


def is_stored_float(dtype: DType) -> bool:
    """True for fp8 and f4, which only move and convert."""
    return dtype.is_float and dtype.bits <= 8


def from_memory(w: Writer, dtype: DType, value: Value) -> Value:
    """What was loaded as `memory_elem`, as it is kept in registers."""
    match dtype.name:
        case "f16":
            return w.convert("fpext", value, "float")
        case "bf16":
            wide = w.convert("zext", value, "i32")
            return w.bitcast(w.binary("shl", wide, w.number(16, wide)), "float")
        case "bool":
            return w.compare("ne", value, w.number(0, value))
        case "i4" | "i2" | "u4" | "u2":
            return wrap_small(w, dtype, value)
    return value


def to_memory(w: Writer, dtype: DType, value: Value) -> Value:
    """The reverse; exact."""
    match dtype.name:
        case "f16":
            return w.convert("fptrunc", value, "half")
        case "bf16":
            bits = w.bitcast(value, "i32")
            return w.convert("trunc", w.binary("lshr", bits, w.number(16, bits)), "i16")
        case "bool":
            return w.convert("zext", value, "i8")
        case "i4" | "i2":
            return w.binary("and", value, w.number((1 << dtype.bits) - 1, value))
    return value


def wrap_small(w: Writer, dtype: DType, value: Value) -> Value:
    """An i8 cut to the range of a 2- or 4-bit type, as the i8 of that value."""
    if dtype.kind == "uint":
        return w.binary("and", value, w.number((1 << dtype.bits) - 1, value))
    shift = w.number(8 - dtype.bits, value)
    return w.binary("ashr", w.binary("shl", value, shift), shift)


def round_carrier(w: Writer, dtype: DType, value: Value) -> Value:
    """An f32 rounded to nearest even in f16 or bf16, still as f32; other types as they are."""
    if dtype.name == "f16":
        return w.convert("fpext", w.convert("fptrunc", value, "half"), "float")
    if dtype.name != "bf16":
        return value
    # By integers: the bf16 instructions of x86 flush subnormals to zero.
    bits = w.bitcast(value, "i32")
    kept = w.integer(-0x10000, "i32", bits.lanes)
    even = w.binary("and", w.binary("lshr", bits, w.number(16, bits)), w.number(1, bits))
    raised = w.binary("add", w.binary("add", bits, w.number(0x7FFF, bits)), even)
    quiet = w.binary("or", bits, w.number(0x400000, bits))
    chosen = w.select(w.compare("uno", value, value), quiet, raised)
    return w.bitcast(w.binary("and", chosen, kept), "float")


def odd_f32(w: Writer, value: Value) -> Value:
    """An f64 as f32 rounded to odd, so that rounding again to a narrower type is right (Boldo,
    Melquiond 2008).
    """
    nearest = w.convert("fptrunc", value, "float")
    back = w.convert("fpext", nearest, "double")
    too_far = w.compare("ogt", w.intrinsic("fabs", back), w.intrinsic("fabs", value))
    bits = w.bitcast(nearest, "i32")
    cut = w.select(too_far, w.binary("sub", bits, w.number(1, bits)), bits)
    inexact = w.compare("one", back, value)
    sticky = w.binary("or", cut, w.convert("zext", inexact, "i32"))
    return w.bitcast(sticky, "float")


@dataclass(frozen=True, slots=True)
class _Format:
    """A float of at most 8 bits with a sign.

    top  code of the largest finite magnitude; one above it is what overflow gives
    kind "ieee": then infinity, then NaN; "fn": then NaN; "fnuz": NaN is the code of -0; "finite":
    overflow saturates
    """

    mantissa: int
    bias: int
    top: int
    kind: Literal["ieee", "fn", "fnuz", "finite"]


_FORMATS = {
    "f8e4m3fn": _Format(3, 7, 0x7E, "fn"),
    "f8e4m3fnuz": _Format(3, 8, 0x7F, "fnuz"),
    "f8e5m2": _Format(2, 15, 0x7B, "ieee"),
    "f8e5m2fnuz": _Format(2, 16, 0x7F, "fnuz"),
    "f6e2m3": _Format(3, 1, 0x1F, "finite"),
    "f6e3m2": _Format(2, 3, 0x1F, "finite"),
    "f4e2m1": _Format(1, 1, 0x07, "finite"),
}


def decode(w: Writer, dtype: DType, code: Value) -> Value:
    """A byte of fp8 or f4 as f32; exact."""
    wide = w.convert("zext", code, "i32")
    if dtype.name == "f8e8m0":
        bits = w.binary("shl", wide, w.number(23, wide))
        bits = w.select(w.compare("eq", wide, w.number(0, wide)), w.number(0x400000, wide), bits)
        nan = w.compare("eq", wide, w.number(255, wide))
        return w.bitcast(w.select(nan, w.number(0x7FC00000, wide), bits), "float")
    form = _FORMATS[dtype.name]
    sign_bit = dtype.bits - 1
    magnitude = w.binary("and", wide, w.number((1 << sign_bit) - 1, wide))
    shift = 23 - form.mantissa
    bits = w.binary("shl", magnitude, w.number(shift, wide))
    bits = w.binary("add", bits, w.number((127 - form.bias) << 23, wide))
    units = w.convert("uitofp", magnitude, "float")
    tiny = w.binary("fmul", units, w.number(2.0 ** (1 - form.bias - form.mantissa), units))
    small = w.compare("ult", magnitude, w.number(1 << form.mantissa, wide))
    bits = w.select(small, w.bitcast(tiny, "i32"), bits)
    if form.kind in ("ieee", "fn"):
        above = w.compare("ugt", magnitude, w.number(form.top, wide))
        bits = w.select(above, w.number(0x7FC00000, wide), bits)
    if form.kind == "ieee":
        infinite = w.compare("eq", magnitude, w.number(form.top + 1, wide))
        bits = w.select(infinite, w.number(0x7F800000, wide), bits)
    moved = w.binary("shl", wide, w.number(31 - sign_bit, wide))
    sign = w.binary("and", moved, w.integer(-(1 << 31), "i32", wide.lanes))
    bits = w.binary("or", bits, sign)
    if form.kind == "fnuz":
        nan = w.compare("eq", wide, w.number(0x80, wide))
        bits = w.select(nan, w.integer(-0x400000, "i32", wide.lanes), bits)
    return w.bitcast(bits, "float")


def encode(w: Writer, dtype: DType, value: Value, saturate: bool) -> Value:
    """An f32 rounded to nearest even as a byte of fp8 or f4; overflow as `Cast` says."""
    bits = w.bitcast(value, "i32")
    magnitude = w.binary("and", bits, w.number(0x7FFFFFFF, bits))
    nan = w.compare("ugt", magnitude, w.number(0x7F800000, bits))
    if dtype.name == "f8e8m0":
        return w.convert("trunc", _encode_power(w, bits, magnitude, nan, saturate), "i8")
    form = _FORMATS[dtype.name]
    shift = 23 - form.mantissa
    odd = w.binary("and", w.binary("lshr", magnitude, w.number(shift, bits)), w.number(1, bits))
    raised = w.binary("add", magnitude, w.number((1 << (shift - 1)) - 1, bits))
    raised = w.binary("lshr", w.binary("add", raised, odd), w.number(shift, bits))
    code = w.binary("sub", raised, w.number((127 - form.bias) << form.mantissa, bits))
    # Below the smallest normal number, codes count units of the smallest subnormal.
    least = (128 - form.bias) << 23
    absolute = w.bitcast(w.intrinsic("umin", magnitude, w.number(least, bits)), "float")
    units = w.binary("fmul", absolute, w.number(2.0 ** (form.bias - 1 + form.mantissa), absolute))
    tiny = w.convert("fptoui", w.intrinsic("roundeven", units), "i32")
    code = w.select(w.compare("ult", magnitude, w.number(least, bits)), tiny, code)

    overflow = 0x80 if form.kind == "fnuz" else form.top + 1
    limit = form.top if saturate or form.kind == "finite" else overflow
    above = w.compare("sgt", code, w.number(form.top, bits))
    code = w.select(above, w.number(limit, bits), code)
    sign_bit = dtype.bits - 1
    sign = w.binary("lshr", bits, w.number(31, bits))
    sign = w.binary("shl", sign, w.number(sign_bit, bits))
    if form.kind == "fnuz":
        signed = w.binary("or", code, sign)
        code = w.select(w.compare("eq", code, w.number(0, bits)), code, signed)
        code = w.select(nan, w.number(0x80, bits), code)
    elif form.kind == "finite":  # no NaN: zero of the other sign, as ml_dtypes has it
        flipped = w.binary("xor", sign, w.number(1 << sign_bit, bits))
        code = w.select(nan, flipped, w.binary("or", code, sign))
    else:
        not_a_number = 0x7E if form.kind == "ieee" else 0x7F
        code = w.binary("or", w.select(nan, w.number(not_a_number, bits), code), sign)
    return w.convert("trunc", code, "i8")


def _encode_power(w: Writer, bits: Value, magnitude: Value, nan: Value, saturate: bool) -> Value:
    """e8m0: powers of two from 2**-127; ties go up; what is not positive is NaN."""
    half = w.number(0x400000, bits)
    code = w.binary("lshr", w.binary("add", magnitude, half), w.number(23, bits))
    subnormal = w.compare("ult", magnitude, w.number(0x800000, bits))
    upper = w.convert("zext", w.compare("uge", magnitude, w.number(0x600000, bits)), "i32")
    code = w.select(subnormal, upper, code)
    above = w.compare("ugt", code, w.number(0xFE, bits))
    code = w.select(above, w.number(0xFE if saturate else 0xFF, bits), code)
    positive = w.compare("sgt", bits, w.number(0, bits))
    code = w.select(positive, code, w.number(0 if saturate else 0xFF, bits))
    return w.select(nan, w.number(0xFF, bits), code)
