"""Elementwise meaning: formulas against Python's own, and the edges of the numerics page."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from luban.core.dtypes import DTYPES, dtype
from luban.graph import build
from luban.graph.meaning.elementwise import cast_array
from luban.graph.ops.elementwise import BINARY, COMPARE, UNARY, UNARY_BOOL
from luban.ir.node import Node
from tests.graph.calls import call

NAN, INF = math.nan, math.inf
F32 = np.float32


def unary(name: str, x: Any, dtype_: Any = F32) -> Any:
    return call(lambda a: build.unary(name, a), np.array(x, dtype_))


def binary(name: str, x: Any, y: Any, dtype_: Any = F32) -> Any:
    return call(lambda a, b: build.binary(name, a, b), np.array(x, dtype_), np.array(y, dtype_))


def same(given: Any, expected: Any) -> None:
    """Equal values, NaN equal to NaN, and 0.0 apart from -0.0."""
    np.testing.assert_array_equal(given, expected)
    number = ~np.isnan(expected)  # the sign of NaN is open
    np.testing.assert_array_equal(np.signbit(given)[number], np.signbit(expected)[number])


FORMULAS: dict[str, Callable[[float], float]] = {
    "negative": lambda x: -x,
    "abs": abs,
    "sign": lambda x: math.copysign(1, x) if x else x,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "exp": math.exp,
    "expm1": math.expm1,
    "log": math.log,
    "log1p": math.log1p,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "tanh": math.tanh,
    "asinh": math.asinh,
    "acosh": math.acosh,
    "atanh": math.atanh,
    "erf": math.erf,
    "logistic": lambda x: 1 / (1 + math.exp(-x)),
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    "trunc": math.trunc,
}
DOMAIN = {"acosh": (1.0, 4.0), "sqrt": (0.0, 4.0), "rsqrt": (0.1, 4.0), "log": (0.1, 4.0)}
UNIT = {"asin", "acos", "atanh", "log1p"}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("element", ["f64", "f32", "bf16", "f16"])
def test_each_formula_in_each_float(name: str, element: str) -> None:
    low, high = DOMAIN.get(name, (-0.95, 0.95) if name in UNIT else (-4.0, 4.0))
    x = np.linspace(low, high, 33).astype(dtype(element).numpy)
    expected = np.array([FORMULAS[name](float(v)) for v in x])
    result = call(lambda a: build.unary(name, a), x)
    assert result.dtype == x.dtype
    unit = {"f64": 2.0**-52, "f32": 2.0**-23, "bf16": 2.0**-7, "f16": 2.0**-10}[element]
    rounded_twice = 2 if name == "rsqrt" else 1  # each of its two steps rounds
    error = np.abs(result.astype(np.float64) - expected)
    tolerance = np.maximum(np.abs(expected), 2.0**-14) * unit * (rounded_twice + 3)
    assert np.all(error <= tolerance)


def test_every_float_unary_has_a_formula_here() -> None:
    assert set(UNARY) == {*FORMULAS, "bitwise_not"}
    assert set(UNARY_BOOL) == {"is_nan", "is_inf"}


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("sign", [NAN, -0.0, 0.0, -INF], [NAN, -0.0, 0.0, -1]),
        ("negative", [0.0, -0.0, INF], [-0.0, 0.0, -INF]),
        ("abs", [-0.0, -INF], [0.0, INF]),
        ("sqrt", [-1.0, -0.0, INF], [NAN, -0.0, INF]),
        ("log", [0.0, -1.0, INF], [-INF, NAN, INF]),
        ("rsqrt", [0.0, INF, -1.0], [INF, 0.0, NAN]),
        ("exp", [-INF, INF, 200.0], [0.0, INF, INF]),
        ("logistic", [-INF, INF, 0.0, -200.0], [0.0, 1.0, 0.5, 0.0]),
        ("tanh", [-INF, INF, -0.0], [-1.0, 1.0, -0.0]),
        ("erf", [-INF, INF, -0.0], [-1.0, 1.0, -0.0]),
        ("round", [0.5, 1.5, 2.5, -0.5, -1.5], [0.0, 2.0, 2.0, -0.0, -2.0]),
        ("floor", [-0.5, 0.5, -INF], [-1.0, 0.0, -INF]),
        ("ceil", [-0.5, 0.5], [-0.0, 1.0]),
        ("trunc", [-1.7, 1.7, -0.5], [-1.0, 1.0, -0.0]),
        ("is_nan", [NAN, INF, 0.0], [True, False, False]),
        ("is_inf", [NAN, INF, -INF], [False, True, True]),
    ],
)
def test_unary_edges(name: str, x: list[float], expected: list[float]) -> None:
    result = unary(name, x)
    same(result, np.array(expected, result.dtype))


def test_logistic_keeps_subnormal_results() -> None:
    (result,) = unary("logistic", [-100.0])
    assert result == F32(math.exp(-100))


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("length", [1, 17])
def test_nan_wins_in_either_place(name: str, length: int) -> None:
    numbers, nans = [1.0] * length, [NAN] * length
    assert np.isnan(binary(name, numbers, nans)).all()
    assert np.isnan(binary(name, nans, numbers)).all()


@pytest.mark.parametrize("name", [n for n in COMPARE if n != "not_equal"])
def test_comparisons_with_nan_are_false(name: str) -> None:
    np.testing.assert_array_equal(binary(name, [NAN, 1, NAN], [1, NAN, NAN]), [False] * 3)


def test_not_equal_with_nan_is_true() -> None:
    np.testing.assert_array_equal(binary("not_equal", [NAN, 1], [1, NAN]), [True, True])


def test_narrow_floats_round_after_each_operation() -> None:
    for element in (np.float16, ml_dtypes.bfloat16):
        x = np.array([1.0, 3.0], element)
        third = call(lambda a: build.multiply(build.divide(a, 3.0), 3.0), x)
        step = (x.astype(F32) / F32(3)).astype(element)
        np.testing.assert_array_equal(third, (step.astype(F32) * F32(3)).astype(element))


SIGNED, UNSIGNED = ["i8", "i16", "i32", "i64", "i4", "i2"], ["u8", "u16", "u32", "u64", "u4", "u2"]


def wrapped(value: int, element: str) -> int:
    size = dtype(element).bits
    value %= 1 << size
    return value - (1 << size) if dtype(element).kind == "int" and value >> (size - 1) else value


def truncated(x: int, y: int) -> int:
    return math.trunc(Fraction(x, y)) if y else 0


def shifted_right(x: int, y: int) -> int:
    return x >> y


INTEGER_FORMULAS: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": truncated,
    "remainder": lambda x, y: x - truncated(x, y) * y if y else 0,
    "floor_mod": lambda x, y: x % y if y else 0,
    "maximum": max,
    "minimum": min,
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
}


@pytest.mark.parametrize("element", SIGNED + UNSIGNED)
@pytest.mark.parametrize("name", INTEGER_FORMULAS)
def test_integers_follow_python_modulo_their_width(name: str, element: str) -> None:
    low, high = dtype(element).lowest, dtype(element).highest
    candidates = {low, low + 1, -1, 0, 1, 2, 7, high - 1, high}
    interesting = sorted(value for value in candidates if low <= value <= high)
    pairs = [(x, y) for x in interesting for y in interesting]
    wide = np.uint64 if dtype(element).kind == "uint" else np.int64
    x, y = (np.array(c, wide).astype(dtype(element).numpy) for c in zip(*pairs, strict=True))
    result = call(lambda a, b: build.binary(name, a, b), x, y)
    assert result.dtype == dtype(element).numpy
    expected = [wrapped(INTEGER_FORMULAS[name](a, b), element) for a, b in pairs]
    assert [int(v) for v in result] == expected


def test_integer_division_of_the_case_list() -> None:
    result = binary("divide", [8, -8, 7, -7], [-3, 3, -2, 2], np.int64)
    assert result.tolist() == [-2, -2, -3, -3]
    lowest = np.iinfo(np.int32).min
    assert binary("divide", [7, lowest], [0, -1], np.int32).tolist() == [0, lowest]
    assert binary("floor_mod", [7, lowest], [0, -1], np.int32).tolist() == [0, 0]
    assert binary("remainder", [7, lowest], [0, -1], np.int32).tolist() == [0, 0]


def test_shifts() -> None:
    assert binary("shift_right", [-3527, -1, 5], [8, 40, 40], np.int32).tolist() == [-14, -1, 0]
    assert binary("shift_left", [1, 1, 3], [31, 32, 30], np.int32).tolist() == [
        -(2**31),
        0,
        -(2**30),
    ]
    assert binary("shift_right", [200, 200], [3, 8], np.uint8).tolist() == [25, 0]
    assert binary("shift_left", [200], [1], np.uint8).tolist() == [144]


@pytest.mark.parametrize("element", ["i8", "i32", "i64"])
def test_integer_power(element: str) -> None:
    pairs = [(2, 3), (-2, 3), (3, 90), (0, 0), (5, -1), (1, -3), (-1, -3), (-1, -4), (0, -2)]
    x, y = (np.array(c, dtype(element).numpy) for c in zip(*pairs, strict=True))
    expected = [8, -8, wrapped(3**90, element), 1, 0, 1, -1, 1, 0]
    assert call(build.power, x, y).tolist() == expected


def test_float_remainders_take_the_sign_the_op_says() -> None:
    x, y = [5.5, -5.5, 5.5, -5.5], [3.0, 3.0, -3.0, -3.0]
    np.testing.assert_array_equal(binary("remainder", x, y), [2.5, -2.5, 2.5, -2.5])
    np.testing.assert_array_equal(binary("floor_mod", x, y), [2.5, 0.5, -0.5, -2.5])


def test_atan2_takes_y_first() -> None:
    result = binary("atan2", [1.0, -1.0, 0.0], [0.0, -1.0, -1.0])
    np.testing.assert_allclose(result, [math.pi / 2, -3 * math.pi / 4, math.pi], rtol=1e-6)


def test_bool_operations() -> None:
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert call(build.bitwise_and, x, y).tolist() == [True, False, False, False]
    assert call(build.bitwise_or, x, y).tolist() == [True, True, True, False]
    assert call(build.bitwise_xor, x, y).tolist() == [False, True, True, False]
    assert call(build.bitwise_not, x).tolist() == [False, False, True, True]


def test_select_takes_from_both() -> None:
    p, x = np.array([True, False]), np.array([1.0, NAN], F32)
    same(call(lambda a, b: build.select(a, b, -0.0), p, x), np.array([1.0, -0.0], F32))


def test_every_binary_is_tested_here() -> None:
    tested = {*INTEGER_FORMULAS, "shift_left", "shift_right", "power", "atan2"}
    assert set(BINARY) == tested


# Casts


@pytest.mark.parametrize(
    ("element", "expected"),
    [
        ("i32", [0, 2**31 - 1, -(2**31), 2**31 - 1, -1]),
        ("i64", [0, 2**63 - 1, -(2**63), 3_000_000_000, -1]),
        ("u32", [0, 2**32 - 1, 0, 3_000_000_000, 0]),
        ("u64", [0, 2**64 - 1, 0, 3_000_000_000, 0]),
        ("u8", [0, 255, 0, 255, 0]),
        ("i8", [0, 127, -128, 127, -1]),
        ("i4", [0, 7, -8, 7, -1]),
        ("u2", [0, 3, 0, 3, 0]),
    ],
)
@pytest.mark.parametrize("source", ["f64", "f32"])
def test_float_to_integer_saturates(element: str, expected: list[int], source: str) -> None:
    x = np.array([NAN, INF, -INF, 3e9, -1.5], dtype(source).numpy)
    result = call(lambda a: build.cast(a, element), x)
    assert [int(v) for v in result] == expected


@given(st.floats(-(2.0**70), 2.0**70), st.sampled_from(SIGNED + UNSIGNED))
def test_float_to_integer_without_saturation_keeps_the_low_bits(x: float, element: str) -> None:
    result = cast_array(np.array([x]), dtype(element), saturate=False)
    wide = dtype("u64" if element == "u64" else "i64")
    clamped = max(wide.lowest, min(math.trunc(x), wide.highest))
    assert int(result[0]) == wrapped(clamped, element)


def test_integer_to_integer_keeps_the_low_bits() -> None:
    x = np.array([300, -1, -129, 128])
    assert call(lambda a: build.cast(a, "i8"), x).tolist() == [44, -1, 127, -128]
    assert call(lambda a: build.cast(a, "u8"), x).tolist() == [44, 255, 127, 128]
    assert [int(v) for v in call(lambda a: build.cast(a, "i4"), x)] == [-4, -1, -1, 0]


def test_to_bool_is_not_zero() -> None:
    x = np.array([0.0, -0.0, NAN, 0.1, INF], F32)
    assert call(lambda a: build.cast(a, "bool"), x).tolist() == [False, False, True, True, True]


def test_float_casts_keep_negative_zero_and_overflow_to_infinity() -> None:
    x = np.array([-0.0, 1e30, -1e39], np.float64)
    for element, expected in (("f32", [-0.0, 1e30, -INF]), ("f16", [-0.0, INF, -INF])):
        result = call(lambda a, e=element: build.cast(a, e), x)
        same(result, np.array(expected, dtype(element).numpy))


def nearest_even(x: float, element: str) -> float:
    """The closest value of a narrow dtype by search over all of its bit patterns."""
    width = dtype(element).bits
    patterns = np.arange(1 << width, dtype=f"u{max(width, 8) // 8}")
    values = patterns.view(dtype(element).numpy).astype(np.float64)
    keep = np.isfinite(values)
    patterns, values = patterns[keep], values[keep]
    distance = np.abs(values - x)
    near = np.flatnonzero(distance == distance.min())
    even = [i for i in near if patterns[i] % 2 == 0] or list(near)
    return float(values[even[0]])


@given(st.floats(-400, 400), st.sampled_from(["f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"]))
def test_casts_to_eight_bits_round_to_nearest_even(x: float, element: str) -> None:
    x = max(-240.0, min(240.0, x))  # the range of the smallest of them
    assert float(cast_array(np.array([x]), dtype(element))[0]) == nearest_even(x, element)


@given(st.integers(0, 2**16 - 2), st.sampled_from([-1, 0, 1]), st.sampled_from([20, 40]))
def test_float64_to_bf16_rounds_once(pattern: int, direction: int, gap: int) -> None:
    low, high = (
        np.array([p], np.uint16).view(ml_dtypes.bfloat16).astype(np.float64)[0]
        for p in (pattern, pattern + 1)
    )
    if not (np.isfinite(low) and np.isfinite(high)) or abs(low) < 1e-30:
        return
    middle = (low + high) / 2
    x = middle + direction * abs(middle) * 2.0**-gap
    even = low if pattern % 2 == 0 else high
    expected = {0: even, 1: max(low, high), -1: min(low, high)}[direction]
    assert float(cast_array(np.array([x]), dtype("bf16"))[0]) == expected


def test_int64_to_bf16_rounds_once() -> None:
    halfway = 2**62 + 2**54  # between two bf16 values
    x = np.array([halfway, halfway + 1, halfway - 1, -halfway - 1], np.int64)
    even, above = float(2**62), float(2**62 + 2**55)
    result = cast_array(x, dtype("bf16")).astype(np.float64)
    assert result.tolist() == [even, above, even, -above]


@pytest.mark.parametrize(
    ("element", "largest", "overflow"),
    [
        ("f8e4m3fn", 448, NAN),
        ("f8e4m3fnuz", 240, NAN),
        ("f8e5m2", 57344, INF),
        ("f8e5m2fnuz", 57344, NAN),
        ("f4e2m1", 6, 6),
    ],
)
def test_casts_to_tiny_floats_saturate_or_overflow(
    element: str, largest: float, overflow: float
) -> None:
    x = np.array([1e9, INF, 1.0], F32)
    saturated = call(lambda a: build.cast(a, element), x).astype(F32)
    np.testing.assert_array_equal(saturated, [largest, largest, 1])
    plain = call(lambda a: build.cast(a, element, saturate=False), x).astype(F32)
    np.testing.assert_array_equal(plain, [overflow, overflow, 1])


def test_float64_precision_rounds_only_where_the_program_asks_for_it() -> None:
    x = np.array([1 / 3], F32)
    through_f16 = call(lambda a: build.cast(build.cast(a, "f16"), "f32"), x, precision="float64")
    assert through_f16.tolist() == [float(x[0])]
    through_f8 = call(lambda a: build.cast(build.cast(a, "f8e5m2"), "f32"), x, precision="float64")
    assert through_f8.dtype == np.float64
    assert through_f8.tolist() == [0.3125]
    assert call(lambda a: build.cast(a, "i32"), x, precision="float64").dtype == np.int32


# No unsigned integer has 6 bits.
@pytest.mark.parametrize("name", [d.name for d in DTYPES.values() if d.is_numeric and d.bits != 6])
def test_bitcast_keeps_the_bits(name: str) -> None:
    element = dtype(name)
    unsigned = dtype(f"u{element.bits}")
    patterns = np.arange(min(1 << element.bits, 256), dtype=np.uint64).astype(unsigned.numpy)

    def there_and_back(x: Node) -> Node:
        return build.bitcast(build.bitcast(x, element), unsigned)

    result = call(there_and_back, patterns)
    assert [int(v) for v in result] == [int(v) for v in patterns]


def test_bitcast_known_values() -> None:
    assert call(lambda a: build.bitcast(a, "i32"), np.array([-0.0, 1.0], F32)).tolist() == [
        -(2**31),
        0x3F800000,
    ]
    assert call(lambda a: build.bitcast(a, "i32"), np.array([1.0], F32), precision="float64") == [
        0x3F800000
    ]


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_minus_zero_is_below_zero(name: str) -> None:
    kind = dtype(name).numpy
    zeros, minus = np.zeros(20, kind), -np.zeros(20, kind)
    for x, y in ((zeros, minus), (minus, zeros)):
        assert not np.signbit(call(build.maximum, x, y).astype(F32)).any()
        assert np.signbit(call(build.minimum, x, y).astype(F32)).all()
