"""Products with an operand in panels: what the layout pass turns matrix products into.

A panel is `width` columns side by side, one row after the other, so that a kernel reads it as one
stream: panels[p, k, w] = matrix[k, p * width + w], and 0 behind the last column. With a `group`,
that many rows lie together, for instructions that sum as many products of narrow integers at once:
panels[p, k, w, j] = matrix[k * group + j, p * width + w].
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from luban.core import dims
from luban.core.dims import DimLike, Shape
from luban.core.dtypes import DType
from luban.core.errors import ShapeError
from luban.core.types import TensorType, Type
from luban.graph.infer import tensor_operand, tensor_operands, window_size
from luban.graph.ops.contract import differ, product_dtype
from luban.ir.node import Node, Op

__all__ = [
    "OPS",
    "PackPanels",
    "PanelConvolution",
    "PanelDot",
    "panel_depth",
    "panel_width",
    "product_in_words",
]


@dataclass(frozen=True, slots=True)
class PackPanels(Op):
    """[*B, K, N] as panels [*B, ceil(N / width), K, width], with zeros behind column N.

    With a group g above 1: [*B, ceil(N / width), K / g, width, g].

    >>> from luban.core.types import tensor
    >>> PackPanels(16).infer(tensor("f32", 64, 40)), PackPanels(16, 4).infer(tensor("i8", 64, 40))
    (f32[3,64,16], i8[3,16,16,4])
    """

    name: ClassVar[str] = "pack_panels"
    width: int
    group: int = 1

    def infer(self, *operands: Type) -> Type:
        """Raises ShapeError for an operand that is no matrix, a width below 1, part of a group."""
        given = tensor_operand(operands)
        if given.rank < 2 or self.width < 1 or self.group < 1:
            raise ShapeError(
                f"operand is {given} with panels of {self.width} columns, "
                "expected at least 2 axes and 1 column"
            )
        *batch, rows, columns = given.shape
        depth = dims.floor_div(rows, self.group)
        if depth * self.group != rows:
            raise ShapeError(
                f"operand is {given} with groups of {self.group} rows, "
                f"expected a multiple of {self.group} rows"
            )
        inner = (self.width,) if self.group == 1 else (self.width, self.group)
        return given.with_shape((*batch, dims.ceil_div(columns, self.width), depth, *inner))


@dataclass(frozen=True, slots=True)
class PanelDot(Op):
    """Matrix product [*B, *M, K] x panels [*B, P, K, W] = [*B, *M, columns], `batch` axes in B.

    The panels hold `columns` columns, in groups of `group` rows. Accumulates as `dot_general` does.

    >>> from luban.core.types import tensor
    >>> from luban.core.dtypes import dtype
    >>> PanelDot(0, 40, dtype("f32")).infer(tensor("f32", "n", 64), tensor("f32", 3, 64, 16))
    f32[n,40]
    """

    name: ClassVar[str] = "panel_dot"
    batch: int
    columns: DimLike
    dtype: DType
    group: int = 1

    def infer(self, *operands: Type) -> Type:
        """Raises ShapeError for panels that do not fit the rows or the columns."""
        lhs, panels = tensor_operands(operands, 2)
        product_dtype(lhs, panels, self.dtype)
        fits = lhs.rank > self.batch and panels.rank == self.batch + 3 + (self.group > 1)
        if not fits or any(
            map(
                differ,
                (*lhs.shape[: self.batch], *_panels_of(self, lhs.shape[-1], panels)),
                panels.shape,
            )
        ):
            raise ShapeError(
                f"operands are {lhs} and {panels}, expected [batch, rows, depth] and "
                f"[batch, panels, depth, width] with {self.batch} batch axes and panels for "
                f"{self.columns} columns"
            )
        return TensorType(self.dtype, (*lhs.shape[:-1], self.columns))


@dataclass(frozen=True, slots=True)
class PanelConvolution(Op):
    """Convolution of [N, *S, C] with panels [P, prod(window) * C, W]: [N, *S', columns], unpadded.

    The panels hold the filter [*window, C, columns] as a matrix of its last axis by the others.
    Accumulates as `dot_general` does.

    >>> from luban.core.types import tensor
    >>> from luban.core.dtypes import dtype
    >>> op = PanelConvolution((3, 3), (2, 2), (1, 1), 40, dtype("f32"))
    >>> op.infer(tensor("f32", 1, 9, 9, 8), tensor("f32", 3, 72, 16))
    f32[1,4,4,40]
    """

    name: ClassVar[str] = "panel_convolution"
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    columns: DimLike
    dtype: DType
    group: int = 1

    def infer(self, *operands: Type) -> Type:
        """Raises ShapeError for panels that do not fit the channels or the columns."""
        lhs, panels = tensor_operands(operands, 2)
        product_dtype(lhs, panels, self.dtype)
        rank = len(self.window)
        fits = lhs.rank == rank + 2 and panels.rank == 3 + (self.group > 1)
        if fits:
            depth = lhs.shape[-1] * prod(self.window)
            fits = not any(map(differ, _panels_of(self, depth, panels), panels.shape))
        if not fits:
            raise ShapeError(
                f"operands are {lhs} and {panels}, expected [batch, {rank} spatial axes, channels] "
                f"and [panels, depth, width] with a window of {list(self.window)} and panels for "
                f"{self.columns} columns"
            )
        space = [
            window_size(size, window, stride, 0, 0, dilation)
            for size, window, stride, dilation in zip(
                lhs.shape[1:-1], self.window, self.strides, self.dilation, strict=True
            )
        ]
        return TensorType(self.dtype, (lhs.shape[0], *space, self.columns))


def _panels_of(op: PanelDot | PanelConvolution, depth: DimLike, given: TensorType) -> Shape:
    """The shape, behind batch axes, of panels for `depth` rows that are as wide as the given."""
    width = given.shape[-1] if op.group == 1 else given.shape[-2]
    inner = (width,) if op.group == 1 else (width, op.group)
    return (dims.ceil_div(op.columns, width or 1), dims.ceil_div(depth, op.group), *inner)


def panel_width(product: Node) -> int:
    """The columns of a panel of a product's right operand."""
    assert isinstance(product.op, (PanelDot, PanelConvolution))
    shape = product.operands[1].tensor.shape
    width = shape[-1] if product.op.group == 1 else shape[-2]
    assert isinstance(width, int)
    return width


def panel_depth(product: Node) -> DimLike:
    """The products that one element of the result sums up."""
    assert isinstance(product.op, (PanelDot, PanelConvolution))
    shape, group = product.operands[1].tensor.shape, product.op.group
    return shape[-2] if group == 1 else shape[-3] * group


def product_in_words(op: PanelDot | PanelConvolution, rows: TensorType) -> str:
    """What decides how fast a product can be, without the width of its panels.

    What was measured for a product is stored under this text.

    >>> from luban.core.types import tensor
    >>> from luban.core.dtypes import dtype
    >>> product_in_words(PanelDot(0, 40, dtype("f32")), tensor("f32", "n", 64))
    'panel_dot f32[n,64] to 40 x f32'
    >>> op = PanelConvolution((3, 3), (2, 2), (1, 1), 40, dtype("f32"))
    >>> product_in_words(op, tensor("f32", 1, 9, 9, 8))
    'panel_convolution f32[1,9,9,8] to 40 x f32, window 3x3, strides 2x2, dilation 1x1'
    """
    text = f"{op.name} {rows} to {op.columns} x {op.dtype}"
    if isinstance(op, PanelDot):
        return text + (f", {op.batch} batch axes" if op.batch else "")
    parts = (("window", op.window), ("strides", op.strides), ("dilation", op.dilation))
    return ", ".join([text, *(f"{name} {'x'.join(map(str, sizes))}" for name, sizes in parts)])


OPS: tuple[type[Op], ...] = (PackPanels, PanelDot, PanelConvolution)
