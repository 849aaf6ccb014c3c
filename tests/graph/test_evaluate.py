"""Running graphs: inputs, precision, memory, depth, errors."""

import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

from luban.core.dims import symbol
from luban.core.errors import InputError, InternalError, ShapeError
from luban.core.loc import Loc
from luban.core.types import tensor
from luban.graph import build
from luban.graph.evaluate import evaluate, evaluate_node, ordered_inputs
from luban.graph.meaning import MEANING
from luban.graph.meaning.context import Array, Context, Value
from luban.graph.ops.control import Loop
from luban.graph.ops.elementwise import UNARY
from luban.ir.node import Graph, Node, Op, located, node, results_of
from tests.graph.programs import inputs_for, programs

X = build.parameter("x", tensor("f32", "n", 3))
Y = build.parameter("y", tensor("f32", 3))
TURN = (tensor("i64"), tensor("bool"), tensor("f32", "m", 3))
ADD = Graph("main", (X, Y), (build.add(X, Y), build.dimension(symbol("n"))), ("sum", "n"))


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def test_inputs_by_name_or_in_order() -> None:
    for inputs in ([ones(2, 3), ones(3)], {"y": ones(3), "x": ones(2, 3)}):
        total, n = evaluate(ADD, inputs)
        assert total.tolist() == [[2, 2, 2]] * 2
        assert n == 2


def test_python_numbers_become_the_declared_dtype() -> None:
    (doubled,) = evaluate(Graph("f", (Y,), (build.add(Y, Y),)), [[1, 2, 3]])
    assert doubled.dtype == np.float32


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": ones(2, 3)}, r"given inputs \['x'\], expected \['x', 'y'\]\nhint: missing: y"),
        ({"x": ones(2, 3), "y": ones(3), "z": 1}, "hint: unknown: z"),
        ({"x": ones(2, 3), "Y": ones(3)}, "hint: missing: y; unknown: Y"),
        ([ones(2, 3)], "main: given 1 inputs, expected 2: x, y"),
        (
            [ones(2, 3), np.ones(3)],
            r"input 'y' is f64\[3\], expected f32\[3\]\nhint: convert it to f32",
        ),
        ([ones(2, 3), ones(4)], "input 'y': axis 0 is 4, expected 3"),
        ([ones(2), ones(3)], r"input 'x' has shape \[2\], expected 2 axes"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(ADD, inputs)


def test_float64_holds_every_float_wide() -> None:
    p = build.parameter("p", tensor("f16", 2))
    third = build.divide(build.cast(p, "f32"), 3.0)
    graph = Graph("f", (p,), (third, build.cast(third, "bf16")))
    values = [np.array([1, 2], np.float16)]
    wide, narrow = evaluate(graph, values, precision="float64")
    assert wide.dtype == narrow.dtype == np.float64
    np.testing.assert_array_equal(wide, [1 / 3, 2 / 3])
    np.testing.assert_array_equal(narrow, wide)
    assert [v.dtype for v in evaluate(graph, values)] == [np.float32, ml_dtypes.bfloat16]


@given(programs())
@settings(max_examples=60, deadline=None)
def test_results_have_the_declared_types(graph: Graph) -> None:
    for n in (1, 5):
        for precision in ("model", "float64"):
            values = evaluate(graph, inputs_for(graph, n), precision=precision)
            for value, result in zip(values, graph.results, strict=True):
                element = result.tensor.dtype
                wide = precision == "float64" and element.is_float
                assert value.dtype == (np.float64 if wide else element.numpy)
                assert value.shape == result.tensor.resolve({"n": n})


def test_values_are_freed_after_their_last_use() -> None:
    alive: list[weakref.ref[Array]] = []
    most = 0

    def observe(_: Node, value: Any) -> None:
        nonlocal most
        most = max(most, sum(r() is not None for r in alive) + 1)
        alive.append(weakref.ref(value))

    y: Node = X
    for _ in range(30):
        y = build.exp(build.negative(y))
    evaluate(Graph("f", (X,), (y,)), [ones(2, 3)], observe=observe)
    assert len(alive) == 61
    assert most <= 4


def test_inputs_and_constants_are_not_written() -> None:
    x = ones(2, 3)
    kept = x.copy()
    evaluate(ADD, [x, ones(3)])
    np.testing.assert_array_equal(x, kept)


def test_observe_sees_each_node_in_order() -> None:
    seen: list[str] = []
    y = build.exp(build.negative(X))
    evaluate(Graph("f", (X,), (y,)), [ones(1, 3)], observe=lambda n, _: seen.append(n.op.name))
    assert seen == ["parameter", "negative", "exp"]


def test_a_deep_chain_needs_no_recursion() -> None:
    y: Node = Y
    for _ in range(30_000):
        y = build.negative(y)
    (result,) = evaluate(Graph("deep", (Y,), (y,)), [ones(3)])
    assert result.tolist() == [1, 1, 1]


def test_an_error_names_the_node_and_its_place() -> None:
    with located(Loc("m.onnx", "Reshape_2")):
        y = build.reshape(X, (symbol("n"), 1, 3))
        bad = build.reshape(y, (6,))
    with pytest.raises(ShapeError) as e:
        evaluate(Graph("f", (X,), (bad,)), [ones(3, 3)])
    assert str(e.value) == (
        "reshape: operand of shape [3, 1, 3] has 9 elements, [6] needs 6\nat m.onnx: Reshape_2"
    )


def test_an_open_graph_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="f is not closed: it uses parameter 'y'"):
        evaluate(Graph("f", (X,), (build.add(X, Y),)), [ones(2, 3)])


