"""What a fusion does with finished sums, while they are still in registers.

Short chains of maths follow each vector of sums directly. Long ones would multiply the code by the
number of vectors, so the sums go to a scratch tile (which stays in the first cache) and a loop over
its rows does the maths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from luban.core.dims import DimLike
from luban.lower import maths
from luban.lower.emit import Lanes, Scope
from luban.lower.nest import Nest, Reduction
from luban.tile.expr import Expr

__all__ = ["Columns", "Epilogue", "Rows"]

_SHORT = 12  # values a chain may have to be repeated for every vector

Sums = Sequence[Sequence[Expr]]  # [row][vector] of tiles


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a tile: `vectors` tiles of `lanes` from `start` on, of `limit` columns in all.

    full   True: all are inside; False: some may be outside; None: it depends on the program
    """

    axis: int
    start: Expr
    lanes: int
    vectors: int
    limit: DimLike
    full: bool | None


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a tile: `place(r)` says where row r is on each of `axes`."""

    axes: frozenset[int]
    place: Callable[[int | Expr], dict[int, Expr]]


class Epilogue:
    """Stores the results of a fusion, given the sums of its product.

    most_sums  numbers in the largest tile of sums
    """

    def __init__(self, scope: Scope, nest: Nest, reduction: Reduction, most_sums: int) -> None:
        self.scope = scope
        self.b = scope.b
        self.writes = nest.writes
        self.needed = Nest(nest.trace, [], [], [], nest.writes).needed()
        self.stage = reduction.result
        self.accumulator = reduction.accumulator
        work = [r for r in self.needed if r.kind not in ("load", "constant", "scalar", "stage")]
        long = len(work) > _SHORT or any(r.kind in maths.HEAVY for r in work)
        self.scratch = self.b.scratch(self.accumulator, most_sums) if long else None

    def store(self, sums: Sums, rows: Rows, columns: Columns) -> None:
        """Store what becomes of the sums [row][vector]."""
        if self.scratch is not None:
            for number, vector in enumerate(v for row in sums for v in row):
                self.b.store(self.scratch, number * columns.lanes, vector, align=4 * columns.lanes)
        if columns.full is not None:
            self._masked(sums, rows, columns, masked=not columns.full)
            return
        width = columns.lanes * columns.vectors
        limit = self.scope.size(columns.limit)
        with self.b.if_(columns.start + width <= limit) as branch:
            with branch.then(), self.scope.inner():
                self._masked(sums, rows, columns, masked=False)
            with branch.otherwise(), self.scope.inner():
                self._masked(sums, rows, columns, masked=True)

    def _masked(self, sums: Sums, rows: Rows, columns: Columns, *, masked: bool) -> None:
        if self.scratch is None:

            def held(row: int | Expr, vector: int) -> Expr:
                assert isinstance(row, int)
                return sums[row][vector]

            self._vectors(columns, masked, rows, held, range(len(sums)))
            return
        scratch, b = self.scratch, self.b
        width = columns.lanes * columns.vectors
        with b.for_(0, len(sums), 1) as loop, self.scope.inner():

            def kept(_row: int | Expr, vector: int) -> Expr:
                place = loop.index * width + vector * columns.lanes
                return b.load(scratch, place, (columns.lanes,), align=4 * columns.lanes)

            self._vectors(columns, masked, rows, kept, [loop.index])
            loop.yield_()

    def _vectors(
        self,
        columns: Columns,
        masked: bool,
        rows: Rows,
        value: Callable[[int | Expr, int], Expr],
        numbers: Sequence[int | Expr],
    ) -> None:
        """Column vectors outside, so that what depends on the column only is loaded once."""
        scope = self.scope
        for vector in range(columns.vectors):
            start = columns.start + vector * columns.lanes
            inside = self._inside(columns, vector, start) if masked else None
            if inside is not None and inside.known is False:
                continue
            with scope.inner():
                scope.lanes = Lanes(columns.axis, start, columns.lanes, inside)
                scope.hoist(self.needed, rows.axes)
                for number in numbers:
                    with scope.inner():
                        scope.place |= rows.place(number)
                        scope.set(self.stage, self.b.cast(value(number, vector), self.stage.dtype))
                        for write in self.writes:
                            scope.store(write)
                scope.lanes = None

    def _inside(self, columns: Columns, vector: int, start: Expr) -> Expr:
        """Which lanes are columns: as numbers where the last panel is known."""
        b, limit, lanes = self.b, columns.limit, columns.lanes
        if not isinstance(limit, int):
            return b.arange(lanes) < self.scope.size(limit) - start
        rest = (limit - 1) % (lanes * columns.vectors) + 1 - vector * lanes
        if rest <= 0:
            return b.constant(False, "bool")
        return b.arange(lanes) < min(rest, lanes)
