"""Constants, ranges, masks, one-hot rows, windows."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from luban.core.errors import LubanError
from tests.frontend.onnx.ops.comparison import Array, compare, run

rng = np.random.default_rng(7)


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("known", [(0, 1, 2), ()])
@pytest.mark.parametrize(
    ("start", "limit", "delta"), [(2, 11, 3), (10, 4, -2), (3, 3, 1), (5, 1, 1), (0, 7, 1)]
)
def test_range(start: int, limit: int, delta: int, known: tuple[int, ...]) -> None:
    compare("Range", [np.int64(v) for v in (start, limit, delta)], known=known)
    compare("Range", [np.float32(v) for v in (start, limit, delta)], known=known)


def test_range_in_half_precision_is_computed_wider() -> None:
    inputs = [np.float16(v) for v in (0, 3000, 1)]
    (result,) = run("Range", inputs, opset=27)
    np.testing.assert_array_equal(result, np.arange(3000, dtype=np.float32).astype(np.float16))


@pytest.mark.parametrize("known", [(0, 1, 2), ()])
@pytest.mark.parametrize("element", [np.int64, np.float32])
def test_a_range_without_step_is_an_error(element: type, known: tuple[int, ...]) -> None:
    with pytest.raises(LubanError, match=r"(delta|the step) is 0, expected another number"):
        run("Range", [element(v) for v in (0, 3, 0)], known=known)


@pytest.mark.parametrize("known", [(0,), ()])
def test_constant_of_shape(known: tuple[int, ...]) -> None:
    compare("ConstantOfShape", [np.array([2, 3])], known=known)
    value = numpy_helper.from_array(np.array([7], np.int32))
    compare("ConstantOfShape", [np.array([0, 2])], known=known, value=value)


@pytest.mark.parametrize("known", [(1,), ()])
def test_one_hot(known: tuple[int, ...]) -> None:
    inputs = [np.array([[1, -1], [3, 7]]), np.int64(4), normal(2)]
    for axis in (0, 1, -1):
        compare("OneHot", inputs, axis=axis, known=known)


@pytest.mark.parametrize("known", [(1,), ()])
@pytest.mark.parametrize("k", [-5, -1, 0, 2, 9])
def test_triangles(k: int, known: tuple[int, ...]) -> None:
    for upper in (0, 1):
        compare("Trilu", [normal(2, 4, 5), np.int64(k)], upper=upper, known=known)


def test_a_triangle_of_a_vector_is_an_error() -> None:
    with pytest.raises(LubanError, match=r"input is f32\[4\], expected a matrix"):
        run("Trilu", [normal(4)])


def test_eye() -> None:
    compare("EyeLike", [normal(3, 4)], k=1)
    compare("EyeLike", [normal(3, 4)], k=-1, dtype=7)


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows(op: str, periodic: int) -> None:
    for size in (8, 9):
        compare(op, [np.int64(size)], known=[0], periodic=periodic)
        compare(op, [np.int64(size)], periodic=periodic)


def test_mel_weights() -> None:
    inputs = [np.int64(8), np.int64(64), np.int64(16000), np.float32(20), np.float32(7000)]
    compare("MelWeightMatrix", inputs, known=range(5), atol=1e-5)
    compare("MelWeightMatrix", inputs, atol=1e-5)


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({"value_float": 1.5}, np.float32(1.5)),
        ({"value_int": 3}, np.int64(3)),
        ({"value_floats": [1.0, 2.0]}, np.array([1, 2], np.float32)),
        ({"value_ints": [1, 2]}, np.array([1, 2])),
        ({"value_string": "a"}, np.array("a", object)),
        ({"value_strings": ["a", "b"]}, np.array(["a", "b"], object)),
    ],
)
def test_constants(attributes: dict[str, object], wanted: Array) -> None:
    (result,) = run("Constant", [], **attributes)
    assert result.dtype == wanted.dtype
    np.testing.assert_array_equal(result, wanted)


def test_a_constant_without_value_is_an_error() -> None:
    with pytest.raises(LubanError, match="no value attribute"):
        run("Constant", [])
