"""Reductions: axes as attribute and input, empty axes and sizes, NaN."""

from __future__ import annotations

import numpy as np
import pytest

from luban.core.errors import LubanError
from tests.frontend.onnx.ops.comparison import Array, compare, run

rng = np.random.default_rng(4)
NAMES = ["Sum", "Prod", "Max", "Min", "Mean", "L1", "L2", "SumSquare", "LogSumExp"]


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_axes(name: str, keepdims: int) -> None:
    op, x = f"Reduce{name}", normal(3, 4, 5)
    compare(op, [x], keepdims=keepdims, opset=18)
    compare(op, [x], keepdims=keepdims, opset=11, axes=[1, -1])
    compare(op, [x, np.array([-1, 0])], keepdims=keepdims, opset=18, known=[1])
    compare(op, [x, np.array([-2])], keepdims=keepdims, opset=18)  # known to the run only


@pytest.mark.parametrize("name", NAMES)
def test_no_axes_may_mean_no_reduction(name: str) -> None:
    x = np.abs(normal(2, 3)) + 1
    (result,) = run(f"Reduce{name}", [x, np.zeros(0, np.int64)], known=[1], noop_with_empty_axes=1)
    assert result.shape == x.shape


@pytest.mark.parametrize(
    ("name", "value"), [("Sum", 0.0), ("Prod", 1.0), ("Max", -np.inf), ("Min", np.inf)]
)
def test_a_size_of_zero(name: str, value: float) -> None:
    for keepdims, shape in ((0, (3, 4)), (1, (3, 1, 4))):
        inputs = [np.zeros((3, 0, 4), np.float32), np.array([1])]
        (result,) = run(f"Reduce{name}", inputs, known=[1], keepdims=keepdims, opset=18)
        np.testing.assert_array_equal(result, np.full(shape, value, np.float32))


def test_a_maximum_of_no_integers_is_the_lowest() -> None:
    inputs = [np.zeros((1, 0), np.int32), np.array([1])]
    (result,) = run("ReduceMax", inputs, known=[1], keepdims=0, opset=20)
    np.testing.assert_array_equal(result, [np.iinfo(np.int32).min])


@pytest.mark.parametrize("count", range(1, 21))
def test_nan_wins_whatever_the_number(count: int) -> None:
    x = np.array([np.nan] * count + [42.0], np.float32)
    for order in (x, x[::-1].copy()):
        for op in ("ReduceMax", "ReduceMin"):
            assert np.isnan(run(op, [order], keepdims=0, opset=20)[0])


def test_log_sum_exp_does_not_overflow() -> None:
    x = np.array([1000, 1001, -np.inf], np.float32)
    (result,) = run("ReduceLogSumExp", [x], keepdims=0, opset=18)
    np.testing.assert_allclose(result, 1001 + np.log1p(np.exp(-1.0)), rtol=1e-6)
    (nothing,) = run("ReduceLogSumExp", [np.full(3, -np.inf, np.float32)], keepdims=0, opset=18)
    assert nothing == -np.inf


def test_boolean_maximum_and_minimum() -> None:
    x = np.array([[True, False], [False, False]])
    for op, wanted in (("ReduceMax", [True, False]), ("ReduceMin", [False, False])):
        (result,) = run(op, [x, np.array([1])], known=[1], keepdims=0, opset=20)
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_arg(op: str, last: int) -> None:
    x = rng.integers(0, 3, (3, 4, 5)).astype(np.float32)
    compare(op, [x], axis=-1, keepdims=last, select_last_index=last)


def test_the_largest_of_nothing_is_an_error() -> None:
    with pytest.raises(LubanError, match=r"axis 1 of f32\[3,0\] is empty"):
        run("ArgMax", [np.zeros((3, 0), np.float32)], axis=1)


def test_axes_out_of_range_or_twice_are_an_error() -> None:
    with pytest.raises(LubanError, match="axis is 2, expected -2 to 1 for 2 axes"):
        run("ReduceSum", [normal(2, 3), np.array([2])], known=[1])
    with pytest.raises(LubanError, match=r"axes \[1, 1\] repeat"):
        run("ReduceSum", [normal(2, 3), np.array([1, -1])], known=[1])
