from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from luban.core.dtypes import DTYPES, dtype
from luban.core.errors import InternalError
from luban.tile.meaning import MEANING, binary, compute, reduce, unary
from luban.tile.memory_ops import Store
from luban.tile.op import TileOp
from luban.tile.ops import (
    Bitcast,
    Cast,
    Compare,
    Concat,
    Dot4,
    DotPair,
    ExtractSlice,
    Fma,
    Reduce,
    Select,
)
from luban.tile.rounding import cast, fma
from luban.tile.table import GROUPS
from luban.tile.types import tile_type

Array = NDArray[Any]

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
SPECIAL = [0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 2.5, 3.5, -2.5]


def wrapped(value: int, name: str) -> int:
    elem = dtype(name)
    value %= 1 << elem.bits
    return value - (1 << elem.bits) if value > elem.highest else value


def of(values: object, name: str) -> Array:
    return np.asarray(values, dtype=dtype(name).numpy)


def same(left: object, right: object) -> None:
    """Equal bits, but any NaN equals any other."""
    np.testing.assert_array_equal(left, right)
    left, right = np.asarray(left), np.asarray(right)
    if left.dtype.kind == "f":
        numbers = ~np.isnan(left)
        np.testing.assert_array_equal(np.signbit(left)[numbers], np.signbit(right)[numbers])


@given(st.sampled_from(INTEGERS), st.data())
@settings(max_examples=200, deadline=None)
def test_integer_arithmetic_is_that_of_python_wrapped(name: str, data: st.DataObject) -> None:
    elem = dtype(name)
    numbers = st.integers(elem.lowest, elem.highest) | st.integers(0, 3)
    x, y = data.draw(numbers), data.draw(numbers)

    def tile(kind: str) -> int:
        return int(binary(kind, of(x, name), of(y, name), elem))

    quotient = 0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    assert tile("add") == wrapped(x + y, name)
    assert tile("sub") == wrapped(x - y, name)
    assert tile("mul") == wrapped(x * y, name)
    assert tile("div") == wrapped(quotient, name)
    assert tile("rem") == (x - y * quotient if y else 0)
    assert tile("mulhi") == (x * y) >> elem.bits
    assert tile("min") == min(x, y)
    assert tile("max") == max(x, y)
    assert tile("xor") == x ^ y
    assert int(unary("popcount", of(x, name), elem)) == (x % (1 << elem.bits)).bit_count()
    assert int(unary("abs", of(x, name), elem)) == wrapped(abs(x), name)
    assert int(unary("neg", of(x, name), elem)) == wrapped(-x, name)


@given(st.sampled_from(INTEGERS), st.data())
@settings(max_examples=200, deadline=None)
def test_shifts_beyond_the_width_fill(name: str, data: st.DataObject) -> None:
    elem = dtype(name)
    x = data.draw(st.integers(elem.lowest, elem.highest))
    amount = data.draw(st.integers(max(elem.lowest, -3), min(elem.highest, 70)))
    legal = 0 <= amount < elem.bits
    unsigned = x % (1 << elem.bits)
    signed = unsigned - (1 << elem.bits) if unsigned >> (elem.bits - 1) else unsigned
    fill = -1 if signed < 0 else 0

    def tile(kind: str) -> int:
        return int(binary(kind, of(x, name), of(amount, name), elem))

    assert tile("shl") == (wrapped(x << amount, name) if legal else 0)
    assert tile("shr_logical") == (wrapped(unsigned >> amount, name) if legal else 0)
    assert tile("shr_arithmetic") == wrapped(signed >> amount if legal else fill, name)


