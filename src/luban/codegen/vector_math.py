"""Elementary functions on registers, in f32 and f64, from our own polynomials.

Each function is a formula on `Num`; one text serves both formats. Results are right for NaN,
infinities, signed zeros and subnormal numbers. The largest error of each is measured in
tests/codegen/test_vector_math.py and listed in docs/concepts/maths.md. Short ones are expanded in
place; long ones become one function of the module that is called.
"""

from __future__ import annotations

import math

from luban.codegen import angles, powers
from luban.codegen.emitter import Emitter
from luban.codegen.numbers import MathFunction, Num, fma, polynomial, where
from luban.codegen.registers import at_least, first_lanes
from luban.codegen.writer import Value, Writer, suffix
from luban.core.errors import InternalError

__all__ = ["ERROR_BOUNDS_ULP", "FUNCTIONS", "apply"]

_INFINITY = float("inf")
_NAN = float("nan")


# Exponentials

# exp overflows above, and its result is 0 below.
_EXP_RANGE = {"float": (-104.0, 89.0), "double": (-746.0, 710.0)}
_EXP2_RANGE = {"float": (-151.0, 129.0), "double": (-1076.0, 1025.0)}


def _exp_less_one(r: Num) -> Num:
    """e**r - 1 for |r| <= ln(2) / 2."""
    return fma(polynomial("exp", r), r * r, r)


def _exp_parts(x: Num) -> tuple[Num, Num]:
    """(n, r) with x = n ln(2) + r and |r| <= ln(2) / 2."""
    high, low = x.format.ln2
    n = (x * (1 / math.log(2))).round()
    return n, fma(n, -low, fma(n, -high, x))


def exp(x: Num) -> Num:
    """e**x = 2**n e**r."""
    return _scaled_exp(x, 0)


def _scaled_exp(x: Num, shift: int) -> Num:
    """2**shift e**x, without overflow in between."""
    low, high = _EXP_RANGE[x.value.elem]
    x = x.at_least(low).at_most(high + 1)
    n, r = _exp_parts(x)
    return powers.scale(_exp_less_one(r) + 1.0, n + float(shift) if shift else n)


def exp2(x: Num) -> Num:
    """2**x = 2**n 2**r."""
    low, high = _EXP2_RANGE[x.value.elem]
    x = x.at_least(low).at_most(high)
    n = x.round()
    return powers.scale(_exp_less_one((x - n) * math.log(2)) + 1.0, n)


def expm1(x: Num) -> Num:
    """e**x - 1 = 2 (2**(n-1) (e**r - 1) + 2**(n-1) - 1/2)."""
    high = _EXP_RANGE[x.value.elem][1]
    n, r = _exp_parts(x.at_least(-50.0).at_most(high))
    half = powers.power_of_two(n - 1.0)
    result = fma(half, _exp_less_one(r), half - 0.5)
    return where(abs(x).test("olt", 2.0**-60), x, result + result)


def _careful_exp(x: Num) -> Num:
    """e**x for x <= 0 with what rounding takes from r and from 1 + r put back."""
    x = x.at_least(_EXP_RANGE[x.value.elem][0])
    n, r = _exp_parts(x)
    high, low = x.format.ln2
    total = r + 1.0
    lost = ((1.0 - total) + r) + fma(n, -low, fma(n, -high, x) - r)
    return powers.scale(total + fma(polynomial("exp", r), r * r, lost), n)


def logistic(x: Num) -> Num:
    """1 / d with d = 1 + e**-|x|; e**-|x| / d for negative x. No overflow, exact to subnormals.

    y + y (1 / d) (lost part of d) undoes the rounding of d; 1 / d is y or 1 - y.
    """
    negative = x.test("olt", 0.0)
    e = _careful_exp(-abs(x))
    d = e + 1.0
    lost = e - (d - 1.0)
    y = where(negative, e, 1.0) / d
    return fma(-(y * lost), where(negative, 1.0 - y, y), y)


def tanh(x: Num) -> Num:
    """An odd polynomial near 0; 1 - 2 e / (1 + e) with e = e**(-2 |x|) elsewhere."""
    t, z = abs(x), x * x
    near = fma(polynomial("tanh", z) * z, x, x)
    e = exp(t * -2.0)
    far = 1.0 - (e + e) / (e + 1.0)
    return where(t.test("ogt", 0.625), far, near).copysign(x)


