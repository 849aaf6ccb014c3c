"""Quantised operators: rounding, ranges, axes, blocks and exact integer products."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from luban.core.errors import ModelError
from tests.frontend.onnx.ops.comparison import Array, compare, run

RNG = np.random.default_rng(5)


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def quantised(x: Any, scale: float, zero: Any) -> list[int]:
    inputs = [np.array(x, np.float32), np.float32(scale), zero]
    return [int(v) for v in run("QuantizeLinear", inputs)[0]]


def test_rounding_and_range() -> None:
    zero = np.array(0, np.int8)
    assert quantised([-129, -128, -127, 126, 127, 128], 1, zero) == [
        -128,
        -128,
        -127,
        126,
        127,
        127,
    ]
    assert quantised([0.5, 1.5, 2.5, -0.5, -1.5], 1, zero) == [0, 2, 2, 0, -2]
    assert quantised([np.inf, -np.inf, np.nan, 1e30], 1, zero) == [127, -128, 0, 127]


def test_half_floats_are_divided_in_their_dtype() -> None:
    x = np.array([0.05002, -0.05002], np.float16)
    scale = np.array(0.09998, np.float16)
    assert run("QuantizeLinear", [x, scale, np.array(0, np.int8)])[0].tolist() == [1, -1]


def test_a_wide_zero_point_of_half_floats_is_exact() -> None:
    x, scale = np.array([1.0, 3.0], np.float16), np.array(1.0, np.float16)
    zero = np.array(30001, np.uint16)
    assert run("QuantizeLinear", [x, scale, zero])[0].tolist() == [30002, 30004]


@pytest.mark.parametrize("element", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_per_axis(element: Any, axis: int) -> None:
    x = f32(3, 4, 5) * 50
    size = x.shape[axis]
    scale = (np.abs(f32(size)) + 0.1).astype(np.float32)
    zero = RNG.integers(0, 100, size).astype(element)
    compare("QuantizeLinear", [x, scale, zero], axis=axis)
    codes = RNG.integers(0, 100, x.shape).astype(element)
    compare("DequantizeLinear", [codes, scale, zero], axis=axis)


@pytest.mark.parametrize("size", [8, 10])
def test_blocks_also_where_the_last_is_short(size: int) -> None:
    x = f32(3, size)
    count = -(-size // 4)
    scale = (np.abs(f32(3, count)) + 0.1).astype(np.float32)
    options: dict[str, Any] = {"axis": 1, "block_size": 4}
    (codes,) = run("QuantizeLinear", [x, scale, np.zeros((3, count), np.int8)], **options)
    wide = np.repeat(scale, 4, axis=1)[:, :size]
    np.testing.assert_array_equal(codes, np.clip(np.rint(x / wide), -128, 127).astype(np.int8))
    (back,) = run("DequantizeLinear", [codes, scale], **options)
    np.testing.assert_array_equal(back, codes * wide)
    with pytest.raises(ModelError, match="expected 3 blocks of 4 along axis 1"):
        run("QuantizeLinear", [f32(3, 12), f32(3, 2)], **options)


@pytest.mark.parametrize(
    ("element", "low", "high"), [(ml_dtypes.int4, -8, 7), (ml_dtypes.uint4, 0, 15)]
)
def test_four_bits(element: Any, low: int, high: int) -> None:
    x = np.array([-100, -1, 0, 3.4, 3.5, 100], np.float32)
    (codes,) = run("QuantizeLinear", [x, np.float32(1), np.array(0, element)])
    assert codes.dtype == element
    assert codes.astype(int).tolist() == [int(v) for v in np.clip(np.rint(x), low, high)]


def test_output_dtype_and_zero_point_must_agree() -> None:
    with pytest.raises(ModelError, match="output_dtype is i8, the zero point u8"):
        run("QuantizeLinear", [f32(2), np.float32(1), np.array(0, np.uint8)], output_dtype=3)
    with pytest.raises(ModelError, match="axis is 5 for"):
        run("QuantizeLinear", [f32(2, 2), f32(2)], axis=5)


def test_dequantize_of_i32_is_exact_in_the_difference() -> None:
    x = np.array([2**30 + 1, 2**30], np.int32)
    (got,) = run("DequantizeLinear", [x, np.float32(1), np.array(2**30, np.int32)])
    assert got.tolist() == [1, 0]


def test_dynamic_quantize() -> None:
    for x in (f32(4, 5), np.abs(f32(7)), -np.abs(f32(7))):
        compare("DynamicQuantizeLinear", [x], results=3)


def test_dynamic_quantize_of_zeros() -> None:
    """The standard's formula: scale 0 (ONNX Runtime gives 1), everything else 0 too."""
    codes, scale, zero = run("DynamicQuantizeLinear", [np.zeros(3, np.float32)], results=3)
    assert (codes.tolist(), float(scale), int(zero)) == ([0, 0, 0], 0.0, 0)


