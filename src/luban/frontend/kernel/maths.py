"""Elementwise functions: the language's own, and those of libdevice."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import TYPE_CHECKING, Any

from luban.frontend.kernel.promote import arithmetic, common_type, together
from luban.frontend.kernel.table import builtin
from luban.frontend.kernel.types import BY_NAME
from luban.frontend.kernel.values import Tensor, is_number
from luban.tile.expr import Expr
from luban.tile.ops import UnaryKind

if TYPE_CHECKING:
    from luban.frontend.kernel.interpret import Interpreter

__all__: list[str] = []

# Names in the language, names in libdevice, the IR's kind, what it is.
_UNARY: tuple[tuple[tuple[str, ...], tuple[str, ...], UnaryKind, str], ...] = (
    (("exp",), ("exp", "expf", "fast_expf"), "exp", "e**x"),
    (("exp2",), ("exp2", "exp2f"), "exp2", "2**x"),
    ((), ("expm1",), "expm1", "e**x - 1"),
    (("log",), ("log", "logf", "fast_logf"), "log", "natural logarithm"),
    (("log2",), ("log2", "fast_log2f"), "log2", "logarithm to base 2"),
    ((), ("log1p",), "log1p", "log(1 + x)"),
    (("sin",), ("sin", "fast_sinf"), "sin", "sine of radians"),
    (("cos",), ("cos", "fast_cosf"), "cos", "cosine of radians"),
    ((), ("tan", "fast_tanf"), "tan", "tangent of radians"),
    ((), ("asin",), "asin", "arc sine"),
    ((), ("acos",), "acos", "arc cosine"),
    ((), ("atan",), "atan", "arc tangent"),
    ((), ("sinh",), "sinh", "hyperbolic sine"),
    ((), ("cosh",), "cosh", "hyperbolic cosine"),
    ((), ("tanh", "fast_tanhf"), "tanh", "hyperbolic tangent"),
    ((), ("asinh",), "asinh", "inverse hyperbolic sine"),
    ((), ("acosh",), "acosh", "inverse hyperbolic cosine"),
    ((), ("atanh",), "atanh", "inverse hyperbolic tangent"),
    (("erf",), ("erf",), "erf", "error function"),
    (("sqrt", "sqrt_rn"), ("sqrt", "sqrt_rn", "sqrtf"), "sqrt", "square root"),
    (("rsqrt",), ("rsqrt", "rsqrt_rn"), "rsqrt", "1 / sqrt(x)"),
    (("floor",), ("floor",), "floor", "largest whole number up to x"),
    (("ceil",), ("ceil",), "ceil", "smallest whole number from x on"),
    ((), ("trunc",), "trunc", "whole part"),
    ((), ("rint", "nearbyint"), "round", "nearest whole number, ties to even"),
)


def _unary(names: tuple[str, ...], kind: UnaryKind, meaning: str, *, method: bool) -> None:
    def run_it(run: Interpreter, x: Any) -> Tensor:
        given = run.tensor(x)
        if given.type.is_int():
            given = run.cast(given, BY_NAME["fp32"])
        return Tensor(run.b.unary(kind, given.expr))

    run_it.__doc__ = f"Elementwise: {meaning}."
    builtin("libdevice" if "." in names[0] else "maths", *names, method=method)(run_it)


for _names, _device, _kind, _meaning in _UNARY:
    if _names:
        _unary(_names, _kind, _meaning, method=True)
    _unary(tuple(f"libdevice.{name}" for name in _device), _kind, _meaning, method=False)


@builtin("maths", "abs", "python.abs", "libdevice.abs", "libdevice.fabs", method=True)
def abs_(run: Interpreter, x: Any) -> Tensor:
    """|x|; bool and unsigned integers as they are."""
    given = run.tensor(x)
    if given.type.is_int_unsigned():
        return given
    return Tensor(run.b.unary("abs", given.expr))


@builtin("maths", "sigmoid", method=True)
def sigmoid(run: Interpreter, x: Any) -> Tensor:
    """1 / (1 + e**-x)."""
    return Tensor(run.b.unary("logistic", run.tensor(x).expr))


@builtin("maths", method=True)
def softmax(
    run: Interpreter, x: Any, dim: Any = None, keep_dims: Any = False, ieee_rounding: Any = False
) -> Tensor:
    """e**(x - max) / sum of these, along `dim` (0 unless given)."""
    del keep_dims, ieee_rounding
    b = run.b
    given = run.tensor(x).expr
    axis = 0 if dim is None else int(dim)
    shape = list(given.shape)
    shape[axis] = 1

    def fold(kind: Any, values: Expr) -> Expr:
        return b.broadcast(b.reshape(b.fold(kind, [values], axis)[0], shape), given.shape)

    powers = b.unary("exp", given - fold("maxnum", given))
    return Tensor(powers / fold("sum", powers))


def _extreme(kind: str) -> Callable[..., Tensor]:
    def extreme(run: Interpreter, x: Any, y: Any, propagate_nan: Any = None) -> Tensor:
        left, right = together(run.b, _number(run, x), _number(run, y))
        found = kind
        if left.type.is_floating() and "ALL" not in str(propagate_nan):
            found = f"{kind}num"
        if left.type.is_bool():
            found = "or" if kind == "max" else "and"
        return Tensor(run.b.binary(found, left.expr, right.expr))  # type: ignore[arg-type]

    word = "larger" if kind == "max" else "smaller"
    extreme.__doc__ = f"The {word} of two numbers; of a number and NaN the number, unless asked."
    return extreme


def _number(run: Interpreter, x: Any) -> Any:
    return x if is_number(x) else run.tensor(x)


builtin("maths", "maximum", "libdevice.max", "libdevice.fmax")(_extreme("max"))
builtin("maths", "minimum", "libdevice.min", "libdevice.fmin")(_extreme("min"))


@builtin("maths", "python.max")
def max_of(run: Interpreter, *values: Any) -> Tensor:
    """Python's max of numbers, some of which only the run knows."""
    found = values[0]
    for other in values[1:]:
        found = _extreme("max")(run, found, other)
    return run.tensor(found)


