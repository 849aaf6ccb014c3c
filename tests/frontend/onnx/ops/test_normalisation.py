"""Normalisations and the softmax family, with the flattening of early opsets."""

from __future__ import annotations

import numpy as np
import pytest

from luban.core.errors import LubanError
from tests.frontend.onnx.ops.comparison import Array, compare, run

rng = np.random.default_rng(9)


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax(op: str, axis: int, opset: int) -> None:
    compare(op, [normal(3, 4, 5)], axis=axis, opset=opset)


def test_softmax_does_not_overflow() -> None:
    x = np.array([[1000, 1000, -1000]], np.float32)
    np.testing.assert_allclose(run("Softmax", [x])[0], [[0.5, 0.5, 0]])
    np.testing.assert_allclose(run("LogSoftmax", [x])[0], [[-np.log(2), -np.log(2), -2000.6931]])


def test_layer_normalization_gives_its_statistics() -> None:
    inputs = [normal(3, 4, 5), normal(4, 5), normal(4, 5)]
    compare("LayerNormalization", inputs, axis=1, results=3, opset=17)


def test_layer_normalization_of_half_is_computed_in_single() -> None:
    x = (normal(2, 256) * 100).astype(np.float16)
    scale = np.ones(256, np.float16)
    result, mean, inverse = run("LayerNormalization", [x, scale], results=3, opset=17)
    assert (result.dtype, mean.dtype, inverse.dtype) == (np.float16, np.float32, np.float32)
    wide = x.astype(np.float64)
    wanted = (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True)
    np.testing.assert_allclose(result.astype(np.float64), wanted, atol=2e-3)


def test_instance_normalization_of_half_does_not_overflow() -> None:
    x = (normal(1, 2, 1000) * 1000).astype(np.float16)
    ones = np.ones(2, np.float16)
    (result,) = run("InstanceNormalization", [x, ones, 0 * ones])
    wide = x.astype(np.float64)
    wanted = (wide - wide.mean(2, keepdims=True)) / wide.std(2, keepdims=True)
    np.testing.assert_allclose(result.astype(np.float64), wanted, atol=2e-3)


def test_the_common_ones() -> None:
    x = normal(2, 6, 4, 5)
    compare("InstanceNormalization", [x, normal(6), normal(6)])
    compare("GroupNormalization", [x, normal(6), normal(6)], num_groups=3, opset=21)
    compare("BatchNormalization", [x, *(normal(6) for _ in range(3)), abs(normal(6))], opset=15)
    compare("MeanVarianceNormalization", [x])
    compare("LRN", [x], size=3, alpha=0.5, bias=2.0)


@pytest.mark.parametrize("p", [1, 2])
def test_p_norm(p: int) -> None:
    compare("LpNormalization", [normal(2, 3, 4)], axis=1, p=p)
    (result,) = run("LpNormalization", [np.zeros((1, 3), np.float32)], p=p)
    np.testing.assert_array_equal(result, np.zeros((1, 3)))


def test_even_channel_windows_reach_further_up() -> None:
    x = normal(1, 5, 1, 1)
    (result,) = run("LRN", [x], size=4, alpha=0.5, bias=2.0, beta=1.0)
    flat = x.ravel().astype(np.float64)
    sums = [np.sum(flat[max(i - 1, 0) : i + 3] ** 2) for i in range(5)]
    np.testing.assert_allclose(result.ravel(), flat / (2 + 0.5 / 4 * np.array(sums)), rtol=1e-5)


def test_batch_statistics_in_training() -> None:
    x, scale, bias = normal(8, 3, 4), normal(3), normal(3)
    mean, variance = normal(3), abs(normal(3))
    result, new_mean, new_variance = run(
        "BatchNormalization",
        [x, scale, bias, mean, variance],
        results=3,
        opset=15,
        training_mode=1,
        momentum=0.75,
    )
    current = x.mean((0, 2)), x.var((0, 2))
    np.testing.assert_allclose(new_mean, mean * 0.75 + current[0] * 0.25, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(new_variance, variance * 0.75 + current[1] * 0.25, rtol=1e-4)
    normalised = (x - current[0][:, None]) / np.sqrt(current[1] + 1e-5)[:, None]
    np.testing.assert_allclose(result, normalised * scale[:, None] + bias[:, None], atol=1e-4)


def test_batch_normalization_of_each_place_before_opset_9() -> None:
    x, mean, variance = normal(2, 3, 4), normal(3, 4), abs(normal(3, 4))
    ones = np.ones((3, 4), np.float32)
    (result,) = run(
        "BatchNormalization", [x, ones, ones, mean, variance], opset=7, spatial=0, epsilon=0.0
    )
    np.testing.assert_allclose(result, (x - mean) / np.sqrt(variance) + 1, rtol=1e-4, atol=1e-5)


def test_groups_that_do_not_divide_the_channels_are_an_error() -> None:
    with pytest.raises(LubanError, match="has 6 channels, no multiple of 4 groups"):
        run("GroupNormalization", [normal(2, 6, 3), normal(6), normal(6)], num_groups=4)
