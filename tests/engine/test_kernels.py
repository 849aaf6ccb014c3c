"""What the kernels of a model share."""

from __future__ import annotations

import numpy as np

from luban.engine.compile import compile_graph
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.ir.node import Graph
from tests.programs import inputs_for, p


def products() -> Graph:
    """Three products whose weights are turned and packed when the model is loaded."""
    x = start = p("x", "n", 64)
    random = np.random.default_rng(0)
    for rows, columns in ((64, 96), (96, 128), (128, 192)):
        weights = random.standard_normal((columns, rows)).astype(np.float32)
        x = g.matmul(x, g.transpose(g.constant(weights, "f32"), (1, 0)))
    return Graph("products", (start,), (x,))


def test_copies_at_load_share_machine_code() -> None:
    graph = products()
    compiled = compile_graph(graph)
    squares = [k for k in compiled.kernels.lowered.values() if "squares" in str(k.kernel.notes)]
    assert len(squares) == 3
    assert len({k.name for k in squares}) == 1
    assert len({k.kernel.arguments for k in squares}) == 3
    inputs = inputs_for(graph, {"n": 5})
    (want,) = evaluate(graph, inputs, precision="float64")
    np.testing.assert_allclose(compiled.executor.run(inputs)[0], want, rtol=1e-4, atol=1e-2)
