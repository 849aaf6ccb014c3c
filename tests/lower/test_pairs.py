"""Kernels of bf16 pairs: the meaning on every register file, and the instruction for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from luban.codegen.llvm import emit
from luban.core.registers import Registers
from luban.engine.compile import compile_graph
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.fusion import Fusion
from luban.graph.ops.packed import PackPanels, PanelConvolution, PanelDot
from luban.graph.ops.winograd import WinogradConvolution, transforms
from luban.ir.node import Graph, Node, node
from luban.native.compile import assembly, count_spills
from luban.native.target import host_target, named_target
from luban.passes.quads import whole_groups
from tests.lower.test_convolution import convolution, graph_of
from tests.lower.tiles import AVX2, AVX512, NEON, kernels, notes, optimised, run_tiles
from tests.programs import inputs_for, p

PAIRS = [replace(registers, pair_products=True) for registers in (AVX512, AVX2, NEON)]
TILES = pytest.mark.parametrize("registers", PAIRS, ids=["avx512", "avx2", "neon"])
FEW = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
HOST = host_target()
NEEDS_PAIRS = pytest.mark.skipif(not HOST.has("avx512bf16"), reason="needs AVX-512 BF16")


def dense(rows: int | str, depth: int, columns: int, *, relu: bool = False) -> Graph:
    x = p("x", rows, depth)
    matrix = np.random.default_rng(1).standard_normal((depth, columns))
    sums = g.matmul(x, g.constant(matrix, "f32"))
    return Graph("dense", (x,), (g.maximum(sums, 0.0) if relu else sums,))


def image(channels: int, window: int, stride: int = 1, pad: int = 0) -> Graph:
    x = p("x", 1, channels, 9, 11)
    made = convolution(x, 20, (window, window), stride=stride, low=pad, high=pad)
    return graph_of(x, made)


def close(got: Any, want: Any, depth: int) -> None:
    """Factors are rounded alike; sums differ by their order, and by one unit of a bf16 result."""
    unit = np.finfo(np.float32).eps if got.dtype == np.float32 else 2**-7
    bound = (4 * np.sqrt(depth) * np.finfo(np.float32).eps + unit) * np.abs(want).max()
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=0, atol=bound)


def check_tiles(graph: Graph, registers: Registers, **sizes: int) -> None:
    inputs = inputs_for(graph, sizes)
    wanted = evaluate(optimised(graph, registers), inputs, precision="model")
    for got, want in zip(run_tiles(graph, inputs, registers), wanted, strict=True):
        close(got, want, 2000)


def check_machine(graph: Graph, **sizes: int) -> None:
    inputs = inputs_for(graph, sizes)
    compiled = compile_graph(graph, num_threads=2, numerics="fast")
    wanted = evaluate(compiled.optimised, inputs, precision="model")
    for got, want in zip(compiled.executor.run(inputs), wanted, strict=True):
        close(got, want, 2000)


@TILES
@pytest.mark.parametrize("depth", [8, 9, 15, 16])
def test_depths(depth: int, registers: Registers) -> None:
    check_tiles(dense(5, depth, 33), registers)


@TILES
def test_one_program_serves_every_row_count(registers: Registers) -> None:
    graph = dense("n", 9, 20, relu=True)
    for rows in (1, 2, 5, 7, 13):
        check_tiles(graph, registers, n=rows)


@TILES
@pytest.mark.parametrize(
    ("channels", "window", "stride", "pad"),
    [(3, 3, 2, 1), (8, 1, 1, 0), (8, 1, 2, 0), (5, 2, 1, 1)],
)
def test_convolutions(
    channels: int, window: int, stride: int, pad: int, registers: Registers
) -> None:
    check_tiles(image(channels, window, stride, pad), registers)


@FEW
@given(st.data())
def test_any_product(data: st.DataObject) -> None:
    rows, depth, columns = (data.draw(st.integers(1, n)) for n in (20, 70, 140))
    check_machine(dense("n", depth, columns), n=rows)


@FEW
@given(st.data())
def test_any_convolution(data: st.DataObject) -> None:
    channels, window, stride = (data.draw(st.integers(1, n)) for n in (9, 3, 2))
    check_machine(image(channels, window, stride, data.draw(st.integers(0, 2))))


def test_a_result_does_not_depend_on_the_threads() -> None:
    graph = dense("n", 200, 300)
    inputs = inputs_for(graph, {"n": 37})
    one, two = (
        compile_graph(graph, num_threads=n, numerics="fast").executor.run(inputs)[0] for n in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


def test_other_targets_compute_in_f32() -> None:
    graph = dense("n", 64, 40)
    inputs = inputs_for(graph, {"n": 5})
    strict, fast = (
        compile_graph(graph, target=named_target("avx2"), numerics=mode).executor.run(inputs)[0]
        for mode in ("strict", "fast")
    )
    np.testing.assert_array_equal(fast, strict)


@NEEDS_PAIRS
def test_strict_numerics_never_round() -> None:
    graph = dense("n", 64, 40)
    for mode, pairs in (("strict", False), ("fast", True)):
        compiled = compile_graph(graph, numerics=mode)  # type: ignore[arg-type]
        dtypes = {n.tensor.dtype.name for n in compiled.optimised.nodes()}
        assert ("bf16" in dtypes) is pairs


@NEEDS_PAIRS
@pytest.mark.parametrize("graph", [dense("n", 64, 64), dense(1, 64, 64), image(8, 3)])
def test_a_step_is_one_instruction_and_nothing_spills(graph: Graph) -> None:
    def is_product(n: Node) -> bool:
        assert isinstance(n.op, Fusion)
        return any(isinstance(m.op, (PanelDot, PanelConvolution)) for m in n.op.body.nodes())

    (kernel,) = (k for n, k in kernels(graph, PAIRS[0]) if is_product(n))
    text = assembly(emit(kernel.module, HOST), HOST)
    assert "vdpbf16ps" in text
    assert count_spills(text) == 0


def test_rows_that_are_not_contiguous_are_copied_first() -> None:
    x = p("x", 12, "n")
    matrix = g.constant(np.random.default_rng(1).standard_normal((12, 20)), "f32")
    graph = Graph("turned", (x,), (g.matmul(g.transpose(x, (1, 0)), matrix),))
    assert "plain loop nest" not in notes(graph, PAIRS[0])
    check_machine(graph, n=7)


def tiled(channels: int, outputs: int, space: int | str) -> Graph:
    """A 3 x 3 convolution in Winograd tiles of 2 with bf16 factors."""
    x = p("x", 1, space, space, channels)
    filters = np.random.default_rng(3).standard_normal((3, 3, channels, outputs))
    points = np.array(transforms(2).filters)
    matrices = np.einsum("iy,jx,yxco->ijco", points, points, filters)
    flat = g.constant(matrices.reshape(-1, channels, outputs), "f32")
    pairs = g.cast(whole_groups(flat, 1, 2), "bf16")
    op = WinogradConvolution(2, (1, 1), (1, 1), outputs, x.tensor.dtype, 2)
    return graph_of(x, node(op, x, node(PackPanels(32, 2), pairs)))


@TILES
@pytest.mark.parametrize(("channels", "outputs"), [(16, 32), (7, 20), (33, 40)])
def test_tiles_of_pairs(channels: int, outputs: int, registers: Registers) -> None:
    check_tiles(tiled(channels, outputs, 7), registers)


@pytest.mark.parametrize("size", [1, 5, 14])
def test_tiles_of_pairs_on_this_machine(size: int) -> None:
    graph = tiled(33, 70, "s")
    inputs = inputs_for(graph, {"s": size})
    (got,) = compile_graph(graph, num_threads=2).executor.run(inputs)
    (want,) = evaluate(graph, inputs, precision="model")
    # A point within rounding of a tie goes the other way where sums differ in their order.
    np.testing.assert_allclose(got, want, rtol=0, atol=2**-9 * np.abs(want).max())


def test_pairs_in_tiles_keep_the_error_of_their_rounding() -> None:
    graph = tiled(64, 32, 24)
    inputs = [np.maximum(np.random.default_rng(0).standard_normal((1, 24, 24, 64)), 0)]
    inputs = [inputs[0].astype(np.float32)]
    (exact,) = evaluate(graph, inputs, precision="float64")
    (got,) = compile_graph(graph).executor.run(inputs)
    error = np.abs(got - exact).max() / np.abs(exact).max()
    assert 1e-4 < error < 6e-3  # 2.2e-3 for the plain form
