"""Loops, branches and calls against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from luban.codegen import emit
from luban.native.target import host_target
from luban.tile import Function, FunctionBuilder, tile_type
from tests.codegen.harness import check, interesting


def summing(unroll: int, bounds: tuple[int, int, int] | None = None) -> Function:
    """A carried tile and a carried scalar over a loop with dynamic or static bounds."""
    b = FunctionBuilder("summing")
    x, y, counts = b.pointer("x", "f32"), b.pointer("y", "f32"), b.pointer("counts", "i64")
    low, high, step = b.scalar("low"), b.scalar("high"), b.scalar("step")
    limits = bounds or (low, high, step)
    start = [b.full((2, 12), 1.0, "f32"), b.constant(0)]
    with b.for_(*limits, carried=start, unroll=unroll) as loop:
        total, count = loop.carried
        loop.yield_(total * 0.5 + b.load(x, loop.index * 4, (2, 12)), count + loop.index)
    b.store(y, 0, loop.results[0])
    b.store(counts, 0, loop.results[1])
    return b.finish()


@pytest.mark.parametrize("unroll", [1, 2, 4])
@pytest.mark.parametrize(
    "bounds", [(0, 7, 1), (3, 3, 1), (5, 2, 1), (0, 8, 3), (2, 3, 9), (0, 16, 1)]
)
@pytest.mark.parametrize("static", [True, False])
def test_for(unroll: int, bounds: tuple[int, int, int], static: bool) -> None:
    program = summing(unroll, bounds if static else None)
    data = [interesting("f32", 128), np.zeros(24, np.float32), np.zeros(1, np.int64)]
    check(program, [*data, *bounds])


def test_nested_loops_and_invariant_addresses() -> None:
    b = FunctionBuilder("nested")
    x, y, m, n = b.pointer("x", "f32"), b.pointer("y", "f32"), b.scalar("m"), b.scalar("n")
    with b.for_(0, m, 1) as rows:
        with b.for_(0, n, 4, carried=[b.full((4,), 0.0, "f32")], unroll=2) as columns:
            (total,) = columns.carried
            at = rows.index * n + columns.index
            columns.yield_(total + b.load(x, at, (4,)) + b.load(x, at + n, (4,)))
        b.store(y, rows.index * 4, columns.results[0])
        with b.if_(rows.index > 1) as branch, branch.then():
            b.store(y, rows.index * 4 + n, b.load(x, rows.index * n, (4,)))
    check(b.finish(), [interesting("f32", 256), np.zeros(64, np.float32), 5, 16])


def test_if_yields_tiles() -> None:
    b = FunctionBuilder("branches")
    x, y, n = b.pointer("x", "f32"), b.pointer("y", "f32"), b.scalar("n")
    value = b.load(x, 0, (12,))
    with b.if_(n > 3) as branch:
        with branch.then():
            branch.yield_(value * 2.0, n + 1)
        with branch.otherwise():
            branch.yield_(b.full((12,), 5.0, "f32"), n * 7)
    tile, number = branch.results
    b.store(y, 0, tile)
    b.store(y, 12, b.cast(number, "f32"))
    for given in (0, 3, 4):
        check(b.finish(), [interesting("f32", 12), np.zeros(13, np.float32), given])


def test_branch_inside_a_loop_inside_a_branch() -> None:
    b = FunctionBuilder("mixed")
    x, y, n = b.pointer("x", "i32"), b.pointer("y", "i32"), b.scalar("n")
    with b.if_(n > 0) as outer, outer.then():
        with b.for_(0, n, 1, carried=[b.full((8,), 0, "i32")]) as loop:
            (total,) = loop.carried
            with b.if_((loop.index % 2).eq(0)) as inner:
                with inner.then():
                    inner.yield_(total + b.load(x, loop.index, (8,)))
                with inner.otherwise():
                    inner.yield_(total - b.load(x, loop.index * 2, (8,)))
            loop.yield_(inner.results[0])
        b.store(y, n, loop.results[0])
    for given in (-1, 0, 1, 6):
        check(b.finish(), [interesting("i32", 64), np.zeros(32, np.int32), given])


def test_while() -> None:
    b = FunctionBuilder("collatz")
    x, y = b.pointer("x", "i64"), b.pointer("y", "i64")
    with b.while_([b.load(x, b.program_id()), b.constant(0)]) as loop:
        with loop.condition() as (value, _steps):
            loop.test(value > 1)
        with loop.body() as (value, steps):
            even = (value % 2).eq(0)
            loop.yield_(b.select(even, value // 2, value * 3 + 1), steps + 1)
    b.store(y, b.program_id(), loop.results[1])
    check(b.finish(), [np.arange(1, 31), np.zeros(30, np.int64)], 30)


def test_call_with_tiles_pointers_and_scratch() -> None:
    inner = FunctionBuilder("scaled_row", noinline=True)
    source = inner.pointer("source", "f32")
    at, factor = inner.scalar("at"), inner.tile_param("factor", tile_type("f32", 2, 12))
    area = inner.scratch("f32", 24)
    inner.store(area, 0, inner.load(source, at, (2, 12)) * factor)
    callee = inner.finish(inner.load(area, 0, (2, 12)), at + 5)

    b = FunctionBuilder("calls")
    x, y = b.pointer("x", "f32"), b.pointer("y", "f32")
    own = b.scratch("f32", 16)
    b.store(own, 0, b.full((16,), 9.0, "f32"))
    tile, after = b.call(callee, x, b.program_id(), b.full((2, 12), 3.0, "f32"))
    again, _ = b.call(callee, x, after, tile)
    b.store(y, b.program_id() * 40, again)
    b.store(y, b.program_id() * 40 + 24, b.load(own, 0, (16,)))
    module = b.finish_module()
    check(module, [interesting("f32", 64), np.zeros(80, np.float32)], 2)
    assert "@scaled_row.program(" in emit(module, host_target())


def test_text_is_deterministic() -> None:
    assert emit(summing(4), host_target()) == emit(summing(4), host_target())
