"""How rows are cut into tiles.

Of one or two neighbouring heights when their number is known, else of the best of a few heights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from luban.core import dims
from luban.core.dims import DimLike
from luban.lower.emit import Scope
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["RowTiles", "Span", "split_rows"]


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
class RowTiles:
    """`count` rows in tiles of at most `limit`."""

    count: DimLike
    limit: int

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

    @property
    def heights(self) -> tuple[int, ...]:
        """The heights that code is made for when the number of rows is known at run time only.

        >>> RowTiles(dims.symbol("n"), 8).heights
        (1, 2, 3, 4, 6, 8)
        """
        if isinstance(self.count, int):
            return tuple(height for height, _ in split_rows(self.count, self.limit))
        tall = (-(-self.limit // 2), -(-self.limit * 3 // 4), self.limit)
        return tuple(sorted({h for h in (1, 2, 3, 4, *tall) if h <= self.limit}))

    def spans(self, scope: Scope, block: Expr, tiles: int, blocks: DimLike) -> Iterator[Span]:
        """The tiles of block `block` of `blocks`, of `tiles` tiles each, by height."""
        first = block * tiles
        if isinstance(self.count, int):
            yield from self._known(scope, first, first + tiles)
            return
        b = scope.b
        count, limit = scope.size(self.count), self.limit
        num_tiles = b.max((count + (limit - 1)) // limit, 1)
        wanted = (count + num_tiles - 1) // num_tiles
        height = b.constant(1)
        for candidate in self.heights[1:]:
            grow = b.binary("and", height < wanted, count >= candidate)
            height = b.select(grow, candidate, height)
        end = (count + height - 1) // height
        final = block.eq(scope.size(blocks) - 1)
        last = b.select(final, end, b.min(first + tiles, end))
        for candidate in self.heights:
            start = b.select(height.eq(candidate), first, last)
            yield Span(candidate, start, last, partial(_overlapping, b, candidate, count))

    def _known(self, scope: Scope, first: Expr, stop: Expr) -> Iterator[Span]:
        assert isinstance(self.count, int)
        b, tile, row = scope.b, 0, 0
        for height, tiles in split_rows(self.count, self.limit):
            begin, end = b.max(first, tile), b.min(stop, tile + tiles)
            shift = row - tile * height
            yield Span(height, begin, end, partial(_adjacent, height, shift))
            tile, row = tile + tiles, row + tiles * height


def _overlapping(b: FunctionBuilder, height: int, count: Expr, tile: Expr) -> Expr:
    return b.min(tile * height, count - height)


def _adjacent(height: int, shift: int, tile: Expr) -> Expr:
    return tile * height + shift
