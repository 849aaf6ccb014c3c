"""Products with an operand in panels: what the layout pass turns matrix products into.

A panel is `width` columns side by side, one row after the other, so that a kernel reads it as one
stream: panels[p, k, w] = matrix[k, p * width + w], and 0 behind the last column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.dtypes import DType
from luban.core.errors import ShapeError
from luban.core.types import TensorType, Type
from luban.graph.infer import tensor_operand, tensor_operands
from luban.graph.ops.contract import differ, product_dtype
from luban.ir.node import Op

__all__ = ["OPS", "PackPanels", "PanelDot"]


@dataclass(frozen=True, slots=True)
class PackPanels(Op):
    """[*B, K, N] as panels [*B, ceil(N / width), K, width], with zeros behind column N.

    >>> from luban.core.types import tensor
    >>> PackPanels(16).infer(tensor("f32", 64, 40))
    f32[3,64,16]
    """

    name: ClassVar[str] = "pack_panels"
    width: int

    def infer(self, *operands: Type) -> Type:
        """Raises ShapeError for an operand that is no matrix, or a width below 1."""
        given = tensor_operand(operands)
        if given.rank < 2 or self.width < 1:
            raise ShapeError(
                f"operand is {given} with panels of {self.width} columns, "
                "expected at least 2 axes and 1 column"
            )
        *batch, rows, columns = given.shape
        return given.with_shape((*batch, dims.ceil_div(columns, self.width), rows, self.width))


@dataclass(frozen=True, slots=True)
class PanelDot(Op):
    """Matrix product [*B, *M, K] x panels [*B, P, K, W] = [*B, *M, columns], `batch` axes in B.

    The panels hold `columns` columns. Accumulates as `dot_general` does.

    >>> from luban.core.types import tensor
    >>> from luban.core.dtypes import dtype
    >>> PanelDot(0, 40, dtype("f32")).infer(tensor("f32", "n", 64), tensor("f32", 3, 64, 16))
    f32[n,40]
    """

    name: ClassVar[str] = "panel_dot"
    batch: int
    columns: DimLike
    dtype: DType

    def infer(self, *operands: Type) -> Type:
        """Raises ShapeError for panels that do not fit the rows or the columns."""
        lhs, panels = tensor_operands(operands, 2)
        product_dtype(lhs, panels, self.dtype)
        expected = (
            *lhs.shape[: self.batch],
            dims.ceil_div(self.columns, panels.shape[-1] or 1),
            lhs.shape[-1] if lhs.rank else 0,
        )
        fits = lhs.rank > self.batch and panels.rank == self.batch + 3
        if not fits or any(map(differ, expected, panels.shape[:-1])):
            raise ShapeError(
                f"operands are {lhs} and {panels}, expected [batch, rows, depth] and "
                f"[batch, panels, depth, width] with {self.batch} batch axes and panels for "
                f"{self.columns} columns"
            )
        return TensorType(self.dtype, (*lhs.shape[:-1], self.columns))


OPS: tuple[type[Op], ...] = (PackPanels, PanelDot)
