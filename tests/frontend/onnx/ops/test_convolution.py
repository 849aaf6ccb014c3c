"""Conv, ConvTranspose and Col2Im: geometry, groups, padding on the right side."""

from __future__ import annotations

import numpy as np
import pytest

from luban.core.errors import LubanError
from tests.frontend.onnx.ops.comparison import Array, compare, run

rng = np.random.default_rng(0)


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_conv_auto_pad(auto_pad: str) -> None:
    inputs = [normal(2, 4, 9, 8), normal(6, 2, 3, 2)]
    compare("Conv", inputs, known=[1], group=2, strides=[2, 3], auto_pad=auto_pad)


def test_conv_pads_and_dilations() -> None:
    inputs = [normal(2, 4, 9, 8), normal(6, 4, 3, 3), normal(6)]
    compare("Conv", inputs, known=[1, 2], pads=[1, 2, 0, 1], dilations=[2, 1], atol=1e-5)


@pytest.mark.parametrize("num_axes", [1, 3])
def test_conv_of_one_and_three_axes(num_axes: int) -> None:
    space, window = (5, 6, 7)[:num_axes], (2, 3, 3)[:num_axes]
    compare("Conv", [normal(2, 4, *space), normal(6, 4, *window)], known=[1], atol=1e-5)


def test_grouped_conv_of_one_axis_with_an_even_window() -> None:
    inputs = [normal(1, 32, 39), normal(32, 2, 128)]
    (result,) = run("Conv", inputs, known=[1], group=16, pads=[64, 64])
    assert result.shape == (1, 32, 40)
    compare("Conv", inputs, known=[1], group=16, pads=[64, 64], atol=1e-4)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_transpose_auto_pad(auto_pad: str) -> None:
    inputs = [normal(1, 2, 5, 5), normal(2, 3, 3, 3)]
    compare("ConvTranspose", inputs, known=[1], strides=[2, 2], auto_pad=auto_pad)


def test_transpose_auto_pad_doubles_the_size() -> None:
    ones = [np.ones((1, 1, 5, 5), np.float32), np.ones((1, 1, 3, 3), np.float32)]
    (result,) = run("ConvTranspose", ones, known=[1], strides=[2, 2], auto_pad="SAME_UPPER")
    assert result.shape == (1, 1, 10, 10)
    small = [np.ones((1, 1, 3, 3), np.float32), ones[1]]
    (result,) = run(
        "ConvTranspose",
        small,
        known=[1],
        strides=[2, 2],
        auto_pad="SAME_UPPER",
        output_padding=[1, 1],
    )
    assert result.shape == (1, 1, 6, 6)


def test_transpose_in_groups() -> None:
    inputs = [normal(1, 4, 5, 6), normal(4, 3, 3, 2), normal(6)]
    compare(
        "ConvTranspose",
        inputs,
        known=[1, 2],
        group=2,
        strides=[2, 3],
        pads=[1, 0, 2, 1],
        output_padding=[1, 2],
    )


def test_transpose_dilated() -> None:
    inputs = [normal(1, 4, 5, 6), normal(4, 3, 3, 2)]
    compare("ConvTranspose", inputs, known=[1], strides=[2, 3], dilations=[2, 2], atol=1e-5)


def test_transpose_output_shape() -> None:
    inputs = [normal(1, 2, 4, 4), normal(2, 3, 3, 3)]
    compare("ConvTranspose", inputs, known=[1], strides=[2, 2], output_shape=[10, 8], atol=1e-5)


@pytest.mark.parametrize("known", [(1, 2), ()])
def test_column_to_image(known: tuple[int, ...]) -> None:
    inputs = [normal(2, 12, 9), np.array([4, 5]), np.array([2, 2])]
    compare("Col2Im", inputs, opset=18, known=known, strides=[1, 2], pads=[0, 1, 0, 0])


def test_column_to_image_dilated() -> None:
    inputs = [normal(1, 8, 6), np.array([4, 5]), np.array([2, 2])]
    compare("Col2Im", inputs, opset=18, known=(1, 2), dilations=[2, 2])


def test_windows_of_a_size_known_at_run_time() -> None:
    compare("Conv", [normal(2, 4, 9, 8), normal(6, 4, 3, 2)], atol=1e-5)
    compare("ConvTranspose", [normal(1, 2, 5, 5), normal(2, 3, 3, 3)], strides=[2, 2], atol=1e-5)


def test_channels_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(LubanError, match=r"has 4 channels, expected 6: 2 groups of 3"):
        run("Conv", [normal(1, 4, 5, 5), normal(2, 3, 3, 3)], known=[1], group=2)


def test_kernel_shape_must_match_the_filters() -> None:
    with pytest.raises(
        LubanError, match=r"kernel_shape is \[2, 2\], the filters are f32\[2,4,3,3\]"
    ):
        run("Conv", [normal(1, 4, 5, 5), normal(2, 4, 3, 3)], known=[1], kernel_shape=[2, 2])


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"strides": [1]}, r"strides is \[1\], expected 2 numbers of at least 1"),
        ({"dilations": [0, 1]}, r"dilations is \[0, 1\], expected 2 numbers of at least 1"),
        ({"pads": [1, 1]}, r"pads are \[1, 1\], expected 2 for each of 2 axes"),
        ({"auto_pad": "SAME"}, "auto_pad is 'SAME', expected NOTSET, SAME_UPPER"),
    ],
)
def test_attributes_out_of_range(attributes: dict[str, object], message: str) -> None:
    with pytest.raises(LubanError, match=message):
        run("Conv", [normal(1, 4, 5, 5), normal(2, 4, 3, 3)], known=[1], **attributes)
