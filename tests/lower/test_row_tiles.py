"""Every row is in some tile, at sizes known when compiling and at those that are not."""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from luban.core import dims
from luban.core.registers import few_heights
from luban.ir.node import Graph
from luban.lower.nest import Nest
from luban.lower.row_tiles import RowTiles, row_tiles, split_rows
from luban.lower.scope import Scope
from luban.lower.trace import Trace
from luban.tile.builder import FunctionBuilder
from luban.tile.evaluate import run


@given(st.integers(1, 500), st.integers(1, 16))
def test_known_rows_are_cut_evenly(count: int, tallest: int) -> None:
    parts = split_rows(count, tallest)
    assert sum(height * tiles for height, tiles in parts) == count
    assert sum(tiles for _, tiles in parts) == -(-count // tallest)
    assert max(h for h, _ in parts) - min(h for h, _ in parts) <= 1


def visits(tiles: RowTiles, count: int, each: int) -> list[int]:
    """How often each row is in a tile when every block has run; no tile may leave the rows."""
    b = FunctionBuilder("visit")
    scope = Scope(b, Graph("none", (), ()), Nest(Trace({}), [], []))
    seen = b.pointer("seen", "i64")
    blocks = dims.maximum(dims.ceil_div(tiles.num_tiles, each), 1)
    for span in tiles.spans(scope, b.program_id(), each):
        with b.for_(span.first, span.last, 1) as loop:
            place = span.row(loop.index)
            b.store(seen, place, b.load(seen, place, (span.height,)) + 1)
            loop.yield_()
    found = np.zeros(count, np.int64)
    sizes = {"n": count}
    values: list[Any] = [sizes["n"] if not isinstance(a, int) else a for a in scope.arguments]
    run(b.finish_module(), [found, *values], dims.evaluate(blocks, sizes), check=True)
    return found.tolist()


@pytest.mark.parametrize("limit", [1, 6, 8])
@pytest.mark.parametrize("each", [1, 3])
def test_every_row_once(limit: int, each: int) -> None:
    for count in (0, 1, 5, 6, 7, 8, 9, 15, 16, 17, 40):
        assert visits(row_tiles(dims.symbol("n"), limit), count, each) == [1] * count
        assert visits(RowTiles(count, limit), count, each) == [1] * count


def test_few_heights_cover_every_row_once() -> None:
    for count in (0, 1, 2, 5, 7, 13, 14, 15, 29, 43):
        tiles = RowTiles(dims.symbol("n"), 14, few_heights(14))
        assert visits(tiles, count, 2) == [1] * count


@pytest.mark.parametrize(("step", "limit"), [(7, 14), (2, 6), (3, 12), (4, 14), (14, 14)])
def test_heights_for_multiples_cover_every_row_once(step: int, limit: int) -> None:
    """Fewer heights, as what remains behind full tiles is a multiple too."""
    tiles = row_tiles(dims.symbol("n") * step * 5, limit)
    assert tiles.heights in ((), few_heights(limit, gcd(step, limit)))
    assert len(tiles.heights) < len(few_heights(limit))
    for count in range(0, 20 * step, step * 5):
        assert visits(tiles, count, 2) == [1] * count


@pytest.mark.parametrize(("size", "limit", "height"), [(49, 8, 7), (196, 14, 14), (16, 6, 4)])
def test_counts_with_a_fair_divisor_need_one_height(size: int, limit: int, height: int) -> None:
    tiles = row_tiles(dims.symbol("n") * size, limit)
    assert (tiles.limit, tiles.heights) == (height, ())


def test_counts_without_one_need_several() -> None:
    assert row_tiles(dims.symbol("n") * 7, 6).heights == few_heights(6)
