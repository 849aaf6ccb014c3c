"""Products with weights that stay codes of 4 or 8 bits: a scale, and a zero point, for each block.

Along the summed axis, `block` codes after another share a scale and a zero point:
weight[n, k] = (code[n, k] - zero[n, k // block]) * scale[n, k // block].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from luban.core import dims
from luban.core.dims import DimLike, Shape
from luban.core.dtypes import DTYPES, DType
from luban.core.errors import DTypeError, OptionError, ShapeError
from luban.core.types import TensorType, Type
from luban.graph.infer import tensor_operands
from luban.graph.ops.contract import differ
from luban.ir.node import Node, Op

__all__ = ["OPS", "CodedDot", "PanelCodedDot", "coded_depth", "coded_width"]


@dataclass(frozen=True, slots=True)
class CodedDot(Op):
    """x [*M, K] times codes [N, blocks, bytes] of `bits` bits, [*M, N].

    codes   u8: those of a block one after the other, the lowest bits of a byte first; codes behind
            number K count for nothing
    scales  floats [N, blocks]
    zeros   u8 or floats [N, blocks], an operand if `has_zeros`; else the middle code is zero
    steps   f32 [*M, blocks], an operand if x is i8: x itself is x times the step of its block

    Accumulates in f32.

    >>> from luban.core.types import tensor
    >>> from luban.core.dtypes import dtype
    >>> codes, scales = tensor("u8", 40, 2, 16), tensor("f32", 40, 2)
    >>> CodedDot(4, 32, dtype("f32")).infer(tensor("f32", "n", 50), codes, scales)
    f32[n,40]
    """

    name: ClassVar[str] = "coded_dot"
    bits: int
    block: int
    dtype: DType
    has_zeros: bool = False

    def infer(self, *operands: Type) -> Type:
        """Raises OptionError, DTypeError or ShapeError for what does not fit."""
        _check_codes(self.bits, self.block)
        steps = isinstance(operands[0], TensorType) and operands[0].dtype is DTYPES["i8"]
        given = tensor_operands(operands, 3 + self.has_zeros + steps)
        x, codes, *_ = given
        _check_dtypes(given, self.has_zeros, x.dtype.is_float or steps)
        columns, count = codes.shape[0], codes.shape[1]
        expected: list[Shape] = [(columns, count, self.block * self.bits // 8)]
        expected += [(columns, count)] * (1 + self.has_zeros)
        expected += [(*x.shape[:-1], count)] * steps
        fits = x.rank > 0 and not dims.bounds(count * self.block - x.shape[-1])[1] < 0
        if not fits or any(
            _differs(a.shape, shape) for a, shape in zip(given[1:], expected, strict=True)
        ):
            raise ShapeError(
                f"operands are {', '.join(map(str, given))}, expected [*rows, depth], "
                f"[columns, blocks, {self.block * self.bits // 8}] for blocks of {self.block} "
                "codes that hold the depth, and [columns, blocks]"
            )
        return TensorType(self.dtype, (*x.shape[:-1], columns))


@dataclass(frozen=True, slots=True)
class PanelCodedDot(Op):
    """Rows of integers in i8 digits times codes in panels: the form that has a kernel.

    y[m, n] = sum over blocks b of scale[b, n] * step[m, b] * (sum over digits d of 256**d *
              (sum over k in b of x[m, d, k] * code[k, n] - zero[b, n] * total[m, d, b]))

    x       i8 [*M, digits, K], the lowest digit first; K a multiple of the block
    steps   f32 [*M, blocks]
    totals  i32 [*M, digits, blocks]: of the digits of a block
    panels  u8 [P, K / 4, W, 4]: four neighbours of a column together. Codes of 4 bits:
            [P, K / 8, W, 4], with code 8 i + j in the low half of byte j and 8 i + 4 + j in its
            high half
    scales  floats [P, blocks, W]
    zeros   u8 or floats [P, blocks, W], an operand if `has_zeros`; else the middle code is zero

    Sums within a block are exact; those of blocks accumulate in f32.

    >>> from luban.core.types import tensor as t
    >>> from luban.core.dtypes import dtype
    >>> rows = (t("i8", "n", 1, 64), t("f32", "n", 2), t("i32", "n", 1, 2))
    >>> op = PanelCodedDot(4, 32, 40, dtype("f32"))
    >>> op.infer(*rows, t("u8", 3, 8, 16, 4), t("f32", 3, 2, 16))
    f32[n,40]
    """

    name: ClassVar[str] = "panel_coded_dot"
    bits: int
    block: int
    columns: DimLike
    dtype: DType
    has_zeros: bool = False

    def infer(self, *operands: Type) -> Type:
        """Raises OptionError, DTypeError or ShapeError for what does not fit."""
        _check_codes(self.bits, self.block)
        given = tensor_operands(operands, 5 + self.has_zeros)
        x, steps, totals, panels, scales, *zeros = given
        integers = (x.dtype.name, totals.dtype.name) == ("i8", "i32")
        _check_dtypes((x, panels, scales, *zeros, steps), self.has_zeros, integers)
        fits = x.rank >= 2 and panels.rank == 4
        if fits:
            *rows, digits, depth = x.shape
            width, count = panels.shape[2], dims.floor_div(depth, self.block)
            num_panels = dims.ceil_div(self.columns, width or 1)
            expected: list[Shape] = [
                (*rows, digits, count * self.block),
                (*rows, count),
                (*rows, digits, count),
                (num_panels, dims.floor_div(depth * self.bits, 32), width, 4),
                *[(num_panels, count, width)] * (1 + self.has_zeros),
            ]
            fits = not any(
                _differs(a.shape, shape) for a, shape in zip(given, expected, strict=True)
            )
        if not fits:
            raise ShapeError(
                f"operands are {', '.join(map(str, given))}, expected [*rows, digits, depth], "
                "[*rows, blocks], [*rows, digits, blocks], [panels, depth / "
                f"{32 // self.bits}, width, 4] and [panels, blocks, width] with panels for "
                f"{self.columns} columns in blocks of {self.block}"
            )
        return TensorType(self.dtype, (*x.shape[:-2], self.columns))


def _check_codes(bits: int, block: int) -> None:
    if bits not in (4, 8) or block < 8 or block % 8:
        raise OptionError(
            f"codes of {bits} bits in blocks of {block}, expected 4 or 8 bits and a multiple of 8"
        )


def _check_dtypes(given: tuple[TensorType, ...], has_zeros: bool, rows_fit: bool) -> None:
    """Of rows, codes, scales, zeros if there are any, and steps if there are any."""
    _, codes, scales, *rest = given
    zeros, steps = rest[:has_zeros], rest[has_zeros:]
    fits = rows_fit and codes.dtype.name == "u8" and scales.dtype.is_float
    fits = fits and all(z.dtype.is_float or z.dtype.name == "u8" for z in zeros)
    if not fits or any(s.dtype.name != "f32" for s in steps):
        raise DTypeError(
            f"operands are {', '.join(map(str, given))}, expected rows of floats or i8, codes u8, "
            "floats as scales, u8 or floats as zero points, f32 as steps"
        )


def _differs(shape: Shape, expected: Shape) -> bool:
    return len(shape) != len(expected) or any(map(differ, shape, expected))


def coded_width(product: Node) -> int:
    """The columns of a panel of codes."""
    assert isinstance(product.op, PanelCodedDot)
    width = product.operands[3].tensor.shape[2]
    assert isinstance(width, int)
    return width


def coded_depth(product: Node) -> DimLike:
    """The products that one element of the result sums up."""
    assert isinstance(product.op, (CodedDot, PanelCodedDot))
    return product.operands[0].tensor.shape[-1]


OPS: tuple[type[Op], ...] = (CodedDot, PanelCodedDot)
