"""The verifier says no: each rule broken once on purpose, and the node is named."""

import numpy as np
import pytest

from luban.core.dims import symbol
from luban.core.errors import CheckError
from luban.core.loc import Loc
from luban.core.types import tensor
from luban.graph import build
from luban.graph.evaluate import evaluate
from luban.graph.ops.control import If
from luban.graph.ops.data import Nonzero
from luban.graph.order import execution_order, needed_symbols, settled_symbols
from luban.graph.verify import verify
from luban.ir.node import Graph, Node, located, node, results_of

X = build.parameter("x", tensor("f32", "n", 3))


def test_a_sound_graph_passes() -> None:
    verify(
        Graph("main", (X,), (build.softmax(X, 1), build.shape_vector(X.tensor.shape)), ("y", "s"))
    )


def test_a_wrong_type_is_found() -> None:
    right = build.exp(X)
    wrong = Node(right.op, right.operands, tensor("f64", "n", 3), Loc("m.onnx", "Exp_7"))
    with pytest.raises(
        CheckError, match=r"graph main: exp has type f64\[n,3\], expected f32\[n,3\]"
    ) as e:
        verify(Graph("main", (X,), (build.negative(wrong),)))
    assert str(e.value).endswith("at m.onnx: Exp_7")


def test_operands_that_do_not_fit_are_found() -> None:
    right = build.add(X, X)
    wrong = Node(right.op, (X, build.parameter("y", tensor("f32", 4))), right.type)
    with pytest.raises(CheckError, match=r"graph main: add does not fit its operands: .*one shape"):
        verify(Graph("main", (X, wrong.operands[1]), (wrong,)))


def test_an_undeclared_parameter_is_found() -> None:
    with pytest.raises(CheckError, match="graph main: parameter 'x' is used but not declared"):
        verify(Graph("main", (), (build.exp(X),)))


def test_an_open_sub_graph_is_found() -> None:
    inner = build.parameter("v", X.type)
    op = If(
        Graph("then", (inner,), (build.add(inner, X),)),
        Graph("other", (inner,), (inner,)),
        (X.type,),
    )
    p = build.parameter("p", tensor("bool"))
    with pytest.raises(CheckError, match="graph then: parameter 'x' is used but not declared"):
        verify(Graph("main", (p, X), (node(op, p, X),)))


def test_repeated_names_are_found() -> None:
    other = build.parameter("x", tensor("f32"))
    with pytest.raises(CheckError, match="graph main: parameter names repeat: x"):
        verify(Graph("main", (X, other), (X,)))
    with pytest.raises(CheckError, match="graph main: result names repeat: y"):
        verify(Graph("main", (X,), (X, build.exp(X)), ("y", "y")))


def test_a_node_among_the_parameters_is_found() -> None:
    with pytest.raises(CheckError, match="graph main: exp stands among the parameters"):
        verify(Graph("main", (X, build.exp(X)), (X,)))


@pytest.mark.parametrize(
    "bad",
    [
        build.dimension(symbol("k")),
        build.broadcast_to(build.constant(1.0), (symbol("k"),)),
        build.slice_axis(X, 0, symbol("k"), 1),
    ],
)
def test_a_symbol_from_nowhere_is_found(bad: Node) -> None:
    with pytest.raises(CheckError, match="uses k, which no parameter or node settles"):
        verify(Graph("main", (X,), (bad,)))


def _counting() -> tuple[Node, Node]:
    """A count of non-zeros, and twice that number, which no operand ties to it."""
    found = node(Nonzero(symbol("count")), build.greater(X, 0.0))
    return found, build.dimension(symbol("count") * 2)


def test_settled_and_needed_symbols() -> None:
    found, twice = _counting()
    assert settled_symbols(found) == {"count"}
    assert needed_symbols(found) == set()
    assert needed_symbols(twice) == {"count"}
    assert settled_symbols(twice) == set()


def test_a_node_that_settles_a_size_runs_before_those_that_need_it() -> None:
    found, twice = _counting()
    graph = Graph("main", (X,), (twice, found))
    verify(graph)
    order = execution_order(graph)
    assert order.index(found) < order.index(twice)
    assert sorted(map(id, order)) == sorted(map(id, graph.nodes()))
    value = np.array([[1, 0, 2]], np.float32)
    assert evaluate(graph, [value])[0] == 4


def test_a_branch_that_needs_a_size_waits_for_it_too() -> None:
    found, twice = _counting()
    op = If(Graph("then", (), (twice,)), Graph("other", (), (build.constant(0),)), (tensor("i64"),))
    p = build.parameter("p", tensor("bool"))
    (choice,) = results_of(node(op, p))
    graph = Graph("main", (p, X), (choice, found))
    verify(graph)
    value = np.array([[1, 0, 2]], np.float32)
    assert evaluate(graph, [np.array(True), value])[0] == 4


def test_located_nodes_are_named_by_place() -> None:
    with located(Loc("m.onnx", "Shape_1")):
        bad = build.dimension(symbol("lost"))
    with pytest.raises(CheckError, match=r"at m\.onnx: Shape_1"):
        verify(Graph("main", (X,), (bad,)))
