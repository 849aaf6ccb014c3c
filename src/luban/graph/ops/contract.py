"""Contractions: matrix products and convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.dtypes import DType
from luban.core.errors import DTypeError, ShapeError
from luban.core.types import TensorType, Type
from luban.graph.infer import axis_in_range, tensor_operands, window_size
from luban.ir.node import Op

__all__ = ["OPS", "Convolution", "DotGeneral", "differ", "product_dtype"]


def differ(a: DimLike, b: DimLike) -> bool:
    """True if two sizes are provably different."""
    low, high = dims.bounds(a - b)
    return low > 0 or high < 0


def product_dtype(lhs: TensorType, rhs: TensorType, result: DType) -> None:
    """Raises DTypeError unless products of the operands may add up to `result`."""
    integers = lhs.dtype.is_integer and rhs.dtype.is_integer and result.is_integer
    if not integers and (
        lhs.dtype is not rhs.dtype or not lhs.dtype.is_float or not result.is_float
    ):
        raise DTypeError(
            f"operands are {lhs} and {rhs} with result {result}, "
            "expected one float dtype, or integers only"
        )


@dataclass(frozen=True, slots=True)
class DotGeneral(Op):
    """Sum of products over the contracted axes: [batch axes, lhs rest, rhs rest].

    Floats narrower than f32 accumulate in f32 and round once to `dtype`; integers of any two widths
    accumulate exactly modulo 2**bits of `dtype`.
    """

    name: ClassVar[str] = "dot_general"
    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]
    lhs_contract: tuple[int, ...]
    rhs_contract: tuple[int, ...]
    dtype: DType

    def infer(self, *operands: Type) -> Type:
        """Batch, lhs rest and rhs rest sizes; paired sizes must not be provably different."""
        lhs, rhs = tensor_operands(operands, 2)
        product_dtype(lhs, rhs, self.dtype)
        pairs = [
            *zip(self.lhs_batch, self.rhs_batch, strict=True),
            *zip(self.lhs_contract, self.rhs_contract, strict=True),
        ]
        for a, b in pairs:
            axis_in_range(a, lhs.rank)
            axis_in_range(b, rhs.rank)
            if differ(lhs.shape[a], rhs.shape[b]):
                raise ShapeError(
                    f"operands are {lhs} and {rhs}: "
                    f"axis {a} of one must equal axis {b} of the other"
                )
        batch = [lhs.shape[a] for a in self.lhs_batch]
        left = [
            s for i, s in enumerate(lhs.shape) if i not in (*self.lhs_batch, *self.lhs_contract)
        ]
        right = [
            s for i, s in enumerate(rhs.shape) if i not in (*self.rhs_batch, *self.rhs_contract)
        ]
        return TensorType(self.dtype, (*batch, *left, *right))


@dataclass(frozen=True, slots=True)
class Convolution(Op):
    """Cross-correlation over 1 to n spatial axes.

    layout "channels_first": lhs [N, C, *S], rhs [O, C / groups, *K], result [N, O, *S'];
    layout "channels_last":  lhs [N, *S, C], rhs [*K, C / groups, O], result [N, *S', O].
    Padding may be negative. `lhs_dilation` inserts zeros between input elements (a transposed
    convolution). Accumulates as `dot_general` does.
    """

    name: ClassVar[str] = "convolution"
    strides: tuple[int, ...]
    low: tuple[DimLike, ...]
    high: tuple[DimLike, ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    groups: int
    dtype: DType
    layout: str = "channels_first"

    def infer(self, *operands: Type) -> Type:
        """The result shape by layout; channels must fit the groups."""
        lhs, rhs = tensor_operands(operands, 2)
        product_dtype(lhs, rhs, self.dtype)
        rank = len(self.strides)
        if lhs.rank != rank + 2 or rhs.rank != rank + 2:
            raise ShapeError(
                f"operands are {lhs} and {rhs}, expected rank {rank + 2} for {rank} spatial axes"
            )
        if self.layout == "channels_first":
            batch, channels, *space = lhs.shape
            outputs, inputs, *window = rhs.shape
        else:
            batch, *space, channels = lhs.shape
            *window, inputs, outputs = rhs.shape
        if differ(channels, inputs * self.groups):
            raise ShapeError(
                f"input {lhs} has {channels} channels, expected {inputs * self.groups}: "
                f"{self.groups} groups of {inputs} as the filter {rhs} has"
            )
        if isinstance(outputs, int) and outputs % self.groups:
            raise ShapeError(
                f"filter {rhs} has {outputs} outputs, not a multiple of {self.groups} groups"
            )
        if not all(isinstance(k, int) for k in window):
            raise ShapeError(f"filter {rhs} has a symbolic window, expected constants")
        result: list[DimLike] = []
        for i, (size, width) in enumerate(zip(space, window, strict=True)):
            inner = dims.maximum(size - 1, 0) * self.lhs_dilation[i] + dims.minimum(size, 1)
            spread = size if self.lhs_dilation[i] == 1 else inner
            assert isinstance(width, int)
            result.append(
                window_size(
                    spread, width, self.strides[i], self.low[i], self.high[i], self.rhs_dilation[i]
                )
            )
        if self.layout == "channels_first":
            return TensorType(self.dtype, (batch, outputs, *result))
        return TensorType(self.dtype, (batch, *result, outputs))


OPS: tuple[type[Op], ...] = (DotGeneral, Convolution)
