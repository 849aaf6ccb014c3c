"""Layouts: transposes only where they must be, a reason for each choice, and the same meaning."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from luban.core.registers import Registers
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.contract import Convolution
from luban.graph.ops.packed import PackPanels, PanelConvolution, PanelDot
from luban.graph.ops.reduce import ReduceWindow
from luban.graph.ops.structure import Pad, Reverse, Slice, Transpose
from luban.ir.node import Graph, Node, node
from luban.passes.layout import choose_layouts
from tests.programs import inputs_for, p

AVX512 = Registers(64, 32)


def laid_out(graph: Graph) -> Graph:
    return choose_layouts(graph, AVX512)[0]


def reasons(graph: Graph) -> str:
    return "\n".join(d.reason for d in choose_layouts(graph, AVX512)[1])


def count(graph: Graph) -> Counter[str]:
    """Operations that depend on an input, by name."""
    moving: set[Node] = set(graph.parameters)
    found: Counter[str] = Counter()
    for n in graph.nodes():
        if any(o in moving for o in n.operands):
            moving.add(n)
            found[n.op.name] += 1
    return found


def same(graph: Graph, **sizes: int) -> None:
    inputs = inputs_for(graph, sizes)
    before, after = (evaluate(x, inputs, precision="float64") for x in (graph, laid_out(graph)))
    for a, b in zip(before, after, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def convolve(x: Node, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> Node:
    inputs, pad = x.tensor.shape[1], size // 2
    assert isinstance(inputs, int)
    filters = np.random.default_rng(0).standard_normal((outputs, inputs // groups, size, size))
    ends = ((stride,) * 2, (pad,) * 2, (pad,) * 2, (1, 1), (1, 1))
    return node(Convolution(*ends, groups, x.tensor.dtype), x, g.constant(filters, "f32"))


def image() -> Node:
    return p("x", "n", 3, 8, 8)


def test_a_parameter_without_use_stays() -> None:
    x, idle = image(), p("idle", "n")
    after = laid_out(Graph("g", (x, idle), (convolve(x, 8),)))
    assert after.parameters == (x, idle)


def test_a_product_reads_panels() -> None:
    x = p("x", "n", 20)
    graph = Graph("dot", (x,), (g.matmul(x, g.constant(np.ones((20, 40)), "f32")),))
    assert count(laid_out(graph)) == {"panel_dot": 1}
    same(graph, n=3)


def test_every_arrangement_of_axes_keeps_its_meaning() -> None:
    x, y = p("x", 4, "n", 2, 5), p("y", 5, 3, 2, 4, 6)
    # batch axis of size 2, two contracted axes, two rows and two columns of which one is "n"
    graph = Graph("dot", (x, y), (g.dot_general(x, y, ([3, 0], [0, 3]), batch=([2], [2])),))
    assert count(laid_out(graph))["panel_dot"] == 1
    same(graph, n=7)


def test_few_rows_do_not_pack_what_a_call_computes() -> None:
    x, y = p("x", 2, 20), p("y", 20, 40)
    graph = Graph("dot", (x, y), (g.matmul(x, y),))
    assert "2 rows do not repay packing f32[20,40] in every call" in reasons(graph)
    assert count(laid_out(graph)) == {"dot_general": 1}


def test_one_column_and_wide_integers_stay_as_they_are() -> None:
    x, y = p("x", 9, 20), p("y", 20, 1)
    assert "one column is a plain sum" in reasons(Graph("dot", (x, y), (g.matmul(x, y),)))
    a, b = p("a", 9, 20, dtype="i64"), p("b", 20, 30, dtype="i64")
    why = "products of i64 as i64 have no panels yet"
    assert why in reasons(Graph("dot", (a, b), (g.matmul(a, b),)))


def test_a_network_is_transposed_at_its_borders_only() -> None:
    x = image()
    y = g.maximum(g.add(convolve(x, 16), g.constant(np.ones((1, 16, 1, 1)), "f32")), 0.0)
    y = g.add(y, g.maximum(convolve(y, 16), 0.0))
    y = node(ReduceWindow("maximum", (1, 1, 2, 2), (1, 1, 2, 2), (0,) * 4, (0,) * 4, (1,) * 4), y)
    y = g.concatenate([convolve(y, 8, 1), convolve(y, 8, 3, groups=1)], 1)
    y = node(Pad((0, 0, 1, 0), (0, 0, 0, 2), (0,) * 4), y, g.constant(0.5, "f32"))
    y = node(Slice((0, 2, 1, 1), (1, 14, 4, 4), (1, 1, 1, 1)), g.take(y, g.constant([0]), 0))
    graph = Graph("net", (x,), (convolve(node(Reverse((1, 3)), convolve(y, 4)), 5),))
    after = count(laid_out(graph))
    assert after["panel_convolution"] + after["panel_dot"] == 6
    same(graph, n=2)
    y = g.maximum(convolve(g.maximum(convolve(x, 16), 0.0), 8), 0.0)
    graph = Graph("net", (x,), (y,))
    assert count(laid_out(graph))["transpose"] == 2  # the image in, the image out


def test_the_mean_over_an_image_needs_no_transpose_back() -> None:
    x = image()
    graph = Graph("net", (x,), (g.mean(convolve(x, 16), [2, 3], keep_axes=True),))
    assert count(laid_out(graph))["transpose"] == 1
    same(graph, n=2)


def test_gates_on_channels_stay_channels_last() -> None:
    x = image()
    y = convolve(x, 16)
    gate = g.logistic(convolve(g.mean(y, [2, 3], keep_axes=True), 16, 1))
    graph = Graph("gated", (x,), (g.mean(g.multiply(y, gate), [2, 3]),))
    assert count(laid_out(graph))["transpose"] == 1
    same(graph, n=2)


def test_patches_become_tokens_without_a_transpose() -> None:
    x = image()
    y = g.transpose(g.reshape(convolve(x, 16, 2, 2), (x.tensor.shape[0], 16, 25)), (0, 2, 1))
    graph = Graph("patches", (x,), (y,))
    assert count(laid_out(graph))["transpose"] == 1
    same(graph, n=2)


@pytest.mark.parametrize("axes", [[1], [2, 3], [0, 2, 3], [3], [1, 2], [0]])
def test_reductions_over_any_axes(axes: list[int]) -> None:
    x = image()
    same(Graph("net", (x,), (g.reduce("sum", convolve(x, 5), axes),)), n=2)


def test_a_value_used_in_both_layouts_keeps_its_meaning() -> None:
    x = image()
    y = convolve(x, 8)
    flat = g.matmul(g.reshape(y, (x.tensor.shape[0], 8, 64)), g.constant(np.ones((64, 4)), "f32"))
    graph = Graph("both", (x,), (y, flat, convolve(y, 4)))
    same(graph, n=2)


def test_graphs_without_convolutions_keep_their_images() -> None:
    x = p("x", 2, 3, 8, 8)
    window = ReduceWindow("sum", (1, 1, 2, 2), (1, 1, 2, 2), (0,) * 4, (0,) * 4, (1,) * 4)
    graph = Graph("pool", (x,), (node(window, x),))
    assert laid_out(graph) is graph or not any(
        isinstance(n.op, Transpose) for n in laid_out(graph).nodes()
    )


def test_the_width_of_panels_follows_the_columns() -> None:
    widths = {}
    for columns in (8, 48, 768):
        x = p("x", 100, 20)
        graph = Graph("dot", (x,), (g.matmul(x, g.constant(np.ones((20, columns)), "f32")),))
        (op,) = (n.op for n in laid_out(graph).nodes() if isinstance(n.op, PackPanels))
        widths[columns] = op.width
    assert widths == {8: 16, 48: 48, 768: 64}


def test_plain_1x1_convolutions_are_matrix_products() -> None:
    x = image()
    ops = {type(n.op) for n in laid_out(Graph("net", (x,), (convolve(x, 8, 1),))).nodes()}
    assert PanelDot in ops
    assert PanelConvolution not in ops
