"""Elementary functions: the largest error over corners, random bits and the ranges that matter."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from luban.codegen import emit
from luban.codegen.coefficients import COEFFICIENTS
from luban.codegen.numbers import FORMATS, two_over_pi_words
from luban.codegen.vector_math import ERROR_BOUNDS_ULP, FUNCTIONS
from luban.core.dtypes import DTYPES
from luban.native.compile import assembly, compile_object
from luban.native.target import named_target
from luban.tile import Function, FunctionBuilder
from tests.codegen.harness import TARGETS, Array, run_compiled

N = 16
BINARY = {"pow", "atan2", "rem"}


def _logistic(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    result: Array = np.where(x >= 0, 1, small) / (1 + small)
    return result


REFERENCE: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log1p": np.log1p, "logistic": _logistic, "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": np.vectorize(math.erf, otypes=[np.float64]), "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "pow": np.power, "atan2": np.arctan2, "rem": np.fmod,
}  # fmt: skip

LONG_DOUBLE = np.finfo(np.longdouble).nmant >= 63


def samples(name: str, seed: int = 0) -> Array:
    """Random bits of every exponent, even spacing at several scales, round 1, and corners."""
    kind = DTYPES[name].numpy
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2 ** DTYPES[name].bits, 6000, dtype=f"u{kind.itemsize}").view(kind)
    even = [np.linspace(-scale, scale, 3000) for scale in (1.3, 9.0, 100.0, 800.0)]
    close = [1 + rng.standard_normal(1000) * scale for scale in (1e-1, 1e-3, 1e-5)]
    corners = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 2, 3, -3, 1e-45, -1e-45, 1e-40]
    corners += [1e30, 3e38, -3e38, 1e300, 5e-324, math.pi / 2, math.pi, 1e5, 88.8, -104.0, 710.0]
    with np.errstate(all="ignore"):
        wide = np.concatenate([*even, *close, corners]).astype(kind)
    found = np.concatenate([bits, wide])
    found = found[: len(found) // N * N]
    return rng.permutation(found)


def function_program(kind: str, name: str) -> Function:
    b = FunctionBuilder(f"apply_{kind}")
    x, z, y = (b.pointer(letter, name) for letter in "xzy")
    at = b.program_id() * N
    value = b.load(x, at, (N,))
    if kind in BINARY:
        result = b.binary(kind, value, b.load(z, at, (N,)))  # type: ignore[arg-type]
    else:
        result = b.unary(kind, value)  # type: ignore[arg-type]
    b.store(y, at, result)
    return b.finish()


def error_ulp(got: Array, exact: Array) -> Array:
    """Distance in units of the last place of the rounded exact result; inf where kind or sign is
    wrong.
    """
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
        unit = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, 1)))
        distance = np.abs(got.astype(exact.dtype) - exact) / unit.astype(exact.dtype)
    same = (got == rounded) & (np.signbit(got) == np.signbit(rounded))
    same |= np.isnan(got) & np.isnan(rounded)
    comparable = np.isfinite(got) & np.isfinite(rounded) & ((got != 0) | (rounded != 0))
    result: Array = np.where(same & ~comparable, 0, np.where(comparable, distance, np.inf))
    return result.astype(np.float64)


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_error_stays_within_its_bound(kind: str, name: str) -> None:
    if name == "f64" and not LONG_DOUBLE:
        pytest.skip("numpy's longdouble is no wider than f64 here")
    x, z = samples(name, 0), samples(name, 1)
    wide = np.longdouble if name == "f64" and kind != "erf" else np.float64
    if kind == "pow":  # half of the exponents near whole numbers, half of the results in range
        z[::2] = np.round(np.clip(np.nan_to_num(z[::2]), -40, 40))
        x[1::4] = np.exp(np.clip(np.nan_to_num(x[1::4]), -20, 20))
    with np.errstate(all="ignore"):
        operands = [x.astype(wide)] + ([z.astype(wide)] if kind in BINARY else [])
        exact = np.asarray(REFERENCE[kind](*operands))
    for target in TARGETS:
        y = np.zeros_like(x)
        run_compiled(function_program(kind, name), [x, z, y], len(x) // N, target)
        errors = error_ulp(y, exact)
        worst = int(np.argmax(errors))
        bound = ERROR_BOUNDS_ULP[kind][name == "f64"]
        assert errors[worst] <= bound, (
            f"{target.name} {kind}({x[worst]!r}, {z[worst]!r}) = {y[worst]!r}, "
            f"{errors[worst]:.2f} ULP from {exact[worst]!r}"
        )


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("kind", ["exp", "tanh", "erf", "pow"])
def test_narrow_types_round_the_f32_result(kind: str, name: str) -> None:
    """At most one unit of the narrow type from the exact result, nearly always the nearest."""
    kind_of = DTYPES[name].numpy
    x = np.arange(1 << 16, dtype=np.uint16).view(kind_of)
    z = np.roll(x, 777)
    y = np.zeros_like(x)
    run_compiled(function_program(kind, name), [x, z, y], len(x) // N)
    with np.errstate(all="ignore"):
        operands = [x.astype(np.float64)] + ([z.astype(np.float64)] if kind in BINARY else [])
        exact = REFERENCE[kind](*operands).astype(np.float32).astype(kind_of)
    got, wanted = (np.nan_to_num(a.astype(np.float64)) for a in (y, exact))
    assert np.array_equal(np.isnan(y.astype(np.float64)), np.isnan(exact.astype(np.float64)))
    assert np.mean(got == wanted) > 0.999
    apart = np.abs(y.view(np.int16).astype(int) - exact.view(np.int16).astype(int))
    assert np.all((apart <= 1) | (got == wanted) | np.isnan(exact.astype(np.float64)))


@pytest.mark.parametrize("kind", ["exp", "logistic", "sin", "pow"])
def test_result_does_not_depend_on_the_chunk(kind: str) -> None:
    """An element gets the same bits in a whole vector, in a remainder, and as a scalar."""
    b = FunctionBuilder("everywhere")
    x, z, y = (b.pointer(letter, "f32") for letter in "xzy")

    def apply(shape: tuple[int, ...], at: int) -> None:
        value, other = b.load(x, at, shape), b.load(z, at, shape)
        known = (value, other) if kind in BINARY else (value,)
        result = b.binary(kind, *known) if kind in BINARY else b.unary(kind, *known)  # type: ignore[arg-type]
        b.store(y, (32 if shape == (32,) else 0) + at, result)

    apply((32,), 0)
    apply((15,), 0)
    apply((2,), 15)
    for i in range(17, 32):
        apply((), i)
    rng = np.random.default_rng(0)
    data = [(rng.standard_normal(32) * 5).astype(np.float32) for _ in range(2)]
    data[0][7] = 1e9  # one lane that goes the slow way must not move the others
    for target in TARGETS:
        result = np.zeros(64, np.float32)
        run_compiled(b.finish(), [*data, result], 1, target)
        np.testing.assert_array_equal(result[:32], result[32:])


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("target_name", ["avx512", "avx2", "neon"])
def test_no_call_leaves_the_module(target_name: str, name: str) -> None:
    """No libm: every function call in the assembly is to a function of the module."""
    target = named_target(target_name)
    for kind in FUNCTIONS:
        text = assembly(emit(function_program(kind, name), target), target)
        called = re.findall(r"\b(?:callq|bl|jmp)\s+([A-Za-z_][\w.]*)", text)
        assert all(f"{symbol}:" in text for symbol in called), (kind, called)


def test_functions_compile_for_neon() -> None:
    target = named_target("neon")
    assert compile_object(emit(function_program("tanh", "f32"), target), target)


def test_digits_of_two_over_pi() -> None:
    words = two_over_pi_words(64, 22)
    value = sum(word / 2.0 ** (64 * i) for i, word in enumerate(words[:3]))
    assert value == 2 / math.pi
    # The longest window starts at the largest exponent: it must lie inside the table.
    for elem, count in (("float", 10), ("double", 22)):
        form = FORMATS[elem]
        largest = 2 * form.bias + form.bits - 2 - form.bias - form.mantissa
        assert largest // form.bits + 3 < count


def test_documented_bounds_are_the_tested_ones() -> None:
    page = Path(__file__).parents[2] / "docs" / "concepts" / "maths.md"
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+ \| [\d.]+) \|", page.read_text(), re.M))
    assert rows == {k: f"{a} | {b}" for k, (a, b) in ERROR_BOUNDS_ULP.items()}
    assert set(ERROR_BOUNDS_ULP) == set(FUNCTIONS)


def test_coefficients_exist_for_both_formats() -> None:
    names = {name for name, _ in COEFFICIENTS}
    missing = {(n, e) for n in names for e in FORMATS} - set(COEFFICIENTS)
    assert missing == {("erf_tail_far", "float")}
