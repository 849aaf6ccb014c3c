"""Convolutions in tiles: where they pay, where not, and the same meaning."""

from __future__ import annotations

import numpy as np
import pytest

from luban.core.registers import Registers
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.packed import PanelConvolution
from luban.graph.ops.structure import Pad
from luban.graph.ops.winograd import WinogradConvolution
from luban.ir.node import Graph, Node
from luban.passes.layout import choose_layouts
from luban.passes.winograd import use_winograd
from tests.lower.test_convolution import convolution, graph_of, images
from tests.programs import inputs_for, p

AVX512 = Registers(64, 32)


def tiled(graph: Graph) -> Graph:
    return use_winograd(choose_layouts(graph, AVX512)[0], AVX512)[0]


def reasons(graph: Graph) -> str:
    return "\n".join(d.reason for d in use_winograd(choose_layouts(graph, AVX512)[0], AVX512)[1])


def tiles_of(graph: Graph) -> list[int]:
    return [n.op.tile for n in tiled(graph).nodes() if isinstance(n.op, WinogradConvolution)]


def same_size(x: Node, outputs: int) -> Node:
    return convolution(x, outputs, (3, 3), low=1, high=1)


@pytest.mark.parametrize(
    ("channels", "size", "tile"), [(64, 56, 4), (128, 28, 4), (32, "h", 4), (512, 7, 2)]
)
def test_the_tile_suits_the_image(channels: int, size: int | str, tile: int) -> None:
    x = p("x", 1, channels, size, size)
    assert tiles_of(graph_of(x, same_size(x, channels))) == [tile]


def test_a_batch_known_at_run_time_counts_as_one_image() -> None:
    """A few tiles do not repay reading 36 matrices of weights."""
    x = images(512, 7, 7)
    assert tiles_of(graph_of(x, same_size(x, 512))) == [2]


@pytest.mark.parametrize(("channels", "axes"), [(256, 2), (512, 1)])
def test_large_filters_are_transformed_half_way_and_take_half_the_memory(
    channels: int, axes: int
) -> None:
    x = p("x", 1, channels, 32, 32)
    graph = graph_of(x, same_size(x, channels))
    (found,) = [n for n in tiled(graph).nodes() if isinstance(n.op, WinogradConvolution)]
    assert found.op.filter_axes == axes  # type: ignore[attr-defined]
    assert found.operands[1].tensor.shape[0] == {1: 18, 2: 36}[axes]
    assert ("filters transformed half way" in reasons(graph)) is (axes == 1)


def test_zeros_round_the_image_become_part_of_it() -> None:
    x = images(32, 16, 16)
    graph = tiled(graph_of(x, same_size(x, 32)))
    (found,) = [n for n in graph.nodes() if isinstance(n.op, WinogradConvolution)]
    assert (found.op.low, found.op.high) == ((1, 1), (1, 1))  # type: ignore[attr-defined]
    assert not any(isinstance(n.op, Pad) for n in graph.nodes())


def test_another_border_stays() -> None:
    x = images(32, 16, 16)
    padded = g.pad(x, (0, 0, 1, 1), (0, 0, 1, 1), g.constant(-1.0, "f32"))
    graph = graph_of(x, convolution(padded, 32, (3, 3)))
    assert sum(isinstance(n.op, Pad) for n in tiled(graph).nodes()) == 1
    same(graph, n=1)


def test_a_few_channels_do_not_repay_transforms() -> None:
    x = images(1, 64, 64)
    assert "cost more than fewer multiplications save" in reasons(graph_of(x, same_size(x, 16)))
    assert not tiles_of(graph_of(x, same_size(x, 16)))


@pytest.mark.parametrize(
    ("window", "stride", "dilation"), [((3, 3), 2, 1), ((3, 3), 1, 2), ((5, 3), 1, 1)]
)
def test_other_windows_stay(window: tuple[int, int], stride: int, dilation: int) -> None:
    x = images(64, 32, 32)
    graph = graph_of(x, convolution(x, 64, window, stride=stride, dilation=dilation))
    assert "not a 3 x 3 convolution" in reasons(graph)
    assert not tiles_of(graph)


def test_other_floats_stay() -> None:
    x = images(64, 32, 32, dtype="f64")
    assert "a kernel for f32 only" in reasons(graph_of(x, same_size(x, 64)))


def test_computed_filters_stay() -> None:
    x, filters = p("x", 1, 64, 32, 32), p("w", 64, 64, 3, 3)
    graph = Graph("g", (x, filters), (g.convolution(x, filters, (1, 1), (1, 1), (1, 1)),))
    assert "transformed in every call" in reasons(graph)
    assert any(isinstance(n.op, PanelConvolution) for n in tiled(graph).nodes())


@pytest.mark.parametrize("size", [7, 14, 30])
def test_the_meaning_stays(size: int) -> None:
    x = images(48, size, size)
    same(graph_of(x, same_size(x, 40)), n=2)


def same(graph: Graph, **sizes: int) -> None:
    """Filters at the points round to f32, so both agree to that."""
    inputs = inputs_for(graph, sizes)
    assert tiles_of(graph)
    (want,), (got,) = (evaluate(x, inputs, precision="float64") for x in (graph, tiled(graph)))
    np.testing.assert_allclose(got, want, atol=2e-7 * np.abs(want).max())
