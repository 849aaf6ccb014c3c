"""Loops stop carrying what they never change, and mean the same."""

from __future__ import annotations

import numpy as np
import pytest

from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.control import Loop, Scan
from luban.graph.ops.data import Constant
from luban.ir.node import Graph, Node, node, results_of
from luban.passes.invariants import move_invariants
from tests.programs import p

WEIGHT = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)


def loop(*, constant: bool, changes: bool = False) -> Graph:
    """x = x @ w + b, five times; w and b are carried though they stay."""
    turn, go_on = p("turn", dtype="i64"), p("go_on", dtype="bool")
    x, w, b = p("x", 2, 4), p("w", 4, 4), p("b", 4)
    kept = g.add(w, 1.0) if changes else w
    body = Graph("body", (turn, go_on, x, w, b), (go_on, g.add(g.matmul(x, w), b), kept, b, x))
    start, bias = p("start", 2, 4), p("bias", 4)
    weight = g.constant(WEIGHT) if constant else p("weight", 4, 4)
    types = (x.type, w.type, b.type, p("s", "trips", 2, 4).type)
    limit, yes = g.constant(5, "i64"), g.constant(True, "bool")
    made = node(Loop(body, 3, types), limit, yes, start, weight, bias)
    inputs = (start, bias) if constant else (start, bias, weight)
    return Graph("loop", inputs, results_of(made))


def inputs(graph: Graph) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [
        random.standard_normal(q.tensor.static_shape).astype(np.float32) for q in graph.parameters
    ]


def the_loop(graph: Graph) -> Node:
    (found,) = [n for n in graph.nodes() if isinstance(n.op, (Loop, Scan))]
    return found


@pytest.mark.parametrize("constant", [False, True])
def test_unchanged_values_are_not_carried(constant: bool) -> None:
    graph = loop(constant=constant)
    after, decisions = move_invariants(graph)
    found = the_loop(after)
    assert isinstance(found.op, Loop)
    assert found.op.num_carried == 1
    assert [d.reason for d in decisions] == ["2 carried values never change"]
    inside = [n for n in found.op.body.nodes() if isinstance(n.op, Constant)]
    assert len(inside) == constant
    given = inputs(graph)
    for a, b in zip(evaluate(after, given), evaluate(graph, given), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_value_that_changes_stays_carried() -> None:
    graph = loop(constant=False, changes=True)
    after, _ = move_invariants(graph)
    found = the_loop(after)
    assert isinstance(found.op, Loop)
    assert found.op.num_carried == 2
    given = inputs(graph)
    for a, b in zip(evaluate(after, given), evaluate(graph, given), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_loop_that_changes_everything_is_left_alone() -> None:
    turn, go_on, x = p("turn", dtype="i64"), p("go_on", dtype="bool"), p("x", 3)
    body = Graph("body", (turn, go_on, x), (go_on, g.add(x, 1.0)))
    start = p("start", 3)
    made = node(Loop(body, 1, (x.type,)), g.constant(2, "i64"), g.constant(True, "bool"), start)
    graph = Graph("plain", (start,), results_of(made))
    after, decisions = move_invariants(graph)
    assert after.results == graph.results
    assert not decisions


def test_scans_too() -> None:
    h, w, x = p("h", 4), p("w", 4), p("x", 4)
    body = Graph("body", (h, w, x), (g.add(g.multiply(h, w), x), w, h))
    start, weight, sequence = p("start", 4), p("weight", 4), p("sequence", 6, 4)
    made = node(Scan(body, 2, (0,), (False,), (0,), (True,)), start, weight, sequence)
    graph = Graph("scan", (start, weight, sequence), results_of(made))
    after, _ = move_invariants(graph)
    found = the_loop(after)
    assert isinstance(found.op, Scan)
    assert found.op.num_carried == 1
    given = inputs(graph)
    for a, b in zip(evaluate(after, given), evaluate(graph, given), strict=True):
        np.testing.assert_array_equal(a, b)
