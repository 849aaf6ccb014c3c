"""Winograd's transforms, and that convolutions in tiles mean plain convolutions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from luban.core.dtypes import dtype
from luban.core.errors import OptionError, ShapeError
from luban.core.types import tensor
from luban.graph.ops.contract import Convolution
from luban.graph.ops.packed import PackPanels
from luban.graph.ops.winograd import WinogradConvolution, transforms
from tests.graph.calls import apply

F32, F64 = dtype("f32"), dtype("f64")


@pytest.mark.parametrize("tile", [2, 4])
def test_transforms_make_a_convolution_of_one_axis(tile: int) -> None:
    random = np.random.default_rng(tile)
    image, taps = random.standard_normal(tile + 2), random.standard_normal(3)
    m = transforms(tile)
    points = (np.array(m.filters) @ taps) * (np.array(m.image) @ image)
    want = np.correlate(image, taps, "valid")
    np.testing.assert_allclose(np.array(m.result) @ points, want, rtol=1e-12)


def test_the_points_of_large_tiles_are_near_one() -> None:
    """Far or close points lose digits: those in use cost a third of 1 and 2."""
    assert transforms(4).points == pytest.approx((0.5**0.5, 2**0.5))
    largest = max(abs(c) for row in transforms(4).image for c in row)
    assert largest == 2.5


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("space", [(1, 1), (4, 4), (7, 10), (13, 5)])
@pytest.mark.parametrize("ends", [((1, 1), (1, 1)), ((0, 2), (2, 0))])
def test_tiles_mean_the_plain_convolution(
    tile: int, space: tuple[int, int], ends: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((2, *space, 5))
    filters = random.standard_normal((3, 3, 5, 7))
    to_points = np.array(transforms(tile).filters)
    matrices = np.einsum("iy,jx,yxco->ijco", to_points, to_points, filters).reshape(-1, 5, 7)
    ones = (1, 1)
    plain = Convolution(ones, *ends, ones, ones, 1, F64, "channels_last")
    got = apply(WinogradConvolution(tile, *ends, 7, F64), x, apply(PackPanels(4), matrices))
    np.testing.assert_allclose(got, apply(plain, x, filters), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("tile", [2, 4])
def test_filters_transformed_along_one_axis_mean_the_same(tile: int) -> None:
    random = np.random.default_rng(0)
    x, filters = random.standard_normal((2, 7, 9, 5)), random.standard_normal((3, 3, 5, 7))
    to_points = np.array(transforms(tile).filters)
    op = WinogradConvolution(tile, (1, 1), (1, 1), 7, F64)
    found = []
    for axes, along in ((2, to_points), (1, np.eye(3))):
        matrices = np.einsum("iy,jx,yxco->ijco", to_points, along, filters).reshape(-1, 5, 7)
        some = replace(op, filter_axes=axes)
        assert some.num_matrices == len(matrices)
        found.append(apply(some, x, apply(PackPanels(4), matrices)))
        sizes = apply(replace(some, magnitudes=True), abs(x), apply(PackPanels(4), abs(matrices)))
        assert (sizes >= abs(found[-1])).all()
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10, atol=1e-12)


def test_other_numbers_of_axes_are_refused() -> None:
    op = WinogradConvolution(4, (1, 1), (1, 1), 10, F32, filter_axes=3)
    with pytest.raises(OptionError, match="transformed along 3 axes, expected 1 or 2"):
        op.infer(tensor("f32", 1, 9, 9, 8), tensor("f32", 36, 1, 8, 16))


def test_an_image_without_places() -> None:
    panels = np.zeros((36, 1, 3, 16))
    got = apply(WinogradConvolution(4, (0, 0), (0, 0), 7, F64), np.zeros((1, 2, 9, 3)), panels)
    assert got.shape == (1, 0, 7, 7)


def test_other_tiles_are_refused() -> None:
    with pytest.raises(OptionError, match=r"tiles of 6 x 6 places, expected one of \[2, 4\]"):
        transforms(6)


@pytest.mark.parametrize("panels", [(36, 2, 8, 16), (16, 1, 8, 16), (36, 1, 9, 16), (36, 8, 16)])
def test_filters_that_do_not_fit(panels: tuple[int, ...]) -> None:
    op = WinogradConvolution(4, (1, 1), (1, 1), 10, F32)
    with pytest.raises(ShapeError, match=r"expected \[batch, height, width, channels\] and \[36"):
        op.infer(tensor("f32", 1, 9, 9, 8), tensor("f32", *panels))
