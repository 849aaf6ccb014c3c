"""Kernels held against made-up clocks and machines: limits, bounds, totals, groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from luban.core.hardware import Hardware, Level, Limits
from luban.engine.compile import Compiled, compile_graph
from luban.engine.executor import CallTimes
from luban.engine.plan import Spent
from luban.engine.timed_calls import Calls, fastest_possible, timed_calls
from luban.graph import build as g
from luban.ir.node import Graph
from luban.profiler.roofline import Roofline, judged
from tests.engine.test_native_control import search, search_inputs
from tests.programs import p

LEVELS = (Level("L2", 1 << 20, 100e9), Level("DRAM", None, 10e9))
ONE = Limits(1, {"f32": 10e9}, LEVELS, 1e-6)
MACHINE = Hardware("made up", "2026-01-01", (ONE,))
DEEP = 2 * 64 * 64 * 7  # operations of one product


@pytest.fixture(scope="module")
def layers() -> Compiled:
    """Two equal layers and one that only adds."""
    x = y = p("x", "n", 64)
    for number in (1, 2):
        weights = np.full((64, 64), number / 64, np.float32)
        y = g.maximum(g.matmul(y, g.constant(weights, "f32")), 0.0)
    return compile_graph(Graph("layers", (x,), (y, g.add(x, x))), num_threads=1)


def calls(compiled: Compiled, *times: dict[str, float], runs: int = 1) -> Calls:
    """Calls in which kernels took these microseconds, by operations inside; whole calls 100 us."""
    kernels = list(compiled.kernels.linked.items())
    steps = {s.kernel for s in compiled.executor.program.steps}  # type: ignore[union-attr]

    def of(n: Any, call: dict[str, float]) -> float:
        names = {m.op.name for m in n.op.body.nodes()}
        return next(us for name, us in call.items() if name in names)

    made = [
        CallTimes(
            {k: Spent(1e3 * of(n, call), runs, 1) for n, k in kernels if k in steps}, {"n": 7}
        )
        for call in times
    ]
    return Calls(made, [1e-4] * len(made))


def test_lines_say_time_rate_limit_and_bound(layers: Compiled) -> None:
    found = judged(layers, calls(layers, {"panel_dot": 20.0, "add": 5.0}), MACHINE)
    assert [line.time_s for line in found.lines] == pytest.approx([20e-6, 20e-6, 5e-6])
    product, _, addition = found.lines
    assert product.operations == product.definition == DEEP + 64 * 7
    assert product.limit_s == pytest.approx((DEEP + 64 * 7) / 10e9 + 1e-6)
    assert product.of_limit == pytest.approx(product.limit_s / 20e-6)
    assert product.gflop_s == pytest.approx((DEEP + 64 * 7) / 20e-6 / 1e9)
    assert product.bound == "compute"
    assert "f32[7,64]" in product.shapes
    assert addition.bound == "launch"
    assert addition.gb_s == pytest.approx(2 * 7 * 64 * 4 / 5e-6 / 1e9)
    assert sum(line.share for line in found.lines) == pytest.approx(1)
    assert found.bounds() == pytest.approx({"compute": 40 / 45, "launch": 5 / 45})


def test_a_slow_memory_becomes_the_bound(layers: Compiled) -> None:
    slow = Limits(1, {"f32": 1e15}, (Level("DRAM", None, 1e9),), 1e-9)
    found = judged(
        layers, calls(layers, {"panel_dot": 20.0, "add": 5.0}), Hardware("m", "d", (slow,))
    )
    assert {line.bound for line in found.lines} == {"DRAM"}
    assert found.lines[0].limit_s == pytest.approx(4 * (64 * 64 + 2 * 7 * 64) / 1e9, rel=1e-3)


def test_totals_are_those_of_the_call(layers: Compiled) -> None:
    found = judged(layers, calls(layers, {"panel_dot": 20.0, "add": 5.0}), MACHINE)
    assert (found.call_s, found.kernels_s) == pytest.approx((1e-4, 45e-6))
    assert found.of_limit == pytest.approx(found.limit_s / 1e-4)
    document = found.to_json()
    assert document["of_limit"] == found.of_limit
    assert [row["bound"] for row in document["kernels"]] == ["compute", "compute", "launch"]
    assert document["sizes"] == {"n": 7}


def test_equal_kernels_are_one_group(layers: Compiled) -> None:
    found = judged(layers, calls(layers, {"panel_dot": 20.0, "add": 5.0}), MACHINE)
    product, addition = found.grouped()
    assert (product.runs, addition.runs) == (2, 1)
    assert product.time_s == pytest.approx(40e-6)
    assert product.of_limit == pytest.approx(found.lines[0].of_limit)
    assert product.intensity == pytest.approx(found.lines[0].intensity)


def test_impossible_times_are_left_out(layers: Compiled) -> None:
    """The calling thread was put aside in one kernel, others did the next one meanwhile."""
    disturbed = {"panel_dot": 0.01, "add": 500.0}
    quiet = {"panel_dot": 21.0, "add": 6.0}
    found = judged(layers, calls(layers, disturbed, quiet, disturbed), MACHINE)
    assert [line.time_s for line in found.lines] == pytest.approx([21e-6, 21e-6, 6e-6])
    assert fastest_possible([3.0, 2.0, 5.0], 0.0) == 2.0


def test_kernels_of_a_loop_have_the_limit_of_all_runs() -> None:
    compiled = compile_graph(search(), num_threads=1)
    found = judged(compiled, timed_calls(compiled, search_inputs(5, 1e9), seconds=0.01), MACHINE)
    turns = [line for line in found.lines if line.runs == 5]
    assert turns
    assert all(line.limit_s >= 5e-6 for line in turns if line.bound != "unknown")


def test_whole_calls_and_kernels_are_timed_in_turns(layers: Compiled) -> None:
    marks: list[int] = []
    inputs = [np.ones((7, 64), np.float32)]
    found = timed_calls(layers, inputs, lambda: marks.append(1), seconds=0.01)
    assert len(marks) == 3
    assert len(found.kernels) == len(found.whole_s) >= 5
    line = judged(layers, found, MACHINE)
    assert isinstance(line, Roofline)
    assert 0 < line.call_s < 1


def test_kernels_that_run_side_by_side_share_the_limit_of_the_call(layers: Compiled) -> None:
    alone = judged(layers, calls(layers, {"panel_dot": 20.0, "add": 5.0}), MACHINE)
    assert replace(alone, threads=2).limit_s == pytest.approx(alone.limit_s / 2)


def test_a_disturbed_run_says_so(layers: Compiled) -> None:
    quiet = judged(layers, calls(layers, {"panel_dot": 20.0, "add": 5.0}), MACHINE)
    assert quiet.disturbed == ""
    slow = judged(layers, calls(layers, {"panel_dot": 20.0, "add": 5.0}), MACHINE, now=0.5)
    assert slow.disturbed == "this machine reached 50% of its peak"
    waited = replace(quiet, call_s=45e-4)
    assert waited.disturbed == "the fastest whole call took 100.0 times its kernels"
    assert replace(waited, host_steps=1).disturbed == ""
    assert waited.to_json()["disturbed"] == waited.disturbed


def test_memory_that_seemed_slow_makes_no_time_impossible(layers: Compiled) -> None:
    """Others took the memory while the machine was measured; one call was disturbed, too."""
    levels = (Level("L2", 1 << 10, 100e9), Level("DRAM", None, 1e7))
    slow = Hardware("m", "d", (Limits(1, {"f32": 10e9}, levels, 1e-9),))
    quiet, disturbed = {"panel_dot": 20.0, "add": 5.0}, {"panel_dot": 9e5, "add": 9e5}
    found = judged(layers, calls(layers, quiet, disturbed, quiet), slow)
    assert [line.time_s for line in found.lines] == pytest.approx([20e-6, 20e-6, 5e-6])
    assert found.lines[0].bound == "DRAM"
