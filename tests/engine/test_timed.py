"""Each kernel's time and runs, inside loops and branches too; a timed call computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luban.engine.compile import Compiled, compile_graph
from luban.engine.executor import _Runner
from luban.engine.plan import Spent
from luban.engine.steps import Branch, Launch, LinkedKernel, Recurrence, Repeat, Step, bodies_of
from luban.graph import build as g
from luban.graph.ops.control import Scan
from luban.ir.node import Graph, Node, node, results_of
from tests.engine.test_native_control import choice, search, search_inputs
from tests.programs import p


def launches(step: Step) -> list[Launch]:
    return [s for body in bodies_of(step) for s in body.steps if isinstance(s, Launch)]


def runs(compiled: Compiled, inputs: list[Any]) -> dict[LinkedKernel, int]:
    """Runs of each kernel; every time is positive, and a kernel that did not run has 0."""
    found = compiled.executor.timed()(inputs)
    assert all((spent.ns > 0) == (spent.runs > 0) for spent in found.kernels.values())
    return {kernel: spent.runs for kernel, spent in found.kernels.items()}


def same_as_untimed(compiled: Compiled, inputs: list[Any]) -> None:
    timed = _Runner(compiled.executor, timed=True)
    for _ in range(2):
        for a, b in zip(timed.run(inputs, {}, ()), compiled.executor.run(inputs), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_plain_program_runs_each_kernel_once(threads: int) -> None:
    x = p("x", "n", 64)
    hidden = g.matmul(x, g.constant(np.ones((64, 32), np.float32), "f32"))
    compiled = compile_graph(Graph("plain", (x,), (g.exp(hidden),)), num_threads=threads)
    found = compiled.executor.timed()([np.ones((9, 64), np.float32)])
    assert {spent.runs for spent in found.kernels.values()} == {1}
    assert found.sizes == {"n": 9}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("limit", [0, 3, 100])
def test_kernels_of_a_loop_count_its_turns(threads: int, limit: int) -> None:
    compiled = compile_graph(search(), num_threads=threads)
    inputs = search_inputs(limit, 1e4)
    (loop,) = [s for s in compiled.executor.program.steps if isinstance(s, Repeat)]
    trips = len(compiled.executor.run(inputs)[2])
    found = runs(compiled, inputs)
    assert {found[s.kernel] for s in launches(loop)} == {trips}
    same_as_untimed(compiled, inputs)


def test_only_the_branch_that_is_taken_takes_time() -> None:
    compiled = compile_graph(choice(), num_threads=1)
    (branch,) = [s for s in compiled.executor.program.steps if isinstance(s, Branch)]
    square = np.eye(4, dtype=np.float32)
    for sign, taken, other in ((-1.0, branch.then, branch.otherwise),
                               (1.0, branch.otherwise, branch.then)):  # fmt: skip
        inputs = [np.asarray(sign, np.float32), square, square]
        found = runs(compiled, inputs)
        kernels = [{s.kernel for s in b.steps if isinstance(s, Launch)} for b in (taken, other)]
        assert {found[k] for k in kernels[0]} == {1}
        assert {found[k] for k in kernels[1] - kernels[0]} <= {0}
        same_as_untimed(compiled, inputs)


def both_ways() -> Graph:
    """Two recurrences that may run side by side: h = tanh(h @ w + x), from either end."""
    state, part, w = p("h", 8), p("t", 8), p("w", 8, 8)
    product = g.reshape(g.matmul(g.reshape(state, (1, 8)), w), (8,))
    new = g.tanh(g.add(product, part))
    body = Graph("body", (state, part, w), (new, new))
    x, start, weights = p("x", "n", 8), p("start", 8), p("weights", 8, 8)
    ends: list[Node] = []
    for reverse in (False, True):
        scan = Scan(body, 1, (0,), (reverse,), (0,), (reverse,))
        ends += results_of(node(scan, start, x, weights))
    return Graph("both", (x, start, weights), tuple(ends))


@pytest.mark.parametrize("threads", [1, 2])
def test_what_runs_side_by_side_is_timed_one_after_the_other(threads: int) -> None:
    compiled = compile_graph(both_ways(), num_threads=threads)
    scans = [s for s in compiled.executor.program.steps if isinstance(s, Recurrence)]
    assert len(scans) == 2
    random = np.random.default_rng(2)
    inputs: list[Any] = [random.standard_normal(s).astype(np.float32) for s in ((7, 8), 8, (8, 8))]
    found = runs(compiled, inputs)
    assert {found[s.kernel] for scan in scans for s in launches(scan)} <= {7, 14}
    same_as_untimed(compiled, inputs)


def test_times_add_up() -> None:
    assert Spent(2.0, 1, 1) + Spent(3.0, 4, 2) == Spent(5.0, 5, 2)
