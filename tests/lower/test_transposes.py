"""Copies that exchange axes: exact at every size; loop nests keep what they do as well."""

from __future__ import annotations

import numpy as np
import pytest

from luban.core.registers import Registers
from luban.engine.compile import compile_graph
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.ir.node import Graph
from luban.tile.text import to_text
from tests.lower.test_gemm import TILES
from tests.lower.tiles import AVX512, kernels, notes, run_tiles
from tests.programs import inputs_for, p


def transposed(permutation: tuple[int, ...], *shape: int | str, dtype: str = "f32") -> Graph:
    x = p("x", *shape, dtype=dtype)
    return Graph("turn", (x,), (g.transpose(x, permutation),))


def exact(graph: Graph, registers: Registers = AVX512, once: bool = False, **sizes: int) -> None:
    inputs = inputs_for(graph, sizes)
    (got,), (want,) = run_tiles(graph, inputs, registers, once=once), evaluate(graph, inputs)
    np.testing.assert_array_equal(got, want)


@TILES
@pytest.mark.parametrize(
    ("permutation", "shape"),
    [
        ((1, 0), (16, 16)),
        ((1, 0), (17, 40)),
        ((0, 2, 3, 1), (2, 12, 3, 9)),
        ((2, 1, 0), (9, 3, 20)),
    ],
)
def test_known_sizes(
    permutation: tuple[int, ...], shape: tuple[int, ...], registers: Registers
) -> None:
    graph = transposed(permutation, *shape)
    assert "squares" in notes(graph, registers)
    exact(graph, registers)
    exact(graph, registers, once=True)


def program(graph: Graph, once: bool) -> str:
    ((_, kernel),) = kernels(graph, AVX512, once=once)
    return to_text(kernel.module)


def test_copies_that_run_once_share_a_kernel() -> None:
    graphs = [
        transposed((1, 0), 16, 16),
        transposed((1, 0), 17, 400),
        transposed((0, 2, 1), 3, 33, 20),
        transposed((0, 2, 1), 3, "c", "w"),
    ]
    assert len({program(graph, once=True) for graph in graphs}) == 1


def test_copies_of_every_call_know_their_sizes() -> None:
    wide, long = transposed((1, 0), 16, 32), transposed((1, 0), 32, 16)
    assert program(wide, once=False) != program(long, once=False)


def test_sizes_known_at_run_time() -> None:
    graph = transposed((0, 2, 1), "n", "c", "w")
    assert "squares" in notes(graph)
    for n, c, w in ((0, 3, 3), (1, 1, 1), (2, 16, 33), (1, 5, 40), (1, 31, 16)):
        exact(graph, n=n, c=c, w=w)


@pytest.mark.parametrize("dtype", ["i64", "f64", "i32"])
def test_other_dtypes(dtype: str) -> None:
    graph = transposed((1, 0), 11, 19, dtype=dtype)
    assert "squares" in notes(graph)
    exact(graph)


@pytest.mark.parametrize("dtype", ["bf16", "i8", "bool"])
def test_narrow_dtypes_keep_the_loop_nest(dtype: str) -> None:
    graph = transposed((1, 0), 11, 19, dtype=dtype)
    assert "squares" not in notes(graph)
    exact(graph)


def test_rows_that_stay_rows_keep_the_loop_nest() -> None:
    graph = transposed((1, 0, 2), 9, 10, 12)
    assert "squares" not in notes(graph)
    exact(graph)


def test_three_colours_keep_the_loop_nest() -> None:
    graph = transposed((0, 2, 3, 1), 1, 3, 9, 10)
    assert "squares" not in notes(graph)
    exact(graph)


def test_a_copy_that_also_computes_keeps_the_loop_nest() -> None:
    x = p("x", 20, 30)
    graph = Graph("turn", (x,), (g.add(g.transpose(x, (1, 0)), 1.0),))
    assert "squares" not in notes(graph)
    exact(graph)


def test_machine_code_moves_nan_and_minus_zero_as_they_are() -> None:
    graph = transposed((1, 0), "n", "m")
    compiled = compile_graph(graph, num_threads=2)
    x = np.random.default_rng(0).standard_normal((37, 300)).astype(np.float32)
    x[3, 5], x[30, 299] = -0.0, np.nan
    np.testing.assert_array_equal(
        compiled.executor.run([x])[0].view(np.int32), x.T.copy().view(np.int32)
    )
