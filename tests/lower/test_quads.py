"""Products of bytes: every sign, size and target gives the very integers of the meaning."""

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
from luban.graph.ops.packed import PanelConvolution, PanelDot
from luban.ir.node import Graph, Node
from luban.native.compile import assembly, count_spills
from luban.native.target import host_target, named_target
from tests.lower.tiles import AVX2, AVX512, NEON, kernels, notes, run_tiles
from tests.programs import p

TILES = pytest.mark.parametrize("registers", [AVX512, AVX2, NEON], ids=["avx512", "avx2", "neon"])
SIGNS = pytest.mark.parametrize("signs", ["u8 i8", "i8 i8", "u8 u8", "i8 u8"])
TARGETS = [t for t in (host_target(), named_target("avx512"), named_target("avx2")) if t.runs_here]
FEW = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


def codes(dtype: str, *shape: int, seed: int = 0) -> Any:
    """Codes over the whole range, both ends of it included."""
    limits = np.iinfo(dtype.replace("u", "uint") if dtype[0] == "u" else dtype.replace("i", "int"))
    drawn = np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape)
    drawn = drawn.astype(limits.dtype)
    if drawn.size > 1:
        drawn.flat[0], drawn.flat[-1] = limits.min, limits.max
    return drawn


def dense(signs: str, rows: int | str, depth: int, columns: int) -> Graph:
    left, right = signs.split()
    x = p("x", rows, depth, dtype=left)
    matrix = g.constant(codes(right, depth, columns, seed=1), right)
    return Graph("dense", (x,), (g.matmul(x, matrix, "i32"),))


def image(signs: str, channels: int, window: int, stride: int = 1, pad: int = 0) -> Graph:
    left, right = signs.split()
    x = p("x", 1, channels, 9, 11, dtype=left)
    filters = g.constant(codes(right, 20, channels, window, window, seed=1), right)
    sums = g.convolution(x, filters, (stride,) * 2, (pad,) * 2, (pad,) * 2, element="i32")
    return Graph("image", (x,), (sums,))


def check_tiles(graph: Graph, inputs: list[Any], registers: Registers) -> None:
    for got, want in zip(run_tiles(graph, inputs, registers), evaluate(graph, inputs), strict=True):
        np.testing.assert_array_equal(got, want)


def check_machine(graph: Graph, inputs: list[Any]) -> None:
    """The same integers from the instruction for them and from wider products."""
    wanted = evaluate(graph, inputs)
    for target in TARGETS:
        results = compile_graph(graph, num_threads=2, target=target).executor.run(inputs)
        for got, want in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(got, want)


@TILES
@SIGNS
@pytest.mark.parametrize("depth", [1, 4, 7, 16])
def test_depths(depth: int, signs: str, registers: Registers) -> None:
    check_tiles(dense(signs, 5, depth, 33), [codes(signs[:2], 5, depth)], registers)


@TILES
def test_one_program_serves_every_row_count(registers: Registers) -> None:
    graph = dense("u8 i8", "n", 9, 20)
    for rows in (0, 1, 2, 5, 7, 13):
        check_tiles(graph, [codes("u8", rows, 9)], registers)


@TILES
@SIGNS
@pytest.mark.parametrize(
    ("channels", "window", "stride", "pad"),
    [(3, 3, 2, 1), (8, 1, 1, 0), (4, 1, 2, 0), (5, 2, 1, 1)],
)
def test_convolutions(
    channels: int, window: int, stride: int, pad: int, signs: str, registers: Registers
) -> None:
    graph = image(signs, channels, window, stride, pad)
    check_tiles(graph, [codes(signs[:2], 1, channels, 9, 11)], registers)


def test_the_largest_sums_do_not_wrap() -> None:
    x = p("x", 1, 65536, dtype="u8")
    matrix = g.constant(np.full((65536, 2), -128), "i8")
    graph = Graph("deep", (x,), (g.matmul(x, matrix, "i32"),))
    check_machine(graph, [np.full((1, 65536), 255, np.uint8)])


@FEW
@given(st.data())
def test_any_product(data: st.DataObject) -> None:
    signs = data.draw(st.sampled_from(["u8 i8", "i8 i8", "u8 u8", "i8 u8"]))
    rows, depth, columns = (data.draw(st.integers(1, n)) for n in (20, 70, 140))
    check_machine(dense(signs, "n", depth, columns), [codes(signs[:2], rows, depth)])


@FEW
@given(st.data())
def test_any_convolution(data: st.DataObject) -> None:
    signs = data.draw(st.sampled_from(["u8 i8", "i8 i8", "u8 u8", "i8 u8"]))
    channels, window, stride = (data.draw(st.integers(1, n)) for n in (9, 3, 2))
    graph = image(signs, channels, window, stride, data.draw(st.integers(0, 2)))
    check_machine(graph, [codes(signs[:2], 1, channels, 9, 11)])


def test_batches_of_matrices() -> None:
    x, y = p("x", "b", "m", 12, dtype="u8"), p("y", "b", 12, 10, dtype="i8")
    graph = Graph("batch", (x, y), (g.matmul(x, y, "i32"),))
    check_machine(graph, [codes("u8", 3, 9, 12), codes("i8", 3, 12, 10)])


def test_the_depth_may_be_known_at_run_time_only() -> None:
    x, y = p("x", 9, "k", dtype="i8"), p("y", "k", 10, dtype="u8")
    graph = Graph("deep", (x, y), (g.matmul(x, y, "i32"),))
    for depth in (1, 4, 6):
        check_machine(graph, [codes("i8", 9, depth), codes("u8", depth, 10)])


def product_kernel(graph: Graph) -> Any:
    def is_product(n: Node) -> bool:
        assert isinstance(n.op, Fusion)
        return any(isinstance(m.op, (PanelDot, PanelConvolution)) for m in n.op.body.nodes())

    (kernel,) = (k for n, k in kernels(graph, AVX512) if is_product(n))
    return kernel


def stem(channels: int, window: int, stride: int) -> Graph:
    """A first layer: rows of a tile read what the rows next to them read some steps later."""
    x = p("x", 1, channels, 64, 64, dtype="u8")
    filters = g.constant(codes("i8", 64, channels, window, window, seed=1), "i8")
    ends = ((stride,) * 2, (0, 0), (0, 0))
    return Graph("stem", (x,), (g.convolution(x, filters, *ends, element="i32"),))


@pytest.mark.parametrize(
    "graph",
    [dense("u8 i8", "n", 64, 64), image("u8 i8", 8, 3), stem(3, 7, 2), stem(4, 5, 1)],
    ids=["dense", "image", "stem", "every step"],
)
def test_a_step_is_one_instruction_and_nothing_spills(graph: Graph) -> None:
    target = replace(named_target("avx512"), features=host_target().features)
    if not target.has("avx512vnni"):
        pytest.skip("needs AVX-512 VNNI")
    text = assembly(emit(product_kernel(graph).module, target), target)
    assert "vpdpbusd" in text
    assert count_spills(text) == 0
    assert "vpmulld" not in text


def test_rows_that_are_not_contiguous_are_copied_first() -> None:
    x = p("x", 12, "n", dtype="u8")
    matrix = g.constant(codes("i8", 12, 20, seed=1), "i8")
    graph = Graph("turned", (x,), (g.matmul(g.transpose(x, (1, 0)), matrix, "i32"),))
    assert "plain loop nest" not in notes(graph)
    check_machine(graph, [codes("u8", 12, 7)])
