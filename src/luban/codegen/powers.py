"""Exponents: scaling by powers of two, taking numbers apart, pow and the float remainder."""

from __future__ import annotations

import decimal
import functools
import math
import struct
from fractions import Fraction

from luban.codegen.numbers import LN2, MathFunction, Num, fma, polynomial, split, where
from luban.codegen.writer import Value, Writer, float_bits, float_text

__all__ = ["FUNCTIONS", "LOG2_E", "exponent_and_fraction", "power_of_two", "scale"]

LOG2_E = {"float": split(1 / LN2, 24, 24), "double": split(1 / LN2, 53, 53)}


def power_of_two(n: Num) -> Num:
    """2**n for a whole n in the range of normal exponents."""
    return _from_exponent(n, n.w.convert("fptosi", n.value, n.format.integer))


def _from_exponent(like: Num, exponent: Value) -> Num:
    w, form = like.w, like.format
    biased = w.binary("add", exponent, w.number(form.bias, exponent))
    bits = w.binary("shl", biased, w.number(form.mantissa, exponent))
    return Num(w, w.bitcast(bits, form.elem))


def scale(x: Num, n: Num) -> Num:
    """x * 2**n for a whole n, rounded once, to infinity and subnormals too."""
    w, value = x.w, x.value
    total_bits = x.format.bits * value.lanes
    wide = w.target.has("avx512f") and total_bits == 512
    if wide or (w.target.has("avx512vl") and total_bits in (128, 256)):
        short = "ps" if x.format.bits == 32 else "pd"
        mask = "i16" if value.lanes == 16 else "i8"
        tail = f", {value.typed}, {mask} -1" + (", i32 4" if wide else "")
        name = f"llvm.x86.avx512.mask.scalef.{short}.{total_bits}"
        types = [value.type, value.type, value.type, mask, *(["i32"] if wide else [])]
        w.declarations[name] = f"declare {value.type} @{name}({', '.join(types)})"
        call = f"call {value.type} @{name}({value.typed}, {n.value.typed}{tail})"
        return Num(w, w.result(call, value.elem, value.lanes))
    # In two steps, each of which is a normal number: only the last multiplication can round.
    whole = w.convert("fptosi", n.value, x.format.integer)
    half = w.binary("ashr", whole, w.number(1, whole))
    rest = w.binary("sub", whole, half)
    return x * _from_exponent(x, half) * _from_exponent(x, rest)


def exponent_and_fraction(x: Num) -> tuple[Num, Num]:
    """(e, f) with x = 2**e (1 + f) and sqrt(1/2) <= 1 + f < sqrt(2), for positive finite x."""
    w, form = x.w, x.format
    least = 2.0 ** (1 - form.bias)
    lift = form.mantissa + 2
    subnormal = x.test("olt", least)
    lifted = where(subnormal, x * 2.0**lift, x)
    bits = lifted.bits()
    offset = x.like(2.0**-0.5).bits()
    shifted = w.binary("sub", bits, offset)
    exponent = w.binary("ashr", shifted, w.number(form.mantissa, bits))
    cleared = w.binary("sub", bits, w.binary("shl", exponent, w.number(form.mantissa, bits)))
    fraction = Num(w, w.bitcast(cleared, form.elem)) - 1.0
    number = Num(w, w.convert("sitofp", exponent, form.elem))
    return where(subnormal, number - float(lift), number), fraction


def _whole_kind(y: Num) -> tuple[Value, Value]:
    """(y is a whole number, y is an odd one). Infinities and large numbers are even."""
    w = y.w
    whole = y.test("oeq", y.intrinsic("trunc"))
    half = y * 0.5
    half_whole = half.test("oeq", half.intrinsic("trunc"))
    return whole, w.binary("and", whole, w.binary("xor", half_whole, w.number(1, whole)))


