"""Kernels of convolutions in tiles: sizes, borders, epilogues, errors, registers, threads."""

from __future__ import annotations

import numpy as np
import pytest

from luban.codegen.llvm import emit
from luban.core import dims
from luban.core.registers import Registers
from luban.engine.compile import compile_graph
from luban.engine.kernels import registers_of
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.packed import PackPanels
from luban.graph.ops.winograd import WinogradConvolution, transforms
from luban.ir.node import Graph, Node, node
from luban.lower import winograd
from luban.lower.winograd_blocks import choose_blocks
from luban.native.compile import assembly, count_spills
from luban.native.target import named_target
from luban.tile.memory_ops import Prefetch
from tests.lower.test_gemm import TILES
from tests.lower.test_gemm import check as check_products
from tests.lower.tiles import AVX2, AVX512, kernels, notes, run_tiles
from tests.programs import inputs_for, p


def check(graph: Graph, sizes: dict[str, int], registers: Registers) -> None:
    """Transforms of filters of size 1 carry numbers of about 30."""
    check_products(graph, sizes, registers, tolerance=5e-5)


def tiled(
    x: Node,
    outputs: int,
    tile: int = 4,
    *,
    low: int = 1,
    high: int = 1,
    width: int = 16,
    seed: int = 3,
    axes: int = 2,
) -> Node:
    """A convolution of x [N, H, W, C] in tiles, with constant filters."""
    channels = x.tensor.shape[-1]
    assert isinstance(channels, int)
    filters = np.random.default_rng(seed).standard_normal((3, 3, channels, outputs))
    to_points = np.array(transforms(tile).filters)
    along = to_points if axes == 2 else np.eye(3)
    matrices = np.einsum("iy,jx,yxco->ijco", to_points, along, filters)
    flat = g.constant(matrices.reshape(-1, channels, outputs), "f32")
    ends = (low, low), (high, high)
    op = WinogradConvolution(tile, *ends, outputs, x.tensor.dtype, filter_axes=axes)
    return node(op, x, node(PackPanels(width), flat))


def graph_of(x: Node, outputs: int, tile: int = 4, **options: int) -> Graph:
    bias = g.constant(np.linspace(-1, 1, outputs), "f32")
    return Graph("tiled", (x,), (g.maximum(g.add(tiled(x, outputs, tile, **options), bias), 0.0),))


@TILES
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(
    ("height", "length", "low", "high"),
    [(8, 8, 0, 2), (6, 10, 0, 0), (7, 9, 1, 1), (1, 2, 1, 1), (5, 4, 2, 0)],
)
def test_sizes_and_borders(
    height: int, length: int, low: int, high: int, tile: int, registers: Registers
) -> None:
    x = p("x", 1, height, length, 16)
    check(graph_of(x, 16, tile, low=low, high=high), {}, registers)


@TILES
@pytest.mark.parametrize(("channels", "outputs"), [(5, 7), (17, 33), (16, 40)])
def test_channels_and_columns(channels: int, outputs: int, registers: Registers) -> None:
    x = p("x", 2, 5, 6, channels)
    check(graph_of(x, outputs, width=2 * registers.lanes(4)), {}, registers)


