"""Convolutions of halves: computed in f32, the conversions in kernels that are there anyway."""

from __future__ import annotations

import numpy as np
import pytest

from luban.engine.compile import compile_graph
from luban.engine.pipeline import optimise
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.contract import Convolution
from luban.graph.ops.fusion import Fusion
from luban.ir.node import Graph
from luban.passes.halves import wide_convolutions
from tests.lower.test_convolution import convolution, graph_of, images
from tests.lower.tiles import AVX512
from tests.programs import inputs_for


def net(dtype: str, channels: int = 16, layers: int = 2) -> Graph:
    """Layers of a padded 3 x 3 convolution and a ramp."""
    x = y = images(channels, 8, 8, dtype=dtype)
    for _ in range(layers):
        y = g.maximum(convolution(y, channels, (3, 3), low=1, high=1), 0.0)
    return graph_of(x, y)


def convolved(graph: Graph) -> list[str]:
    """The dtype of each convolution's operands."""
    changed, _ = wide_convolutions(graph)
    return [
        n.operands[0].tensor.dtype.name for n in changed.nodes() if isinstance(n.op, Convolution)
    ]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_halves_become_f32(dtype: str) -> None:
    assert convolved(net(dtype)) == ["f32", "f32"]
    changed, decisions = wide_convolutions(net(dtype))
    assert [r.tensor.dtype.name for r in changed.results] == [dtype]
    assert {d.reason for d in decisions} == {"computed in f32, rounded once at the end"}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_others_stay(dtype: str) -> None:
    graph = net(dtype)
    changed, decisions = wide_convolutions(graph)
    assert changed.results == graph.results
    assert not decisions


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_no_kernel_is_for_a_conversion(dtype: str) -> None:
    def count(graph: Graph) -> int:
        return sum(isinstance(n.op, Fusion) for n in optimise(graph, AVX512)[0].nodes())

    assert count(net(dtype, 32)) <= count(net("f32", 32))


@pytest.mark.parametrize(("dtype", "step"), [("f16", 2.0**-11), ("bf16", 2.0**-8)])
@pytest.mark.parametrize("channels", [3, 32])
def test_each_layer_is_rounded(dtype: str, step: float, channels: int) -> None:
    """To what the evaluator of the model's own dtypes gives, up to one rounding."""
    graph = net(dtype, channels)
    inputs = inputs_for(graph, {"n": 2})
    (want,) = (np.asarray(r, np.float64) for r in evaluate(graph, inputs))
    (got,) = (np.asarray(r, np.float64) for r in compile_graph(graph).executor.run(inputs))
    np.testing.assert_allclose(got, want, rtol=0, atol=4 * step * float(np.abs(want).max()))