@pytest.mark.parametrize("name", ["f32", "f64", "f16", "bf16"])
def test_minimum_and_maximum_order_zeros_and_nan(name: str) -> None:
    elem = dtype(name)
    x, y = (of(grid.reshape(-1), name) for grid in np.meshgrid(SPECIAL, SPECIAL))
    results = {
        kind: binary(kind, x, y, elem).astype(np.float64)
        for kind in ("min", "max", "minnum", "maxnum")
    }
    for place, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        low, high = sorted([a, b], key=lambda v: (v, math.copysign(1, v)))
        both = [v for v in (a, b) if not math.isnan(v)]
        same(results["min"][place], low if len(both) == 2 else math.nan)
        same(results["max"][place], high if len(both) == 2 else math.nan)
        if len(both) == 1:
            same(results["minnum"][place], both[0])
            same(results["maxnum"][place], both[0])
        elif both:
            same(results["minnum"][place], low)
            same(results["maxnum"][place], high)


def test_unary_corner_values() -> None:
    f32 = dtype("f32")
    x = of(SPECIAL, "f32")
    same(unary("neg", x, f32), -x)
    same(unary("sign", x, f32), of([0, 0, 1, -1, 1, -1, math.nan, 1, 1, -1], "f32"))
    same(
        unary("round", x, f32), of([0, -0.0, 1, -2, math.inf, -math.inf, math.nan, 2, 4, -2], "f32")
    )
    same(unary("sqrt", of([-0.0, -1, 4], "f32"), f32), of([-0.0, math.nan, 2], "f32"))
    same(unary("rsqrt", of([0.0, -0.0, 4], "f32"), f32), of([math.inf, -math.inf, 0.5], "f32"))
    same(unary("logistic", of([-200, 0, 200], "f32"), f32), of([0, 0.5, 1], "f32"))
    same(unary("acosh", of([0.5, 1], "f32"), f32), of([math.nan, 0], "f32"))
    assert unary("is_nan", x, f32).tolist() == [False] * 6 + [True] + [False] * 3
    assert unary("is_inf", x, f32).tolist() == [False] * 4 + [True] * 2 + [False] * 4
    assert unary("not", of([True, False], "bool"), dtype("bool")).tolist() == [False, True]


@pytest.mark.parametrize(
    ("kind", "reference"),
    [
        ("exp", math.exp), ("exp2", lambda v: 2.0**v), ("expm1", math.expm1), ("log", math.log),
        ("log2", math.log2), ("log1p", math.log1p), ("sin", math.sin), ("cos", math.cos),
        ("tan", math.tan), ("asin", math.asin), ("acos", math.acos), ("atan", math.atan),
        ("sinh", math.sinh), ("cosh", math.cosh), ("tanh", math.tanh), ("asinh", math.asinh),
        ("atanh", math.atanh), ("erf", math.erf),
    ],
)  # fmt: skip
def test_transcendental_functions_are_those_of_python(kind: str, reference: object) -> None:
    assert callable(reference)
    x = of([0.03125, 0.25, 0.7, 0.96875], "f32")
    wanted = [np.float32(reference(float(v))) for v in x]
    np.testing.assert_array_max_ulp(unary(kind, x, dtype("f32")), np.array(wanted), maxulp=1)


@given(
    st.lists(st.floats(width=32), min_size=2, max_size=2), st.sampled_from(["add", "mul", "div"])
)
@settings(deadline=None)
def test_half_types_round_the_f32_result(pair: list[float], kind: str) -> None:
    for name in ("f16", "bf16"):
        with np.errstate(all="ignore"):
            x, y = (of(np.float32(v), name) for v in pair)
            wide = binary(kind, x.astype(np.float32), y.astype(np.float32), dtype("f32"))
            wanted = wide.astype(dtype(name).numpy)
        got = binary(kind, x, y, dtype(name))
        assert got.dtype == wanted.dtype
        same(got.astype(np.float32), wanted.astype(np.float32))


def rounded(exact: Fraction, name: str) -> float:
    """Round to nearest even by definition: the nearest of the two neighbours."""
    with np.errstate(over="ignore"):
        near = dtype(name).numpy.type(float(exact))
    step = np.float32 if name == "f32" else np.float64
    neighbours = [near, np.nextafter(near, step(np.inf)), np.nextafter(near, step(-np.inf))]
    finite = [v for v in neighbours if np.isfinite(v)]
    bits = np.int32 if name == "f32" else np.int64
    return float(
        min(finite, key=lambda v: (abs(Fraction(float(v)) - exact), int(v.view(bits)) & 1))
    )


