"""Panel widths and tile heights for the register files we know."""

from __future__ import annotations

import pytest

from luban.core.dims import symbol
from luban.core.registers import Registers

EVERY = [Registers(64, 32), Registers(32, 16), Registers(16, 32), Registers(16, 16)]


@pytest.mark.parametrize("registers", EVERY, ids=str)
def test_sums_panel_and_one_operand_fit(registers: Registers) -> None:
    for rows, vectors in registers.tiles:
        assert rows * vectors + vectors + 1 <= registers.count
        assert registers.tile_rows(vectors * registers.lanes(4), 4) == rows


def test_little_padding_behind_the_last_column() -> None:
    registers = Registers(64, 32)
    assert [registers.panel_width(n, 4) for n in (16, 32, 96, 512, 1000)] == [16, 32, 48, 64, 48]


def test_columns_known_at_run_time_get_the_widest_panel() -> None:
    assert Registers(64, 32).panel_width(symbol("n"), 4) == 64


def test_rows_that_share_cache_sets_get_low_tiles() -> None:
    registers = Registers(64, 32)
    assert registers.panel_width(512, 4, rows=7, depth=4608, row_step=100) == 32
    assert registers.panel_width(512, 4, rows=7, depth=4608, row_step=1024) == 48


def test_f64_has_half_the_lanes() -> None:
    assert Registers(32, 16).panel_width(96, 8) == 12
    assert Registers(32, 16).lanes(2) == 8
