"""Scans that run without Python, and those that stay there with a reason."""

from __future__ import annotations

import numpy as np
import pytest

from luban.engine.compile import compile_graph
from luban.engine.steps import HostStep, Recurrence
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.control import Scan
from luban.ir.node import Graph, Node, node, results_of
from tests.engine.on_host import on_host
from tests.programs import p


def recurrence(
    *, reverse: bool = False, host: bool = False, stack: tuple[str, ...] = ("state",)
) -> Graph:
    """h = tanh(h @ w + x[t]); count = count + 1; stacks what `stack` names."""
    h, count = p("h", "batch", 4), p("count", dtype="i64")
    x, w = p("slice", "batch", 4), p("w", 4, 4)
    new = g.tanh(g.add(g.matmul(h, w), x))
    if host:
        new = on_host(new)
    named = {"state": new, "old": h, "input": x, "double": g.multiply(new, 2.0)}
    stacked = tuple(named[name] for name in stack)
    body = Graph("body", (h, count, x, w), (new, g.add(count, 1), *stacked))
    scan = Scan(body, 2, (0,), (reverse,), (0,) * len(stack), (reverse,) * len(stack))
    start, counter = p("start", "batch", 4), p("counter", dtype="i64")
    sequence, weights = p("sequence", "time", "batch", 4), p("weights", 4, 4)
    results = results_of(node(scan, start, counter, sequence, weights))
    last: Node = g.multiply(results[2], 3.0)
    return Graph("rnn", (start, counter, sequence, weights), (*results, last))


def inputs(time: int, batch: int = 3) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [
        random.standard_normal((batch, 4)).astype(np.float32),
        np.asarray(5, np.int64),
        random.standard_normal((time, batch, 4)).astype(np.float32),
        random.standard_normal((4, 4)).astype(np.float32),
    ]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "stack", [("state",), ("old",), ("input",), ("state", "state"), ("double", "old", "state")]
)
def test_turns_are_launches_and_equal_the_meaning(reverse: bool, stack: tuple[str, ...]) -> None:
    graph = recurrence(reverse=reverse, stack=stack)
    compiled = compile_graph(graph, num_threads=2)
    assert any(isinstance(s, Recurrence) for s in compiled.executor.program.steps)
    assert len(compiled.executor.stages) == 1
    for time in (7, 1, 2, 0, 7):
        given = inputs(time)
        for a, b in zip(compiled.executor.run(given), evaluate(graph, given), strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, atol=1e-5)


def test_inputs_are_not_written_to() -> None:
    graph = recurrence()
    given = inputs(5)
    before = [x.copy() for x in given]
    compile_graph(graph).executor.run(given)
    for a, b in zip(given, before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_body_with_a_host_step_is_driven_from_python_with_the_reason() -> None:
    graph = recurrence(host=True)
    compiled = compile_graph(graph)
    (step,) = [s for s in compiled.executor.program.steps if isinstance(s, HostStep)]
    assert step.reason == "scan is driven from Python: its body has a step on the host: test_same"
    given = inputs(4)
    for a, b in zip(compiled.executor.run(given), evaluate(graph, given), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_without_separate_results_it_still_runs() -> None:
    graph = recurrence(stack=("old",))
    compiled = compile_graph(graph, without=["separate"])
    (step,) = [s for s in compiled.executor.program.steps if isinstance(s, HostStep)]
    assert "has no memory of its own" in step.reason
    given = inputs(4)
    for a, b in zip(compiled.executor.run(given), evaluate(graph, given), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
