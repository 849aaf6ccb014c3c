"""Trigonometric functions, their inverses, and the reduction of angles of any size.

Angles up to a bound lose multiples of pi / 2 in three exact steps (Cody and Waite). Beyond it, only
the digits of 2 / pi that matter are multiplied (Payne and Hanek, "Radian reduction for
trigonometric functions", 1983).
"""

from __future__ import annotations

import math

from luban.codegen.numbers import MathFunction, Num, fma, polynomial, two_over_pi_words, where
from luban.codegen.writer import Value, Writer

__all__ = ["FUNCTIONS"]

_TABLE_WORDS = {32: 10, 64: 22}


def _reduce(x: Num) -> tuple[Num, Value]:
    """(r, n) with x = n pi / 2 + r and |r| <= pi / 4; n modulo 4 as integers.

    Where any lane is beyond the bound, every lane takes the slow way, so its result may not depend
    on its neighbours: the slow result is only taken for the lanes that need it.
    """
    w, form = x.w, x.format
    bound = 2.0 ** (form.mantissa - 7 if w.target.has_fma else 0)
    first, second, third = form.half_pi
    n = (x * (2 / math.pi)).round()
    fast = fma(n, -third, fma(n, -second, fma(n, -first, x)))
    inside = abs(x).test("olt", bound)
    whole = w.convert("fptosi", where(inside, n, 0.0).value, form.integer)
    large = w.binary("xor", inside, w.number(1, inside))
    any_large = w.reduce_or(large)
    start = w.block
    slow, end = w.label("slow"), w.label("end")
    w.branch(any_large, slow, end)
    w.start_block(slow)
    slow_r, slow_n = _reduce_large(x)
    slow_r = where(large, slow_r, fast)
    slow_n = w.select(large, slow_n, whole)
    w.jump(end)
    w.start_block(end)
    r = w.merge(fast.value, start, slow_r.value, slow)
    return Num(w, r), w.merge(whole, start, slow_n, slow)


def _reduce_large(x: Num) -> tuple[Num, Value]:
    """The same for |x| >= 1 of any size; NaN for infinities and NaN.

    |x| = m 2**e with a whole m. Three words of 2 / pi, from the digit of weight 2**(1 - e) on,
    times m give the angle in quarter turns modulo 4, in fixed point: two bits, then the fraction.
    """
    w, form = x.w, x.format
    word, wide = form.bits, f"i{2 * form.bits}"
    lanes = x.value.lanes
    bits = x.bits()
    fraction = w.binary("and", bits, w.integer((1 << form.mantissa) - 1, bits.elem, lanes))
    m = w.binary("or", fraction, w.integer(1 << form.mantissa, bits.elem, lanes))
    biased = w.binary("lshr", bits, w.number(form.mantissa, bits))
    biased = w.binary("and", biased, w.integer(2 * form.bias + 1, bits.elem, lanes))
    # m is an integer: x = m 2**(biased - bias - mantissa). The table starts with one word of zeros.
    start = w.binary(
        "add", biased, w.integer(word - 2 - form.bias - form.mantissa, bits.elem, lanes)
    )
    digits = [_table_word(w, form.bits, start, i) for i in range(4)]
    offset = w.binary("and", start, w.number(word - 1, start))
    offset = w.convert("zext", offset, wide)
    windows = [_window(w, wide, word, digits[i], digits[i + 1], offset) for i in range(3)]
    m = w.convert("zext", m, wide)
    high, middle, low = (w.binary("mul", m, window) for window in windows)
    shift = w.number(word, m)
    turns = w.binary("add", w.binary("shl", high, shift), middle)
    turns = w.binary("add", turns, w.binary("lshr", low, shift))
    turns_bits = 2 * word
    half = w.integer(1 << (turns_bits - 3), wide, lanes)
    n = w.binary("lshr", w.binary("add", turns, half), w.number(turns_bits - 2, m))
    rest = w.binary("sub", turns, w.binary("shl", n, w.number(turns_bits - 2, m)))
    r = _fixed_to_float(x, rest, wide)
    n = w.convert("trunc", n, form.integer)
    negative = x.negative()
    n = w.select(negative, w.binary("sub", w.number(0, n), n), n)
    r = where(negative, -r, r)
    return where(abs(x).test("olt", float("inf")), r, float("nan")), n


def _fixed_to_float(x: Num, rest: Value, wide: str) -> Num:
    """A signed fixed-point number of quarter turns, two bits before the point, as radians."""
    w = x.w
    radians = math.pi / 2
    if wide == "i64":
        number = Num(w, w.convert("sitofp", rest, "double")) * (radians * 2.0**-62)
        return Num(w, w.convert("fptrunc", number.value, "float"))
    # 128 bits in two halves: no conversion of i128 is an instruction.
    upper = w.convert("trunc", w.binary("ashr", rest, w.number(64, rest)), "i64")
    lower = w.convert("trunc", rest, "i64")
    whole = Num(w, w.convert("sitofp", upper, "double")) * 2.0**64
    return (whole + Num(w, w.convert("uitofp", lower, "double"))) * (radians * 2.0**-126)


def _window(w: Writer, wide: str, word: int, first: Value, second: Value, offset: Value) -> Value:
    """`word` bits from bit `offset` of two words on."""
    high = w.binary("shl", w.convert("zext", first, wide), w.number(word, offset))
    both = w.binary("or", high, w.convert("zext", second, wide))
    shifted = w.binary("lshr", both, w.binary("sub", w.number(word, offset), offset))
    return w.binary("and", shifted, w.integer((1 << word) - 1, wide, offset.lanes))