@TILES
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(
    ("size", "channels", "outputs"), [(4, 16, 16), (7, 5, 33), ("h", 17, 9), (9, 40, 7)]
)
def test_filters_that_the_kernel_transforms_the_rest_of_the_way(
    size: int | str,
    channels: int,
    outputs: int,
    tile: int,
    registers: Registers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In parts of the channels, whose sums go on where those before ended: not a bit changes."""
    x = p("x", 1, size, 6, channels)
    graph = graph_of(x, outputs, tile, width=2 * registers.lanes(4), axes=1)
    sizes = {"h": 5} if size == "h" else {}
    check(graph, sizes, registers)
    inputs = inputs_for(graph, sizes)
    whole = run_tiles(graph, inputs, registers)
    monkeypatch.setattr(winograd, "_PART", 16)
    np.testing.assert_array_equal(run_tiles(graph, inputs, registers), whole)


@pytest.mark.parametrize("name", ["avx512", "avx2"])
def test_parts_of_transformed_filters_spill_no_registers(name: str) -> None:
    target = named_target(name)
    registers = registers_of(target)
    graph = graph_of(p("x", 1, 16, 16, 512), 64, axes=1, width=registers.panel_width(64, 4))
    (kernel,) = (k for _, k in kernels(graph, registers) if "Winograd" in "".join(k.notes))
    assert count_spills(assembly(emit(kernel.module, target), target)) == 0


@pytest.mark.parametrize("registers", [AVX512, AVX2], ids=["avx512", "avx2"])
def test_one_kernel_serves_every_size(registers: Registers) -> None:
    graph = graph_of(p("x", "n", "h", "w", 8), 16)
    for n, h, w in ((1, 1, 1), (2, 9, 3), (1, 4, 30), (0, 4, 4)):
        check(graph, {"n": n, "h": h, "w": w}, registers)


def test_a_residual_and_long_maths_follow_the_sums() -> None:
    x = p("x", 1, 6, 7, 16)
    y = tiled(x, 16)
    gelu = g.multiply(y, g.add(g.erf(g.multiply(y, 0.7)), 1.0))
    check(Graph("residual", (x,), (g.add(gelu, x),)), {}, AVX512)


def test_the_image_may_be_a_part_of_a_larger_one() -> None:
    x = p("x", 1, 9, 9, 24)
    part = g.slice_axis(g.slice_axis(x, 3, 8, 16), 1, 1, 8)
    check(graph_of_part(x, part), {}, AVX512)


def graph_of_part(x: Node, part: Node) -> Graph:
    return Graph("part", (x,), (tiled(part, 16),))


def test_the_note_tells_the_tile() -> None:
    assert "Winograd tiles of 4 x 4" in notes(graph_of(p("x", 1, 8, 8, 16), 16))


def test_other_floats_have_no_kernel() -> None:
    """The pass never makes such a convolution; the evaluator takes it."""
    x = p("x", 1, 4, 4, 8, dtype="f64")
    panels = g.constant(np.ones((36, 1, 8, 16)), "f64")
    op = WinogradConvolution(4, (1, 1), (1, 1), 16, x.tensor.dtype)
    graph = Graph("wide", (x,), (node(op, x, panels),))
    compiled = compile_graph(graph)
    inputs = inputs_for(graph, {})
    (want,) = evaluate(graph, inputs)
    np.testing.assert_allclose(compiled.executor.run(inputs)[0], want)


@pytest.mark.parametrize("channels", [16, 64, 256])
@pytest.mark.parametrize(("tile", "bound"), [(2, 1.5e-6), (4, 4e-6)])
def test_the_error_keeps_its_bound(tile: int, bound: float, channels: int) -> None:
    """Relative to the largest result; a plain convolution in f32 has up to 1.5e-6 there."""
    graph = Graph("g", (x := p("x", 1, 14, 14, channels),), (tiled(x, 32, tile, width=32),))
    inputs = [np.maximum(np.random.default_rng(5).standard_normal((1, 14, 14, channels)), 0)]
    inputs = [inputs[0].astype(np.float32)]
    (want,) = evaluate(graph, inputs, precision="float64")
    (got,) = compile_graph(graph, num_threads=1).executor.run(inputs)
    assert np.abs(got - want).max() < bound * np.abs(want).max()


@pytest.mark.parametrize("name", ["avx512", "avx2", "neon"])
@pytest.mark.parametrize(("size", "channels"), [(28, 64), ("h", 64), (14, 256)])
def test_sums_stay_in_registers(name: str, size: int | str, channels: int) -> None:
    target = named_target(name)
    registers = registers_of(target)
    width = registers.panel_width(channels, 4)
    graph = graph_of(p("x", 1, size, size, channels), channels, width=width)
    most = 8 if (name, size) == ("neon", "h") else 0  # round its transforms, not in the products
    (kernel,) = (k for _, k in kernels(graph, registers) if "Winograd" in "".join(k.notes))
    assert count_spills(assembly(emit(kernel.module, target), target)) <= most


@pytest.mark.parametrize(("channels", "far"), [(16, False), (64, True)])
def test_far_filters_are_fetched_ahead_into_the_second_cache(channels: int, far: bool) -> None:
    graph = graph_of(p("x", "n", 14, 14, channels), channels, width=64)
    (kernel,) = (k for _, k in kernels(graph, AVX512) if "Winograd" in "".join(k.notes))
    operations = [o for f in kernel.module.functions for o in f.operations()]
    fetched = [o.op for o in operations if isinstance(o.op, Prefetch)]
    assert bool(fetched) is far
    assert {op.locality for op in fetched} <= {2}


def test_machine_code_agrees_and_does_not_depend_on_threads() -> None:
    graph = graph_of(p("x", "n", "h", "w", 20), 70, width=48)
    one, two = (compile_graph(graph, num_threads=n).executor for n in (1, 2))
    for n, h, w in ((1, 5, 9), (2, 30, 31), (1, 64, 64)):
        inputs = inputs_for(graph, {"n": n, "h": h, "w": w})
        first, second = one.run(inputs)[0], two.run(inputs)[0]
        np.testing.assert_array_equal(first, second)
        (want,) = evaluate(graph, inputs, precision="float64")
        np.testing.assert_allclose(first, want, rtol=2e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("count", [1, 16, 49, 196, 1000])
@pytest.mark.parametrize("channels", [16, 64, 256, 512])
def test_blocks_stay_in_the_cache_and_feed_the_threads(count: int, channels: int) -> None:
    blocks = choose_blocks(count, 8, 36, channels, 256, 48)
    tile_bytes = 36 * (channels + 48) * 4  # image and sums
    assert blocks.tiles * tile_bytes <= max(3 << 18, 8 * tile_bytes)
    assert isinstance(blocks.groups, int)
    programs = -(-count // blocks.tiles) * blocks.groups
    assert programs >= 6
    assert -(-programs // 2) * 2 <= 1.1 * programs


@pytest.mark.parametrize("count", [16, 49, 196])
def test_a_batch_of_the_run_has_the_blocks_of_one_image(count: int) -> None:
    known = choose_blocks(count, 6, 36, 128, 128, 64)
    assert choose_blocks(dims.symbol("n") * count, 6, 36, 128, 128, 64).tiles == known.tiles


def test_far_filters_are_read_by_few_blocks() -> None:
    assert choose_blocks(16, 6, 36, 256, 256, 64).tiles == 16
    assert choose_blocks(16, 6, 16, 512, 512, 64).tiles == 16
    assert choose_blocks(196, 6, 36, 64, 64, 64).tiles < 30  # near ones cost less than a full cache
