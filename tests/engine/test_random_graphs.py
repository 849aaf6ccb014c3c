"""Random graphs, compiled: equal to their meaning, and equal with every pass left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from luban.core.errors import OptionError
from luban.engine.compile import compile_graph
from luban.engine.pipeline import PASSES
from luban.graph.evaluate import evaluate
from luban.ir.node import Graph
from tests.passes.test_fuse import random_graphs
from tests.programs import PROGRAMS, inputs_for


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_graphs())
def test_compiled_random_graphs_keep_the_meaning(graph: Graph) -> None:
    inputs = [np.linspace(-1, 1, 16).reshape(4, 4), np.linspace(2, -2, 16).reshape(4, 4)]
    arrays = [x.astype(np.float32) for x in inputs]
    got = compile_graph(graph, num_threads=2).executor.run(arrays)
    for a, b in zip(got, evaluate(graph, arrays, precision="float64"), strict=True):
        scale = max(float(np.max(np.abs(b), initial=1)), 1)
        np.testing.assert_allclose(a, b, rtol=0, atol=3e-5 * scale)


@pytest.mark.parametrize("name", [p.name for p in PASSES])
def test_every_pass_can_be_left_out(name: str) -> None:
    program = next(q for q in PROGRAMS if q.name == "residual_norm")
    graph = program.graph()
    inputs = inputs_for(graph, {"n": 5})
    got = compile_graph(graph, without=[name]).executor.run(inputs)
    for a, b in zip(got, evaluate(graph, inputs), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


def test_an_unknown_pass_is_refused_with_the_list() -> None:
    with pytest.raises(OptionError, match="unknown pass turbo") as caught:
        compile_graph(PROGRAMS[0].graph(), without=["turbo"])
    assert "fuse" in str(caught.value)
