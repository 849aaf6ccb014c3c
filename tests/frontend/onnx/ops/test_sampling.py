"""GridSample, AffineGrid and DeformConv."""

from __future__ import annotations

import numpy as np
import pytest

from luban.core.errors import LubanError
from tests.frontend.onnx.ops.comparison import Array, compare, run

rng = np.random.default_rng(11)


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_grid_sample(mode: str, padding: str, align_corners: int) -> None:
    grid = (rng.random((2, 4, 5, 2)) * 3 - 1.5).astype(np.float32)
    compare(
        "GridSample",
        [normal(2, 3, 6, 7), grid],
        atol=1e-4,
        mode=mode,
        padding_mode=padding,
        align_corners=align_corners,
    )


def test_a_volume() -> None:
    grid = (rng.random((1, 2, 3, 4, 3)) * 2 - 1).astype(np.float32)
    compare("GridSample", [normal(1, 2, 4, 5, 6), grid], atol=1e-4, mode="linear")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"mode": "area"}, "mode is 'area', expected linear, cubic or nearest"),
        ({"padding_mode": "wrap"}, "padding_mode is 'wrap', expected zeros, border or reflection"),
    ],
)
def test_unknown_modes(attributes: dict[str, str], message: str) -> None:
    with pytest.raises(LubanError, match=message):
        run("GridSample", [normal(1, 1, 3, 3), normal(1, 2, 2, 2)], **attributes)


def test_a_grid_of_another_rank_is_an_error() -> None:
    with pytest.raises(LubanError, match="expected a last axis of 2"):
        run("GridSample", [normal(1, 1, 3, 3), normal(1, 2, 2, 3)])


@pytest.mark.parametrize("known", [(1,), ()])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_affine_grid(align_corners: int, known: tuple[int, ...]) -> None:
    inputs = [normal(2, 2, 3), np.array([2, 3, 4, 5])]
    compare("AffineGrid", inputs, known=known, align_corners=align_corners)


def test_deform_conv_without_offsets_is_a_conv() -> None:
    x, filters = normal(2, 4, 6, 7), normal(6, 2, 3, 2)
    attributes = {"pads": [1, 0, 1, 2], "strides": [2, 1], "dilations": [1, 2]}
    (wanted,) = run("Conv", [x, filters], known=[1], group=2, **attributes)
    offset = np.zeros((2, 2 * 6 * 2, *wanted.shape[2:]), np.float32)
    (result,) = run(
        "DeformConv", [x, filters, offset], known=[1], group=2, offset_group=2, **attributes
    )
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def test_deform_conv_against_onnxruntime() -> None:
    x, filters, bias = normal(1, 4, 6, 7), normal(6, 4, 3, 2), normal(6)
    offset, mask = normal(1, 2 * 6 * 2, 4, 6), rng.random((1, 12, 4, 6)).astype(np.float32)
    inputs = [x, filters, offset, bias, mask]
    compare("DeformConv", inputs, known=[1, 3], offset_group=2, rtol=1e-3, atol=1e-4)
