"""Strips that a mask leaves out are not computed, and results stay the same to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from luban.core.registers import Registers
from luban.lower.blocks import lower_blocks
from luban.tile import Expr, Function, FunctionBuilder, Module
from luban.tile.block_ops import FoldKind
from luban.tile.memory_ops import For
from tests.lower.blocks.programs import check_lowering, numbers

INFINITY = float("inf")


def _program(kind: FoldKind, other: float, block: int = 512, shift: float = 0.0) -> Function:
    """Fold a masked row, keep exp of it, store it over its sum."""
    b = FunctionBuilder("row")
    x, total = b.pointer("x", "f32", access="read"), b.pointer("total", "f32", access="write")
    y = b.pointer("y", "f32")
    n = b.scalar("n", "i32")
    lanes = b.arange(block, "i32")
    mask = lanes < n
    where = b.cast(lanes, "i64")
    values = b.gather(x, where, mask=mask, other=other) + shift
    (found,) = b.fold(kind, [values], 0)
    b.scatter(total, 0, found)
    powers = b.unary("exp", values)
    (whole,) = b.fold("sum", [powers], 0)
    b.scatter(y, where, powers / whole, mask=mask)
    (again,) = b.fold("sum", [powers * 2.0 + 1.0], 0)
    b.scatter(total, 1, again)
    return b.finish()


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 200, 511, 512, 600])
@pytest.mark.parametrize(
    ("kind", "other", "shift"),
    [
        ("max", -INFINITY, 0.0),
        ("sum", 0.0, 0.0),
        ("sum", 0.0, 1.0),  # what is masked off counts: no strip may be left out
        ("sum", -0.0, 0.0),
        ("min", 5.0, 0.0),
        ("prod", 1.0, 0.0),
        ("maxnum", float("nan"), 0.0),
        ("max", float("nan"), 0.0),
    ],
)
def test_results_stay_the_same(kind: FoldKind, other: float, shift: float, n: int) -> None:
    x = numbers(max(n, 1)) if kind != "prod" else numbers(max(n, 1)) * 0 + 1.001
    arguments: list[Any] = [
        x.astype(np.float32),
        np.zeros(2, np.float32),
        np.zeros(600, np.float32),
        n,
    ]
    check_lowering(_program(kind, other, shift=shift), arguments, exact=False, rtol=3e-5)


def _dynamic_loops(function: Function) -> int:
    """Loops whose trip count only the run knows."""
    lowered = lower_blocks(Module.of(function), Registers(64, 32)).kernel
    constants = {o.result for o in lowered.operations() if o.op.name == "constant"}
    return sum(
        o.operands[1] not in constants for o in lowered.operations() if isinstance(o.op, For)
    )


def _fold_of(make: Any) -> Function:
    b = FunctionBuilder("fold")
    x, out = b.pointer("x", "f32", access="read"), b.pointer("out", "f32", access="write")
    n = b.scalar("n", "i32")
    lanes = b.arange(512, "i32")
    (found,) = b.fold("sum", [make(b, x, lanes, n)], 0)
    b.scatter(out, 0, found)
    return b.finish()


def test_masked_strips_are_left_out() -> None:
    def masked(b: FunctionBuilder, x: Expr, lanes: Expr, n: Expr) -> Expr:
        return b.gather(x, b.cast(lanes, "i64"), mask=(lanes < n) & (n > lanes))

    assert _dynamic_loops(_fold_of(masked)) == 1


@pytest.mark.parametrize("which", ["index", "no mask", "odd mask"])
def test_nothing_is_left_out_where_lanes_differ(which: str) -> None:
    def make(b: FunctionBuilder, x: Expr, lanes: Expr, n: Expr) -> Expr:
        where = b.cast(lanes, "i64")
        if which == "no mask":
            return b.gather(x, where)
        mask = (lanes % 2).eq(0) if which == "odd mask" else lanes < n
        found = b.gather(x, where, mask=mask)
        return found + b.cast(lanes, "f32") if which == "index" else found

    assert _dynamic_loops(_fold_of(make)) == 0


def test_rows_with_limits_of_their_own() -> None:
    b = FunctionBuilder("triangle")
    x, y = b.pointer("x", "f32", access="read"), b.pointer("y", "f32", access="write")
    row, column = b.reshape(b.arange(16), (16, 1)), b.reshape(b.arange(256), (1, 256))
    where = row * 256 + column
    values = b.gather(x, where, mask=b.broadcast(column <= row * 16, (16, 256)))
    results: Sequence[Expr] = b.fold("sum", [values], 1)
    b.scatter(y, b.arange(16), results[0])
    data = numbers(16, 256)
    _, found = check_lowering(b.finish(), [data.reshape(-1), np.zeros(16, np.float32)])
    wanted = [data[i, : i * 16 + 1].sum() for i in range(16)]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
