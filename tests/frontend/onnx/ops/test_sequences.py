"""Sequences and optionals."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from luban.core.errors import InputError, ModelError, UnsupportedError
from luban.frontend.onnx import import_model
from luban.graph.evaluate import evaluate
from luban.graph.verify import verify
from luban.ir.node import Graph

FLOAT = onnx.TensorProto.FLOAT
A, B = np.array([1, 2], np.float32), np.array([3, 4], np.float32)


def graph_of(*nodes: onnx.NodeProto, stated: bool = False) -> Graph:
    graph = helper.make_graph(
        list(nodes),
        "main",
        [helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("a", "b")],
        [onnx.ValueInfoProto(name=nodes[-1].output[0])],
    )
    if stated:
        graph.value_info.append(helper.make_tensor_value_info(nodes[-1].output[0], FLOAT, [2]))
    opset = [helper.make_opsetid("", 21)]
    found = import_model(helper.make_model(graph, opset_imports=opset, ir_version=10)).graph
    verify(found)
    return found


def run(*nodes: onnx.NodeProto) -> Any:
    return evaluate(graph_of(*nodes), [A, B])[0]


def integer(name: str, value: int) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value_int=value)


MAKE = helper.make_node("SequenceConstruct", ["a", "b"], ["s"])


def test_items_by_position() -> None:
    take = helper.make_node("SequenceAt", ["s", "i"], ["y"])
    for position, wanted in ((0, A), (1, B), (-1, B)):
        np.testing.assert_array_equal(run(MAKE, integer("i", position), take), wanted)
    with pytest.raises(InputError, match="position 2 is outside a sequence of 2 items"):
        run(MAKE, integer("i", 2), take)


def test_insert_and_erase() -> None:
    insert = helper.make_node("SequenceInsert", ["s", "a", "i"], ["y"])
    got = run(MAKE, integer("i", 1), insert)
    assert [item.tolist() for item in got] == [[1, 2], [1, 2], [3, 4]]
    erase = helper.make_node("SequenceErase", ["s"], ["y"])
    assert [item.tolist() for item in run(MAKE, erase)] == [[1, 2]]
    with pytest.raises(InputError, match="position -4 is outside"):
        run(MAKE, integer("i", -4), insert)


def test_length_and_join() -> None:
    assert run(MAKE, helper.make_node("SequenceLength", ["s"], ["y"])) == 2
    join = helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)
    assert run(MAKE, join).tolist() == [1, 2, 3, 4]
    stack = helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=-1, new_axis=1)
    assert run(MAKE, stack).tolist() == [[1, 3], [2, 4]]


def test_an_empty_sequence_takes_the_type_of_what_goes_in() -> None:
    empty = helper.make_node("SequenceEmpty", [], ["e"])
    insert = helper.make_node("SequenceInsert", ["e", "a"], ["s"])
    take = helper.make_node("SequenceAt", ["s", "i"], ["y"])
    assert run(empty, insert, integer("i", 0), take).tolist() == [1, 2]


def test_an_item_of_no_known_rank_needs_a_statement() -> None:
    empty = helper.make_node("SequenceEmpty", [], ["s"])
    take = helper.make_node("SequenceAt", ["s", "i"], ["y"])
    with pytest.raises(UnsupportedError, match=r"no known number of axes.*state the result"):
        graph_of(empty, integer("i", 0), take)
    assert str(graph_of(empty, integer("i", 0), take, stated=True).results[0].type) == "f32[2]"


def test_split() -> None:
    split = helper.make_node("SplitToSequence", ["a"], ["s"], keepdims=0)
    take = helper.make_node("SequenceAt", ["s", "i"], ["y"])
    assert run(split, integer("i", 1), take) == 2


def test_split_sizes_must_add_up() -> None:
    sizes = helper.make_node("Constant", [], ["n"], value_ints=[1, 2])
    split = helper.make_node("SplitToSequence", ["a", "n"], ["s"])
    with pytest.raises(InputError, match=r"pieces of \[1, 2\] do not add up to 2 elements"):
        run(sizes, split)
    zero = integer("n", 0)
    with pytest.raises(InputError, match="pieces of 0 elements: expected at least 1"):
        run(zero, split)


def test_joining_nothing() -> None:
    erase = [helper.make_node("SequenceErase", [s], [t]) for s, t in (("s", "t"), ("t", "u"))]
    join = helper.make_node("ConcatFromSequence", ["u"], ["y"], axis=0)
    with pytest.raises(InputError, match="an empty sequence cannot be joined"):
        run(MAKE, *erase, join)


def test_a_sequence_where_a_tensor_belongs() -> None:
    with pytest.raises(ModelError, match=r"Add .*: given \(seq<f32\[2\]>, f32\[2\]\): "):
        graph_of(MAKE, helper.make_node("Add", ["s", "a"], ["y"]))


def test_optionals() -> None:
    wrap = helper.make_node("Optional", ["a"], ["o"])
    assert run(wrap, helper.make_node("OptionalHasElement", ["o"], ["y"]))
    assert run(wrap, helper.make_node("OptionalGetElement", ["o"], ["y"])).tolist() == [1, 2]
    kind = helper.make_tensor_type_proto(FLOAT, [2])
    nothing = helper.make_node("Optional", [], ["o"], type=kind)
    assert not run(nothing, helper.make_node("OptionalHasElement", ["o"], ["y"]))
    with pytest.raises(InputError, match="the optional is empty"):
        run(nothing, helper.make_node("OptionalGetElement", ["o"], ["y"]))
