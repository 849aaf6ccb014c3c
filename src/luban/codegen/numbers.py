"""Formulas on registers: operators that append instructions, and the constants of f32 and f64."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from luban.codegen.coefficients import COEFFICIENTS
from luban.codegen.writer import Value, Writer

__all__ = [
    "FORMATS",
    "LN2",
    "Format",
    "MathFunction",
    "Num",
    "fma",
    "polynomial",
    "split",
    "two_over_pi_words",
    "where",
]

LN2 = Fraction("0.69314718055994530941723212145817656807550013436025525412068000949")
PI = Fraction("3.14159265358979323846264338327950288419716939937510582097494459231")


@dataclass(frozen=True, slots=True)
class Format:
    """An IEEE format that maths is done in.

    ln2, half_pi  as sums of numbers of the format, largest first; the first of ln2 has zeros at its
                  end, so that its product with an exponent is exact
    """

    elem: str
    integer: str
    mantissa: int
    bias: int
    ln2: tuple[float, float]
    half_pi: tuple[float, float, float]

    @property
    def bits(self) -> int:
        """Width in bits."""
        return int(self.integer[1:])


def _rounded(value: Fraction, bits: int) -> float:
    """`value` rounded to `bits` significant bits."""
    exponent = 0
    while abs(value) * Fraction(2) ** -exponent >= 1:
        exponent += 1
    while abs(value) * Fraction(2) ** -exponent < Fraction(1, 2):
        exponent -= 1
    unit = Fraction(2) ** (exponent - bits)
    return float(round(value / unit) * unit)


def split(value: Fraction, *bits: int) -> tuple[float, ...]:
    """Numbers of these many significant bits whose sum is `value`, largest first.

    >>> split(Fraction(1, 3), 2, 2)
    (0.375, -0.046875)
    """
    parts = []
    for count in bits:
        parts.append(_rounded(value, count))
        value -= Fraction(parts[-1])
    return tuple(parts)


def _format(elem: str, integer: str, mantissa: int, bias: int, ln2_bits: int) -> Format:
    high, low = split(LN2, ln2_bits, mantissa + 1)
    first, second, third = split(PI / 2, *[mantissa + 1] * 3)
    return Format(elem, integer, mantissa, bias, (high, low), (first, second, third))


FORMATS = {
    "float": _format("float", "i32", 23, 127, 12),
    "double": _format("double", "i64", 52, 1023, 36),
}


class Num:
    """A float part with arithmetic; Python numbers stand for constants in every lane."""

    __slots__ = ("value", "w")

    def __init__(self, w: Writer, value: Value) -> None:
        self.w = w
        self.value = value

    @property
    def format(self) -> Format:
        """The constants of this element type."""
        return FORMATS[self.value.elem]

    def like(self, number: Num | float) -> Num:
        """A number as a part of this type."""
        return number if isinstance(number, Num) else Num(self.w, self.w.number(number, self.value))

    def _binary(self, opcode: str, a: Num, b: Num) -> Num:
        return Num(self.w, self.w.binary(opcode, a.value, b.value))

    def __add__(self, other: Num | float) -> Num:
        return self._binary("fadd", self, self.like(other))

    def __sub__(self, other: Num | float) -> Num:
        return self._binary("fsub", self, self.like(other))

    def __mul__(self, other: Num | float) -> Num:
        return self._binary("fmul", self, self.like(other))

    def __truediv__(self, other: Num | float) -> Num:
        return self._binary("fdiv", self, self.like(other))

    def __radd__(self, other: float) -> Num:
        return self.like(other) + self

    def __rsub__(self, other: float) -> Num:
        return self.like(other) - self

    def __rmul__(self, other: float) -> Num:
        return self.like(other) * self

    def __rtruediv__(self, other: float) -> Num:
        return self.like(other) / self

    def __neg__(self) -> Num:
        return Num(self.w, self.w.unary("fneg", self.value))

    def __abs__(self) -> Num:
        return self.intrinsic("fabs")

    def intrinsic(self, name: str, *others: Num) -> Num:
        """An LLVM intrinsic on this type."""
        return Num(self.w, self.w.intrinsic(name, self.value, *(other.value for other in others)))

    def sqrt(self) -> Num:
        """Correctly rounded square root."""
        return self.intrinsic("sqrt")

    def round(self) -> Num:
        """Nearest whole number, ties to even."""
        return self.intrinsic("roundeven")

    def copysign(self, sign: Num) -> Num:
        """This magnitude with the sign of another number."""
        return self.intrinsic("copysign", sign)

    def test(self, predicate: str, other: Num | float) -> Value:
        """An ordered or unordered comparison: a mask."""
        return self.w.compare(predicate, self.value, self.like(other).value)

    def at_least(self, low: float) -> Num:
        """max(self, low) that keeps NaN."""
        return where(self.test("olt", low), self.like(low), self)

    def at_most(self, high: float) -> Num:
        """min(self, high) that keeps NaN."""
        return where(self.test("ogt", high), self.like(high), self)

    def bits(self) -> Value:
        """The bits as integers of the same width."""
        return self.w.bitcast(self.value, self.format.integer)

    def negative(self) -> Value:
        """Mask of a set sign bit, that of -0.0 and NaN too."""
        bits = self.bits()
        return self.w.compare("slt", bits, self.w.number(0, bits))


MathFunction = Callable[..., Num]


def where(condition: Value, yes: Num, no: Num | float) -> Num:
    """Lane by lane."""
    return Num(yes.w, yes.w.select(condition, yes.value, yes.like(no).value))


def fma(a: Num, b: Num | float, c: Num | float) -> Num:
    """a * b + c, rounded once where the target can."""
    return Num(a.w, a.w.fma(a.value, a.like(b).value, a.like(c).value))


def polynomial(name: str, x: Num) -> Num:
    """The named polynomial of coefficients.py, by Horner's rule."""
    *lower, result = (x.like(c) for c in COEFFICIENTS[name, x.value.elem])
    for coefficient in reversed(lower):
        result = fma(result, x, coefficient)
    return result


@functools.cache
def two_over_pi_words(word_bits: int, count: int) -> tuple[int, ...]:
    """2 / pi as words, after one word of zeros: the digits that reducing a huge angle needs.

    >>> [hex(word) for word in two_over_pi_words(32, 3)]
    ['0x0', '0xa2f9836e', '0x4e441529']
    """
    bits = word_bits * count
    scale = bits + 64  # 64 bits to spare for the rounding of pi
    words = (2 << (2 * scale)) // _pi_scaled(scale) >> 64
    mask = (1 << word_bits) - 1
    return (0, *((words >> (bits - word_bits * (i + 1))) & mask for i in range(count - 1)))


def _pi_scaled(bits: int) -> int:
    """floor(pi * 2**bits), by Machin's formula."""

    def arctan_inverse(x: int, unit: int) -> int:
        total, term, n, sign = 0, unit // x, 1, 1
        while term:
            total += sign * (term // n)
            term //= x * x
            n, sign = n + 2, -sign
        return total

    unit = 1 << (bits + 32)
    return 4 * (4 * arctan_inverse(5, unit) - arctan_inverse(239, unit)) >> 32
