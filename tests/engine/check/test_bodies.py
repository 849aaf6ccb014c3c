"""Planted bugs inside loops, branches and scans: named with their place and turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from luban.codegen import llvm
from luban.engine import kernels, plan_control
from luban.engine.check import CheckReport, check_graph
from luban.engine.plan_code import Place
from luban.graph import build as g
from luban.graph.ops.control import If, Loop, Scan
from luban.graph.ops.elementwise import BINARY
from luban.ir.node import Graph, Node, node, results_of
from luban.ir.rewrite import rule
from luban.lower import emit as emitting
from luban.passes import simplify
from tests.engine.on_host import on_host
from tests.programs import p

Monkey = pytest.MonkeyPatch
X = np.linspace(0.5, 1.5, 37, dtype=np.float32)


def loop(*, host: bool = False, nested: bool = False, scale: float = 2.0) -> Graph:
    """x = x * scale - turn, four times, stacked; inside a branch of an outer loop if nested."""
    turn, go_on, x = p("t", dtype="i64"), p("c", dtype="bool"), p("x", 37)
    state = on_host(x) if host else x
    new = g.subtract(g.multiply(state, scale), g.cast(turn, "f32"))
    body = Graph("body", (turn, go_on, x), (go_on, new, new))
    start = p("start", 37)
    yes, four = g.constant(True, "bool"), g.constant(4, "i64")
    types = x.type, p("s", 4, 37).type
    if not nested:
        made = results_of(node(Loop(body, 1, types), four, yes, start))
        return Graph("loop", (start,), (*made, g.exp(g.multiply(made[0], 0.001))))
    a = p("a", 37)
    then = Graph("then", (a,), results_of(node(Loop(body, 1, types), four, yes, a))[:1])
    choice = If(then, Graph("otherwise", (a,), (g.add(a, 1.0),)), (a.type,))
    t, c, y = p("t2", dtype="i64"), p("c2", dtype="bool"), p("y", 37)
    picked = results_of(node(choice, g.less(g.constant(0, "i64"), t), y))[0]
    outer = Graph("outer", (t, c, y), (c, picked))
    made = results_of(node(Loop(outer, 1, (y.type,)), g.constant(3, "i64"), yes, start))
    return Graph("nested", (start,), tuple(made))


def sweep() -> Graph:
    """A running normalisation over rows."""
    h, row = p("h", 37), p("row", 37)
    total = g.reduce("sum", g.multiply(h, row), (0,), keep_axes=True)
    new = g.divide(g.add(h, row), g.add(g.multiply(total, total), 1.0))
    start, rows = p("start", 37), p("rows", "n", 37)
    scan = Scan(Graph("body", (h, row), (new, new)), 1, (0,), (False,), (0,), (False,))
    return Graph("sweep", (start, rows), results_of(node(scan, start, rows)))


def checked(graph: Graph, *inputs: Any, threads: int = 1) -> CheckReport:
    return check_graph(graph, list(inputs) or [X], threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_no_false_alarm_and_every_step_inside_is_a_layer(threads: int) -> None:
    for graph in (loop(), loop(host=True), loop(nested=True)):
        found = checked(graph, threads=threads)
        assert found.ok, found
        assert any("subtract" in layer.ops for layer in found.layers)
    rows = np.random.default_rng(0).standard_normal((6, 37)).astype(np.float32)
    found = checked(sweep(), X, rows, threads=threads)
    assert found.ok, found
    assert len(found.layers) >= 2


def plant_a_wrong_subtraction(monkeypatch: Monkey, tmp_path: Path) -> None:
    def wrong(*given: Any) -> tuple[str, str]:
        symbol, text = llvm.emit_named(*given)
        return symbol, text.replace("fsub", "fadd")

    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernels, "emit_named", wrong)


def test_a_wrong_kernel_in_a_body_is_named_with_its_turn(
    monkeypatch: Monkey, tmp_path: Path
) -> None:
    # x - 0 is right in turn 0 whatever the sign.
    plant_a_wrong_subtraction(monkeypatch, tmp_path)
    finding = checked(loop()).finding
    assert finding is not None
    assert finding.level == "code generation"
    assert finding.detail.startswith("in turn 1 of loop, ")
    assert "its machine code does not" in finding.detail


def test_the_path_leads_through_all_bodies(monkeypatch: Monkey, tmp_path: Path) -> None:
    plant_a_wrong_subtraction(monkeypatch, tmp_path)
    finding = checked(loop(nested=True)).finding
    assert finding is not None
    assert finding.detail.startswith("in turn 1 of loop, in then of if, in turn 1 of loop, ")


def test_a_wrong_lowering_in_a_scan_is_blamed_on_the_lowering(monkeypatch: Monkey) -> None:
    right = emitting.empty_value
    monkeypatch.setattr(emitting, "empty_value", lambda kind, dtype: right(kind, dtype) + 1)
    finding = checked(sweep(), X, np.ones((3, 37), np.float32)).finding
    assert finding is not None
    assert finding.level == "lowering"
    assert finding.detail.startswith("in turn 0 of scan, ")


def test_stacks_that_do_not_move_on_are_found(monkeypatch: Monkey) -> None:
    def stands_still(self: Any, inside: Any, first: Place, _backwards: int = 0) -> Any:
        return {inside.root: first}

    monkeypatch.setattr(plan_control._Loop, "rows", stands_still)
    finding = checked(loop()).finding
    assert finding is not None
    assert (finding.level, finding.culprit) == ("control flow", "loop")
    assert "result 1 has other bits than its turns give one by one" in finding.detail


def test_a_wrong_rule_is_bisected_inside_a_body(monkeypatch: Monkey) -> None:
    @rule(BINARY["multiply"])
    def halve_it(n: Node) -> Node | None:
        """x * 3 -> x + x (wrong)"""
        return g.add(n.operands[0], n.operands[0]) if simplify.is_number(n.operands[1], 3) else None

    monkeypatch.setattr(simplify, "RULES", (*simplify.RULES, halve_it))
    for nested in (False, True):
        finding = checked(loop(scale=3.0, nested=nested)).finding
        assert finding is not None
        assert finding.culprit == "simplify: rule halve_it (x * 3 -> x + x (wrong))"
        assert finding.detail.startswith("in body, multiply : f32[37] became add : f32[37]")
