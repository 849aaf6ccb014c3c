"""Fusion fires where it should, declines with a reason where it must, and keeps the meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.data import HostCall
from luban.graph.ops.fusion import Fusion
from luban.graph.ops.reduce import Sort
from luban.ir.node import Graph, Node, node
from luban.passes.fuse import fuse
from tests.programs import PROGRAMS, inputs_for, p


def kernels(graph: Graph) -> list[str]:
    fused, _ = fuse(graph)
    return [n.op.kind for n in fused.nodes() if isinstance(n.op, Fusion)]


def reasons(graph: Graph) -> str:
    return "\n".join(d.reason for d in fuse(graph)[1] if not d.done)


def test_every_program_keeps_its_meaning() -> None:
    for program in PROGRAMS:
        graph = program.graph()
        inputs = inputs_for(graph, program.sizes[0])
        before, after = (evaluate(x, inputs, precision="float64") for x in (graph, fuse(graph)[0]))
        for a, b in zip(before, after, strict=True):
            np.testing.assert_array_equal(a, b)


def test_an_elementwise_chain_is_one_kernel() -> None:
    x = p("x", "n")
    assert kernels(Graph("chain", (x,), (g.exp(g.add(g.multiply(x, 2.0), 1.0)),))) == ["loop"]


def test_two_chains_that_meet_are_one_kernel() -> None:
    x, y = p("x", "n"), p("y", "n")
    graph = Graph("meet", (x, y), (g.add(g.exp(x), g.exp(y)),))
    assert kernels(graph) == ["loop"]


def test_a_contraction_takes_its_epilogue_and_a_diamond_on_it() -> None:
    a, b = p("a", 4, 8), p("b", 8, 4)
    product = g.matmul(a, b)
    assert kernels(Graph("silu", (a, b), (g.multiply(product, g.logistic(product)),))) == [
        "contraction"
    ]


def test_a_second_contraction_is_a_second_kernel() -> None:
    a, b = p("a", 4, 4), p("b", 4, 4)
    assert kernels(Graph("two", (a, b), (g.matmul(g.matmul(a, b), b),))) == ["contraction"] * 2


def test_expensive_maths_is_not_repeated_for_every_reduction() -> None:
    x = p("x", "n", 8)
    heated = g.exp(x)
    centred = g.subtract(heated, g.mean(heated, [1], keep_axes=True))
    spread = g.mean(g.multiply(centred, centred), [1], keep_axes=True)
    graph = Graph("heated", (x,), (g.multiply(centred, spread),))
    assert kernels(graph) == ["loop", "rows"]
    assert "repeated for every reduction" in reasons(graph)


def test_a_host_operation_between_two_members_keeps_them_apart() -> None:
    x = p("x", "n")
    first = g.add(x, 1.0)
    ordered = node(HostCall("unique", (), (first.type,)), first)
    graph = Graph("apart", (x,), (g.add(first, ordered),))
    assert kernels(graph) == ["loop", "loop"]
    assert "computed outside, from the kernel's own result" in reasons(graph)


def test_a_transposed_use_of_a_row_result_is_another_kernel() -> None:
    x = p("x", 6, 6)
    total = g.reduce("sum", x, [1])
    graph = Graph("turned", (x,), (g.add(x, g.broadcast_to(total, (6, 6))),))
    assert kernels(graph) == ["rows", "loop"]


def test_an_intermediate_that_is_also_an_output_stays_available() -> None:
    x, y = p("x", "n", 8), p("y", "n", 8)
    total = g.add(x, y)
    graph = Graph("residual", (x, y), (total, g.softmax(total, 1)))
    inputs = [np.ones((3, 8), np.float32), np.arange(24, dtype=np.float32).reshape(3, 8)]
    fused, _ = fuse(graph)
    np.testing.assert_array_equal(evaluate(fused, inputs)[0], inputs[0] + inputs[1])
    assert kernels(graph) == ["rows"]


def test_nodes_without_a_kernel_are_left_alone_with_the_reason() -> None:
    x = p("x", "n")
    middle = g.exp(x)
    graph = Graph("odd", (x,), (g.add(middle, 1.0),))
    fused, decisions = fuse(graph, lambda n: "no such unit" if n is middle else None)
    assert [n.op.name for n in fused.nodes()] == ["parameter", "exp", "fusion"]
    assert [d.reason for d in decisions] == ["no such unit"]


UNARY: list[Callable[[Node], Node]] = [
    g.negative,
    g.absolute,
    lambda x: g.transpose(x, (1, 0)),
    lambda x: g.reverse(x, [0]),
    lambda x: g.softmax(x, 1),
    lambda x: g.broadcast_to(g.reduce("maximum", x, [0], keep_axes=True), (4, 4)),
    lambda x: g.matmul(x, x),
    lambda x: g.pad(g.slice_axis(x, 0, 1, 2), (1, 0), (1, 0), 0.5),
    lambda x: node(Sort(1), x),
]
BINARY: list[Callable[[Node, Node], Node]] = [
    g.add,
    g.maximum,
    g.multiply,
    lambda x, y: g.slice_axis(g.concatenate([x, y], 0), 0, 2, 4),
]


@st.composite
def random_graphs(draw: Any) -> Graph:
    values = [p("a", 4, 4), p("b", 4, 4)]
    for _ in range(draw(st.integers(1, 14))):
        pick = st.integers(0, len(values) - 1)
        if draw(st.booleans()):
            values.append(draw(st.sampled_from(UNARY))(values[draw(pick)]))
        else:
            op = draw(st.sampled_from(BINARY))
            values.append(op(values[draw(pick)], values[draw(pick)]))
    results = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=3, unique=True))
    return Graph("random", tuple(values[:2]), tuple(results))


@settings(max_examples=60, deadline=None)
@given(random_graphs())
def test_fusing_random_graphs_keeps_the_meaning(graph: Graph) -> None:
    inputs = [np.linspace(-1, 1, 16).reshape(4, 4), np.linspace(2, -2, 16).reshape(4, 4)]
    arrays = [x.astype(np.float32) for x in inputs]
    before, after = (evaluate(x, arrays, precision="float64") for x in (graph, fuse(graph)[0]))
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


def residual(also: Callable[[Node, Node], Node]) -> tuple[Graph, list[str]]:
    """A product of codes, their numbers in the sum of another, and what leaves the kernels."""
    x, w = p("x", "n", 8), p("w", 8, 8)
    codes = g.cast(g.round_even(g.matmul(x, w)), "i8")
    numbers = g.multiply(g.subtract(g.cast(codes, "f32"), 3.0), 0.5)
    later = g.matmul(g.matmul(x, w), g.cast(g.reduce("sum", codes, [0], keep_axes=False), "f32"))
    total = g.add(
        g.matmul(g.broadcast_to(g.expand_dims(later, [1]), numbers.tensor.shape), w), numbers
    )
    graph = Graph("residual", (x, w), (total, also(codes, numbers)))
    bodies = [n.op.body for n in fuse(graph)[0].nodes() if isinstance(n.op, Fusion)]
    return graph, [str(r.tensor.dtype) for body in bodies for r in body.results]


def keeps_integers(graph: Graph) -> None:
    inputs = [np.rint(x * 3) for x in inputs_for(graph, {"n": 5})]
    for a, b in zip(evaluate(fuse(graph)[0], inputs), evaluate(graph, inputs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_dequantised_bytes_go_from_kernel_to_kernel_as_bytes() -> None:
    graph, left = residual(lambda codes, _: codes)
    _, with_numbers = residual(lambda _, numbers: numbers)
    assert left.count("f32") + 1 == with_numbers.count("f32")
    keeps_integers(graph)


def test_dequantised_bytes_that_are_an_output_are_numbers() -> None:
    graph, _ = residual(lambda _, numbers: numbers)
    keeps_integers(graph)


def test_dequantised_bytes_behind_a_view_are_numbers() -> None:
    graph, _ = residual(lambda _, numbers: g.exp(g.transpose(numbers, (1, 0))))
    keeps_integers(graph)


def test_dequantised_bytes_of_a_product_are_numbers() -> None:
    graph, _ = residual(lambda _, numbers: g.matmul(numbers, p("w", 8, 8)))
    keeps_integers(graph)