def sinh(x: Num) -> Num:
    """An odd polynomial below 1; h - 1 / (4 h) with h = e**|x| / 2 elsewhere."""
    t, z = abs(x), x * x
    near = fma(polynomial("sinh", z) * z, x, x)
    half = _scaled_exp(t, -1)
    far = (half - 0.25 / half).copysign(x)
    return where(t.test("ogt", 1.0), far, near)


def cosh(x: Num) -> Num:
    """h + 1 / (4 h) with h = e**|x| / 2."""
    half = _scaled_exp(abs(x), -1)
    return half + 0.25 / half


# Logarithms


def _log_finish(x: Num, y: Num) -> Num:
    """What a logarithm is at 0, below it, at infinity and NaN."""
    y = where(x.test("ult", _INFINITY), y, x)
    y = where(x.test("olt", 0.0), x.like(_NAN), y)
    return where(x.test("oeq", 0.0), x.like(-_INFINITY), where(x.test("uno", x), x, y))


def _log_correction(f: Num) -> Num:
    """log(1 + f) - f."""
    square = f * f
    return fma(square, -0.5, polynomial("log", f) * (square * f))


def _log_sum(exponent: Num, f: Num, correction: Num) -> Num:
    """exponent * ln(2) + f + correction, small terms first."""
    high, low = f.format.ln2
    return fma(exponent, high, f + fma(exponent, low, correction))


def log(x: Num) -> Num:
    """e ln(2) and the logarithm of 1 + f, where x = 2**e (1 + f)."""
    exponent, f = powers.exponent_and_fraction(x)
    return _log_finish(x, _log_sum(exponent, f, _log_correction(f)))


def log2(x: Num) -> Num:
    """e + log(1 + f) / ln(2), the factor in two parts."""
    exponent, f = powers.exponent_and_fraction(x)
    high, low = powers.LOG2_E[x.value.elem]
    tail = fma(_log_correction(f), high, f * low)
    return _log_finish(x, fma(f, high, tail) + exponent)


def log1p(x: Num) -> Num:
    """log(1 + x) with what the sum 1 + x loses put back into f."""
    u = x + 1.0
    exponent, rounded = powers.exponent_and_fraction(u)
    unit = powers.power_of_two(-exponent.at_most(float(2 * x.format.mantissa)))
    exact = fma(x, unit, unit - 1.0)
    f = where(x.test("olt", 2.0 ** (x.format.mantissa + 2)), exact, rounded)
    y = _log_finish(u, _log_sum(exponent, f, _log_correction(f)))
    return where(abs(x).test("olt", 2.0**-60), x, y)


_LARGE = {"float": 2.0**30, "double": 2.0**60}  # beyond, asinh(x) = log(2 x), log(1 + x) = log(x)


def asinh(x: Num) -> Num:
    """log(t + sqrt(t**2 + 1)) through log1p, t = |x|."""
    t = abs(x)
    large = t.test("ogt", _LARGE[x.value.elem])
    square = t * t
    small = t + square / ((square + 1.0).sqrt() + 1.0)
    y = log1p(where(large, t, small))
    return where(large, y + math.log(2), y).copysign(x)


def acosh(x: Num) -> Num:
    """log(x + sqrt(x**2 - 1)) through log1p(t + sqrt(t (t + 2))), t = x - 1."""
    large = x.test("ogt", _LARGE[x.value.elem])
    t = x - 1.0
    y = log1p(where(large, x, t + (t * (t + 2.0)).sqrt()))
    return where(x.test("olt", 1.0), x.like(_NAN), where(large, y + math.log(2), y))


def atanh(x: Num) -> Num:
    """log1p(2 t / (1 - t)) / 2, t = |x|."""
    t = abs(x)
    y = log1p((t + t) / (1.0 - t)) * 0.5
    return where(t.test("olt", 2.0**-30), t, y).copysign(x)


# Others


def erf(x: Num) -> Num:
    """x + x P(x**2) near 0; 1 - e**(-t - t Q(t)) elsewhere, t = |x|."""
    t, z = abs(x), x * x
    near = fma(polynomial("erf", z), x, x)
    if x.value.elem == "float":
        t = t.at_most(4.0)
        q = polynomial("erf_tail", t)
    else:
        t = t.at_most(6.0)
        middle = polynomial("erf_tail", t - 1.625)
        q = where(t.test("ogt", 2.3125), polynomial("erf_tail_far", t - 4.125), middle)
    far = (1.0 - exp(-fma(q, t, t))).copysign(x)
    return where(abs(x).test("ogt", 0.9375), far, near)


