"""Panels: what packing gives, that products with panels equal plain ones, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from luban.core.dtypes import dtype
from luban.core.errors import DTypeError, ShapeError
from luban.core.types import tensor
from luban.graph.ops.packed import PackPanels, PanelConvolution, PanelDot
from tests.graph.calls import apply

F32 = dtype("f32")


def test_panels_are_columns_side_by_side_with_zeros_behind() -> None:
    packed = apply(PackPanels(2), np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(packed, [[[0, 1], [3, 4]], [[2, 0], [5, 0]]])


def test_batches_of_panels() -> None:
    matrices = np.random.default_rng(0).standard_normal((3, 4, 5))
    packed = apply(PackPanels(4), matrices)
    assert packed.shape == (3, 2, 4, 4)
    np.testing.assert_array_equal(packed[1, 1, :, 0], matrices[1, :, 4])


def test_products_equal_numpy() -> None:
    random = np.random.default_rng(0)
    x, y = random.standard_normal((2, 3, 4, 5)), random.standard_normal((2, 5, 7))
    product = apply(PanelDot(1, 7, dtype("f64")), x, apply(PackPanels(4), y))
    np.testing.assert_allclose(product, x @ y[:, None], rtol=1e-12)


def test_convolutions_equal_sums_over_the_window() -> None:
    random = np.random.default_rng(0)
    x, filters = random.standard_normal((1, 5, 6, 2)), random.standard_normal((3, 2, 2, 4))
    panels = apply(PackPanels(16), filters.reshape(12, 4))
    got = apply(PanelConvolution((3, 2), (2, 1), (1, 1), 4, dtype("f64")), x, panels)
    assert got.shape == (1, 2, 5, 4)
    want = np.einsum("ijc,ijco->o", x[0, 2:5, 3:5], filters)
    np.testing.assert_allclose(got[0, 1, 3], want, rtol=1e-12)


def test_groups_of_rows_lie_together() -> None:
    packed = apply(PackPanels(2, 2), np.arange(12).reshape(4, 3))
    assert packed.shape == (2, 2, 2, 2)
    np.testing.assert_array_equal(packed[0], [[[0, 3], [1, 4]], [[6, 9], [7, 10]]])
    np.testing.assert_array_equal(packed[1], [[[2, 5], [0, 0]], [[8, 11], [0, 0]]])


def test_products_in_groups_equal_numpy() -> None:
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (2, 3, 8)).astype(np.uint8)
    y = random.integers(-128, 128, (2, 8, 7)).astype(np.int8)
    got = apply(PanelDot(1, 7, dtype("i32"), 4), x, apply(PackPanels(4, 4), y))
    np.testing.assert_array_equal(got, x.astype(int) @ y.astype(int))


def test_convolutions_in_groups_equal_sums_over_the_window() -> None:
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (1, 5, 6, 4)).astype(np.uint8)
    filters = random.integers(-128, 128, (3, 2, 4, 5)).astype(np.int8)
    panels = apply(PackPanels(16, 4), filters.reshape(24, 5))
    got = apply(PanelConvolution((3, 2), (1, 1), (1, 1), 5, dtype("i32"), 4), x, panels)
    want = np.einsum("ijc,ijco->o", x[0, 1:4, 2:4].astype(int), filters.astype(int))
    np.testing.assert_array_equal(got[0, 1, 2], want)


def test_a_vector_cannot_be_packed() -> None:
    with pytest.raises(ShapeError, match=r"operand is f32\[4\] with panels of 8 columns"):
        PackPanels(8).infer(tensor("f32", 4))


@pytest.mark.parametrize(
    ("rows", "panels"),
    [((3, 9), (2, 8, 16)), ((3, 8), (3, 8, 16)), ((8,), (1, 2, 8, 16)), ((3, 8), (8, 16))],
)
def test_panels_that_do_not_fit(rows: tuple[int, ...], panels: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"expected \[batch, rows, depth\] and"):
        PanelDot(0, 20, F32).infer(tensor("f32", *rows), tensor("f32", *panels))


def test_filters_that_do_not_fit() -> None:
    op = PanelConvolution((3, 3), (1, 1), (1, 1), 20, F32)
    with pytest.raises(ShapeError, match=r"window of \[3, 3\] and panels for 20 columns"):
        op.infer(tensor("f32", 1, 5, 5, 4), tensor("f32", 2, 35, 16))


def test_dtypes_must_agree() -> None:
    with pytest.raises(DTypeError, match="expected one float dtype"):
        PanelDot(0, 20, F32).infer(tensor("f32", 3, 8), tensor("f64", 2, 8, 16))
