"""Concatenations as one nest a part: exact at every size, and what stays with the plain nest."""

from __future__ import annotations

import numpy as np
import pytest

from luban.core.registers import Registers
from luban.engine.compile import compile_graph
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.ir.node import Graph
from tests.lower.test_gemm import TILES
from tests.lower.tiles import AVX512, notes, run_tiles
from tests.programs import inputs_for, p


def exact(graph: Graph, registers: Registers = AVX512, **sizes: int) -> None:
    inputs = inputs_for(graph, sizes)
    (got,), (want,) = run_tiles(graph, inputs, registers), evaluate(graph, inputs)
    np.testing.assert_array_equal(got, want)


def cache(dtype: str = "f32") -> Graph:
    """A key cache that grows by the transposed keys of new tokens."""
    past, new = p("past", "b", 3, "past", 8, dtype=dtype), p("new", "b", "n", 3, 8, dtype=dtype)
    return Graph("cache", (past, new), (g.concatenate([past, g.transpose(new, (0, 2, 1, 3))], 2),))


@TILES
@pytest.mark.parametrize(("past", "new"), [(0, 1), (7, 1), (200, 3), (5, 0), (0, 0)])
def test_a_growing_cache(past: int, new: int, registers: Registers) -> None:
    exact(cache(), registers, b=2, past=past, n=new)
    assert "2 parts" in notes(cache(), registers)


@pytest.mark.parametrize("dtype", ["u8", "f16", "i64", "bool"])
def test_every_width_of_number(dtype: str) -> None:
    exact(cache(dtype), b=1, past=9, n=2)


def test_parts_may_be_computed() -> None:
    x, y = p("x", "n", 20), p("y", 3, 20)
    graph = Graph("joined", (x, y), (g.concatenate([g.multiply(x, 2.0), g.negative(y), x], 0),))
    exact(graph, n=5)
    assert "3 parts" in notes(graph)


def test_parts_side_by_side() -> None:
    x, y = p("x", "n", 9), p("y", "n", 16)
    exact(Graph("joined", (x, y), (g.concatenate([x, y], 1),)), n=5)


def test_a_row_beside_a_matrix() -> None:
    """The part of one row does not see where the loop over the other's rows stood."""
    x, y = p("x", "n", 20), p("y", 20)
    parts = [x, g.reshape(y, (1, 20)), g.broadcast_to(y, (1, 20))]
    graph = Graph("joined", (x, y), (g.concatenate(parts, 0),))
    exact(graph, n=5)
    exact(graph, n=0)
    compiled = compile_graph(graph).executor.run(inputs_for(graph, {"n": 3}))
    assert compiled[0].shape == (5, 20)


@pytest.mark.parametrize("sizes", [(1, 1), (16, 3)])
def test_short_parts_of_the_last_axis_stay_one_nest(sizes: tuple[int, int]) -> None:
    x, y = p("x", "n", sizes[0]), p("y", "n", sizes[1])
    graph = Graph("joined", (x, y), (g.concatenate([x, y], 1),))
    exact(graph, n=5)
    assert "parts" not in notes(graph)


def test_many_parts_stay_one_nest() -> None:
    parts = [p(f"x{i}", 2, 10) for i in range(9)]
    graph = Graph("joined", tuple(parts), (g.concatenate(parts, 0),))
    exact(graph)
    assert "parts" not in notes(graph)


def test_maths_on_the_whole_stays_one_nest() -> None:
    x, y = p("x", "n", 9), p("y", 2, 9)
    graph = Graph("joined", (x, y), (g.add(g.concatenate([x, y], 0), 1.0),))
    exact(graph, n=5)
    assert "parts" not in notes(graph)
