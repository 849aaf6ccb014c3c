"""`if` and `loop` without Python: native steps that equal the meaning, and reasons where not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import luban
from luban.core.errors import LubanError, ShapeError
from luban.engine import executor as executing
from luban.engine.compile import Compiled, compile_graph
from luban.engine.steps import Branch, HostStep, Recurrence, Repeat, Step
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.control import If, Loop, Scan
from luban.graph.ops.reduce import Sort
from luban.ir.node import Graph, Node, node, results_of
from tests.engine.on_host import on_host
from tests.programs import p

Arrays = list[np.ndarray]


def total(x: Node) -> Node:
    return g.reduce("sum", x, tuple(range(x.tensor.rank)))


def search(*, host: bool = False, counted: bool = False) -> Graph:
    """x = x * 2 + turn while sum(x) < bound, at most `limit` times; stacks x and the turn."""
    turn, go_on, x, bound = p("t", dtype="i64"), p("c", dtype="bool"), p("x", "n"), p("b")
    new = g.add(g.multiply(x, 2.0), g.cast(turn, "f32"))
    if host:
        new = on_host(new)
    condition = go_on if counted else g.less(total(new), bound)
    body = Graph("body", (turn, go_on, x, bound), (condition, new, new, turn))
    limit, start, most = p("limit", dtype="i64"), p("start", "n"), p("most")
    trips = 4 if counted else "trips"
    stacks = p("s", trips, "n").type, p("u", trips, dtype="i64").type
    first = g.constant(True, "bool") if counted else g.less(total(start), most)
    at_most = g.constant(4, "i64") if counted else limit
    results = results_of(node(Loop(body, 1, (x.type, *stacks)), at_most, first, start, most))
    after = g.add(results[1], g.expand_dims(g.cast(results[2], "f32"), [1]))
    return Graph("search", (limit, start, most), (*results, after))


def choice(then_host: bool = False) -> Graph:
    """x @ x + y or x - y, by a sign."""
    x, y = p("x", "n", "n"), p("y", "n", "n")
    then = g.add(g.matmul(x, x), y)
    if then_host:
        then = on_host(then)
    operation = If(
        Graph("then", (x, y), (then, x)), Graph("otherwise", (x, y), (g.subtract(x, y), y)),
        (x.type, x.type),
    )  # fmt: skip
    sign, a, b = p("sign"), p("a", "n", "n"), p("b", "n", "n")
    results = results_of(node(operation, g.less(sign, 0.0), a, g.multiply(b, 2.0)))
    return Graph("choice", (sign, a, b), (*results, g.exp(results[0])))


def steps(compiled: Compiled, kind: type[Step]) -> list[Any]:
    return [s for s in compiled.executor.program.steps if isinstance(s, kind)]


def same(results: Sequence[Any], graph: Graph, inputs: Arrays, error: float = 1e-5) -> None:
    for a, b in zip(results, evaluate(graph, inputs), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=error, atol=error)


def search_inputs(limit: int, most: float, n: int = 5) -> Arrays:
    start = np.linspace(0.1, 1, n, dtype=np.float32)
    return [np.asarray(limit, np.int64), start, np.asarray(most, np.float32)]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_loop_with_a_computed_condition_and_any_number_of_turns(threads: int) -> None:
    graph = search()
    compiled = compile_graph(graph, num_threads=threads)
    (step,) = steps(compiled, Repeat)
    assert step.trips == "trips"
    assert not steps(compiled, HostStep)
    earlier: list[tuple[Any, Any]] = []
    for limit, most, n in [
        (-1, 100, 5), (0, 100, 5), (3, 1e9, 5), (-1, 1e9, 5), (-1, 0, 5), (-1, 100, 2),
        (2, 100, 1), (-1, 100, 5),
    ]:  # fmt: skip
        given = search_inputs(limit, most, n)
        results = compiled.executor.run(given)
        same(results, graph, given)
        earlier += [(r, r.copy()) for r in results]
    for result, copy in earlier:  # a later run does not write to them
        np.testing.assert_array_equal(result, copy)


def counting() -> Graph:
    """x + 1, `limit` times, stacked."""
    turn, go_on, x = p("t", dtype="i64"), p("c", dtype="bool"), p("x", 1000)
    new = g.add(x, 1.0)
    body = Graph("body", (turn, go_on, x), (go_on, new, new))
    limit, start = p("limit", dtype="i64"), p("start", 1000)
    loop = node(
        Loop(body, 1, (x.type, p("s", "trips", 1000).type)),
        limit, g.constant(True, "bool"), start,
    )  # fmt: skip
    return Graph("long", (limit, start), results_of(loop))


def test_thousands_of_turns_then_few_give_memory_back() -> None:
    graph = counting()
    compiled = compile_graph(graph, num_threads=1)
    zeros = np.zeros(1000, np.float32)
    for turns in (5000, 3):
        last, stacked = compiled.executor.run([np.asarray(turns, np.int64), zeros])
        assert last[0] == turns
        np.testing.assert_array_equal(stacked[:, 7], np.arange(1, turns + 1))
    (runner,) = compiled.executor._free
    (stack,) = runner.stacks.values()
    assert stack.used_bytes == 3 * 4000


def test_a_loop_of_a_known_number_of_turns_is_one_stage() -> None:
    graph = search(counted=True)
    compiled = compile_graph(graph, num_threads=2)
    (step,) = steps(compiled, Repeat)
    assert step.trips is None
    assert len(compiled.executor.stages) == 1
    given = search_inputs(0, 0)
    same(compiled.executor.run(given), graph, given)


def test_what_needs_the_number_of_turns_is_a_stage_of_its_own() -> None:
    compiled = compile_graph(search(), num_threads=2)
    assert len(compiled.executor.stages) == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_a_branch_is_one_native_call_either_way(threads: int) -> None:
    graph = choice()
    compiled = compile_graph(graph, num_threads=threads)
    assert len(steps(compiled, Branch)) == 1
    for n in (3, 40, 3):
        x = np.random.default_rng(n).standard_normal((2, n, n)).astype(np.float32) / n
        for sign in (-1, 1, -1):
            given = [np.asarray(sign, np.float32), *x]
            same(compiled.executor.run(given), graph, given)
            quick = compiled.executor.replay(given)
            if quick is not None:
                same(quick, graph, given)
    assert quick is not None


def sized_choice() -> Graph:
    """A product in one branch that fits only if n is m."""
    x, y = p("x", "n", "n"), p("y", "m", "m")
    result = p("r", "n", "m").tensor
    then = Graph("then", (x, y), (g.matmul(x, y),))
    otherwise = Graph("otherwise", (x, y), (g.broadcast_to(g.constant(1.0, "f32"), result.shape),))
    go, a, b = p("go", dtype="bool"), p("a", "n", "n"), p("b", "m", "m")
    return Graph("sized", (go, a, b), results_of(node(If(then, otherwise, (result,)), go, a, b)))


@pytest.mark.parametrize("threads", [1, 2])
def test_sizes_that_fit_one_branch_fail_only_if_the_other_is_taken(threads: int) -> None:
    compiled = compile_graph(sized_choice(), num_threads=threads)
    assert len(steps(compiled, Branch)) == 1
    yes, no = np.asarray(True), np.asarray(False)
    a, b = np.ones((3, 3), np.float32), np.ones((4, 4), np.float32)
    for _ in range(3):
        assert compiled.executor.run([no, a, b])[0].tolist() == np.ones((3, 4)).tolist()
        assert compiled.executor.replay([yes, a, b]) is None
        with pytest.raises(ShapeError, match=r"must be equal: .* is 16, .* is 12"):
            compiled.executor.run([yes, a, b])
        assert compiled.executor.run([yes, a, a])[0].tolist() == np.full((3, 3), 3.0).tolist()


def nested() -> Graph:
    """Three turns; in each an inner loop, a scan over rows, and one of two branches."""
    q, c, x, k = p("q", dtype="i64"), p("c", dtype="bool"), p("x", 4), p("k")
    inner = Graph("inner", (q, c, x, k), (g.less(total(x), k), g.add(g.multiply(x, 1.5), k)))
    h, row = p("h", 4), p("row", 4)
    sweep = Graph("sweep", (h, row), (g.tanh(g.add(h, row)), g.multiply(h, row)))
    a = p("a", 4)
    pick = If(
        Graph("up", (a,), (g.add(a, 1.0),)), Graph("down", (a,), (g.subtract(a, 1.0),)), (a.type,)
    )
    turn, go_on, state, rows = (
        p("t", dtype="i64"),
        p("g", dtype="bool"),
        p("s", 4),
        p("rows", "n", 4),
    )
    yes = g.constant(True, "bool")
    (grown,) = results_of(
        node(Loop(inner, 1, (x.type,)), g.add(turn, 1), yes, state, g.cast(turn, "f32"))
    )
    swept, products = results_of(node(Scan(sweep, 1, (0,), (True,), (0,), (False,)), grown, rows))
    (picked,) = results_of(node(pick, g.less(total(swept), 1.0), swept))
    body = Graph(
        "outer", (turn, go_on, state, rows), (go_on, picked, g.reduce("sum", products, (0,)))
    )
    start, given = p("start", 4), p("given", "n", 4)
    loop = Loop(body, 1, (state.type, p("all", 3, 4).type))
    results = results_of(node(loop, g.constant(3, "i64"), yes, start, given))
    return Graph("nested", (start, given), results)


@pytest.mark.parametrize("shared_work", [0, 1 << 40])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_loops_scans_and_branches_inside_one_another(
    threads: int, shared_work: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("luban.engine.plan_buffers._SHARED_WORK", shared_work)
    monkeypatch.setenv("LUBAN_VERIFY", "1")
    graph = nested()
    compiled = compile_graph(graph, num_threads=threads)
    assert not steps(compiled, HostStep)
    for n in (5, 0, 1, 8):
        random = np.random.default_rng(n)
        given = [random.standard_normal(s).astype(np.float32) for s in ((4,), (n, 4))]
        for _ in range(2):
            same(compiled.executor.run(given), graph, given)


def two_sweeps() -> Graph:
    """The same rows forwards and backwards, as a bidirectional layer has them."""
    h, row, w = p("h", 6), p("row", 6), p("w", 6, 6)
    new = g.tanh(g.add(g.squeeze(g.matmul(g.expand_dims(h, [0]), w), [0]), row))
    body = Graph("body", (h, row, w), (new, new))
    start, rows, weights = p("start", 6), p("rows", "n", 6), p("weights", 6, 6)
    found: list[Node] = []
    for reverse in (False, True):
        scan = Scan(body, 1, (0,), (reverse,), (0,), (reverse,))
        found += results_of(node(scan, start, rows, weights))
    return Graph("sweeps", (start, rows, weights), tuple(found))


def test_two_recurrences_run_at_the_same_time_with_the_same_bits() -> None:
    graph = two_sweeps()
    random = np.random.default_rng(3)
    given = [random.standard_normal(s).astype(np.float32) for s in ((6,), (50, 6), (6, 6))]
    results: list[list[Any]] = []
    for threads in (1, 2, 4):
        compiled = compile_graph(graph, num_threads=threads)
        assert len(steps(compiled, Recurrence)) == 2
        results.append(compiled.executor.run(given))
        fast = compiled.executor._fast
        runner: Any = fast.owner if fast is not None else compiled.executor._free[0]
        (plan,) = runner.plans[0].values()
        assert len(plan.table) == (2 if threads == 1 else 1)
        for _ in range(200):
            for a, b in zip(compiled.executor.run(given), results[0], strict=True):
                np.testing.assert_array_equal(a, b)
    same(results[0], graph, given)


def test_sorts_in_loops_that_run_at_the_same_time_have_workspaces_of_their_own() -> None:
    h, row = p("h", 2000), p("row", 2000)
    new = node(Sort(0, True), g.add(h, row))
    body = Graph("body", (h, row), (new, new))
    start, rows = p("start", 2000), p("rows", "n", 2000)
    found: list[Node] = []
    for reverse in (False, True):
        found += results_of(node(Scan(body, 1, (0,), (reverse,), (0,), (reverse,)), start, rows))
    graph = Graph("sorts", (start, rows), tuple(found))
    random = np.random.default_rng(4)
    given = [random.standard_normal(s).astype(np.float32) for s in ((2000,), (30, 2000))]
    want = compile_graph(graph, num_threads=1).executor.run(given)
    compiled = compile_graph(graph, num_threads=2)
    assert len(steps(compiled, Recurrence)) == 2
    for _ in range(100):
        for a, b in zip(compiled.executor.run(given), want, strict=True):
            np.testing.assert_array_equal(a, b)
    same(want, graph, given)


def test_a_stack_that_is_full_stops_the_loop_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executing, "_STACK_BYTES", 1 << 16)
    graph = counting()
    compiled = compile_graph(graph, num_threads=1)
    zeros = np.zeros(1000, np.float32)
    with pytest.raises(LubanError, match="body: the loop goes on after 16 turns"):
        compiled.executor.run([np.asarray(17, np.int64), zeros])
    given: Arrays = [np.asarray(16, np.int64), zeros]
    same(compiled.executor.run(given), graph, given)


def test_reasons_where_python_drives() -> None:
    def reason(graph: Graph) -> str:
        compiled = compile_graph(graph)
        given = {"search": search_inputs(3, 1e9), "choice": [np.float32(-1), *np.ones((2, 3, 3))]}
        inputs = [np.asarray(x, q.tensor.dtype.numpy) for x, q in zip(
            given[graph.name], graph.parameters, strict=True)]  # fmt: skip
        same(compiled.executor.run(inputs), graph, inputs)
        return str(steps(compiled, HostStep)[0].reason)

    assert reason(search(host=True)) == (
        "loop is driven from Python: its body has a step on the host: test_same"
    )
    assert reason(choice(then_host=True)) == (
        "if is driven from Python: its then has a step on the host: test_same"
    )


def test_a_state_that_grows_is_driven_from_python() -> None:
    turn, go_on, x = p("t", dtype="i64"), p("c", dtype="bool"), p("x", "n")
    body = Graph("body", (turn, go_on, x), (go_on, g.concatenate([x, x], 0)))
    start = p("start", "m")
    loop = Loop(body, 1, (p("r", "k").type,))
    made = node(loop, g.constant(3, "i64"), g.constant(True, "bool"), start)
    graph = Graph("grows", (start,), results_of(made))
    compiled = compile_graph(graph)
    (step,) = steps(compiled, HostStep)
    assert (
        step.reason == "loop is driven from Python: sizes of its body are known in each turn only"
    )
    given = [np.ones(2, np.float32)]
    same(compiled.executor.run(given), graph, given)


def test_a_body_whose_inner_loop_settles_a_size_is_driven_from_python() -> None:
    turn, go_on, x = p("t", dtype="i64"), p("c", dtype="bool"), p("x", 3)
    inner = Graph("inner", (turn, go_on, x), (g.less(total(x), 9.0), g.add(x, 1.0), x))
    types = x.type, p("s", "trips", 3).type
    yes = g.constant(True, "bool")
    last, stack = results_of(node(Loop(inner, 1, types), g.constant(-1, "i64"), yes, x))
    outer = Graph("outer", (turn, go_on, x), (go_on, g.add(last, g.reduce("sum", stack, (0,)))))
    start = p("start", 3)
    made = node(Loop(outer, 1, (x.type,)), g.constant(2, "i64"), yes, start)
    graph = Graph("settles", (start,), results_of(made))
    compiled = compile_graph(graph)
    (step,) = steps(compiled, HostStep)
    assert step.reason == (
        "loop is driven from Python: its body has a loop whose number of turns sizes depend on"
    )
    given = [np.zeros(3, np.float32)]
    same(compiled.executor.run(given), graph, given)


def loop_model() -> bytes:
    """Halves x until its largest element is below 1, and stacks it; then an If on the result."""

    def value(name: str, kind: int, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    body = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "half"], ["x_out"]),
            helper.make_node("ReduceMax", ["x_out"], ["largest"], keepdims=0),
            helper.make_node("Less", ["one", "largest"], ["go_on"]),
            helper.make_node("Identity", ["x_out"], ["row"]),
        ],
        "body",
        [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []),
         value("x", TensorProto.FLOAT, ["n"])],
        [value("go_on", TensorProto.BOOL, []), value("x_out", TensorProto.FLOAT, ["n"]),
         value("row", TensorProto.FLOAT, ["n"])],
    )  # fmt: skip
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(kind, ["last", "half"], [f"{name}_out"])],
            name, [], [value(f"{name}_out", TensorProto.FLOAT, ["n"])],
        )
        for name, kind in (("then", "Add"), ("else", "Sub"))
    }  # fmt: skip
    graph = helper.make_graph(
        [
            helper.make_node("Loop", ["", "yes", "start"], ["last", "rows"], body=body),
            helper.make_node("ReduceSum", ["last"], ["sum"], keepdims=0),
            helper.make_node("Less", ["sum", "one"], ["small"]),
            helper.make_node("If", ["small"], ["y"], **branches),
        ],
        "halving",
        [value("start", TensorProto.FLOAT, ["n"])],
        [value("y", TensorProto.FLOAT, ["n"]), value("rows", TensorProto.FLOAT, ["t", "n"])],
        [helper.make_tensor("half", TensorProto.FLOAT, [], [0.5]),
         helper.make_tensor("one", TensorProto.FLOAT, [], [1.0]),
         helper.make_tensor("yes", TensorProto.BOOL, [], [True])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return bytes(model.SerializeToString())


def test_native_control_flow_comes_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path))
    first, again = luban.compile(loop_model()), luban.compile(loop_model())
    assert again.from_cache
    assert {type(s) for s in again.executor.program.steps} >= {Repeat, Branch}
    for x in ([8.0, 3.0], [1.0, 0.5], [0.1, -100.0], [1e6, 1e6]):
        given = np.array(x, np.float32)
        expected, found = first(given), again(given)
        rows = len(expected["rows"])
        assert rows == max(1, int(np.ceil(np.log2(max(x)))))
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)
