"""Nodes: interning, sub-graphs, walks."""

import gc
import pickle
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from luban.core.dims import Dim, bounds, symbol
from luban.core.dtypes import DTYPES
from luban.core.errors import InternalError, ShapeError
from luban.core.loc import Loc
from luban.core.types import SequenceType, tensor
from luban.graph import build
from luban.graph.ops.data import Constant, HostCall, Iota, Literal
from luban.graph.ops.reduce import Reduce, Sort
from luban.ir.node import (
    GetItem,
    Graph,
    Node,
    Parameter,
    attributes,
    located,
    map_graph,
    node,
    rebuilt,
    results_of,
    topological,
    users,
)

X = build.parameter("x", tensor("f32", "n", 3))


def test_equal_programs_are_one_object() -> None:
    assert build.exp(X) is build.exp(X)
    assert build.add(X, 1.0) is build.add(X, 1.0)
    assert build.parameter("x", tensor("f32", "n", 3)) is X
    assert build.exp(X) is not build.exp(build.parameter("y", X.type))


def test_zeros_of_either_sign_stay_apart() -> None:
    assert build.constant(0.0) is not build.constant(-0.0)
    op = HostCall("f", (("alpha", 0.0),), (tensor("f32"),))
    other = HostCall("f", (("alpha", -0.0),), (tensor("f32"),))
    assert op == other  # dataclasses compare by value, nodes do not
    assert node(op) is not node(other)


def test_true_and_one_stay_apart() -> None:
    results = [
        node(HostCall("f", (("flag", flag),), (tensor("f32"),))) for flag in (True, 1, 1.0, (True,))
    ]
    assert len(set(results)) == 4
    assert build.constant(True) is not build.constant(1)
    assert build.constant(1, "i32") is not build.constant(1, "i64")


def test_symbols_of_one_name_with_other_bounds_stay_apart() -> None:
    """Two programs in one process: what holds for the n of one may not hold for the other's."""
    low, high = symbol("n", 0, 4), symbol("n", 1, 8)
    makers: list[Callable[[Dim], Node]] = [
        lambda n: build.parameter("p", tensor("f32", n)),
        lambda n: build.parameter("p", SequenceType(tensor("f32", n))),
        lambda n: build.dimension(n * 2),
        lambda n: build.broadcast_to(build.constant(1.0), (n,)),
    ]
    for make in makers:
        assert make(low) is not make(high)
        assert make(low) is make(low)
    assert bounds(build.parameter("p", tensor("f32", high)).tensor.shape[0]) == (1, 8)


def test_nan_attributes_are_equal_to_themselves() -> None:
    nan = float("nan")
    made = [node(HostCall("f", (("a", value),), (tensor("f32"),))) for value in (nan, float("nan"))]
    assert made[0] is made[1]


def test_small_literals_are_equal_by_content_and_large_ones_by_identity() -> None:
    assert build.constant([1, 2]) is build.constant([1, 2])
    large = np.arange(10_000)
    assert Literal(large) == Literal(large)
    assert Literal(large) != Literal(large.copy())
    assert Literal(large).digest() == Literal(large.copy()).digest()
    assert Literal(np.array([1.0])).digest() != Literal(np.array([-1.0])).digest()


def test_the_label_of_a_literal_is_not_its_identity() -> None:
    a, b = np.array([1, 2]), np.array([1, 2])
    assert node(Constant(Literal(a, "w"))) is node(Constant(Literal(b, "v")))


def test_the_place_is_not_part_of_the_identity() -> None:
    y = build.parameter("place_test", tensor("f32", 11))
    first = node(Sort(0), y, loc=Loc("a"))
    assert node(Sort(0), y, loc=Loc("b")) is first
    assert first.loc == Loc("a")


def test_located_gives_nodes_a_place() -> None:
    y = build.parameter("place_test", tensor("f32", 13))
    with located(Loc("outer")):
        with located(Loc("inner")):
            inner = build.exp(y)
        outer = build.negative(y)
    assert (inner.loc, outer.loc, build.tanh(y).loc) == (Loc("inner"), Loc("outer"), None)


def test_nodes_nobody_uses_are_freed() -> None:
    y = build.exp(build.parameter("freed", tensor("f32", 17)))
    alive = weakref.ref(y)
    del y
    gc.collect()
    assert alive() is None


def test_inference_errors_name_the_op_and_the_place() -> None:
    with pytest.raises(ShapeError) as e:
        node(Reduce("sum", (5,)), X, loc=Loc("m.onnx", "Sum_1"))
    assert str(e.value) == "reduce: axis 5 is outside the 2 axes of the operand\nat m.onnx: Sum_1"


def test_results_of() -> None:
    pair = node(Sort(0), X, X)
    first, second = results_of(pair)
    assert (first.op, second.op) == (GetItem(0), GetItem(1))
    assert results_of(X) == (X,)
    with pytest.raises(InternalError, match="get_item 2 of"):
        node(GetItem(2), pair)
    with pytest.raises(InternalError, match=r"sort gives \(f32.*, expected a tensor"):
        _ = pair.tensor


def test_topological_lists_operands_first_and_each_node_once() -> None:
    y = build.exp(X)
    z = build.add(build.negative(y), build.tanh(y))
    order = topological([z, y])
    assert len(order) == len(set(order))
    for i, n in enumerate(order):
        assert all(o in order[:i] for o in n.operands)


def test_walks_do_not_recurse() -> None:
    y: Node = X
    for _ in range(100_000):
        y = build.negative(y)
    assert len(topological([y])) == 100_001
    graph = map_graph(Graph("deep", (X,), (y,)), rebuilt)
    assert graph.results == (y,)


def test_users() -> None:
    y = build.exp(X)
    z = build.multiply(y, y)
    found = users(topological([z, build.negative(y)]))
    assert found[X] == [y]
    assert found[y] == [z, build.negative(y)]
    assert found[z] == []


def test_map_graph_replaces_parameters() -> None:
    y = build.parameter("y", X.type)
    graph = Graph("f", (X,), (build.exp(build.negative(X)),), ("out",))
    other = map_graph(graph, rebuilt, {X: y})
    assert other.parameters == (y,)
    assert other.results == (build.exp(build.negative(y)),)
    assert other.result_names == ("out",)


def test_result_names_match_results() -> None:
    with pytest.raises(InternalError, match="graph f: 1 results, 2 names"):
        Graph("f", (X,), (X,), ("a", "b"))


def test_attributes_in_order() -> None:
    op = Iota(DTYPES["i64"], (3,), 0)
    assert list(attributes(op)) == ["dtype", "shape", "axis"]
    assert attributes(Parameter("x", X.type)) == {"label": "x", "type": X.type}


def test_graphs_know_their_names() -> None:
    graph = Graph("f", (X,), (build.exp(X),))
    assert graph.parameter_names == ("x",)
    assert repr(graph) == "<graph f>"
    assert repr(graph.results[0]) == "<exp : f32[n,3]>"


def test_locations_are_plain_data() -> None:
    assert pickle.loads(pickle.dumps(Loc("a", "b", 3))) == Loc("a", "b", 3)
