"""How rows are cut into tiles.

As few tiles as possible, of one height or two neighbouring ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import gcd

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.registers import fair_divisor, few_heights
from luban.lower.epilogue import Rows
from luban.lower.scope import Scope
from luban.tile.expr import Expr

__all__ = ["RowTiles", "Span", "Tile", "row_tiles", "split_rows"]


@dataclass(frozen=True, slots=True)
class Span:
    """Tiles `first` .. `last` - 1 of one height; `row` gives the row at which a tile starts."""

    height: int
    first: Expr
    last: Expr
    row: Callable[[Expr], Expr]


def split_rows(count: int, tallest: int) -> tuple[tuple[int, int], ...]:
    """(height, tiles) of as few tiles as possible, as even as possible.

    >>> split_rows(128, 14)
    ((13, 8), (12, 2))
    >>> split_rows(12, 6)
    ((6, 2),)
    """
    if count <= 0:
        return ()
    tiles = -(-count // tallest)
    height, extra = divmod(count, tiles)
    parts = ((height + 1, extra), (height, tiles - extra))
    return tuple(part for part in parts if part[1])


@dataclass(frozen=True, slots=True)
class Tile:
    """`num_lines` x `num_rows` places from (line, row) on: the rows of a tile of sums."""

    line: Expr
    row: Expr
    num_lines: int
    num_rows: int

    def places(self) -> list[tuple[int, int]]:
        """(line, row) of each row of sums, relative to the first."""
        return [(i, j) for i in range(self.num_lines) for j in range(self.num_rows)]

    def rows(self, scope: Scope, line_axis: int, row_axis: int) -> Rows:
        """The rows as places on two loop axes. Places the line axis if all rows share it."""
        if self.num_lines == 1:
            scope.place[line_axis] = self.line
            return Rows(frozenset({row_axis}), lambda r: {row_axis: self.row + r})

        def place(number: int | Expr) -> dict[int, Expr]:
            above = number // self.num_rows
            left = number - above * self.num_rows
            return {line_axis: self.line + above, row_axis: self.row + left}

        return Rows(frozenset({line_axis, row_axis}), place)


@dataclass(frozen=True, slots=True)
class RowTiles:
    """`count` rows in tiles of at most `limit`.

    Of a count known at run time, the rows behind the last full tile are made up of tiles of several
    `heights`; without them, the count is a multiple of `limit`.
    """

    count: DimLike
    limit: int
    heights: tuple[int, ...] = ()

    @property
    def tallest(self) -> int:
        """The greatest height in use."""
        if isinstance(self.count, int):
            return max((height for height, _ in split_rows(self.count, self.limit)), default=1)
        return self.limit

    @property
    def num_tiles(self) -> DimLike:
        """How many tiles there are, or would be if all had the greatest height."""
        return dims.ceil_div(self.count, self.limit)

    def spans(self, scope: Scope, block: Expr, tiles: int) -> Iterator[Span]:
        """The tiles of block `block`, of `tiles` tiles each, by height."""
        first = block * tiles
        if isinstance(self.count, int):
            yield from self._known(scope, first, first + tiles)
        else:
            yield from self._greedy(scope, first, first + tiles)

    def _known(self, scope: Scope, first: Expr, stop: Expr) -> Iterator[Span]:
        assert isinstance(self.count, int)
        b, tile, row = scope.b, 0, 0
        for height, tiles in split_rows(self.count, self.limit):
            begin, end = b.max(first, tile), b.min(stop, tile + tiles)
            shift = b.constant(row - tile * height)
            yield Span(height, begin, end, partial(_adjacent, height, shift))
            tile, row = tile + tiles, row + tiles * height

    def _greedy(self, scope: Scope, first: Expr, stop: Expr) -> Iterator[Span]:
        """Full tiles; in the place of the last one what remains, in as high tiles as it takes."""
        b, count = scope.b, scope.size(self.count)
        full = count // self.limit
        last_block = b.binary("and", first <= full, full < stop)
        row, zero = full * self.limit, b.constant(0)
        yield Span(self.limit, first, b.min(stop, full), partial(_adjacent, self.limit, zero))
        for height in reversed(self.heights):
            if height < self.limit:
                tiles = (count - row) // height
                end = b.select(last_block, tiles, 0)
                yield Span(height, zero, end, partial(_adjacent, height, row))
                row = row + tiles * height


def row_tiles(count: DimLike, limit: int) -> RowTiles:
    """Tiles of at most `limit` rows: exact ones where the count has a fair divisor.

    >>> row_tiles(dims.symbol("n") * 196, 8)
    RowTiles(count=196*n, limit=7, heights=())
    >>> row_tiles(dims.symbol("n"), 8)
    RowTiles(count=n, limit=8, heights=(1, 2, 4, 8))
    >>> row_tiles(dims.symbol("n") * 49, 14)
    RowTiles(count=49*n, limit=14, heights=(7, 14))
    """
    if isinstance(count, int):
        return RowTiles(count, limit)
    fair = fair_divisor(count, limit)
    if fair:
        return RowTiles(count, fair)
    return RowTiles(count, limit, few_heights(limit, gcd(dims.common_divisor(count), limit)))


def _adjacent(height: int, shift: Expr, tile: Expr) -> Expr:
    return tile * height + shift