SMALL = st.floats(-1e6, 1e6, width=32)


@given(SMALL, SMALL, SMALL)
@settings(max_examples=200, deadline=None)
def test_fma_rounds_once_in_f32(x: float, y: float, z: float) -> None:
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    a, b, c = (np.array([v], np.float32) for v in (x, y, z))
    got = fma(a, b, c, DTYPES["f32"])
    assert float(got[0]) == rounded(exact, "f32")


def test_fma_rounds_once_where_two_roundings_differ() -> None:
    """x * x = 1 + 2**-11 + 2**-24, half way between two f32: a tiny z decides."""
    x = np.array([1 + 2.0**-12], np.float32)
    for small in (2.0**-60, -(2.0**-60), 0.0):
        total = Fraction(float(x[0])) ** 2 + Fraction(small)
        got = fma(x, x, np.array([small], np.float32), DTYPES["f32"])
        assert float(got[0]) == rounded(total, "f32")
    up, down = (fma(x, x, np.array([z], np.float32), DTYPES["f32"]) for z in (1e-18, -1e-18))
    assert up[0] != down[0]


@given(*[st.floats(allow_nan=True, allow_infinity=True)] * 3)
@settings(max_examples=200, deadline=None)
def test_fma_in_f64(x: float, y: float, z: float) -> None:
    got = float(fma(np.array([x]), np.array([y]), np.array([z]), DTYPES["f64"])[0])
    if all(map(math.isfinite, (x, y, z))):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        try:
            wanted = float(exact)
        except OverflowError:
            wanted = math.inf if exact > 0 else -math.inf
        assert got == wanted
    else:
        with np.errstate(all="ignore"):
            same(got, float(np.float64(x) * np.float64(y) + np.float64(z)))


def test_fma_keeps_the_sign_of_zero() -> None:
    f32, f64 = DTYPES["f32"], DTYPES["f64"]
    for elem in (f32, f64):
        zero = np.zeros(1, elem.numpy)
        one = np.ones(1, elem.numpy)
        assert np.signbit(fma(-zero, one, -zero, elem))[0]
        assert not np.signbit(fma(-zero, one, zero, elem))[0]
        assert not np.signbit(fma(one, one, -one, elem))[0]


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(["bf16", "f16", "f32", "f64"]))
@settings(max_examples=150, deadline=None)
def test_integers_round_once_to_floats(value: int, name: str) -> None:
    got = float(cast(of(value, "i64"), dtype("i64"), dtype(name), True))
    if math.isinf(got):
        assert name == "f16"
        assert abs(value) >= 65520
        return
    stored_bits = {"bf16": 7, "f16": 10, "f32": 23, "f64": 52}[name]
    spacing = Fraction(2) ** (max(abs(value).bit_length() - 1 - stored_bits, 0))
    assert abs(Fraction(got) - value) * 2 <= spacing
    if abs(Fraction(got) - value) * 2 == spacing and spacing > 1:
        assert Fraction(got) / spacing % 2 == 0


@given(st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=150, deadline=None)
def test_f64_rounds_once_to_bf16(value: float) -> None:
    """By halves: no bf16 lies strictly nearer, checked on the two neighbours."""
    got = cast(np.array([value]), DTYPES["f64"], DTYPES["bf16"], True)
    bits = int(got.view(np.uint16)[0])
    if not math.isfinite(float(got[0])):
        assert abs(value) >= 255.5 * 2.0**120
        return
    error = abs(Fraction(float(got[0])) - Fraction(value))
    for other in (bits - 1, bits + 1):
        near = float(np.array([other % 65536], np.uint16).view(ml_dtypes.bfloat16)[0])
        if math.isfinite(near):
            distance = abs(Fraction(near) - Fraction(value))
            assert error < distance or (error == distance and bits % 2 == 0) or near == got[0]


