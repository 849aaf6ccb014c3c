"""Convolutions by Winograd's algorithm: fewer multiplications, paid for with transforms.

Source: A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", CVPR 2016. The
result is cut into tiles of m x m places. A 1-D convolution of m results with 3 taps is a product of
polynomials, found from its values at m + 1 points and at infinity:

    result = R ((F filter) * (I image)),    R [m, m + 2], F [m + 2, 3], I [m + 2, m + 2]

and in 2-D each matrix is applied to both axes. The points for m = 4 are 0, +-sqrt(1/2), +-sqrt(2):
rounding errors grow five times less than with the usual 0, +-1, +-2.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.dtypes import DTYPES, DType
from luban.core.errors import OptionError, ShapeError
from luban.core.types import TensorType, Type
from luban.graph.infer import tensor_operands
from luban.graph.ops.contract import differ, product_dtype
from luban.ir.node import Op

__all__ = ["OPS", "TAPS", "Matrix", "Transforms", "WinogradConvolution", "transforms"]

Matrix = tuple[tuple[float, ...], ...]
TAPS = 3  # of the filter, along each axis
# Squares of the finite points other than 0, which come in pairs of opposite sign.
_SQUARES: dict[int, tuple[float, ...]] = {2: (1.0,), 4: (0.5, 2.0)}


@dataclass(frozen=True, slots=True)
class Transforms:
    """The matrices of one tile size.

    points   the positive finite points
    image    [m + 2, m + 2]
    filters  [m + 2, 3]
    result   [m, m + 2]: columns of a pair of points are divided by the point, to save operations
    """

    points: tuple[float, ...]
    image: Matrix
    filters: Matrix
    result: Matrix


def transforms(tile: int) -> Transforms:
    """The matrices for results in tiles of `tile` x `tile`. Raises OptionError for other tiles.

    >>> transforms(2).result
    ((1.0, 1.0, 1.0, 0.0), (0.0, 1.0, -1.0, 1.0))
    """
    if tile not in _SQUARES:
        raise OptionError(
            f"winograd: tiles of {tile} x {tile} places, expected one of {sorted(_SQUARES)}",
            hint="larger tiles round too coarsely for float32",
        )
    squares = _SQUARES[tile]
    points = tuple(sqrt(square) for square in squares)
    whole = _even_polynomial(squares)
    image = [(*whole, 0.0)]
    filters: list[tuple[float, ...]] = [(1 / whole[0], 0.0, 0.0)]
    columns: list[list[float]] = [[float(k == 0) for k in range(tile)]]
    for point, square in zip(points, squares, strict=True):
        others = tuple(s for s in squares if s != square)
        rest = _even_polynomial(others)
        scale = point / (2 * square * _value(others, square))
        for signed in (point, -point):
            # x * (x + signed) * rest: 0 at every point but `signed`
            odd = [0.0, *[signed * c for c in rest], 0.0]
            even = [0.0, 0.0, *rest]
            image.append((*[a + b for a, b in zip(odd, even, strict=True)], 0.0))
            filters.append((scale, scale * signed, scale * square))
            columns.append([signed**k / point for k in range(tile)])
    image.append((0.0, *whole))
    filters.append((0.0, 0.0, 1.0))
    columns.append([float(k == tile - 1) for k in range(tile)])
    result = tuple(tuple(column[k] for column in columns) for k in range(tile))
    return Transforms(points, tuple(image), tuple(filters), result)


def _even_polynomial(squares: tuple[float, ...]) -> tuple[float, ...]:
    """Coefficients of prod(x**2 - square), the lowest first."""
    coefficients = [1.0]
    for square in squares:
        raised = [0.0, 0.0, *coefficients]
        lower = [-square * c for c in coefficients] + [0.0, 0.0]
        coefficients = [a + b for a, b in zip(raised, lower, strict=True)]
    return tuple(coefficients)


def _value(squares: tuple[float, ...], at: float) -> float:
    """prod(at - square)"""
    value = 1.0
    for square in squares:
        value *= at - square
    return value


@dataclass(frozen=True, slots=True)
class WinogradConvolution(Op):
    """3 x 3 convolution of [N, H, W, C] in tiles: [N, H + low + high - 2, W + ..., columns].

    The second operand holds the transformed filters in panels, [(tile + 2)**2, P, C, width]:
    matrix i * (tile + 2) + j is sum over y, x of F[i, y] * F[j, x] * filter[y, x]. With filter_axes
    of 1 they are transformed along the first axis only, [(tile + 2) * 3, P, C, width]: matrix
    i * 3 + x is sum over y of F[i, y] * filter[y, x], half the memory for tiles of 4. `low` and
    `high` are zeros round the image. With a `group` of 2 the filters are bf16 in panels of pairs of
    channels, [matrices, P, ceil(C / 2), width, 2], and the image at the points is rounded to bf16,
    too. With `magnitudes` every coefficient of the transforms counts by its magnitude: of the
    magnitudes of operands, that gives the size of what rounding works on.

    >>> from luban.core.types import tensor
    >>> from luban.core.dtypes import dtype
    >>> op = WinogradConvolution(4, (1, 1), (1, 1), 40, dtype("f32"))
    >>> op.infer(tensor("f32", 1, 14, 28, 8), tensor("f32", 36, 3, 8, 16))
    f32[1,14,28,40]
    """

    name: ClassVar[str] = "winograd_convolution"
    tile: int
    low: tuple[DimLike, DimLike]
    high: tuple[DimLike, DimLike]
    columns: DimLike
    dtype: DType
    group: int = 1
    magnitudes: bool = False
    filter_axes: int = 2

    @property
    def num_matrices(self) -> int:
        """Matrices that the second operand has."""
        points = self.tile + TAPS - 1
        return points * (points if self.filter_axes == 2 else TAPS)

    def infer(self, *operands: Type) -> Type:
        """Raises ShapeError for panels that do not fit, OptionError for a tile without rows."""
        transforms(self.tile)
        if self.filter_axes not in (1, 2):
            raise OptionError(
                f"winograd: filters transformed along {self.filter_axes} axes, expected 1 or 2"
            )
        lhs, panels = tensor_operands(operands, 2)
        pairs = self.group > 1
        rounded = pairs and panels.dtype is DTYPES["bf16"]
        product_dtype(lhs, panels.with_dtype(lhs.dtype) if rounded else panels, self.dtype)
        fits = lhs.rank == 4 == panels.rank - pairs and rounded == pairs
        if fits:
            width, inner = panels.shape[3], panels.shape[4:]
            count = dims.ceil_div(self.columns, width or 1)
            depth = dims.ceil_div(lhs.shape[-1], self.group)
            expected = (self.num_matrices, count, depth, width, *(self.group,) * pairs)
            fits = not any(map(differ, expected, (*panels.shape[:3], width, *inner)))
        if not fits:
            raise ShapeError(
                f"operands are {lhs} and {panels}, expected [batch, height, width, channels] and "
                f"[{self.num_matrices}, panels, channels, width] with panels for "
                f"{self.columns} columns" + (", in bf16 pairs of channels" if pairs else "")
            )
        space = [
            dims.maximum(size + low + high - (TAPS - 1), 0)
            for size, low, high in zip(lhs.shape[1:3], self.low, self.high, strict=True)
        ]
        return TensorType(self.dtype, (lhs.shape[0], *space, self.columns))


OPS: tuple[type[Op], ...] = (WinogradConvolution,)