def _table_word(w: Writer, word: int, start: Value, number: int) -> Value:
    """Word `number` from bit `start` of the digits of 2 / pi on, for each lane."""
    symbol = f"luban.two_over_pi.{word}"
    words = two_over_pi_words(word, _TABLE_WORDS[word])
    if symbol not in w.tables:
        listed = ", ".join(f"i{word} {_signed(item, word)}" for item in words)
        kind = f"[{len(words)} x i{word}]"
        w.tables[symbol] = f"@{symbol} = internal constant {kind} [{listed}], align 64"
    index = w.binary("lshr", start, w.number(word.bit_length() - 1, start))
    index = w.binary("add", index, w.number(number, index))
    last = w.number(len(words) - 1, index)  # lanes that are not finite stay inside the table
    return w.gather_table(symbol, f"i{word}", w.intrinsic("umin", index, last))


def _signed(item: int, bits: int) -> int:
    return item - (1 << bits) if item >> (bits - 1) else item


def _sine_cosine(r: Num) -> tuple[Num, Num]:
    """sin(r) and cos(r) for |r| <= pi / 4."""
    z = r * r
    sine = fma(polynomial("sin", z) * z, r, r)
    half = z * 0.5
    base = 1.0 - half
    # What 1 - z / 2 loses comes back with the rest.
    lost = (1.0 - base) - half
    cosine = base + fma(polynomial("cos", z), z * z, lost)
    return sine, cosine


def _is_odd(w: Writer, n: Value) -> Value:
    return w.compare("ne", w.binary("and", n, w.number(1, n)), w.number(0, n))


def _with_sign_of_bit(x: Num, n: Value, bit: int) -> Num:
    """x negated where bit `bit` of n is set."""
    w = x.w
    moved = w.binary("shl", n, w.number(x.format.bits - 1 - bit, n))
    top = w.integer(-(1 << (x.format.bits - 1)), n.elem, n.lanes)
    sign = w.binary("and", moved, top)
    return Num(w, w.bitcast(w.binary("xor", x.bits(), sign), x.format.elem))


def sin(x: Num) -> Num:
    """By the quadrant of the angle: sine or cosine of what remains, and a sign."""
    r, n = _reduce(x)
    sine, cosine = _sine_cosine(r)
    y = _with_sign_of_bit(where(_is_odd(x.w, n), cosine, sine), n, 1)
    return where(x.test("oeq", 0.0), x, y)


def cos(x: Num) -> Num:
    """sin one quadrant further."""
    r, n = _reduce(x)
    sine, cosine = _sine_cosine(r)
    following = x.w.binary("add", n, x.w.number(1, n))
    return _with_sign_of_bit(where(_is_odd(x.w, n), sine, cosine), following, 1)


def tan(x: Num) -> Num:
    """sin / cos, or -cos / sin in odd quadrants."""
    r, n = _reduce(x)
    sine, cosine = _sine_cosine(r)
    odd = _is_odd(x.w, n)
    y = _with_sign_of_bit(where(odd, cosine, sine) / where(odd, sine, cosine), n, 0)
    return where(x.test("oeq", 0.0), x, y)


def _arc_sine_parts(x: Num) -> tuple[Value, Num]:
    """(|x| > 1/2, asin of |x| or of sqrt((1 - |x|) / 2))."""
    t = abs(x)
    large = t.test("ogt", 0.5)
    z = where(large, (1.0 - t) * 0.5, t * t)
    s = where(large, z.sqrt(), t)
    return large, fma(polynomial("asin", z) * z, s, s)


def asin(x: Num) -> Num:
    """Above 1/2, pi / 2 less twice the arc sine of sqrt((1 - |x|) / 2)."""
    large, p = _arc_sine_parts(x)
    high, low, _ = x.format.half_pi
    y = where(large, (high - (p + p)) + low, p)
    return y.copysign(x)


def acos(x: Num) -> Num:
    """From the parts of asin, without cancellation."""
    large, p = _arc_sine_parts(x)
    high, low, _ = x.format.half_pi
    negative = x.test("olt", 0.0)
    twice = p + p
    far = where(negative, (2 * high - twice) + 2 * low, twice)
    near = high - (p.copysign(x) - low)
    return where(large, far, near)


def _arc_tangent(t: Num) -> Num:
    """atan(t) for 0 <= t <= 1."""
    z = t * t
    return fma(polynomial("atan", z) * z, t, t)


def atan(x: Num) -> Num:
    """Above 1, pi / 2 less the arc tangent of 1 / |x|."""
    t = abs(x)
    large = t.test("ogt", 1.0)
    p = _arc_tangent(where(large, 1.0 / t, t))
    high, low, _ = x.format.half_pi
    return where(large, (high - p) + low, p).copysign(x)


def atan2(y: Num, x: Num) -> Num:
    """atan of the smaller over the larger, moved to its octant."""
    a, b = abs(y), abs(x)
    steep = a.test("ogt", b)
    smaller, larger = where(steep, b, a), where(steep, a, b)
    t = smaller / larger
    t = where(larger.test("oeq", 0.0), t.like(0.0), t)
    t = where(smaller.test("oeq", float("inf")), t.like(1.0), t)
    p = _arc_tangent(t)
    high, low, _ = x.format.half_pi
    p = where(steep, (high - p) + low, p)
    p = where(x.negative(), (2 * high - p) + 2 * low, p)
    p = where(x.test("uno", y), x + y, p)
    return p.copysign(y)


FUNCTIONS: dict[str, MathFunction] = {
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "asin": asin,
    "acos": acos,
    "atan": atan,
    "atan2": atan2,
}
