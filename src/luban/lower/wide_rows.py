"""Rows of a product in halves, widened to f32 before the loop that multiplies them.

A half that stands next to its multiply-adds costs a conversion and a broadcast in registers for
each row and step, on units that multiply. Widened a vector at a time into memory of the thread, a
number costs a fraction of that, and each step reads it as a broadcast from the first cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from luban.core.dtypes import DType
from luban.lower.nest import Group
from luban.lower.operands import offset_of
from luban.lower.scope import Scope
from luban.lower.trace import Ref
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["WideRows", "wide_rows"]

_MOST_NUMBERS = 1 << 12  # of a tile's rows: half of the first cache, the rest is for the panel


@dataclass(frozen=True, slots=True)
class WideRows:
    """Memory of the thread for the rows of one tile, of `depth` numbers each."""

    scratch: Expr
    dtype: DType
    depth: int
    lanes: int

    def widened(self, scope: Scope, rows: Ref, begins: Sequence[Expr]) -> list[Expr]:
        """Copy the rows that begin at `begins`; where each copy begins."""
        b, lanes = scope.b, self.lanes
        starts = [b.constant(number * self.depth) for number in range(len(begins))]
        source = scope.pointer(rows)

        def copy(place: Expr | int, count: int) -> None:
            for begin, start in zip(begins, starts, strict=True):
                value = b.cast(b.load(source, begin + place, (count,)), self.dtype)
                b.store(self.scratch, start + place, value)

        whole = self.depth // lanes * lanes
        with b.for_(0, whole, lanes) as loop, scope.inner():
            copy(loop.index, lanes)
            loop.yield_()
        for power in range(lanes.bit_length() - 2, -1, -1):  # sizes of tiles are powers of two
            if self.depth & 1 << power:
                copy(whole, 1 << power)
                whole += 1 << power
        return starts


def wide_rows(
    b: FunctionBuilder, rows: Ref, reduced: Sequence[Group], wide: DType, num_rows: int, lanes: int
) -> WideRows | None:
    """Room for `num_rows` rows. None where they are wide already, no lines, or too long."""
    if len(reduced) != 1 or rows.dtype.bits >= wide.bits or not rows.dtype.is_float:
        return None
    depth = reduced[0].size
    lines = offset_of(rows).coefficient(reduced[0].axis) == 1
    if not lines or not isinstance(depth, int) or not 0 < num_rows * depth <= _MOST_NUMBERS:
        return None
    return WideRows(b.scratch(wide, num_rows * depth), wide, depth, lanes)
