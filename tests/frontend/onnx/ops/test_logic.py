"""Comparisons, bits and shifts."""

from __future__ import annotations

import numpy as np
import pytest

from luban.core.errors import LubanError
from tests.frontend.onnx.ops.comparison import run


def test_right_shift_keeps_the_sign() -> None:
    inputs = [np.array([-3527], np.int32), np.array([8], np.int32)]
    np.testing.assert_array_equal(run("BitShift", inputs, opset=28, direction="RIGHT")[0], [-14])


@pytest.mark.parametrize("amount", [8, 9, 200])
def test_a_shift_by_the_width_or_more_leaves_nothing(amount: int) -> None:
    inputs = [np.array([255], np.uint8), np.array([amount], np.uint8)]
    for direction in ("LEFT", "RIGHT"):
        np.testing.assert_array_equal(run("BitShift", inputs, direction=direction)[0], [0])


def test_a_negative_shift_leaves_the_sign() -> None:
    inputs = [np.array([-5, 5], np.int32), np.array([-1, -1], np.int32)]
    np.testing.assert_array_equal(run("BitShift", inputs, opset=28, direction="RIGHT")[0], [-1, 0])
    np.testing.assert_array_equal(run("BitShift", inputs, opset=28, direction="LEFT")[0], [0, 0])


def test_a_direction_that_is_none_is_an_error() -> None:
    with pytest.raises(LubanError, match="direction is 'UP', expected LEFT or RIGHT"):
        run("BitShift", [np.array([1], np.uint8)] * 2, direction="UP")


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        ("Less", [False, False, True]),
        ("LessOrEqual", [False, True, True]),
        ("Greater", [False, False, False]),
        ("GreaterOrEqual", [False, True, False]),
        ("Equal", [False, True, False]),
    ],
)
def test_nothing_compares_with_nan(op: str, wanted: list[bool]) -> None:
    x, y = np.array([np.nan, 1, 1], np.float32), np.array([1, 1, 2], np.float32)
    np.testing.assert_array_equal(run(op, [x, y])[0], wanted)


def test_logic_and_bits() -> None:
    a, b = np.array([True, True, False]), np.array([True, False, False])
    np.testing.assert_array_equal(run("And", [a, b])[0], a & b)
    np.testing.assert_array_equal(run("Or", [a, b])[0], a | b)
    np.testing.assert_array_equal(run("Xor", [a, b])[0], a ^ b)
    np.testing.assert_array_equal(run("Not", [a])[0], ~a)
    x, y = np.array([12, -1], np.int16), np.array([10, 7], np.int16)
    np.testing.assert_array_equal(run("BitwiseXor", [x, y])[0], x ^ y)
    np.testing.assert_array_equal(run("BitwiseNot", [x])[0], ~x)


def test_legacy_axis() -> None:
    x, y = np.arange(6).reshape(2, 3) > 2, np.array([True, False])
    (result,) = run("And", [x, y], opset=6, broadcast=1, axis=0)
    np.testing.assert_array_equal(result, x & y[:, None])


def test_texts() -> None:
    x = np.array(["a", "b"], object)
    np.testing.assert_array_equal(
        run("Equal", [x, np.array(["a"], object)], opset=19, known=[1])[0], [True, False]
    )
