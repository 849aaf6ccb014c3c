"""Products and windows of any shape: machine code from one compile agrees with the meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from luban.core.errors import ShapeError
from luban.engine.compile import compile_graph
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.contract import Convolution
from luban.ir.node import Graph, node
from tests.programs import inputs_for, p

FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
SMALL = st.integers(1, 12)


def agree(graph: Graph, sizes: dict[str, int]) -> None:
    inputs = inputs_for(graph, sizes)
    try:
        (want,) = evaluate(graph, inputs, precision="float64")
    except ShapeError:
        assume(False)  # a window larger than its image
    (got,) = compile_graph(graph, num_threads=2).executor.run(inputs)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=3e-5, atol=1e-4)


@FEW
@given(st.data())
def test_products_of_any_axes(data: st.DataObject) -> None:
    """Batch, row, column and depth axes in any order, some sizes known at run time only."""
    sizes: dict[str, int] = {}

    def axes(letter: str, most: int, largest: int) -> list[tuple[str, int | str]]:
        found: list[tuple[str, int | str]] = []
        for i in range(data.draw(st.integers(1 if letter == "k" else 0, most))):
            size = data.draw(st.integers(0, largest))
            name = f"{letter}{i}"
            if data.draw(st.booleans()):
                sizes[name] = size
                found.append((name, name))
            else:
                found.append((name, max(size, 1)))
        return found

    batch, rows = axes("b", 1, 3), axes("m", 2, 9)
    columns, depth = axes("n", 2, 40), axes("k", 2, 7)
    left = data.draw(st.permutations([*batch, *rows, *depth]))
    right = data.draw(st.permutations([*batch, *columns, *depth]))
    x, y = (p(n, *(s for _, s in a)) for n, a in (("x", left), ("y", right)))

    def places(of: list[tuple[str, int | str]], within: list[tuple[str, int | str]]) -> list[int]:
        return [within.index(axis) for axis in of]

    product = g.dot_general(
        x,
        y,
        (places(depth, left), places(depth, right)),
        batch=(places(batch, left), places(batch, right)),
    )
    agree(Graph("product", (x, y), (g.maximum(product, 0.1),)), sizes)


@FEW
@given(st.data())
def test_convolutions_of_any_window(data: st.DataObject) -> None:
    """Plain, depthwise, grouped and transposed, with any stride, padding and dilation."""
    rank = data.draw(st.integers(1, 2))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(rank))

    kind = data.draw(st.sampled_from(["plain", "plain", "depthwise", "grouped", "transposed"]))
    channels = data.draw(st.sampled_from([2, 4, 8, 20, 33]))
    groups = {"depthwise": channels, "grouped": 2}.get(kind, 1)
    assume(channels % groups == 0)
    outputs = channels if kind == "depthwise" else 2 * data.draw(SMALL)
    window, stride, space = each(1, 4), each(1, 3), each(1, 12)
    spread = stride if kind == "transposed" else (1,) * rank
    stride = (1,) * rank if kind == "transposed" else stride
    dilation = (1,) * rank if kind == "transposed" else each(1, 2)
    shown: list[Any] = ["h", "w"][:rank] if data.draw(st.booleans()) else list(space)
    sizes = {"n": data.draw(st.integers(0, 2)), **dict(zip("hw", space, strict=False))}
    x = p("x", "n", channels, *shown)
    filters = np.random.default_rng(0).standard_normal((outputs, channels // groups, *window))
    op = Convolution(stride, each(0, 3), each(0, 3), spread, dilation, groups, x.tensor.dtype)
    y = node(op, x, g.constant(filters, "f32"))
    agree(Graph("convolution", (x,), (g.maximum(y, 0.1),)), sizes)
