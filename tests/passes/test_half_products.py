"""Products of bf16 pairs: where they stand, where not, and what they round."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from luban.core.registers import Registers
from luban.engine.pipeline import optimise
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.elementwise import Cast
from luban.graph.ops.packed import PackPanels, PanelConvolution, PanelDot
from luban.graph.ops.winograd import WinogradConvolution
from luban.ir.node import Graph, Node
from luban.passes.half_products import half_products
from luban.passes.layout import choose_layouts
from luban.passes.winograd import use_winograd
from tests.lower.test_convolution import convolution, graph_of, images
from tests.programs import inputs_for, p

PAIRS = Registers(64, 32, pair_products=True)


def weights(*shape: int) -> Node:
    return g.constant(np.random.default_rng(0).standard_normal(shape), "f32")


def changed(graph: Graph, registers: Registers = PAIRS) -> Graph:
    return half_products(choose_layouts(graph, registers)[0], registers)[0]


def reasons(graph: Graph, registers: Registers = PAIRS) -> str:
    decisions = half_products(choose_layouts(graph, registers)[0], registers)[1]
    return "\n".join(d.reason for d in decisions if not d.done)


def products(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes() if isinstance(n.op, (PanelDot, PanelConvolution))]


def dense(rows: int | str = "n", depth: int = 64, columns: int = 40) -> Graph:
    return graph_of(x := p("x", rows, depth), g.matmul(x, weights(depth, columns)))


@pytest.mark.parametrize("depth", [64, 33])
def test_a_product_has_both_factors_in_bf16_and_sums_in_f32(depth: int) -> None:
    (product,) = products(changed(dense(depth=depth)))
    rows, panels = product.operands
    assert [o.tensor.dtype.name for o in (rows, panels, product)] == ["bf16", "bf16", "f32"]
    assert isinstance(panels.op, PackPanels)
    assert panels.op.group == 2
    assert rows.tensor.shape[-1] == depth + depth % 2


@pytest.mark.parametrize(
    "graph",
    [
        dense(),
        dense(1, 129, 9),
        graph_of(x := images(3, 9, 9), convolution(x, 10, (3, 3), low=1, high=1)),
        graph_of(x := images(16, 9, 9), convolution(x, 10, (1, 1), stride=2)),
    ],
    ids=["dense", "odd", "three channels", "1 x 1"],
)
def test_the_meaning_is_that_of_rounded_factors(graph: Graph) -> None:
    """Nothing rounds in float64, so nothing changes there; else the error is that of bf16."""
    inputs = inputs_for(graph, {"n": 3, "b": 2})
    (exact,) = evaluate(graph, inputs, precision="float64")
    after = changed(graph)
    (same,) = evaluate(after, inputs, precision="float64")
    np.testing.assert_allclose(same, exact, rtol=0, atol=1e-12 * np.abs(exact).max())
    (rounded,) = evaluate(after, inputs, precision="model")
    error = np.abs(rounded - exact).max() / np.abs(exact).max()
    assert 1e-5 < error < 2**-7


def test_a_factor_is_rounded_where_it_is_made() -> None:
    """Before transposes and padding: then the kernel that makes it stores half as much."""
    x = p("x", 4, "n", 8, 16)
    heads = g.reshape(g.transpose(g.tanh(x), (0, 2, 1, 3)), (32, x.tensor.shape[1], 16))
    after = changed(graph_of(x, g.matmul(heads, weights(16, 40))))
    (rounded,) = [n for n in after.nodes() if isinstance(n.op, Cast) and n.tensor.rank == 4]
    assert rounded.operands[0].op.name == "tanh"


def test_a_factor_of_several_products_is_rounded_once() -> None:
    x = p("x", "n", 64)
    shared = g.tanh(x)
    results = tuple(g.matmul(shared, weights(64, n)) for n in (16, 32, 48))
    after = changed(Graph("three", (x,), results))
    assert len(products(after)) == 3
    assert len({n.operands[0] for n in products(after)}) == 1


def test_a_rotated_innermost_axis_is_moved_as_it_is() -> None:
    x = p("x", 12, "n")
    after = changed(graph_of(x, g.matmul(g.transpose(x, (1, 0)), weights(12, 20))))
    (rounded,) = [
        n for n in after.nodes() if isinstance(n.op, Cast) and n.operands[0].op.name != "constant"
    ]
    assert rounded.operands[0].op.name == "transpose"


def test_without_the_instruction_nothing_changes() -> None:
    plain = replace(PAIRS, pair_products=False)
    assert "no instruction for products of bf16 pairs" in reasons(dense(), plain)
    assert [n.op.group for n in products(changed(dense(), plain))] == [1]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (dense(columns=5), "5 columns leave most of a vector empty"),
        (dense(depth=6), "sums of 6 products do not repay rounding their factors"),
        (
            Graph("two", (x := p("x", "n", 32), y := p("y", 32, 64)), (g.matmul(x, y),)),
            "a right operand that a call computes would be rounded in every call",
        ),
        (
            graph_of(
                x := p("x", "n", 64, dtype="f64"), g.matmul(x, g.cast(weights(64, 64), "f64"))
            ),
            "products of f64 as f64 are not in f32",
        ),
    ],
    ids=["columns", "depth", "computed", "f64"],
)
def test_what_stays_says_why(graph: Graph, why: str) -> None:
    assert why in reasons(graph)
    assert all(n.op.group == 1 for n in products(changed(graph)))  # type: ignore[attr-defined]


@pytest.mark.parametrize(("channels", "size"), [(64, 56), (256, 14), (512, 7)])
def test_tiles_of_two_multiply_pairs(channels: int, size: int) -> None:
    x = p("x", 1, channels, size, size)
    graph = graph_of(x, convolution(x, channels, (3, 3), low=1, high=1))
    layout = choose_layouts(graph, PAIRS)[0]
    after, (decision,) = use_winograd(layout, PAIRS)
    (found,) = [n for n in after.nodes() if isinstance(n.op, WinogradConvolution)]
    assert (found.op.tile, found.op.group) == (2, 2)  # type: ignore[attr-defined]
    assert [o.tensor.dtype.name for o in found.operands] == ["f32", "bf16"]
    assert "Winograd tiles of 2 x 2, factors in bf16" in decision.reason


def test_a_veto_of_pairs_reaches_tiles_too() -> None:
    x = p("x", 1, 64, 56, 56)
    graph = graph_of(x, convolution(x, 64, (3, 3), low=1, high=1))
    after, _ = optimise(graph, PAIRS, ["half_products"], "fast")
    dtypes = {o.tensor.dtype.name for n in after.nodes() for o in n.operands}
    assert dtypes == {"f32"}