@pytest.mark.parametrize(
    ("source", "to", "saturate", "values", "wanted"),
    [
        (
            "f32",
            "i8",
            True,
            [127.9, 128, -300, math.nan, math.inf, -0.9],
            [127, 127, -128, 0, 127, 0],
        ),
        ("f32", "u8", True, [-1, 255.5, 256, math.nan], [0, 255, 255, 0]),
        ("f32", "i64", True, [2.0**63, -(2.0**63), 1e30], [2**63 - 1, -(2**63), 2**63 - 1]),
        ("f64", "u64", True, [2.0**64, -1.0, 2.0**63], [2**64 - 1, 0, 2**63]),
        ("f32", "i8", False, [130, -130, 256, math.nan], [-126, 126, 0, 0]),
        ("i32", "i8", False, [130, -130, 5], [-126, 126, 5]),
        ("i32", "i8", True, [130, -130, 5], [127, -128, 5]),
        ("u64", "i64", True, [2**64 - 1, 3], [2**63 - 1, 3]),
        ("i64", "u64", True, [-1, 3], [0, 3]),
        ("i64", "u64", False, [-1, 3], [2**64 - 1, 3]),
        ("i8", "i4", False, [9, -9, 7], [-7, 7, 7]),
        ("i8", "i4", True, [9, -9, 7], [7, -8, 7]),
        ("i8", "u2", False, [5, -1], [1, 3]),
        ("f32", "bool", True, [0.0, -0.0, math.nan, 0.1], [False, False, True, True]),
        ("bool", "f32", True, [True, False], [1.0, 0.0]),
        ("f32", "f8e4m3fn", True, [1000, -1000, math.inf], [448, -448, 448]),
        ("f32", "f8e5m2", False, [1e6, -1e6], [math.inf, -math.inf]),
        ("f32", "f8e5m2", True, [1e6, -1e6], [57344, -57344]),
        ("f32", "f4e2m1", True, [100, 2.5, -0.2], [6, 2, -0.0]),
        ("f64", "f32", True, [1e300, 1 + 2.0**-24], [math.inf, 1]),
        ("f64", "f16", True, [65520.0, 65519.9], [math.inf, 65504]),
    ],
)
def test_cast(
    source: str, to: str, saturate: bool, values: list[float], wanted: list[float]
) -> None:
    got = cast(of(values, source), dtype(source), dtype(to), saturate)
    assert got.dtype == dtype(to).numpy
    assert got.tolist() == wanted or got.astype(np.float64).tolist() == wanted


@pytest.mark.parametrize(
    "name", ["f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f4e2m1", "i4", "u2"]
)
def test_cast_keeps_every_narrow_value(name: str) -> None:
    elem = dtype(name)
    codes = np.arange(1 << elem.bits, dtype=np.uint8)
    narrow = codes.view(np.uint8).astype(np.uint8).view(elem.numpy) if elem.bits == 8 else None
    if narrow is None:
        wide = np.array([c if elem.kind != "int" or c < 8 else c - 16 for c in codes.tolist()])
        wide = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6]) if elem.is_float else wide
        source = "f64" if elem.is_float else "i64"
    else:
        wide, source = narrow.astype(np.float32).astype(np.float64), "f64"
    back = cast(cast(of(wide, source), dtype(source), elem, True), elem, dtype(source), True)
    finite = np.isfinite(wide.astype(np.float64))
    np.testing.assert_array_equal(back[finite], of(wide, source)[finite])