@builtin("maths", "python.min")
def min_of(run: Interpreter, *values: Any) -> Tensor:
    """Python's min of numbers, some of which only the run knows."""
    found = values[0]
    for other in values[1:]:
        found = _extreme("min")(run, found, other)
    return run.tensor(found)


@builtin("maths", "python.float")
def to_float(run: Interpreter, x: Any) -> Tensor:
    """Python's float(): fp32."""
    return run.cast(x, BY_NAME["fp32"])


@builtin("maths", "python.int")
def to_int(run: Interpreter, x: Any) -> Tensor:
    """Python's int(): int32."""
    return run.cast(x, BY_NAME["int32"])


@builtin("maths", "python.bool")
def to_bool(run: Interpreter, x: Any) -> Tensor:
    """Python's bool(): int1."""
    return run.truth(x)


@builtin("maths", "clamp", method=True)
def clamp(run: Interpreter, x: Any, min: Any, max: Any, propagate_nan: Any = None) -> Tensor:
    """x, but at least `min` and at most `max`."""
    low = _extreme("max")(run, x, min, propagate_nan)
    return _extreme("min")(run, low, max, propagate_nan)


@builtin("maths")
def where(run: Interpreter, condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, y elsewhere; all three broadcast."""
    if is_number(condition):
        condition = run.tensor(bool(condition))
    left, right = together(run.b, _number(run, x), _number(run, y))
    return Tensor(run.b.select(run.truth(condition).expr, left.expr, right.expr))


@builtin("maths", method=True)
def logical_and(run: Interpreter, x: Any, y: Any) -> Tensor:
    """Whether both are other than 0, as int1."""
    return arithmetic(run.b, "&", run.truth(x), run.truth(y))


@builtin("maths", method=True)
def logical_or(run: Interpreter, x: Any, y: Any) -> Tensor:
    """Whether one of them is other than 0, as int1."""
    return arithmetic(run.b, "|", run.truth(x), run.truth(y))


@builtin("maths", "fma", "libdevice.fma")
def fma(run: Interpreter, x: Any, y: Any, z: Any) -> Tensor:
    """x * y + z, rounded once."""
    parts = [_number(run, value) for value in (x, y, z)]
    left, right = together(run.b, parts[0], parts[1])
    left, last = together(run.b, left, parts[2])
    right = run.cast(right, left.type)
    return Tensor(run.b.fma(left.expr, right.expr, last.expr))


@builtin("maths")
def cdiv(run: Interpreter, x: Any, div: Any) -> Any:
    """x / div, rounded up, for whole numbers above 0."""
    if is_number(x) and is_number(div):
        return -(-x // div)
    top = arithmetic(run.b, "-", arithmetic(run.b, "+", x, div), 1)
    return arithmetic(run.b, "//", top, div)


@builtin("maths")
def next_power_of_2(run: Interpreter, n: Any) -> int:
    """The smallest power of two that is not below a constant."""
    if not is_number(n):
        run.fail(f"next_power_of_2 of {run.said(n)}, expected a constant")
    return 1 << max(int(n) - 1, 0).bit_length()


@builtin("maths", "fdiv", "div_rn", "libdevice.div_rn")
def fdiv(run: Interpreter, x: Any, y: Any, ieee_rounding: Any = False) -> Tensor:
    """x / y of floats, correctly rounded."""
    del ieee_rounding
    return arithmetic(run.b, "/", _number(run, x), _number(run, y))


@builtin("maths", "umulhi", "libdevice.mulhi", "libdevice.umulhi")
def umulhi(run: Interpreter, x: Any, y: Any) -> Tensor:
    """The upper half of the product of two integers."""
    left, right = together(run.b, _number(run, x), _number(run, y))
    return Tensor(run.b.binary("mulhi", left.expr, right.expr))


def _pair(kind: str, meaning: str, *names: str) -> None:
    def run_it(run: Interpreter, x: Any, y: Any) -> Tensor:
        left, right = together(run.b, _number(run, x), _number(run, y))
        wanted = common_type(left.type, right.type)
        if wanted.is_int():
            wanted = BY_NAME["fp32"]
        left, right = run.cast(left, wanted), run.cast(right, wanted)
        return Tensor(run.b.binary(kind, left.expr, right.expr))  # type: ignore[arg-type]

    run_it.__doc__ = f"Elementwise: {meaning}."
    builtin("libdevice", *names)(run_it)


_pair("pow", "x**y", "libdevice.pow", "libdevice.fast_powf")
_pair("atan2", "angle of the point (y, x)", "libdevice.atan2")
_pair("rem", "what is left of x after whole multiples of y", "libdevice.fmod")


@builtin("libdevice", "libdevice.fast_dividef", "libdevice.fdiv")
def fast_divide(run: Interpreter, x: Any, y: Any) -> Tensor:
    """x / y."""
    return arithmetic(run.b, "/", _number(run, x), _number(run, y))


@builtin("libdevice", "libdevice.log10")
def log10(run: Interpreter, x: Any) -> Tensor:
    """Logarithm to base 10."""
    given = run.tensor(x)
    return Tensor(run.b.unary("log", given.expr) * (1 / log(10)))


@builtin("libdevice", "libdevice.exp10")
def exp10(run: Interpreter, x: Any) -> Tensor:
    """10**x."""
    return Tensor(run.b.unary("exp", run.tensor(x).expr * log(10)))


@builtin("libdevice", "libdevice.erfc")
def erfc(run: Interpreter, x: Any) -> Tensor:
    """1 - erf(x)."""
    return Tensor(1.0 - run.b.unary("erf", run.tensor(x).expr))


@builtin("libdevice", "libdevice.round", "libdevice.llround")
def round_(run: Interpreter, x: Any) -> Tensor:
    """The nearest whole number, ties away from 0."""
    b, given = run.b, run.tensor(x).expr
    whole = b.unary("trunc", given)
    away = b.unary("abs", given - whole) >= 0.5
    return Tensor(whole + b.select(away, b.unary("sign", given), 0.0))


@builtin("libdevice", "libdevice.llrint")
def llrint(run: Interpreter, x: Any) -> Tensor:
    """The nearest whole number, ties to even, as int64."""
    return run.cast(Tensor(run.b.unary("round", run.tensor(x).expr)), BY_NAME["int64"])


@builtin("libdevice", "libdevice.isnan")
def isnan(run: Interpreter, x: Any) -> Tensor:
    """Whether x is NaN, as int1."""
    return Tensor(run.b.unary("is_nan", run.tensor(x).expr))


@builtin("libdevice", "libdevice.isinf", "libdevice.isinfd")
def isinf(run: Interpreter, x: Any) -> Tensor:
    """Whether x is infinite, as int1."""
    return Tensor(run.b.unary("is_inf", run.tensor(x).expr))


@builtin("libdevice", "libdevice.finitef", "libdevice.isfinited", "libdevice.isfinite")
def isfinite(run: Interpreter, x: Any) -> Tensor:
    """Whether x is neither infinite nor NaN, as int1."""
    b, given = run.b, run.tensor(x).expr
    return Tensor(b.unary("not", b.unary("is_nan", given) | b.unary("is_inf", given)))


@builtin("libdevice", "libdevice.popc")
def popc(run: Interpreter, x: Any) -> Tensor:
    """The number of one bits."""
    return Tensor(run.b.unary("popcount", run.tensor(x).expr))


@builtin("libdevice", "libdevice.signbit")
def signbit(run: Interpreter, x: Any) -> Tensor:
    """Whether the sign is set, as int1."""
    given = run.tensor(x)
    bits = "i64" if given.type.primitive_bitwidth == 64 else "i32"
    return Tensor(run.b.bitcast(given.expr, bits) < 0)


@builtin("libdevice", "libdevice.copysign")
def copysign(run: Interpreter, x: Any, y: Any) -> Tensor:
    """|x| with the sign of y."""
    left, right = together(run.b, _number(run, x), _number(run, y))
    size = run.b.unary("abs", left.expr)
    return Tensor(run.b.select(signbit(run, right).expr, run.b.unary("neg", size), size))
