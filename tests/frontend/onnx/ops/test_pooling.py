"""Pooling: ceil_mode, padding that is counted or not, indices, regions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luban.core.errors import LubanError
from tests.frontend.onnx.ops.comparison import Array, compare, run

rng = np.random.default_rng(1)
GEOMETRY = [(3, 3, 1, 5), (2, 2, 1, 17), (4, 4, 2, 9), (3, 2, 0, 8), (2, 3, 1, 11)]


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("ceil_mode", [0, 1])
@pytest.mark.parametrize(("window", "stride", "pad", "size"), GEOMETRY)
def test_max_and_average(window: int, stride: int, pad: int, size: int, ceil_mode: int) -> None:
    x = [normal(1, 2, size, size)]
    attributes: dict[str, Any] = {
        "kernel_shape": [window] * 2,
        "strides": [stride] * 2,
        "pads": [pad] * 4,
        "ceil_mode": ceil_mode,
    }
    compare("MaxPool", x, **attributes)
    compare("MaxPool", x, results=2, **attributes)
    compare("AveragePool", x, **attributes)
    compare("AveragePool", x, count_include_pad=1, **attributes)


def test_a_window_that_starts_in_the_padding_is_dropped() -> None:
    x = np.array([[[1, 2, 3], [4, 6, 5], [7, 8, 9]]], np.float32)[None]
    (result,) = run("MaxPool", [x], kernel_shape=[3, 3], strides=[3, 3], pads=[1] * 4, ceil_mode=1)
    assert result.shape == (1, 1, 2, 2)
    np.testing.assert_array_equal(result[0, 0], [[6, 5], [8, 9]])


@pytest.mark.parametrize(("size", "window", "pad", "count"), [(17, 2, 1, 9), (9, 4, 2, 3)])
def test_ceil_mode_is_not_one_too_large(size: int, window: int, pad: int, count: int) -> None:
    (result,) = run(
        "AveragePool",
        [normal(1, 1, size, size)],
        kernel_shape=[window] * 2,
        strides=[window] * 2,
        pads=[pad] * 4,
        ceil_mode=1,
    )
    assert result.shape == (1, 1, count, count)


def test_indices_column_major_and_dilated() -> None:
    compare(
        "MaxPool",
        [normal(1, 2, 9, 8)],
        results=2,
        kernel_shape=[3, 2],
        dilations=[2, 3],
        storage_order=1,
    )


def test_padding_never_wins_an_index() -> None:
    x = np.full((1, 1, 2, 2), -np.inf, np.float32)
    _, index = run("MaxPool", [x], results=2, kernel_shape=[2, 2], pads=[1, 1, 1, 1])
    assert index.min() == 0
    assert index.max() == 3


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_auto_pad(auto_pad: str) -> None:
    compare("MaxPool", [normal(1, 2, 9, 8)], kernel_shape=[3, 2], strides=[2, 2], auto_pad=auto_pad)


@pytest.mark.parametrize("power", [1, 2, 3])
def test_p_norms(power: int) -> None:
    x = normal(1, 2, 9, 8)
    compare("LpPool", [x], kernel_shape=[3, 2], p=power, pads=[1, 0, 1, 1])
    (result,) = run("GlobalLpPool", [x], p=power)
    wanted = (np.abs(x) ** power).sum((2, 3), keepdims=True) ** (1 / power)
    np.testing.assert_allclose(result, wanted, rtol=1e-5)


@pytest.mark.parametrize("op", ["AveragePool", "GlobalAveragePool", "LpPool"])
def test_half_precision_does_not_overflow_on_the_way(op: str) -> None:
    x = np.full((1, 1, 16, 16), 3000, np.float16)
    attributes = {} if op.startswith("Global") else {"kernel_shape": [16, 16]}
    (result,) = run(op, [x], **attributes)
    assert result.dtype == np.float16
    assert result == (3000 if "Average" in op else 48000)


def test_global() -> None:
    compare("GlobalAveragePool", [normal(1, 2, 9, 8)])
    compare("GlobalMaxPool", [normal(1, 2, 9, 8)])


def test_nan_is_the_largest() -> None:
    x = np.array([[[1, np.nan, 3, 4]]], np.float32)
    (result,) = run("MaxPool", [x], kernel_shape=[2], strides=[2])
    assert np.isnan(result[0, 0, 0])
    assert result[0, 0, 1] == 4


@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(mode: str, ratio: int, coordinates: str) -> None:
    regions = np.array([[1, 2, 9, 12], [0, 0, 5, 5.5], [3, 3, 15, 9]], np.float32)
    compare(
        "RoiAlign",
        [normal(2, 3, 16, 16), regions, np.array([0, 1, 1])],
        opset=16,
        mode=mode,
        sampling_ratio=ratio,
        output_height=3,
        output_width=2,
        spatial_scale=0.8,
        coordinate_transformation_mode=coordinates,
    )


def test_max_roi_pool() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    regions = np.array([[0, 0, 0, 3, 3], [0, 1, 1, 2, 2]], np.float32)
    (result,) = run("MaxRoiPool", [x, regions], pooled_shape=[2, 2])
    np.testing.assert_array_equal(result[:, 0], [[[5, 7], [13, 15]], [[5, 6], [9, 10]]])


def test_unpool_is_the_way_back() -> None:
    x = normal(1, 2, 4, 6)
    pooled, index = run("MaxPool", [x], results=2, kernel_shape=[2, 2], strides=[2, 2])
    (spread,) = run("MaxUnpool", [pooled, index], kernel_shape=[2, 2], strides=[2, 2])
    assert spread.shape == x.shape
    kept = spread != 0
    assert kept.sum() == pooled.size
    np.testing.assert_array_equal(spread[kept], x[kept])


def test_a_missing_kernel_shape_is_an_error() -> None:
    with pytest.raises(LubanError, match="MaxPool has no attribute 'kernel_shape'"):
        run("MaxPool", [normal(1, 1, 4, 4)])


def test_a_kernel_shape_of_another_rank_is_an_error() -> None:
    with pytest.raises(LubanError, match=r"kernel_shape \[2\] has 1 axes, the input has 2"):
        run("MaxPool", [normal(1, 1, 4, 4)], kernel_shape=[2])
