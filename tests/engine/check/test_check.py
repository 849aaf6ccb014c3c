"""Planted bugs: each is found without help, named rightly, and its repro fails alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from luban.codegen import llvm
from luban.core.errors import LubanError, OptionError
from luban.engine import check as checking
from luban.engine import kernels, pipeline, prepare
from luban.engine import plan_buffers as planning
from luban.engine.check import CheckReport, check, check_graph
from luban.engine.check.bound import judge
from luban.engine.check.repro import write_repro
from luban.engine.check.runtimes import check_runtime
from luban.frontend.onnx import import_model
from luban.graph import build as g
from luban.graph.evaluate import evaluate_node
from luban.graph.ops.elementwise import BINARY
from luban.ir.node import Graph, Node
from luban.ir.rewrite import rule
from luban.lower import emit as emitting
from luban.native.target import default_target
from luban.passes import memory, simplify
from luban.passes.fuse import fuse
from tests.programs import PROGRAMS, inputs_for, p

Monkey = pytest.MonkeyPatch


@pytest.mark.parametrize("columns", [8, 40])
def test_fast_numerics_are_inside_their_own_bound(columns: int) -> None:
    """The small product is folded to bf16 when compiling, the large one is packed at load."""
    x = p("x", "n", 600)
    weights = np.random.default_rng(0).standard_normal((600, columns)).astype(np.float32)
    graph = Graph("dense", (x,), (g.matmul(g.tanh(x), g.constant(weights)),))
    values = [np.random.default_rng(1).standard_normal((5, 600)).astype(np.float32)]
    strict = check_graph(graph, values).outputs[0].verdict
    fast = check_graph(graph, values, numerics="fast")
    assert fast.ok, fast
    if kernels.registers_of(default_target(), numerics="fast").pair_products:
        assert fast.outputs[0].verdict.error > 100 * strict.bound


def norm_graph() -> Graph:
    return next(q for q in PROGRAMS if q.name == "residual_norm").graph()


def checked(graph: Graph, sizes: dict[str, int] | None = None, **options: Any) -> CheckReport:
    return check_graph(graph, inputs_for(graph, sizes or {"n": 5}), threads=1, **options)


@pytest.mark.parametrize("program", PROGRAMS[:12], ids=str)
def test_no_false_alarm(program: Any) -> None:
    graph = program.graph()
    found = check_graph(graph, inputs_for(graph, program.sizes[0]), threads=2)
    assert found.ok, found
    assert found.layers


def test_a_wrong_rule_is_found_by_bisection(monkeypatch: Monkey) -> None:
    @rule(BINARY["multiply"])
    def halve_it(n: Node) -> Node | None:
        """x * 3 -> x + x (wrong)"""
        return g.add(n.operands[0], n.operands[0]) if simplify.is_number(n.operands[1], 3) else None

    x = p("x", "n")
    graph = Graph("tripled", (x,), (g.multiply(g.add(g.power(x, 1.0), -0.0), 3.0),))
    monkeypatch.setattr(simplify, "RULES", (*simplify.RULES, halve_it))
    finding = checked(graph).finding
    assert finding is not None
    assert finding.level == "pass"
    assert finding.culprit == "simplify: rule halve_it (x * 3 -> x + x (wrong))"
    assert "multiply : f32[n] became add : f32[n]" in finding.detail


def test_a_wrong_constant_fold_is_found(monkeypatch: Monkey) -> None:
    right = evaluate_node

    def wrong(n: Node, *rest: Any) -> Any:
        value = right(n, *rest)
        return value + 1 if n.op.name == "exp" else value

    x = p("x", 3)
    graph = Graph("folded", (x,), (g.add(x, g.exp(g.constant([1.0, 2.0, 3.0], "f32"))),))
    monkeypatch.setattr(prepare, "evaluate_node", wrong)
    finding = checked(graph).finding
    assert finding is not None
    assert (finding.level, finding.culprit) == ("pass", "fold: exp : f32[3]")


def test_a_wrong_fusion_is_found(monkeypatch: Monkey) -> None:
    right = fuse

    def wrong(graph: Graph, *rest: Any) -> Any:
        negated = tuple(g.negative(result) for result in graph.results)
        return right(Graph(graph.name, graph.parameters, negated), *rest)

    x = p("x", "n")
    monkeypatch.setattr(pipeline, "fuse", wrong)
    finding = checked(Graph("kept", (x,), (g.exp(x),))).finding
    assert finding is not None
    assert finding.level == "pass"
    assert finding.culprit.startswith("fuse")


def test_a_lowering_that_misses_the_tail_is_blamed_on_the_lowering(monkeypatch: Monkey) -> None:
    right = emitting.empty_value
    monkeypatch.setattr(emitting, "empty_value", lambda kind, dtype: right(kind, dtype) + 1)
    finding = checked(norm_graph()).finding
    assert finding is not None
    assert finding.level == "lowering"
    assert "the tile program gives the wrong result too" in finding.detail


def test_a_wrong_code_generator_is_blamed_on_the_code_generator(
    monkeypatch: Monkey, tmp_path: Path
) -> None:
    def wrong(*given: Any) -> tuple[str, str]:
        symbol, text = llvm.emit_named(*given)
        return symbol, text.replace("fsub", "fadd")

    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernels, "emit_named", wrong)
    finding = checked(norm_graph()).finding
    assert finding is not None
    assert finding.level == "code generation"
    assert "its machine code does not" in finding.detail


def test_an_overlapping_memory_plan_is_found(monkeypatch: Monkey) -> None:
    def overlapping(buffers: Any) -> memory.MemoryPlan:
        plan = memory.plan_memory(buffers)
        return replace(plan, offsets=(0,) * len(plan.offsets))

    a, b = p("a", 8, 8), p("b", 8, 8)
    first, second = g.matmul(a, b), g.matmul(b, a)
    graph = Graph("two", (a, b), (g.matmul(first, second),))
    monkeypatch.setattr(planning, "plan_memory", overlapping)
    finding = checked(graph).finding
    assert finding is not None
    assert finding.level == "memory plan"


def test_nan_in_one_lane_is_found() -> None:
    right = np.ones(40, np.float32)
    wrong = right.copy()
    wrong[37] = np.nan
    verdict = judge(wrong, right.astype(np.float64), right)
    assert str(verdict) == "NaN or infinity out of place: element [37] is nan, expected 1.0"


def test_sizes_that_rounding_decides_have_no_bound() -> None:
    verdict = judge(np.ones(5, np.float32), np.ones(6), np.ones(5, np.float32))
    assert verdict.ok
    assert verdict.bound == float("inf")


def test_the_repro_fails_alone_and_passes_without_the_bug(
    monkeypatch: Monkey, tmp_path: Path
) -> None:
    right = emitting.empty_value
    script = tmp_path / "repro.py"
    with monkeypatch.context() as patch:
        patch.setattr(emitting, "empty_value", lambda kind, dtype: right(kind, dtype) + 1)
        found = checked(norm_graph(), repro=script)
    assert found.repro == str(script)
    text = script.read_text()
    assert "run      python repro.py" in text
    healthy = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert healthy.returncode == 0, healthy.stdout + healthy.stderr
    plant = (
        "from luban.lower import emit\nright = emit.empty_value\n"
        "emit.empty_value = lambda kind, dtype: right(kind, dtype) + 1\n"
    )
    script.write_text(text.replace("import sys\n", "import sys\n" + plant, 1))
    sick = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert sick.returncode == 1
    assert "lowering: kernel" in sick.stdout


def test_a_repro_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(LubanError, match="cannot be written"):
        write_repro(tmp_path / "none" / "repro.py", norm_graph(), [], "title", "command")


def model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], "first"),
        helper.make_node("Tanh", ["product"], ["warm"], "second"),
        helper.make_node("Add", ["warm", "w"], ["y"], "third"),
    ]
    w = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 4])],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_onnx_runtime_passes_on_a_small_model() -> None:
    found = check(model(), runtime="onnxruntime")
    assert found.ok, found
    assert [layer.name for layer in found.layers] == ["product", "warm", "y"]


def test_another_runtime_gets_weights_that_lie_outside(tmp_path: Path) -> None:
    """Large weights of a file, and external ones, are not in the model that the front end keeps."""
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 64])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    opset = [helper.make_opsetid("", 20)]
    large = helper.make_model(graph, opset_imports=opset, ir_version=10)
    inside, outside = tmp_path / "inside.onnx", tmp_path / "outside.onnx"
    onnx.save(large, inside)
    onnx.save(large, outside, save_as_external_data=True, location="w.bin")
    for path in (inside, outside):
        found = check(path, runtime="onnxruntime")
        assert found.ok, found


def run_wrong(bad: str) -> Callable[..., list[Any]]:
    def run(content: bytes, names: Any, inputs: Any) -> list[Any]:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        results = session.run(list(names), dict(inputs))
        return [r + 0.01 if name == bad else r for name, r in zip(names, results, strict=True)]

    return run


def test_a_wrong_node_of_another_runtime_is_named() -> None:
    inputs = {"x": np.eye(4, dtype=np.float32)}
    imported = import_model(model())
    _, _, finding, _ = check_runtime("fake", imported, model(), inputs, run_wrong("warm"))
    assert finding is not None
    assert (finding.level, finding.culprit) == ("runtime", "Tanh second")


def test_an_error_that_exposing_hides_is_said_to_be_one(monkeypatch: Monkey) -> None:
    inputs = {"x": np.eye(4, dtype=np.float32)}
    imported = import_model(model())
    honest, lying = run_wrong(""), run_wrong("y")

    def run(content: bytes, names: Any, values: Any) -> list[Any]:
        untouched = list(names) == ["y"]
        return (lying if untouched else honest)(content, names, values)

    _, _, finding, notes = check_runtime("fake", imported, model(), inputs, run)
    assert finding is not None
    assert finding.culprit == "output y"
    assert "needs the runtime's own optimisation" in notes[0]


def test_unknown_runtimes_and_graphs_for_others_are_refused() -> None:
    with pytest.raises(OptionError, match="unknown runtime 'abacus'"):
        check(model(), runtime="abacus")
    with pytest.raises(OptionError, match="cannot run a graph"):
        check(norm_graph(), [np.zeros((1, 37), np.float32)] * 3, runtime="onnxruntime")


def test_the_report_is_plain_data_and_text() -> None:
    x = p("x", "n")
    found = checked(Graph("exp", (x,), (g.exp(x),)))
    assert found.to_json()["ok"] is True
    assert str(found) == "exp: 1 layers checked against float64, all inside the bound"
    assert checking.CheckReport is CheckReport


def test_an_output_whose_size_hangs_on_rounding_is_said_not_to_be_compared() -> None:
    """1 + 1e-9 - 1 is 0 in float32 and 1e-9 in float64: so is the number of values that are not 0.

    The same note is printed once.
    """
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n] x, float[n] y) => (int64[1, k] z) '
        "{ a = Add(x, y) b = Sub(a, x) z = NonZero(b) }"
    )
    inputs = {"x": np.ones(3, np.float32), "y": np.array([1e-9, 0, 1], np.float32)}
    found = check(onnx.parser.parse_model(text), inputs)
    assert found.ok, found
    (note,) = found.notes
    assert note == (
        "output 'z' is not compared as a whole: rounding decides its size, which is [1, 1] here, "
        "[1, 1] by the plain evaluation and [1, 2] in float64"
    )
    found.notes.append(note)
    assert str(found).count(note) == 1
