"""Arithmetic and activations: integers, NaN, mixed dtypes, the broadcasting of early opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.onnx.ops.comparison import Array, compare, run

rng = np.random.default_rng(6)
NAN, INF = np.nan, np.inf
LOWEST = np.iinfo(np.int32).min


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


ACTIVATIONS: list[tuple[str, dict[str, Any]]] = [
    ("Relu", {}),
    ("LeakyRelu", {"alpha": 0.3}),
    ("Elu", {"alpha": 2.0}),
    ("Selu", {}),
    ("Celu", {"alpha": 2.0}),
    ("HardSigmoid", {}),
    ("HardSwish", {}),
    ("Softplus", {}),
    ("Softsign", {}),
    ("Mish", {}),
    ("ThresholdedRelu", {"alpha": 0.4}),
    ("Shrink", {"lambd": 0.3, "bias": 0.1}),
    ("Gelu", {}),
    ("Gelu", {"approximate": "tanh"}),
]


@pytest.mark.parametrize(("op", "attributes"), ACTIVATIONS)
def test_activations(op: str, attributes: dict[str, Any]) -> None:
    compare(op, [normal(3, 50) * 3], **attributes)


@pytest.mark.parametrize("op", ["Softplus", "Mish", "Elu", "Gelu", "Sigmoid", "Tanh"])
def test_activations_do_not_overflow(op: str) -> None:
    (result,) = run(op, [np.array([-1e4, 1e4], np.float32)])
    assert np.isfinite(result).all()


@pytest.mark.parametrize("length", [1, 2, 17])
@pytest.mark.parametrize("op", ["Max", "Min"])
def test_nan_in_nan_out(op: str, length: int) -> None:
    x, other = np.full(length, NAN, np.float32), np.ones(length, np.float32)
    for pair in ([x, other], [other, x]):
        assert np.isnan(run(op, pair)[0]).all()


@pytest.mark.parametrize("op", ["Relu", "Sign", "Abs", "LeakyRelu"])
def test_nan_stays_nan(op: str) -> None:
    assert np.isnan(run(op, [np.array([NAN], np.float32)])[0]).all()


def test_clip_keeps_nan_and_accepts_any_shape_of_bound() -> None:
    low = np.array([0], np.float32)
    (result,) = run("Clip", [np.array([NAN, -1, 2], np.float32), low, np.float32(1)], known=[1])
    np.testing.assert_array_equal(result, [NAN, 0, 1])


@pytest.mark.parametrize("bounds", [(-0.5, None), (None, 0.5), (-0.1, 0.1), (None, None)])
def test_clip_bounds(bounds: tuple[float | None, ...]) -> None:
    low, high = (None if b is None else np.float32(b) for b in bounds)
    compare("Clip", [normal(3, 4), low, high])


def test_clip_bounds_as_attributes() -> None:
    compare("Clip", [normal(3, 4)], opset=6, min=-0.3, max=0.2)


def test_integer_division_truncates() -> None:
    inputs = [np.array([8, -8, 7, -7]), np.array([-3, 3, -2, 2])]
    np.testing.assert_array_equal(run("Div", inputs)[0], [-2, -2, -3, -3])


@pytest.mark.parametrize("fmod", [0, 1])
def test_division_never_traps(fmod: int) -> None:
    inputs = [np.array([7, LOWEST], np.int32), np.array([0, -1], np.int32)]
    np.testing.assert_array_equal(run("Div", inputs)[0], [0, LOWEST])
    np.testing.assert_array_equal(run("Mod", inputs, fmod=fmod)[0], [0, 0])


def test_modulus() -> None:
    inputs = [np.array([7, -7, 7, -7]), np.array([3, 3, -3, -3])]
    compare("Mod", inputs)
    compare("Mod", inputs, fmod=1)
    compare("Mod", [normal(5) * 5, normal(5)], fmod=1)


def test_powers_of_mixed_dtypes() -> None:
    compare("Pow", [np.array([2, -3, 4]), np.array([3, 2, 0], np.float32)])
    compare("Pow", [normal(3), np.array([2, 3, 0])])
    compare("Pow", [np.array([2, 3], np.int32), np.array([5, 2])])


def test_error_function_of_integers_is_cut_off() -> None:
    np.testing.assert_array_equal(run("Erf", [np.array([-3, 0, 3])])[0], [0, 0, 0])
    np.testing.assert_array_equal(run("Erf", [np.array([-30, 0, 30])])[0], [-1, 0, 1])


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({}, [True, True, False]),
        ({"detect_negative": 0}, [True, False, False]),
        ({"detect_positive": 0}, [False, True, False]),
        ({"detect_positive": 0, "detect_negative": 0}, [False, False, False]),
    ],
)
def test_infinities(attributes: dict[str, int], wanted: list[bool]) -> None:
    x = np.array([INF, -INF, NAN], np.float32)
    np.testing.assert_array_equal(run("IsInf", [x], **attributes)[0], wanted)


def test_round_half_to_even() -> None:
    x = np.array([0.5, 1.5, 2.5, -2.5, -0.4], np.float32)
    (result,) = run("Round", [x])
    np.testing.assert_array_equal(result, [0, 2, 2, -2, -0.0])
    assert np.signbit(result[-1])


@pytest.mark.parametrize(
    ("shape", "attributes", "wanted"),
    [
        ((5,), {"broadcast": 1}, (1, 1, 1, 5)),
        ((3, 4), {"broadcast": 1, "axis": 1}, (1, 3, 4, 1)),
        ((2,), {"broadcast": 1, "axis": 0}, (2, 1, 1, 1)),
        ((4, 5), {"broadcast": 1, "axis": -2}, (1, 1, 4, 5)),
    ],
)
def test_broadcasting_before_opset_7(
    shape: tuple[int, ...], attributes: dict[str, int], wanted: tuple[int, ...]
) -> None:
    x, y = normal(2, 3, 4, 5), normal(*shape)
    (result,) = run("Add", [x, y], opset=6, **attributes)
    np.testing.assert_array_equal(result, x + y.reshape(wanted))


def test_a_vector_slope_belonged_to_the_channels() -> None:
    x, slope = normal(2, 3, 4), normal(3)
    (result,) = run("PRelu", [x, slope], opset=6)
    np.testing.assert_array_equal(result, np.where(x < 0, x * slope[:, None], x))
    compare("PRelu", [x, normal(3, 1)])


def test_variadic_operators() -> None:
    compare("Sum", [normal(3, 1), normal(4), normal(1)])
    compare("Mean", [normal(3, 4), normal(3, 4), normal(3, 4)])
    compare("Max", [normal(3, 1), normal(4)])
    np.testing.assert_array_equal(run("Sum", [np.ones(2)])[0], [1, 1])


def test_select_broadcasts_all_three() -> None:
    compare("Where", [rng.random((3, 1)) > 0.5, normal(3, 4), normal(4)])
