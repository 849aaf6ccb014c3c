"""Axes counted from the front, and quotients of symbolic sizes."""

from __future__ import annotations

import pytest

from luban.core import dims
from luban.core.dims import DimLike, symbol
from luban.core.errors import ShapeError
from luban.frontend.onnx.arguments import axes_in_order, axis_from, quotient

n, m = symbol("n"), symbol("m")


@pytest.mark.parametrize(
    ("total", "part", "wanted"),
    [
        (12, 4, 3),
        (12 * n, n, 12),
        (12 * n, 4 * n, 3),
        (6 * n * m, 2 * m, 3 * n),
        ((n + 1) * m, m, n + 1),
        (12 * n, 5, dims.floor_div(12 * n, 5)),
    ],
)
def test_quotient(total: DimLike, part: DimLike, wanted: DimLike) -> None:
    assert quotient(total, part) == wanted


def test_a_quotient_keeps_the_bounds_of_its_symbols() -> None:
    assert dims.bounds(quotient(2 * symbol("k", 0, 8) * m, m)) == (0, 16)


def test_axes() -> None:
    assert axis_from(-1, 3) == 2
    assert axes_in_order([-1, 0], 3) == (0, 2)
    with pytest.raises(ShapeError, match="axis is 3, expected -3 to 2 for 3 axes"):
        axis_from(3, 3)
    with pytest.raises(ShapeError, match=r"axes \[2, 2\] repeat, expected each one once"):
        axes_in_order([2, -1], 3)
