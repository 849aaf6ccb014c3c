"""One call of an ATen operator: what PyTorch says of its results, and its operands made fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from luban.core.dims import Dim, DimLike
from luban.core.dtypes import DType, dtype
from luban.core.errors import UnsupportedError
from luban.core.types import TensorType
from luban.graph import build
from luban.ir.node import Node

__all__ = ["Call", "Operand"]

Operand = Node | Dim | int | float | bool


@dataclass(frozen=True, slots=True)
class Call:
    """What a handler is told beside its arguments.

    target     the overload, such as `add.Tensor`
    types      of the results that are tensors, in order
    next_key   gives the key of a stream of random bits that nobody else has: u64[1]
    row_major  tells whether PyTorch has every operand in row-major order without gaps
    """

    target: str
    types: tuple[TensorType, ...]
    next_key: Callable[[], Node]
    row_major: Callable[[], bool] = lambda: True

    @property
    def type(self) -> TensorType:
        """The type of the only result, or of the first."""
        return self.types[0]

    def operand(self, value: Operand, element: DType | str) -> Node:
        """A tensor or number as a node of a dtype."""
        if isinstance(value, Node):
            return build.cast(value, element, saturate=False)
        if isinstance(value, Dim):
            return build.cast(build.dimension(value), element)
        return build.constant(value, dtype(element))

    def spread(self, value: Operand, element: DType | str | None = None) -> Node:
        """An operand in the result's shape, and in its dtype unless another is given."""
        return build.broadcast_to(self.operand(value, element or self.type.dtype), self.type.shape)

    def wrong(self, what: str) -> UnsupportedError:
        """The error for a form of the operator that has no translation."""
        return UnsupportedError(f"{self.target}: {what}")


def axes_of(given: Sequence[int] | int | None, rank: int) -> list[int]:
    """Axes, each at least 0, in order; all of them for none or an empty list.

    >>> axes_of([-1], 3), axes_of(None, 2), axes_of(0, 0)
    ([2], [0, 1], [])
    """
    if given is None or given == []:
        return list(range(rank))
    listed = [given] if isinstance(given, int) else list(given)
    return sorted({axis % rank for axis in listed}) if rank else []


def axis_of(given: int, rank: int) -> int:
    """One axis, at least 0; that of a scalar is 0."""
    return given % rank if rank else 0


def number_of(value: Any) -> DimLike:
    """A size as given in a list of sizes: PyTorch gives numbers or what we made of symbols."""
    if isinstance(value, Dim):
        return value
    return int(value)
