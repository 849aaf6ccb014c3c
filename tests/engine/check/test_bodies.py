"""Planted bugs inside loops, branches and scans: named with their place and turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from luban.codegen import llvm
from luban.engine import kernels, plan_control
from luban.engine.check import CheckReport, check, check_graph
from luban.engine.check.runtime_bodies import captured_names, control_graphs
from luban.engine.check.runtimes import check_runtime
from luban.engine.plan_code import Place
from luban.frontend.onnx import import_model
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


def long_loop(turns: int, wrong: int | None = None) -> Graph:
    """x = x / 2 + 0.6 in many turns, and another step, with a floor, from turn `wrong` on."""
    turn, go_on, x = p("t", dtype="i64"), p("c", dtype="bool"), p("x", 37)
    late = g.greater_equal(turn, g.constant(turns if wrong is None else wrong, "i64"))
    step = g.select(late, g.floor(g.multiply(x, 0.3)), g.constant(0.6, "f32"))
    new = g.add(g.multiply(x, 0.5), step)
    body = Graph("body", (turn, go_on, x), (go_on, new))
    start, yes, count = p("start", 37), g.constant(True, "bool"), g.constant(turns, "i64")
    made = results_of(node(Loop(body, 1, (x.type,)), count, yes, start))
    return Graph("loop", (start,), tuple(made))


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


def test_of_a_long_loop_a_sample_of_turns_is_judged_and_the_report_says_so() -> None:
    found = checked(long_loop(100))
    assert found.ok, found
    (note,) = found.notes
    assert note == (
        "loop: 24 of 100 turns are held against float64, the first and the last among them; "
        "`--every-turn` (every_turn=True) takes all"
    )
    assert note in str(found)


def test_every_turn_is_judged_where_that_is_asked_for_or_there_are_few() -> None:
    assert not check_graph(long_loop(100), [X], threads=1, every_turn=True).notes
    assert not checked(long_loop(8)).notes


@pytest.mark.parametrize("first", [0, 33, 50, 98])
def test_the_first_wrong_turn_is_named_though_it_is_not_in_the_sample(
    monkeypatch: Monkey, tmp_path: Path, first: int
) -> None:
    def wrong(*given: Any) -> tuple[str, str]:
        symbol, text = llvm.emit_named(*given)
        return symbol, text.replace("llvm.floor", "llvm.ceil")

    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernels, "emit_named", wrong)
    finding = checked(long_loop(100, first)).finding
    assert finding is not None
    assert finding.detail.startswith(f"in turn {first} of loop, ")


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


def loop_model() -> onnx.ModelProto:
    """x = tanh(x @ w) + turn, three times; then an If whose branch uses w too."""

    def value(name: str, kind: int, shape: list[int]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"], "multiply"),
            helper.make_node("Tanh", ["product"], ["warm"], "warm_up"),
            helper.make_node("Cast", ["i"], ["turn"], "cast", to=TensorProto.FLOAT),
            helper.make_node("Add", ["warm", "turn"], ["x_out"], "move_on"),
        ],
        "body",
        [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []),
         value("x", TensorProto.FLOAT, [4, 4])],
        [value("c", TensorProto.BOOL, []), value("x_out", TensorProto.FLOAT, [4, 4])],
    )  # fmt: skip
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(kind, ["last", "w"], [f"{name}_out"], f"{name}_op")],
            name, [], [value(f"{name}_out", TensorProto.FLOAT, [4, 4])],
        )
        for name, kind in (("then", "Add"), ("else", "Sub"))
    }  # fmt: skip
    w = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    graph = helper.make_graph(
        [
            helper.make_node("Loop", ["three", "yes", "start"], ["last"], "looped", body=body),
            helper.make_node("ReduceSum", ["last"], ["sum"], "sum", keepdims=0),
            helper.make_node("Less", ["sum", "zero"], ["small"], "compare"),
            helper.make_node("If", ["small"], ["y"], "chosen", **branches),
        ],
        "controlled",
        [value("start", TensorProto.FLOAT, [4, 4])],
        [value("y", TensorProto.FLOAT, [4, 4])],
        [onnx.numpy_helper.from_array(w, "w"),
         onnx.numpy_helper.from_array(np.asarray(3, np.int64), "three"),
         onnx.numpy_helper.from_array(np.asarray(True), "yes"),
         onnx.numpy_helper.from_array(np.asarray(0, np.float32), "zero")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


class LyingRuntime:
    """ONNX Runtime with a wrong value of one name, from the given look at it on."""

    def __init__(self, bad: str, first: int = 0) -> None:
        self.bad, self.first, self.looks = bad, first, 0

    def __call__(self, content: bytes, names: Any, inputs: Any) -> list[Any]:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        results = list(session.run(list(names), dict(inputs)))
        if self.bad in names:
            if self.looks >= self.first:
                results[list(names).index(self.bad)] += 0.01
            self.looks += 1
        return results


def other(bad: str, first: int = 0) -> tuple[list[Any], Any]:
    start = {"start": np.eye(4, dtype=np.float32)}
    model = loop_model()
    runner = LyingRuntime(bad, first)
    layers, _, finding, _ = check_runtime("fake", import_model(model), model, start, runner)
    return layers, finding


def test_another_runtime_is_right_inside_bodies_too() -> None:
    layers, finding = other("")
    assert finding is None
    names = [layer.name for layer in layers]
    assert {"looped/product", "looped/warm", "last", "chosen/else_out", "y"} <= set(names)
    assert names.index("looped/warm") < names.index("last")


def test_a_wrong_node_in_a_body_of_another_runtime_is_named_with_its_turn() -> None:
    _, finding = other("warm")
    assert (finding.level, finding.culprit) == ("runtime", "Tanh warm_up")
    assert finding.detail.startswith("in turn 0 of looped, its output 'warm'")
    _, finding = other("warm", first=2)
    assert finding.detail.startswith("in turn 2 of looped, ")
    _, finding = other("else_out")
    assert finding.detail.startswith("in else_branch of chosen, its output 'else_out'")


def test_real_runtimes_pass_on_loops_and_branches() -> None:
    found = check(loop_model(), runtime="onnxruntime")
    assert found.ok, found


def test_scans_are_walked_by_their_axes_and_directions() -> None:
    def value(name: str, shape: list[int]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    body = helper.make_graph(
        [helper.make_node("Mul", ["h", "row"], ["h_out"], "times"),
         helper.make_node("Neg", ["h_out"], ["out"], "turned")],
        "body", [value("h", [3]), value("row", [3])], [value("h_out", [3]), value("out", [3])],
    )  # fmt: skip
    scan = helper.make_node(
        "Scan", ["h0", "rows"], ["last", "outs"], "swept",
        body=body, num_scan_inputs=1, scan_input_axes=[1], scan_input_directions=[1],
    )  # fmt: skip
    graph = helper.make_graph(
        [scan], "g", [value("h0", [3]), value("rows", [3, 5])],
        [value("last", [3]), value("outs", [5, 3])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    random = np.random.default_rng(0)
    inputs = {
        "h0": random.standard_normal(3).astype(np.float32),
        "rows": random.standard_normal((3, 5)).astype(np.float32),
    }
    found = check(model, inputs, runtime="onnxruntime")
    assert found.ok, found
    names = [layer.name for layer in found.layers]
    assert "swept/h_out" in names


def test_what_a_body_captures() -> None:
    loop_node, *_, if_node = loop_model().graph.node
    assert captured_names(control_graphs(loop_node)["body"]) == ["w"]
    assert captured_names(control_graphs(if_node)["then_branch"]) == ["last", "w"]
