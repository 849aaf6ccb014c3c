"""Convolutions and pooling with channels last: every kind of window and size, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from luban.codegen.llvm import emit
from luban.core.registers import Registers
from luban.engine.compile import compile_graph
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.contract import Convolution
from luban.graph.ops.reduce import ReduceWindow
from luban.ir.node import Graph, Node, node
from luban.native.compile import assembly, count_spills
from luban.native.target import named_target
from luban.tile.memory_ops import Prefetch
from tests.lower.test_gemm import TILES, check
from tests.lower.tiles import AVX512, kernels, notes
from tests.programs import inputs_for, p


def convolution(
    x: Node,
    outputs: int,
    window: tuple[int, ...],
    *,
    stride: int = 1,
    low: int = 0,
    high: int = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Node:
    """A channels-first convolution with constant filters and a bias."""
    random = np.random.default_rng(2)
    inputs = x.tensor.shape[1]
    assert isinstance(inputs, int)
    shape = (outputs, inputs // groups, *window)
    filters = g.constant(random.standard_normal(shape), x.tensor.dtype)
    ones = (1,) * len(window)
    every = [tuple([k] * len(window)) for k in (stride, low, high, dilation)]
    op = Convolution(every[0], every[1], every[2], ones, every[3], groups, x.tensor.dtype)
    bias = g.constant(random.standard_normal((1, outputs, *ones)), x.tensor.dtype)
    return g.add(node(op, x, filters), bias)


def images(channels: int, *space: int | str, dtype: str = "f32") -> Node:
    return p("x", "n", channels, *space, dtype=dtype)


def graph_of(x: Node, result: Node) -> Graph:
    return Graph("images", (x,), (result,))


@TILES
@pytest.mark.parametrize(
    ("window", "stride", "low", "high", "dilation"),
    [
        ((3, 3), 1, 1, 1, 1),
        ((3, 3), 2, 0, 1, 1),
        ((1, 1), 1, 0, 0, 1),
        ((1, 1), 2, 0, 0, 1),
        ((5, 3), 1, 2, 2, 1),
        ((3, 3), 1, 2, 2, 2),
        ((2, 2), 2, 0, 0, 1),
    ],
)
def test_windows(
    window: tuple[int, int], stride: int, low: int, high: int, dilation: int, registers: Registers
) -> None:
    x = images(3, 6, 7)
    y = convolution(x, 10, window, stride=stride, low=low, high=high, dilation=dilation)
    graph = graph_of(x, g.maximum(y, 0.0))
    assert "plain loop nest" not in notes(graph, registers)
    check(graph, {"n": 1}, registers)


def test_one_program_serves_every_image_size() -> None:
    x = images(4, "h", "w")
    graph = graph_of(x, g.maximum(convolution(x, 10, (3, 3), low=1, high=1), 0.0))
    for sizes in ((1, 1, 1), (0, 4, 4), (2, 3, 17), (1, 2, 25)):
        check(graph, dict(zip("nhw", sizes, strict=True)), AVX512)


def test_short_lines_share_a_tile() -> None:
    x = images(8, 7, 7)
    graph = graph_of(x, convolution(x, 32, (3, 3), low=1, high=1))
    assert "tiles of 14 x 32 sums" in notes(graph)
    check(graph, {"n": 2}, AVX512)


@pytest.mark.parametrize("space", [(9,), (3, 4, 3)])
def test_other_ranks(space: tuple[int, ...]) -> None:
    x = images(3, *space)
    check(graph_of(x, convolution(x, 5, (3,) * len(space), low=1, high=1)), {"n": 2}, AVX512)


@TILES
@pytest.mark.parametrize("channels", [3, 8, 16, 20, 32])
@pytest.mark.parametrize(
    ("size", "stride", "dilation"), [(3, 1, 1), (3, 2, 1), (5, 1, 1), (3, 1, 2)]
)
def test_depthwise(
    channels: int, size: int, stride: int, dilation: int, registers: Registers
) -> None:
    x = images(channels, 6, 7)
    pad = size // 2 * dilation
    y = convolution(x, channels, (size, size), stride=stride, low=pad, high=pad,
                    dilation=dilation, groups=channels)  # fmt: skip
    graph = graph_of(x, g.maximum(y, 0.0))
    assert "plain loop nest" not in notes(graph, registers)
    check(graph, {"n": 1}, registers)


def test_depthwise_at_every_image_size() -> None:
    x = images(16, "h", "w")
    y = convolution(x, 16, (3, 3), low=1, high=1, groups=16)
    graph = graph_of(x, g.multiply(y, g.logistic(y)))
    for sizes in ((1, 1, 1), (2, 2, 3), (1, 9, 4), (1, 5, 13)):
        check(graph, dict(zip("nhw", sizes, strict=True)), AVX512)


def test_depthwise_along_one_axis() -> None:
    x = images(8, 13)
    graph = graph_of(x, convolution(x, 8, (3,), low=2, high=0, groups=8))
    assert "plain loop nest" not in notes(graph)
    check(graph, {"n": 2}, AVX512)


def test_depthwise_with_mirrored_filters_reads_them_backwards() -> None:
    """The filters of a transposed convolution: their first element is not where they begin."""
    x, filters = images(8, 5, 5), p("w", 8, 1, 3, 3)
    ones, twos = (1, 1), (2, 2)
    op = Convolution(ones, twos, twos, ones, ones, 8, x.tensor.dtype)
    graph = Graph("images", (x, filters), (node(op, x, g.reverse(filters, (2, 3))),))
    check(graph, {"n": 1}, AVX512)


def pooled(x: Node, kind: str, size: int, stride: int, pad: int) -> Node:
    every = [(k, k, *[v] * 2) for k, v in ((1, size), (1, stride), (0, pad), (0, pad), (1, 1))]
    return node(ReduceWindow(kind, *every), x)


@TILES
@pytest.mark.parametrize("kind", ["maximum", "sum"])
@pytest.mark.parametrize(("size", "stride", "pad"), [(2, 2, 0), (3, 2, 1), (3, 1, 1)])
def test_pooling_after_a_convolution(
    kind: str, size: int, stride: int, pad: int, registers: Registers
) -> None:
    x = images(3, 8, 9)
    y = pooled(convolution(x, 12, (1, 1)), kind, size, stride, pad)
    graph = graph_of(x, g.multiply(y, 0.5))
    assert "pixels" in notes(graph, registers)
    check(graph, {"n": 1}, registers)


def test_a_maximum_keeps_nan() -> None:
    x = images(16, 4, 4)
    graph = graph_of(x, pooled(convolution(x, 16, (1, 1)), "maximum", 2, 2, 0))
    compiled = compile_graph(graph, num_threads=1)
    for place in range(16):
        image = np.ones((1, 16, 4, 4), np.float32)
        image[0, :, place // 4, place % 4] = np.nan
        result = compiled.executor.run([image])[0]
        assert np.isnan(result).sum() == 16


def test_grouped_convolutions_keep_the_loop_nest_and_say_why() -> None:
    x = images(8, 6, 6)
    graph = graph_of(x, convolution(x, 8, (3, 3), groups=2))
    assert "only depthwise convolutions have a template" in notes(graph)
    check(graph, {"n": 1}, AVX512)


@pytest.mark.parametrize(
    ("size", "spread", "low", "high"),
    [(2, 2, 1, 1), (4, 2, 2, 2), (3, 2, 1, 2), (3, 3, 2, 2), (5, 2, 2, 3)],
)
def test_transposed_convolutions_run_phase_by_phase(
    size: int, spread: int, low: int, high: int
) -> None:
    x = images(3, "h", "w")
    filters = g.constant(np.random.default_rng(0).standard_normal((5, 3, size, size)), "f32")
    ends = ((1, 1), (low, low), (high, high), (spread, spread), (1, 1))
    graph = graph_of(x, g.add(node(Convolution(*ends, 1, x.tensor.dtype), x, filters), 1.0))
    assert "plain loop nest" not in notes(graph)
    for sizes in ((1, 3, 4), (2, 1, 1)):
        check(graph, dict(zip("nhw", sizes, strict=True)), AVX512)


def test_bf16() -> None:
    x = images(4, 6, 6, dtype="bf16")
    check(graph_of(x, convolution(x, 16, (3, 3))), {"n": 1}, AVX512, 3e-2)


@pytest.mark.parametrize("name", ["avx512", "avx2", "neon"])
@pytest.mark.parametrize("groups", [1, 64])
def test_sums_stay_in_registers(name: str, groups: int) -> None:
    target = named_target(name)
    registers = Registers(target.vector_bits // 8, target.num_vector_registers)
    x = images(64, 28, 28)
    graph = graph_of(x, convolution(x, 64, (3, 3), low=1, high=1, groups=groups))
    for _, kernel in kernels(graph, registers):
        if "tiles of" in "".join(kernel.notes):
            assert count_spills(assembly(emit(kernel.module, target), target)) == 0


@pytest.mark.parametrize(("channels", "far"), [(32, False), (128, True)])
def test_far_filters_are_fetched_ahead(channels: int, far: bool) -> None:
    x = images(channels, 15, 15)
    graph = graph_of(x, convolution(x, channels, (3, 3), stride=2))
    prefetches = [
        sum(isinstance(o.op, Prefetch) for f in kernel.module.functions for o in f.operations())
        for _, kernel in kernels(graph, AVX512)
        if "tiles of" in "".join(kernel.notes)
    ]
    assert [count > 0 for count in prefetches] == [far]


def test_machine_code_agrees_and_does_not_depend_on_threads() -> None:
    x = images(3, "h", "w")
    y = g.maximum(convolution(x, 16, (3, 3), stride=2, low=1, high=1), 0.0)
    y = g.maximum(convolution(y, 16, (3, 3), low=1, high=1, groups=16), 0.0)
    y = pooled(convolution(y, 40, (1, 1)), "maximum", 2, 2, 0)
    graph = graph_of(x, g.mean(y, [2, 3]))
    one, two = (compile_graph(graph, num_threads=n).executor for n in (1, 2))
    for sizes in ((1, 33, 20), (2, 12, 70)):
        inputs = inputs_for(graph, dict(zip("nhw", sizes, strict=True)))
        first, second = one.run(inputs)[0], two.run(inputs)[0]
        np.testing.assert_array_equal(first, second)
        want = evaluate(graph, inputs, precision="float64")[0]
        np.testing.assert_allclose(first, want, rtol=1e-4, atol=1e-4)
