"""Sort and top_k as kernels: the order of the evaluator, to the bit, on long and short rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luban.core.dims import symbol
from luban.core.registers import Registers
from luban.engine.compile import Compiled, compile_graph
from luban.engine.steps import HostStep
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.reduce import Sort, TopK
from luban.ir.node import Graph, Node, node, results_of
from luban.lower.fusion import lower_fusion
from luban.lower.trace import Declined
from luban.native.target import named_target
from luban.tile.text import to_text
from tests.lower.tiles import AVX2, AVX512, kernels, run_tiles
from tests.programs import p

DTYPES = ("f32", "f64", "f16", "bf16", "i64", "i32", "i8", "u8", "u64", "bool")


def values(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int = 0) -> Any:
    """Few different values, with NaN, infinities and both zeros among the floats."""
    random = np.random.default_rng(seed)
    if dtype.kind not in "iub":
        drawn = np.round(random.standard_normal(shape) * 4) / 4
        for special in (np.nan, np.inf, -np.inf, -0.0, -np.nan):
            drawn = np.where(random.random(shape) < 0.05, special, drawn)
        return drawn.astype(dtype)
    low, high = (0, 2) if dtype.kind == "b" else (-100 if dtype.kind == "i" else 0, 100)
    return random.integers(low, high, shape).astype(dtype)


def picked(x: Node, k: int | str, axis: int, largest: bool) -> tuple[Node, ...]:
    return results_of(node(TopK(k, axis, largest), x))  # type: ignore[arg-type]


def assert_same(got: list[Any], expected: tuple[Any, ...] | list[Any]) -> None:
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()


def in_kernels(graph: Graph) -> Compiled:
    compiled = compile_graph(graph, num_threads=2)
    assert not any(isinstance(step, HostStep) for step in compiled.executor.program.steps)
    return compiled


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 40), (2, 300)], ids=str)
def test_every_type_in_both_directions(dtype: str, shape: tuple[int, int]) -> None:
    x, y = p("x", *shape, dtype=dtype), p("y", *shape, dtype="i32")
    results: list[Node] = []
    for down in (False, True):
        results += [*picked(x, 7, 1, down), *picked(x, 2, 0, down)]
        results += [*results_of(node(Sort(1, down), x, y)), node(Sort(0, down), y)]
    graph = Graph("ordered", (x, y), tuple(results))
    given = [values(x.tensor.dtype.numpy, shape), values(np.dtype(np.int32), shape)]
    assert_same(in_kernels(graph).executor.run(given), evaluate(graph, given))


def test_one_compile_orders_rows_of_any_size() -> None:
    x = p("x", "n", "m", 2)
    ordered = results_of(node(Sort(1, descending=True), x, g.negative(x)))
    graph = Graph("any", (x,), (*ordered, *picked(x, 1, 2, True), node(Sort(0), x)))
    compiled = in_kernels(graph)
    for shape in ((3, 40, 2), (1, 3000, 2), (5, 1, 2), (0, 4, 2), (4, 0, 2)):
        given = [values(np.dtype(np.float32), shape)]
        assert_same(compiled.executor.run(given), evaluate(graph, given))


@pytest.mark.parametrize("k", [1, 50, 1500, 5000])
def test_few_of_many_whatever_their_order(k: int) -> None:
    x = p("x", "n", 5000)
    graph = Graph("many", (x,), (*picked(x, k, 1, True), *picked(x, k, 1, False)))
    compiled = in_kernels(graph)
    rising = np.arange(10000, dtype=np.float32).reshape(2, 5000)
    for given in (rising, -rising, np.ones_like(rising), values(rising.dtype, (2, 5000))):
        assert_same(compiled.executor.run([given]), evaluate(graph, [given]))


@pytest.mark.parametrize("registers", [AVX512, AVX2], ids=["avx512", "avx2"])
@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_tile_programs_order_as_the_meaning_does(dtype: str, registers: Registers) -> None:
    x = p("x", 2, "m", dtype=dtype)
    short = p("short", 3, 21, dtype=dtype)
    both = (*picked(x, 3, 1, True), node(Sort(1), x), node(Sort(0), x))
    graph = Graph("tiles", (x, short), (*both, *picked(short, 4, 1, False), node(Sort(0), short)))
    given = [values(x.tensor.dtype.numpy, shape) for shape in ((2, 45), (3, 21))]
    assert_same(run_tiles(graph, given, registers), evaluate(graph, given))


def test_rows_that_are_scanned_for_few_pass_the_checks_of_the_tile_evaluator() -> None:
    x = p("x", 1, 1400)
    graph = Graph("scan", (x,), picked(x, 2, 1, True))
    given = [np.arange(1400, dtype=np.float32).reshape(1, 1400)]
    assert_same(run_tiles(graph, given, AVX512), evaluate(graph, given))


def test_threads_never_change_the_order() -> None:
    x = p("x", 300, 700)
    graph = Graph("threads", (x,), picked(x, 9, 1, True))
    given = [values(np.dtype(np.float32), (300, 700))]
    one, three = (compile_graph(graph, num_threads=n).executor.run(given) for n in (1, 3))
    assert_same(one, three)


def test_short_rows_count_and_long_rows_go_by_digits() -> None:
    for size, said in ((256, "counts"), (257, "by digits"), ("m", "by digits")):
        x = p("x", 4, size)
        ((_, kernel),) = kernels(Graph("rows", (x,), picked(x, 2, 1, True)), AVX512)
        assert said in kernel.notes[0]
        assert ("per_thread" in to_text(kernel.module)) == (said == "by digits")


def test_avx2_code_orders_too() -> None:
    x = p("x", 3, "m")
    graph = Graph("narrow", (x,), (*picked(x, 4, 1, True), node(Sort(1), x)))
    compiled = compile_graph(graph, target=named_target("avx2"))
    given = [values(np.dtype(np.float32), (3, 2500))]
    assert_same(compiled.executor.run(given), evaluate(graph, given))


def test_a_k_that_only_the_run_knows_stays_on_the_host() -> None:
    x, k = p("x", "n"), p("k", dtype="i64")
    graph = Graph("open", (x, k), results_of(node(TopK(symbol("k0"), 0), x, k)))
    (step,) = compile_graph(graph).executor.program.steps
    assert isinstance(step, HostStep)
    assert step.reason == "top_k whose k is known at run time only is a host operation"


def test_a_sort_among_other_operations_is_declined() -> None:
    x = p("x", 8)
    body = Graph("mixed", (x,), (node(Sort(0), g.add(x, 1.0)),))
    with pytest.raises(Declined, match="sorting stands alone in its kernel"):
        lower_fusion("kernel", body, AVX512)
