"""What a fusion does with finished sums, while they are still in registers.

Short chains of maths follow each vector of sums directly. Long ones would multiply the code by the
number of vectors, so the sums go to a scratch tile (which stays in the first cache) and a loop over
its rows does the maths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from luban.core import dims
from luban.core.dims import DimLike
from luban.lower import maths
from luban.lower.ahead import FAR_BYTES, LINE_BYTES
from luban.lower.nest import Nest, Reduction
from luban.lower.scope import Lanes, Scope
from luban.lower.trace import Ref
from luban.tile.expr import Expr

__all__ = ["Columns", "Epilogue", "Rows"]

_SHORT = 12  # values a chain may have to be repeated for every vector

Sums = Sequence[Sequence[Expr]]  # [row][vector] of tiles


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a tile: `vectors` tiles of `lanes` from `start` on, of `limit` columns in all.

    full   True: all are inside; False: some may be outside; None: it depends on the program
    rest   how many are inside where not all are, if that is known
    last   lanes of the last tile, if it has fewer
    """

    axis: int
    start: Expr
    lanes: int
    vectors: int
    limit: DimLike
    full: bool | None
    rest: int | None = None
    last: int | None = None

    def lanes_of(self, vector: int) -> int:
        """Lanes of a tile."""
        is_last = vector == self.vectors - 1
        return self.last if is_last and self.last is not None else self.lanes


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

    def fetch(self, num_rows: int, rows: Rows, columns: Columns) -> None:
        """Fetch what will be read at the places of a tile, before its sums are made.

        Only what has a number for each place, such as a residual: a tile reads few neighbours of
        each row, so nothing else foresees them.
        """
        scope, far = self.scope, [ref for ref in self.needed if _is_far(ref, rows, columns)]
        for ref in far:
            assert ref.offset is not None
            scope.place[columns.axis] = columns.start
            step = LINE_BYTES // ref.dtype.size_bytes
            for number in range(num_rows):
                scope.place |= rows.place(number)
                start, _, _ = scope.linear(ref.offset)
                for along in range(0, columns.lanes * columns.vectors, step):
                    self.b.prefetch(scope.pointer(ref), start + along)
            del scope.place[columns.axis]

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
        """Column vectors outside, so that what depends on the column only is loaded once."""
        if self.scratch is not None:
            self._from_scratch(self.scratch, len(sums), rows, columns, masked)
            return
        for vector in range(columns.vectors):
            start = columns.start + vector * columns.lanes
            inside = self._inside(columns, vector, start) if masked else None
            if inside is not None and inside.known is False:
                continue
            with self._vector(Lanes(columns.axis, start, columns.lanes_of(vector), inside), rows):
                for number, row in enumerate(sums):
                    self._finish(row[vector], rows.place(number))

    def _from_scratch(
        self, scratch: Expr, height: int, rows: Rows, columns: Columns, masked: bool
    ) -> None:
        b, lanes = self.b, columns.lanes
        with b.for_(0, columns.vectors, 1) as over_vectors, self.scope.inner():
            start = columns.start + over_vectors.index * lanes
            inside = b.arange(lanes) < self.scope.size(columns.limit) - start if masked else None
            vector = self._vector(Lanes(columns.axis, start, lanes, inside), rows)
            with vector, b.for_(0, height, 1) as over_rows:
                place = (over_rows.index * columns.vectors + over_vectors.index) * lanes
                total = b.load(scratch, place, (lanes,), align=4 * lanes)
                self._finish(total, rows.place(over_rows.index))
                over_rows.yield_()
            over_vectors.yield_()

    @contextmanager
    def _vector(self, lanes: Lanes, rows: Rows) -> Iterator[None]:
        """The lanes along some columns, with what all rows share there computed."""
        with self.scope.inner():
            self.scope.lanes = lanes
            self.scope.hoist(self.needed, rows.axes)
            yield
            self.scope.lanes = None

    def _finish(self, total: Expr, places: dict[int, Expr]) -> None:
        """Everything that becomes of one vector of sums."""
        scope = self.scope
        with scope.inner():
            scope.place |= places
            scope.set(self.stage, self.b.cast(total, self.stage.dtype))
            for write in self.writes:
                scope.store(write)

    def _inside(self, columns: Columns, vector: int, start: Expr) -> Expr:
        """Which lanes are columns: as numbers where the last panel is known."""
        b, lanes = self.b, columns.lanes_of(vector)
        if columns.rest is None:
            return b.arange(lanes) < self.scope.size(columns.limit) - start
        rest = columns.rest - vector * columns.lanes
        if rest <= 0:
            return b.constant(False, "bool")
        return b.arange(lanes) < min(rest, lanes)


def _is_far(ref: Ref, rows: Rows, columns: Columns) -> bool:
    """True for a number of each place of a large operand, read in the order of the columns."""
    if ref.kind != "load" or ref.args or ref.offset is None or ref.offset.values:
        return False
    assert ref.operand is not None
    axes = {axis for axis, _ in ref.offset.axes}
    least_bytes = dims.common_divisor(dims.num_elements(ref.operand.tensor.shape))
    return (
        bool(axes & rows.axes)
        and ref.offset.coefficient(columns.axis) == 1
        and least_bytes * ref.dtype.size_bytes > FAR_BYTES
    )
