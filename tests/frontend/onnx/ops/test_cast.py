"""Casts between element types, numbers and texts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from luban.core.errors import InputError, ModelError
from tests.frontend.onnx.ops.comparison import run

CODES = onnx.TensorProto


def cast(x: Any, to: int, **options: Any) -> Any:
    return run("Cast", [x], to=to, opset=24, **options)[0]


def test_floats_to_integers_clamp_and_nan_is_zero() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -1.5], np.float32)
    assert cast(x, CODES.INT32).tolist() == [0, 2**31 - 1, -(2**31), 2**31 - 1, -1]
    assert cast(x, CODES.UINT8).tolist() == [0, 255, 0, 255, 0]
    assert cast(x, CODES.UINT32).tolist() == [0, 2**32 - 1, 0, 3 * 10**9, 0]
    assert cast(x, CODES.INT64).tolist() == [0, 2**63 - 1, -(2**63), 3 * 10**9, -1]


def test_integers_wrap() -> None:
    x = np.array([300, -1], np.int32)
    assert cast(x, CODES.UINT8).tolist() == [44, 255]
    assert cast(x, CODES.BOOL).tolist() == [True, True]


@pytest.mark.parametrize("saturate", [0, 1])
def test_tiny_floats_saturate_if_asked_to(saturate: int) -> None:
    x = np.array([1e6, -1e6, 1.0], np.float32)
    got = cast(x, CODES.FLOAT8E4M3FN, saturate=saturate).astype(np.float32)
    wanted = [448, -448, 1] if saturate else [np.nan, np.nan, 1]
    np.testing.assert_array_equal(got, np.array(wanted, np.float32))


def test_six_bits() -> None:
    x = np.array([0.125, -7.5, 100, 3.1], np.float32)
    got = cast(x, CODES.FLOAT6E2M3)
    assert got.dtype == ml_dtypes.float6_e2m3fn
    assert got.astype(np.float32).tolist() == [0.125, -7.5, 7.5, 3.0]
    assert cast(got, CODES.FLOAT).tolist() == [0.125, -7.5, 7.5, 3.0]
    assert cast(x, CODES.FLOAT6E3M2).astype(np.float32).tolist() == [0.125, -8.0, 28, 3.0]


@pytest.mark.parametrize(
    ("mode", "wanted"), [("up", [4, 2, 1]), ("down", [2, 2, 0.5]), ("nearest", [4, 2, 1])]
)
def test_powers_of_two_round_as_told(mode: str, wanted: list[float]) -> None:
    x = np.array([3, 2, 0.75], np.float32)
    got = cast(x, CODES.FLOAT8E8M0, round_mode=mode)
    assert got.dtype == ml_dtypes.float8_e8m0fnu
    assert got.astype(np.float32).tolist() == wanted


def test_unknown_round_mode() -> None:
    with pytest.raises(ModelError, match="round_mode is 'sideways', expected up, down or nearest"):
        cast(np.ones(1, np.float32), CODES.FLOAT8E8M0, round_mode="sideways")


def test_texts() -> None:
    x = np.array([1.5, np.nan, np.inf, -np.inf, 1e-10], np.float32)
    assert cast(x, CODES.STRING).tolist() == ["1.5", "NaN", "INF", "-INF", "1e-10"]
    assert cast(np.array([-3, 7], np.int64), CODES.STRING).tolist() == ["-3", "7"]
    texts = np.array(["1.5", "NaN", "-inf", "1e3"], object)
    np.testing.assert_array_equal(
        cast(texts, CODES.FLOAT), np.array([1.5, np.nan, -np.inf, 1000], np.float32)
    )
    assert cast(np.array(["12"], object), CODES.INT32).tolist() == [12]


def test_text_that_is_no_number() -> None:
    with pytest.raises(InputError, match="the text 'four' is not a number"):
        cast(np.array(["four"], object), CODES.FLOAT)
    with pytest.raises(InputError, match=r"the text '1\.5' is not a whole number"):
        cast(np.array(["1.5"], object), CODES.INT32)


def test_types_by_name_in_the_first_version() -> None:
    x = np.array([1.5], np.float32)
    assert run("Cast", [x], opset=1, to="INT32")[0].dtype == np.int32
    with pytest.raises(ModelError, match="to='quaternion' is no element type"):
        run("Cast", [x], opset=1, to="quaternion")


def test_bits_need_one_width() -> None:
    x = np.array([1.0], np.float32)
    assert run("BitCast", [x], opset=26, to=CODES.INT32)[0].tolist() == [0x3F800000]
    with pytest.raises(ModelError, match="has 32 bits an element, i16 not"):
        run("BitCast", [x], opset=26, to=CODES.INT16)