def test_no_warning_escapes() -> None:
    y = build.divide(build.log(X), build.subtract(X, X))
    (result,) = evaluate(Graph("f", (X,), (build.cast(y, "i8"),)), [-ones(1, 3)])
    assert result.tolist() == [[0, 0, 0]]


def test_one_node_alone() -> None:
    sizes = {"n": 2}
    n = build.add(X, build.broadcast_to(Y, X.tensor.shape))
    value = evaluate_node(n, [ones(2, 3), ones(2, 3)], sizes)
    assert value.tolist() == [[2, 2, 2]] * 2


def test_ordered_inputs_keep_arrays_without_a_copy() -> None:
    x, y = ones(2, 3), ones(3)
    given = ordered_inputs(ADD, {"y": y, "x": x})
    assert given[0] is x
    assert given[1] is y


def test_what_hangs_on_constants_alone_is_computed_once_for_all_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But not what hangs on sizes, which may be others in each turn."""
    turn, go_on, x = (build.parameter(label, t) for label, t in zip("tcx", TURN, strict=True))
    table = build.exp(build.constant([1.0, 2.0, 3.0], "f32"))
    sized = build.sin(build.broadcast_to(build.constant(1.0, "f32"), (symbol("m"), 3)))
    body = Graph("body", (turn, go_on, x), (go_on, build.add(build.add(x, table), sized)))
    start = build.parameter("x", tensor("f32", "m", 3))
    loop = node(Loop(body, 1, (start.type,)), build.constant(5), build.constant(True), start)
    counts = {"exp": 0, "sin": 0}
    right = MEANING[UNARY["exp"]]

    def counted(op: Op, operands: list[Array], context: Context) -> Value:
        if op.name in counts:
            counts[op.name] += 1
        return right(op, operands, context)

    monkeypatch.setitem(MEANING, UNARY["exp"], counted)
    monkeypatch.setitem(MEANING, UNARY["sin"], counted)
    (got,) = evaluate(Graph("g", (start,), results_of(loop)), [ones(2, 3)], precision="float64")
    np.testing.assert_allclose(got, 1 + 5 * (np.exp([[1.0, 2, 3]] * 2) + np.sin(1.0)))
    assert counts == {"exp": 1, "sin": 5}


def test_one_node_alone_is_wide_whatever_the_dtype_of_its_operands() -> None:
    x = build.parameter("x", tensor("f32", 4000, 2))
    total = build.reduce("sum", x, (0,))
    given = np.full((4000, 2), 12.193, np.float32)
    found = evaluate_node(total, [given], {}, "float64")
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, given.astype(np.float64).sum(0), rtol=1e-14)