@pytest.mark.parametrize("element", [np.int8, np.uint8])
def test_matmul_integer(element: Any) -> None:
    info = np.iinfo(element)
    a = RNG.integers(0, 256, (2, 3, 8)).astype(np.uint8)
    b = RNG.integers(info.min, info.max, (8, 5)).astype(element)
    zero = [np.array(7, np.uint8), np.array(3, element)]
    compare("MatMulInteger", [a, b])
    compare("MatMulInteger", [a, b, *zero])
    compare("MatMulInteger", [a, b, *zero], known=[2, 3])
    compare("MatMulInteger", [a, b, zero[0], RNG.integers(0, 9, 5).astype(element)])


def test_pair_sums_beyond_16_bits() -> None:
    a, b = np.array([[255, 255]], np.uint8), np.array([[127], [127]], np.int8)
    assert run("MatMulInteger", [a, b])[0].tolist() == [[64770]]


def test_row_zero_points() -> None:
    a = RNG.integers(0, 256, (3, 8)).astype(np.uint8)
    b = RNG.integers(-127, 128, (8, 5)).astype(np.int8)
    zeros = np.array([1, 2, 3], np.uint8)
    (got,) = run("MatMulInteger", [a, b, zeros])
    np.testing.assert_array_equal(got, (a.astype(int) - zeros[:, None]) @ b.astype(int))


def test_conv_integer_pads_with_the_zero_point() -> None:
    x = RNG.integers(0, 256, (1, 3, 6, 6)).astype(np.uint8)
    filters = RNG.integers(0, 256, (4, 3, 3, 3)).astype(np.uint8)
    zero = [np.array(100, np.uint8), np.array(5, np.uint8)]
    pads: dict[str, Any] = {"pads": [1, 1, 1, 1], "strides": [2, 2]}
    compare("ConvInteger", [x, filters, zero[0]], known=[1, 2], **pads)
    compare("ConvInteger", [x, filters, *zero], known=[1, 2, 3], **pads)
    compare("ConvInteger", [x, filters], known=[1], group=1, **pads)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("size", [1, 4])
def test_conv_integer_with_zero_points_of_filters(size: int, dtype: Any) -> None:
    limits = np.iinfo(dtype)
    x = RNG.integers(0, 256, (2, 3, 8, 7)).astype(np.uint8)
    filters = RNG.integers(limits.min, limits.max + 1, (4, 3, 2, 3)).astype(dtype)
    zeros = RNG.integers(limits.min, limits.max + 1, size).astype(dtype)
    point = np.array(17, np.uint8)
    attributes: dict[str, Any] = {"pads": [1, 0, 1, 2], "dilations": [2, 1]}
    (got,) = run("ConvInteger", [x, filters, point, zeros], **attributes)
    wide = np.pad(x.astype(int) - 17, ((0, 0), (0, 0), (1, 1), (0, 2)))
    moved = filters.astype(int) - zeros.astype(int).reshape(-1, 1, 1, 1)
    want = sum(
        np.einsum("nchw,oc->nohw", wide[:, :, 2 * i : 2 * i + 8, j : j + 7], moved[:, :, i, j])
        for i in range(2)
        for j in range(3)
    )
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("per_channel", [False, True])
def test_qlinear_conv(per_channel: bool) -> None:
    x = RNG.integers(0, 256, (1, 3, 6, 6)).astype(np.uint8)
    filters = RNG.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    scale: Array = np.array([0.01, 0.02, 0.03, 0.04] if per_channel else 0.02, np.float32)
    zero = np.zeros(scale.shape, np.int8)
    bias = RNG.integers(-1000, 1000, 4).astype(np.int32)
    inputs = [x, np.float32(0.05), np.array(120, np.uint8), filters, scale, zero]
    inputs += [np.float32(0.3), np.array(90, np.uint8), bias]
    compare("QLinearConv", inputs, known=range(1, 9), pads=[1, 1, 1, 1])


def test_qlinear_matmul() -> None:
    a = RNG.integers(0, 256, (3, 8)).astype(np.uint8)
    b = RNG.integers(0, 256, (8, 5)).astype(np.uint8)
    inputs = [a, np.float32(0.05), np.array(120, np.uint8)]
    inputs += [b, np.float32(0.02), np.array(128, np.uint8)]
    inputs += [np.float32(0.4), np.array(100, np.uint8)]
    compare("QLinearMatMul", inputs, known=[1, 2, 4, 5, 6, 7])
