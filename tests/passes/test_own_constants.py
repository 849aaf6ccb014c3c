"""Captured constants move into the bodies that use them; what is computed outside stays there."""

from __future__ import annotations

import numpy as np
import pytest

from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.control import If, Loop, Scan, sub_graphs
from luban.graph.ops.data import Constant
from luban.ir.node import Graph, Node, node, results_of
from luban.passes.own_constants import own_constants
from tests.programs import p

WEIGHT = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)


def scan_of(weight: Node, *inputs: Node) -> Graph:
    """x = x @ w + slice, with a captured weight."""
    x, row, w = p("x", 2, 4), p("row", 2, 4), p("w", 4, 4)
    new = g.add(g.matmul(x, w), row)
    scan = Scan(Graph("body", (x, row, w), (new, new)), 1, (0,), (False,), (0,), (False,))
    start, rows = p("start", 2, 4), p("rows", "time", 2, 4)
    return Graph("scan", (start, rows, *inputs), results_of(node(scan, start, rows, weight)))


def given(graph: Graph) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    shapes = (q.tensor.resolve({"time": 3}) for q in graph.parameters)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


def control(graph: Graph) -> Node:
    (found,) = [n for n in graph.nodes() if sub_graphs(n.op)]
    return found


def same(before: Graph, after: Graph) -> None:
    inputs = given(before)
    for a, b in zip(evaluate(after, inputs), evaluate(before, inputs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_computed_from_constants_moves_with_them() -> None:
    graph = scan_of(g.transpose(g.constant(WEIGHT), (1, 0)))
    after, decisions = own_constants(graph)
    scan = control(after)
    assert isinstance(scan.op, Scan)
    assert len(scan.operands) == len(scan.op.body.parameters) == 2
    assert any(isinstance(n.op, Constant) for n in scan.op.body.nodes())
    assert [d.reason for d in decisions] == ["1 captured constants become its own"]
    same(graph, after)


def test_an_input_stays_outside() -> None:
    weight = p("weight", 4, 4)
    graph = scan_of(g.transpose(weight, (1, 0)), weight)
    after, decisions = own_constants(graph)
    assert after.results == graph.results
    assert not decisions


@pytest.mark.parametrize("taken", [False, True])
def test_both_branches_and_the_loop_inside_one_get_it(taken: bool) -> None:
    turn, go_on, x, w = p("turn", dtype="i64"), p("go_on", dtype="bool"), p("x", 4, 4), p("w", 4, 4)
    body = Graph("body", (turn, go_on, x, w), (go_on, g.matmul(x, w)))
    a, b = p("a", 4, 4), p("b", 4, 4)
    limit, yes = g.constant(3, "i64"), g.constant(True, "bool")
    looped = results_of(node(Loop(body, 1, (x.type,)), limit, yes, a, b))
    then = Graph("then", (a, b), looped)
    otherwise = Graph("otherwise", (a, b), (g.add(a, b),))
    start = p("start", 4, 4)
    predicate = g.less(g.reduce("sum", g.multiply(start, start), (0, 1)), 1e9 if taken else 0.0)
    choice = node(If(then, otherwise, (a.type,)), predicate, start, g.constant(WEIGHT))
    graph = Graph("choice", (start,), results_of(choice))
    after, _ = own_constants(graph)
    found = control(after)
    assert isinstance(found.op, If)
    assert len(found.operands) == 2
    inner = control(found.op.then)
    assert len(inner.operands) == 3
    same(graph, after)