def test_reduce_folds_in_the_documented_order() -> None:
    x = of([1e8, 1.0, -1e8, 1.0, 3.0, 0.5, 7.0], "f32")
    f = np.float32
    first = [f(x[0] + x[4]), f(x[1] + x[5]), f(x[2] + x[6]), x[3]]
    second = [f(first[0] + first[2]), f(first[1] + first[3])]
    assert reduce("sum", x, 0, dtype("f32")) == f(second[0] + second[1])


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13])
def test_reduce_of_every_kind_and_axis(count: int) -> None:
    x = np.random.default_rng(count).integers(-9, 9, (2, count, 3)).astype(np.int32)
    i32 = dtype("i32")
    for axis in range(3):
        assert (reduce("sum", x, axis, i32) == x.sum(axis)).all()
        assert (reduce("max", x, axis, i32) == x.max(axis)).all()
        assert (reduce("min", x, axis, i32) == x.min(axis)).all()
        assert (reduce("and", x, axis, i32) == np.bitwise_and.reduce(x, axis)).all()
        assert (reduce("or", x, axis, i32) == np.bitwise_or.reduce(x, axis)).all()
        assert (reduce("xor", x, axis, i32) == np.bitwise_xor.reduce(x, axis)).all()
        assert (reduce("prod", x, axis, i32) == x.prod(axis, dtype=np.int32)).all()


def apply(op: TileOp, *operands: Array) -> Array:
    names = {elem.numpy: name for name, elem in DTYPES.items()}
    types = [tile_type(names[x.dtype], *x.shape) for x in operands]
    result = compute(op, operands, types)
    (wanted,) = op.infer(*types)
    assert result.dtype == wanted.dtype.numpy
    assert result.shape == wanted.shape
    return result


def test_shape_ops_and_select() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert apply(ExtractSlice((1, 2), (2, 2)), x).tolist() == [[6, 7], [10, 11]]
    assert apply(Concat(1), x, x[:, :1]).shape == (3, 5)
    assert apply(Select(), x > 4, x, -x)[0].tolist() == [0, -1, -2, -3]
    assert apply(Bitcast(dtype("i32")), x)[0, 1] == 0x3F800000
    half = x.astype(ml_dtypes.bfloat16)
    assert apply(Select(), x > 4, half, half).dtype == ml_dtypes.bfloat16
    assert apply(Compare("lt"), half, half + half)[0].tolist() == [False, True, True, True]
    assert apply(Cast(dtype("i8"), False), x + 250)[1].tolist() == [-2, -1, 0, 1]
    assert apply(Fma(), half, half, half)[0, 2] == 6
    assert apply(Reduce("or", 0), x > 4).tolist() == [True] * 4


def test_dot4_sums_groups_of_four() -> None:
    rng = np.random.default_rng(0)
    acc = rng.integers(-100, 100, (3, 5)).astype(np.int32)
    b = rng.integers(-128, 128, 20).astype(np.int8)
    for kind, low, high in ((np.uint8, 0, 256), (np.int8, -128, 128)):
        a = rng.integers(low, high, (3, 4)).astype(kind)
        wanted = acc + a.astype(np.int32) @ b.reshape(5, 4).astype(np.int32).T
        assert (apply(Dot4(), acc, a, b) == wanted).all()
    full = np.full((1, 1), 2**31 - 1, np.int32)
    ones = np.ones(4, np.int8)
    assert apply(Dot4(), full, ones.reshape(1, 4), ones)[0, 0] == -(2**31) + 3


def test_dot_pair_adds_the_odd_product_first() -> None:
    a = of([[1.5, 2.0]], "bf16")
    b = of([3.0, 4.0, 0.5, -1.0], "bf16")
    acc = of([[10.0, 20.0]], "f32")
    assert apply(DotPair(), acc, a, b).tolist() == [[22.5, 18.75]]


def test_every_value_op_has_a_meaning() -> None:
    value_ops = [
        op
        for title, ops in GROUPS.items()
        if title not in ("Memory", "Blocks of kernel authors", "Control")
        for op in ops
    ]
    missing = [op.name for op in value_ops if op not in MEANING]
    assert missing == ["program_id", "thread_id"]  # the evaluator answers these


def test_an_op_without_a_meaning_names_the_file_to_edit() -> None:
    with pytest.raises(InternalError, match=r"store has no row in MEANING of tile/meaning\.py"):
        compute(Store((), ()), [], [])