def rsqrt(x: Num) -> Num:
    """1 / sqrt(x), two roundings."""
    return 1.0 / x.sqrt()


FUNCTIONS: dict[str, MathFunction] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "log2": log2,
    "log1p": log1p,
    "logistic": logistic,
    "tanh": tanh,
    "sinh": sinh,
    "cosh": cosh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
    "erf": erf,
    "rsqrt": rsqrt,
    "sqrt": Num.sqrt,
    **angles.FUNCTIONS,
    **powers.FUNCTIONS,
}

# Largest error in units of the last place, f32 and f64: measured, then rounded up. Tests hold it.
ERROR_BOUNDS_ULP: dict[str, tuple[float, float]] = {
    "exp": (1.0, 1.0),
    "exp2": (1.1, 1.1),
    "expm1": (1.5, 2.0),
    "log": (1.0, 1.0),
    "log2": (1.0, 1.0),
    "log1p": (1.5, 1.5),
    "logistic": (2.0, 2.0),
    "tanh": (1.5, 1.5),
    "erf": (1.1, 1.5),
    "sinh": (2.0, 2.0),
    "cosh": (1.5, 1.5),
    "asinh": (2.0, 2.0),
    "acosh": (2.5, 2.5),
    "atanh": (2.0, 2.0),
    "sin": (1.5, 2.0),
    "cos": (1.5, 2.5),
    "tan": (3.0, 4.0),
    "asin": (2.0, 2.0),
    "acos": (1.5, 1.5),
    "atan": (2.0, 2.0),
    "atan2": (2.0, 2.0),
    "pow": (0.6, 1.5),
    "rsqrt": (1.5, 1.5),
    "sqrt": (0.5, 0.5),
    "rem": (0.0, 0.0),
}

# Expanded where they are used: up to about forty instructions.
_IN_PLACE = {
    "float": {"exp", "exp2", "expm1", "log", "log2", "log1p", "logistic", "tanh", "erf"},
    "double": {"exp", "exp2", "log"},
}
_ALWAYS_IN_PLACE = {"sqrt", "rsqrt"}


# With more parts than this in one op, calls are as fast as copies (accumulators of a matrix tile
# would be spilled either way) and compile in a third of the time.
MANY_PARTS = 8


def apply(kind: str, f: Emitter, *args: Value, num_parts: int = 1) -> Value:
    """The function `kind` of parts. Raises InternalError if there is none of that name.

    num_parts  how many times the same op applies it

    Scalars and pairs are computed in a whole 128-bit register, so that an element's result does not
    depend on the chunk it falls into.
    """
    function = FUNCTIONS.get(kind)
    if function is None:
        raise InternalError(
            f"no LLVM code for {kind}: add it to FUNCTIONS of codegen/vector_math.py"
        )
    first = args[0]
    w = f.w
    if kind in _ALWAYS_IN_PLACE:
        return function(*(Num(w, arg) for arg in args)).value
    least = 4 if first.elem == "float" else 2
    wide = [at_least(w, arg, least) for arg in args]
    if kind in _IN_PLACE[first.elem] and num_parts <= MANY_PARTS:
        result = function(*(Num(w, arg) for arg in wide)).value
    else:
        result = _call(f, kind, function, wide)
    return first_lanes(w, result, first.lanes)


def _call(f: Emitter, kind: str, function: MathFunction, args: list[Value]) -> Value:
    """Call the function, which the module gets once for each register type."""
    first = args[0]
    symbol = f"luban.{kind}.{suffix(first.elem, first.lanes)}"
    if symbol not in f.context.parts:
        w = Writer(f.target)
        inner = [w.argument(f"x{i}", arg.elem, arg.lanes) for i, arg in enumerate(args)]
        result = function(*(Num(w, arg) for arg in inner))
        w.line(f"ret {result.value.typed}")
        for name, text in w.tables.items():
            f.out_of_line(name, text)
        f.context.declarations.update(w.declarations)
        parameters = ", ".join(arg.typed for arg in inner)
        header = f"define internal {first.type} @{symbol}({parameters}) noinline #0"
        f.out_of_line(symbol, w.text(header))
    operands = ", ".join(arg.typed for arg in args)
    return f.w.result(f"call {first.type} @{symbol}({operands})", first.elem, first.lanes)
