"""Kernels from loop nests: tile program and machine code both agree with the graph's meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from luban.core.registers import Registers
from luban.engine.compile import compile_graph
from luban.graph import build as g
from luban.graph.bind import bind_all
from luban.graph.evaluate import evaluate, evaluate_node
from luban.graph.ops.fusion import Fusion
from luban.ir.node import Graph, Parameter
from luban.lower.emit import lower_nest
from luban.lower.fusion import lower_fusion
from luban.lower.interpret import run_kernel
from luban.lower.support import no_kernel
from luban.lower.trace import Declined
from luban.passes.fuse import fuse
from luban.tile.memory_ops import For
from tests.programs import PROGRAMS, Program, inputs_for, p


def assert_close(got: Sequence[Any], expected: Sequence[Any], tolerance: float) -> None:
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        error = np.abs(a.astype(np.float64) - b.astype(np.float64)) / (
            1 + np.abs(b.astype(np.float64))
        )
        assert np.max(error, initial=0) <= tolerance


def run_tiles(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """The fused graph with every fusion run by the tile evaluator in checked mode."""
    fused, _ = fuse(graph, no_kernel)
    sizes: dict[str, int] = {}
    rows = zip(graph.parameter_names, graph.parameters, inputs, strict=True)
    bind_all([(label, parameter.type, x) for label, parameter, x in rows], sizes)
    held: dict[Any, Any] = dict(zip(graph.parameters, inputs, strict=True))
    for n in fused.nodes():
        if isinstance(n.op, Parameter):
            continue
        operands = [held[o] for o in n.operands]
        if not isinstance(n.op, Fusion):
            held[n] = evaluate_node(n, operands, sizes)
            continue
        kernel = lower_fusion("kernel", n.op.body, Registers(64, 32))
        results = run_kernel(kernel, operands, [r.tensor for r in n.op.body.results], sizes)
        held[n] = results[0] if len(results) == 1 else tuple(results)
    return [held[r] for r in fused.results]


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_machine_code_equals_the_meaning_at_all_sizes_with_one_compile(program: Program) -> None:
    graph = program.graph()
    compiled = compile_graph(graph, num_threads=2)
    for sizes in program.sizes:
        inputs = inputs_for(graph, sizes)
        assert_close(compiled.executor.run(inputs), evaluate(graph, inputs), program.tolerance)


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_tile_program_equals_the_meaning_and_stays_in_bounds(program: Program) -> None:
    graph = program.graph()
    inputs = inputs_for(graph, program.sizes[0])
    assert_close(run_tiles(graph, inputs), evaluate(graph, inputs), program.tolerance)


@pytest.mark.parametrize("program", [q for q in PROGRAMS if q.num_kernels], ids=str)
def test_number_of_kernels(program: Program) -> None:
    fused, _ = fuse(program.graph(), no_kernel)
    kernels = [n for n in fused.nodes() if isinstance(n.op, Fusion)]
    assert len(kernels) == program.num_kernels


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    program = next(q for q in PROGRAMS if q.name == "residual_norm")
    graph = program.graph()
    inputs = inputs_for(graph, {"n": 600})
    one, two = (compile_graph(graph, num_threads=n).executor.run(inputs) for n in (1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def test_nan_reaches_the_maximum_wherever_it_stands() -> None:
    x = p("x", "n")
    compiled = compile_graph(Graph("max", (x,), (g.reduce("maximum", x, [0]),)), num_threads=1)
    for length in (1, 2, 17, 64, 65):
        for place in range(length):
            values = np.arange(length, dtype=np.float32)
            values[place] = np.nan
            assert np.isnan(compiled.executor.run([values])[0])


def test_two_contractions_in_one_body_are_declined() -> None:
    a = p("a", 4, 4)
    body = Graph("two", (a,), (g.add(g.matmul(a, a), g.matmul(g.add(a, 1.0), a)),))
    with pytest.raises(Declined, match="more than one contraction"):
        lower_nest("kernel", body, 64)


@pytest.mark.parametrize("shape", [(25_600, 24), (160, 160, 24), ("n", "m", 24), (5, 5120, 24)])
def test_the_error_of_a_long_sum_does_not_grow_with_its_length(
    shape: tuple[int | str, ...],
) -> None:
    """Terms of one sign, so one chain of 25,600 additions would be 5e-6 off."""
    x = p("x", *shape)
    graph = Graph("sums", (x,), (g.reduce("sum", x, range(len(shape) - 1)),))
    known = {"n": 160, "m": 160}
    sizes = [known[s] if isinstance(s, str) else s for s in shape]
    value = np.abs(np.random.default_rng(0).standard_normal(sizes)).astype(np.float32)
    (got,) = compile_graph(graph, num_threads=2).executor.run([value])
    want = value.astype(np.float64).reshape(-1, 24).sum(0)
    assert float(np.max(np.abs(got / want - 1))) < 1e-6


@pytest.mark.parametrize(("rows", "blocks"), [(256, 0), (257, 1), ("n", 1)])
def test_only_sums_that_may_be_long_are_taken_in_blocks(rows: int | str, blocks: int) -> None:
    loops = []
    for kind in ("maximum", "sum"):
        x = p("x", rows, 16)
        (fused,) = fuse(Graph("g", (x,), (g.reduce(kind, x, [0]),)), no_kernel)[0].results
        assert isinstance(fused.op, Fusion)
        module = lower_fusion("kernel", fused.op.body, Registers(64, 32)).module
        found = [op for f in module.functions for op in f.operations() if isinstance(op.op, For)]
        loops.append(len(found))
    assert loops[1] - loops[0] == blocks