def _pow_finish(x: Num, y: Num, magnitude: Num) -> Num:
    """The sign and the special cases of pow, given |x|**y."""
    w = x.w
    whole, odd = _whole_kind(y)
    negative = x.negative()
    result = where(w.binary("and", negative, odd), -magnitude, magnitude)
    fraction = w.binary("xor", whole, w.number(1, whole))
    below_zero = w.binary("and", x.test("olt", 0.0), x.test("one", -float("inf")))
    infinite = abs(y).test("oeq", float("inf"))
    result = where(w.binary("and", below_zero, fraction), x.like(float("nan")), result)
    result = where(x.test("uno", y), x + y, result)
    unit = w.binary("and", abs(x).test("oeq", 1.0), infinite)
    one = w.binary("or", unit, w.binary("or", x.test("oeq", 1.0), y.test("oeq", 0.0)))
    return where(one, x.like(1.0), result)


def _pow_float(x: Num, y: Num) -> Num:
    """|x|**y = 2**(y log2 |x|) in f64, whose rounding errors vanish in f32."""
    w = x.w
    wide_x, wide_y = (Num(w, w.convert("fpext", v.value, "double")) for v in (abs(x), y))
    exponent, f = exponent_and_fraction(wide_x)
    square = f * f
    log = f + fma(square, -0.5, polynomial("log", f) * (square * f))
    log = fma(log, 1 / math.log(2), exponent)
    log = where(wide_x.test("oeq", 0.0), log.like(-float("inf")), log)
    log = where(wide_x.test("ult", float("inf")), log, wide_x)
    p = (wide_y * log).at_least(-1000.0).at_most(1000.0)
    n = p.round()
    r = (p - n) * math.log(2)
    magnitude = scale(fma(polynomial("exp", r), r * r, r) + 1.0, n)
    narrow = Num(w, w.convert("fptrunc", magnitude.value, "float"))
    return _pow_finish(x, y, narrow)


_INTERVALS = 128
_PIECE_BITS = 52 - 7  # mantissa bits inside one interval


@functools.cache
def _log_table() -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    """(1 / c, high part of log(c), the rest) for a c near the middle of each interval.

    Bits are counted from those of sqrt(1/2); c is 1 where the interval holds 1. The high parts are
    multiples of 2**-42, so adding them to a multiple of the high part of ln(2) is exact.
    """
    start = float_bits("double", 2.0**-0.5)
    inverses, highs, lows = [], [], []
    with decimal.localcontext(decimal.Context(prec=60)):
        for number in range(_INTERVALS):
            first = start + (number << _PIECE_BITS)
            one = float_bits("double", 1.0)
            inside = first <= one < first + (1 << _PIECE_BITS)
            middle = struct.unpack("<d", struct.pack("<Q", first + (1 << (_PIECE_BITS - 1))))[0]
            inverse = 1.0 if inside else 1.0 / middle
            exact = Fraction(-decimal.Decimal(inverse).ln())
            high = float(Fraction(round(exact * 2**42), 2**42))
            inverses.append(inverse)
            highs.append(high)
            lows.append(float(exact - Fraction(high)))
    return tuple(inverses), tuple(highs), tuple(lows)


def _interval_constants(bits: Value, w: Writer) -> list[Num]:
    """The three constants of the interval that each lane's mantissa lies in."""
    index = w.binary("lshr", bits, w.number(_PIECE_BITS, bits))
    index = w.binary("and", index, w.number(_INTERVALS - 1, index))
    found = []
    for name, numbers in zip(("inverse", "log_high", "log_low"), _log_table(), strict=True):
        symbol = f"luban.{name}"
        listed = ", ".join(
            f"double {float_text('double', float_bits('double', n))}" for n in numbers
        )
        w.tables[symbol] = (
            f"@{symbol} = internal constant [{_INTERVALS} x double] [{listed}], align 64"
        )
        found.append(Num(w, w.gather_table(symbol, "double", index)))
    return found


def _two_sum(a: Num, b: Num) -> tuple[Num, Num]:
    """a + b and its rounding error, for |a| >= |b| or a = 0 (Dekker)."""
    total = a + b
    return total, b - (total - a)


