"""Optimiser steps: several tensors at once, and what the first step does."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.frontend.onnx.ops.comparison import Array, run

rng = np.random.default_rng(14)
DOMAIN = "ai.onnx.preview.training"
RATE = np.float32(0.1)


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def step(op: str, steps: int, *tensors: Array, **attributes: Any) -> tuple[Array, ...]:
    inputs = [RATE, np.int64(steps), *tensors]
    return run(op, inputs, domain=DOMAIN, versions=1, **attributes)


def test_two_tensors_are_what_one_is_twice() -> None:
    x, gradient, velocity = ([normal(3), normal(2, 2)] for _ in range(3))
    options = {"alpha": 0.9, "beta": 0.5, "mode": "standard", "norm_coefficient": 0.01}
    both = step("Momentum", 1, *x, *gradient, *velocity, results=4, **options)
    for i in range(2):
        one = step("Momentum", 1, x[i], gradient[i], velocity[i], results=2, **options)
        np.testing.assert_array_equal(one[0], both[i])
        np.testing.assert_array_equal(one[1], both[2 + i])


def test_the_first_step_takes_the_whole_gradient() -> None:
    x, gradient, velocity = normal(3), normal(3), np.zeros(3, np.float32)
    options = {"alpha": 0.9, "beta": 0.5, "mode": "standard", "norm_coefficient": 0.0}
    first = step("Momentum", 0, x, gradient, velocity, results=2, **options)[1]
    later = step("Momentum", 1, x, gradient, velocity, results=2, **options)[1]
    np.testing.assert_allclose(first, gradient)
    np.testing.assert_allclose(later, gradient * 0.5)


def test_adagrad_slows_down() -> None:
    x, gradient, squares = normal(3), normal(3), abs(normal(3))
    new, total = step("Adagrad", 2, x, gradient, squares, results=2, decay_factor=0.5)
    np.testing.assert_allclose(total, squares + gradient**2, rtol=1e-6)
    rate = RATE / (1 + 2 * 0.5)
    np.testing.assert_allclose(new, x - rate * gradient / (np.sqrt(total) + 1e-6), rtol=1e-5)


def test_adam_is_unbiased() -> None:
    x, gradient, zero = normal(3), normal(3), np.zeros(3, np.float32)
    new, first, second = step("Adam", 1, x, gradient, zero, zero, results=3, epsilon=0.0)
    np.testing.assert_allclose(first, 0.1 * gradient, rtol=1e-5)
    np.testing.assert_allclose(second, 0.001 * gradient**2, rtol=1e-4)
    np.testing.assert_allclose(new, x - RATE * np.sign(gradient), rtol=1e-3)
