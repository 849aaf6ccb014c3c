"""Many elements to one: reductions, windows, cumulative sums, sorting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from luban.core.dims import DimLike
from luban.core.errors import OptionError, ShapeError
from luban.core.types import TupleType, Type
from luban.graph.infer import axis_in_range, require, tensor_operand, tensor_operands, window_size
from luban.ir.node import Op

__all__ = ["OPS", "ArgReduce", "Cumulative", "Reduce", "ReduceWindow", "Sort", "TopK"]

REDUCE_KINDS = ("sum", "product", "maximum", "minimum", "and", "or")


def _known(kind: str, kinds: tuple[str, ...]) -> None:
    if kind not in kinds:
        raise OptionError(f"kind is {kind!r}, expected one of {', '.join(kinds)}")


@dataclass(frozen=True, slots=True)
class Reduce(Op):
    """One value from all elements along some axes, which disappear.

    kind: sum, product, maximum, minimum (NaN if any is NaN), and, or (bool and integers). Empty
    axes give 0, 1, the lowest, the highest, all ones, 0. f16, bf16 and 8-bit floats accumulate in
    f32, rounded once at the end.
    """

    name: ClassVar[str] = "reduce"
    kind: str
    axes: tuple[int, ...]

    def infer(self, *operands: Type) -> Type:
        """The operand's shape without the axes."""
        given = tensor_operand(operands)
        _known(self.kind, REDUCE_KINDS)
        if len(set(self.axes)) != len(self.axes):
            raise ShapeError(f"axes {self.axes} repeat")
        for axis in self.axes:
            axis_in_range(axis, given.rank)
        if self.kind in ("and", "or"):
            require(given.dtype.kind in ("bool", "int", "uint"), given, "bool or integers")
        else:
            require(given.dtype.is_numeric, given, "numbers")
        return given.with_shape(s for i, s in enumerate(given.shape) if i not in self.axes)


@dataclass(frozen=True, slots=True)
class ArgReduce(Op):
    """Index (i64) of the largest or smallest element along an axis, which disappears.

    The first NaN wins over all.

    kind: maximum or minimum. `last` picks the last of equal ones instead of the first.
    """

    name: ClassVar[str] = "arg_reduce"
    kind: str
    axis: int
    last: bool = False

    def infer(self, *operands: Type) -> Type:
        """i64 of the operand's shape without the axis."""
        given = tensor_operand(operands)
        _known(self.kind, ("maximum", "minimum"))
        axis_in_range(self.axis, given.rank)
        require(given.dtype.is_numeric or given.dtype.kind == "bool", given, "numbers")
        return given.with_shape(
            (*given.shape[: self.axis], *given.shape[self.axis + 1 :])
        ).with_dtype("i64")


@dataclass(frozen=True, slots=True)
class Cumulative(Op):
    """Running sum, product, maximum or minimum along an axis.

    `exclusive` leaves the element itself out.
    """

    name: ClassVar[str] = "cumulative"
    kind: str
    axis: int
    exclusive: bool = False
    reverse: bool = False

    def infer(self, *operands: Type) -> Type:
        """The operand's type."""
        given = tensor_operand(operands)
        _known(self.kind, REDUCE_KINDS[:4])
        axis_in_range(self.axis, given.rank)
        require(given.dtype.is_numeric, given, "numbers")
        return given


@dataclass(frozen=True, slots=True)
class ReduceWindow(Op):
    """A reduction over a window that slides along every axis; padding is the kind's empty value.

    Fields have one entry per axis. kind as in `reduce`.
    """

    name: ClassVar[str] = "reduce_window"
    kind: str
    window: tuple[int, ...]
    strides: tuple[int, ...]
    low: tuple[DimLike, ...]
    high: tuple[DimLike, ...]
    dilation: tuple[int, ...]

    def infer(self, *operands: Type) -> Type:
        """The number of windows along each axis."""
        given = tensor_operand(operands)
        _known(self.kind, REDUCE_KINDS)
        fields = (self.window, self.strides, self.low, self.high, self.dilation)
        if any(len(f) != given.rank for f in fields):
            raise ShapeError(f"window of {given}: expected {given.rank} entries in each field")
        rows = zip(
            given.shape, self.window, self.strides, self.low, self.high, self.dilation, strict=True
        )
        return given.with_shape(window_size(*row) for row in rows)


@dataclass(frozen=True, slots=True)
class Sort(Op):
    """Operands of one shape reordered together along an axis, stably, by the first operand.

    NaN sorts as the largest; equal elements keep their order in both directions.
    """

    name: ClassVar[str] = "sort"
    axis: int
    descending: bool = False

    def infer(self, *operands: Type) -> Type:
        """The operands' types; a tuple if there are several."""
        given = tensor_operands(operands, max(len(operands), 1))
        axis_in_range(self.axis, given[0].rank)
        for other in given[1:]:
            if other.shape != given[0].shape:
                raise ShapeError(f"operands are {given[0]} and {other}, expected one shape")
        return given[0] if len(given) == 1 else TupleType(given)


@dataclass(frozen=True, slots=True)
class TopK(Op):
    """The k largest (or smallest) along an axis in sorted order, and their i64 indices.

    Of equals the lower index comes first; NaN counts as the largest.

    k may be a symbol bound at run time by the second operand, an i64 scalar.
    """

    name: ClassVar[str] = "top_k"
    k: DimLike
    axis: int
    largest: bool = True

    def infer(self, *operands: Type) -> Type:
        """(values, indices) with size k along the axis."""
        given = tensor_operands(operands, 2 if len(operands) == 2 else 1)[0]
        axis_in_range(self.axis, given.rank)
        values = given.with_shape(
            (*given.shape[: self.axis], self.k, *given.shape[self.axis + 1 :])
        )
        return TupleType((values, values.with_dtype("i64")))


OPS: tuple[type[Op], ...] = (Reduce, ArgReduce, Cumulative, ReduceWindow, Sort, TopK)