def _log_in_two(x: Num) -> tuple[Num, Num]:
    """log(x) of a positive finite f64 as a sum of two, to about 68 bits.

    x = 2**e m and m = (1 + r) / (1 / c): e ln(2) + log(c) + r - r**2 / 2 + r**3 P(r). The first
    three and the square are kept in two parts.
    """
    w = x.w
    exponent, fraction = exponent_and_fraction(x)
    m = fraction + 1.0
    offset = w.integer(float_bits("double", 2.0**-0.5), "i64", x.value.lanes)
    inverse, log_high, log_low = _interval_constants(w.binary("sub", m.bits(), offset), w)
    product = m * inverse
    r, r_low = _two_sum(product - 1.0, fma(m, inverse, -product))
    square = r * r
    square_low = fma(r, r, -square)
    high, low = x.format.ln2
    whole = fma(exponent, high, log_high)
    total, lost = _two_sum(whole, r)
    # Where whole is 0, r leads and the square is smaller; else whole is larger than both.
    total, lost_more = _two_sum(total, square * -0.5)
    rest = fma(exponent, low, log_low) + r_low - square_low * 0.5 - r * r_low
    rest = fma(polynomial("log", r), square * r, rest) + lost + lost_more
    return _two_sum(total, rest)


def _pow_double(x: Num, y: Num) -> Num:
    """|x|**y = e**(y log |x|) with log and product as sums of two."""
    a = abs(x)
    log, log_low = _log_in_two(a)
    p = y * log
    p_low = fma(y, log, -p) + y * log_low
    infinity = float("inf")
    edge = where(a.test("oeq", 0.0), x.like(-infinity), a)
    ordinary = x.w.binary("and", a.test("one", 0.0), a.test("one", infinity))
    p = where(ordinary, p, y * edge).at_least(-800.0).at_most(800.0)
    p_low = where(abs(p).test("olt", 800.0), p_low, 0.0)
    high, low = x.format.ln2
    n = (p * (1 / math.log(2))).round()
    r = fma(n, -low, fma(n, -high, p)) + p_low
    magnitude = scale(fma(polynomial("exp", r), r * r, r) + 1.0, n)
    return _pow_finish(x, y, magnitude)


def power(x: Num, y: Num) -> Num:
    """x**y as C has it."""
    return _pow_float(x, y) if x.value.elem == "float" else _pow_double(x, y)


def remainder(x: Num, y: Num) -> Num:
    """x - y trunc(x / y), exact, with the sign of x.

    Each step takes away a multiple of |y| whose factor has 24 bits at most, so that the product and
    the difference are exact; f32 is done in f64.
    """
    w = x.w
    single = x.value.elem == "float"
    a, b = (Num(w, w.convert("fpext", abs(v).value, "double")) for v in (x, y))
    valid = w.binary("and", a.test("olt", float("inf")), b.test("ogt", 0.0))
    a = where(valid, a, 0.0)
    before, loop, body, end = w.block, w.label("loop"), w.label("body"), w.label("end")
    w.jump(loop)
    w.start_block(loop)
    phi = w.phi(a.value, before)
    rest = Num(w, phi.value)
    above = w.binary("and", valid, rest.test("oge", b))
    w.branch(w.reduce_or(above), body, end)
    w.start_block(body)
    divisor, quotient = _finite_quotient(rest, b)
    quotient = quotient * (1 - 2.0**-40)  # never above the exact one
    kept = w.binary("and", quotient.bits(), w.integer(-(1 << 29), "i64", x.value.lanes))
    factor = Num(w, w.bitcast(kept, "double")).intrinsic("trunc").at_least(1.0)
    less = where(above, fma(factor, -divisor, rest), rest)
    w.close_phi(phi, less.value, body)
    w.jump(loop)
    w.start_block(end)
    result = rest
    if single:
        result = Num(w, w.convert("fptrunc", rest.value, "float"))
    result = result.copysign(x)
    result = where(abs(y).test("oeq", float("inf")), x, result)
    bad = w.binary("or", abs(x).test("ueq", float("inf")), y.test("ueq", 0.0))
    return where(bad, x.like(float("nan")), where(y.test("uno", y), y, result))


def _finite_quotient(a: Num, b: Num) -> tuple[Num, Num]:
    """(b times a power of two, a divided by it), the power such that the quotient is finite."""
    quotient = a / b
    for step in (2.0**1023, 2.0**52):
        too_large = quotient.test("oeq", float("inf"))
        b = where(too_large, b * step, b)
        quotient = a / b
    return b, quotient


FUNCTIONS: dict[str, MathFunction] = {"pow": power, "rem": remainder}
