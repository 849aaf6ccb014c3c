"""Matrix products: every register tile, every size, epilogues, and what is declined."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from luban.codegen.llvm import emit
from luban.core.registers import Registers
from luban.engine.compile import compile_graph
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.fusion import Fusion
from luban.graph.ops.packed import PanelDot
from luban.ir.node import Graph, Node
from luban.native.compile import assembly, count_spills
from luban.native.target import named_target
from luban.tile.memory_ops import Prefetch
from luban.tile.ops import Fma
from tests.lower.tiles import AVX2, AVX512, NEON, kernels, notes, run_tiles
from tests.programs import inputs_for, p

TILES = pytest.mark.parametrize("registers", [AVX512, AVX2, NEON], ids=["avx512", "avx2", "neon"])
EPILOGUES: dict[str, Callable[[Node, Node], Node]] = {
    "bias": lambda y, bias: g.add(y, bias),
    "relu": lambda y, bias: g.maximum(g.add(y, bias), 0.0),
    "gelu": lambda y, bias: g.multiply(y, g.add(g.erf(g.multiply(g.add(y, bias), 0.7)), 1.0)),
}


def weights(depth: int, columns: int, dtype: str = "f32") -> Node:
    values = np.random.default_rng(1).standard_normal((depth, columns))
    return g.constant(values, dtype)


def dense(rows: int | str, depth: int, columns: int, epilogue: str = "bias") -> Graph:
    x, bias = p("x", rows, depth), p("bias", columns)
    return Graph(
        "dense", (x, bias), (EPILOGUES[epilogue](g.matmul(x, weights(depth, columns)), bias),)
    )


def check(
    graph: Graph, sizes: dict[str, int], registers: Registers, tolerance: float = 1e-5
) -> None:
    inputs = inputs_for(graph, sizes)
    expected = evaluate(graph, inputs, precision="float64")
    for got, want in zip(run_tiles(graph, inputs, registers), expected, strict=True):
        assert got.shape == want.shape
        scale = 1 + np.abs(want.astype(np.float64))
        np.testing.assert_array_less(np.abs(got.astype(np.float64) - want) / scale, tolerance)


@TILES
@pytest.mark.parametrize("columns", [1, 2, 8, 15, 16, 21, 24, 33, 40, 64, 72, 100])
def test_column_counts(columns: int, registers: Registers) -> None:
    check(dense(5, 7, columns), {}, registers)


@TILES
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_one_program_serves_every_row_count(epilogue: str, registers: Registers) -> None:
    graph = dense("n", 9, 20, epilogue)
    for rows in (0, 1, 2, 3, 5, 6, 7, 8, 9, 13, 17, 25):
        check(graph, {"n": rows}, registers)


@pytest.mark.parametrize("rows", [1, 4, 6, 7, 13, 20])
def test_known_row_counts(rows: int) -> None:
    check(dense(rows, 8, 48), {}, AVX512)


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_other_floats(dtype: str) -> None:
    x = p("x", "n", 12, dtype=dtype)
    graph = Graph("dense", (x,), (g.matmul(x, weights(12, 24, dtype)),))
    check(graph, {"n": 7}, AVX512, {"f64": 1e-12, "f16": 2e-3, "bf16": 2e-2}[dtype])


def test_depth_known_at_run_time() -> None:
    x, y = p("x", "n", "k"), p("y", "k", 20)
    graph = Graph("dot", (x, y), (g.matmul(x, y),))
    for rows, depth in ((1, 0), (3, 1), (9, 17)):
        check(graph, {"n": rows, "k": depth}, AVX512)


def test_columns_known_at_run_time() -> None:
    x, y = p("x", 9, 5), p("y", 5, "m")
    graph = Graph("dot", (x, y), (g.matmul(x, y),))
    for columns in (0, 1, 63, 64, 65, 130):
        check(graph, {"m": columns}, AVX512)


def test_batches_of_matrices_read_through_a_transpose() -> None:
    """Attention's scores: heads are an axis inside the rows."""
    q, k = p("q", "b", "s", 2, 8), p("k", "b", "s", 2, 8)
    heads = (0, 2, 1, 3)
    scores = g.matmul(g.transpose(q, heads), g.transpose(k, (0, 2, 3, 1)))
    graph = Graph("scores", (q, k), (scores,))
    check(graph, {"b": 2, "s": 9}, AVX512)
    assert "plain loop nest" not in notes(graph)


def test_rows_that_a_mask_repeats_are_told_apart() -> None:
    x, mask = p("x", 3, 4, 6), p("mask", 4, 1)
    graph = Graph("masked", (x, mask), (g.multiply(g.matmul(x, weights(6, 10)), mask),))
    check(graph, {}, AVX512)


def test_a_gathered_left_operand_is_copied_first() -> None:
    table, places = p("table", 50, 8), p("places", 11, dtype="i64")
    graph = Graph(
        "gathered", (table, places), (g.matmul(g.take(table, places, 0), weights(8, 20)),)
    )
    check(graph, {}, AVX512)
    assert "plain loop nest" not in notes(graph)


def test_a_transposed_left_operand_is_copied_first() -> None:
    x = p("x", 8, 30)
    graph = Graph("turned", (x,), (g.matmul(g.transpose(x, (1, 0)), weights(8, 20)),))
    check(graph, {}, AVX512)
    assert "plain loop nest" not in notes(graph)


@pytest.mark.parametrize(("left", "right"), [("i32", "i32"), ("u8", "i8"), ("i8", "i8")])
def test_integer_products_are_exact(left: str, right: str) -> None:
    x, y = p("x", "n", 9, dtype=left), p("y", 9, 20, dtype=right)
    product = g.dot_general(x, y, ([1], [0]), element="i32")
    graph = Graph("integers", (x, y), (g.add(product, 3),))
    assert "sums" in notes(graph)
    inputs = [np.arange(63).reshape(7, 9) * 4 % 251, np.arange(180).reshape(9, 20) % 127 - 60]
    typed = [v.astype(q.tensor.dtype.numpy) for v, q in zip(inputs, (x, y), strict=True)]
    (got,) = run_tiles(graph, typed, AVX512)
    np.testing.assert_array_equal(got, evaluate(graph, typed)[0])


def test_wide_integer_products_keep_the_loop_nest() -> None:
    x, y = p("x", 9, 5, dtype="i64"), p("y", 5, 20, dtype="i64")
    graph = Graph("integers", (x, y), (g.matmul(x, y),))
    assert "sums" not in notes(graph)
    check(graph, {}, AVX512)


def test_the_note_tells_the_tile() -> None:
    assert "tiles of 6 x 64 sums" in notes(dense(128, 768, 768))
    assert "tiles of 4 x 24 sums" in notes(dense(128, 768, 768), AVX2)


@pytest.mark.parametrize("name", ["avx512", "avx2", "neon"])
@pytest.mark.parametrize("rows", [128, "n"])
@pytest.mark.parametrize(("depth", "columns"), [(256, 192), (1024, 1024)])
def test_sums_stay_in_registers(name: str, rows: int | str, depth: int, columns: int) -> None:
    target = named_target(name)
    registers = Registers(target.vector_bits // 8, target.num_vector_registers)
    for _, kernel in kernels(dense(rows, depth, columns, "relu"), registers):
        assert count_spills(assembly(emit(kernel.module, target), target)) == 0


def test_machine_code_agrees_and_does_not_depend_on_threads() -> None:
    graph = dense("n", 65, 70, "gelu")
    one, two = (compile_graph(graph, num_threads=n).executor for n in (1, 2))
    for rows in (1, 5, 6, 13, 200):
        inputs = inputs_for(graph, {"n": rows})
        first, second = one.run(inputs)[0], two.run(inputs)[0]
        np.testing.assert_array_equal(first, second)
        want = evaluate(graph, inputs, precision="float64")[0]
        np.testing.assert_allclose(first, want, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "wanted"),
    [
        (128, 768, 768, 1),
        (16, 768, 768, 2),  # three tiles fetch four vectors
        ("n", 768, 768, 2),  # perhaps two tiles
        (128, 32, 768, 0),
        (2, 768, 768, 0),
        (128, "k", 768, 0),
    ],
)
def test_tiles_fetch_the_next_panel_where_panels_are_far(
    rows: int | str, depth: int | str, columns: int, wanted: int
) -> None:
    """`wanted` vectors in each step of a tile."""
    x, y = p("x", rows, depth), p("y", depth, columns)
    graph = Graph("dot", (x, y), (g.matmul(x, y),))
    fetches = {
        sum(isinstance(inner.op, Prefetch) for region in loop.regions for inner in region.body)
        for n, kernel in kernels(graph, AVX512)
        if isinstance(n.op, Fusion) and isinstance(n.op.body.results[0].op, PanelDot)
        for function in kernel.module.functions
        for loop in function.operations()
    }
    assert max(fetches, default=0) == wanted
    assert fetches <= {0, wanted}


@pytest.mark.parametrize(("rows", "wanted"), [(1024, 6 * 4), (64, 0), ("n", 0)])
def test_a_far_residual_is_fetched_before_the_sums(rows: int | str, wanted: int) -> None:
    x, residual, bias = p("x", rows, 64), p("r", rows, 64), p("b", 64)
    total = g.add(g.add(g.matmul(x, weights(64, 64)), bias), residual)
    graph = Graph("residual", (x, residual, bias), (total,))
    fetches = [
        sum(isinstance(inner.op, Prefetch) for region in loop.regions for inner in region.body)
        for _, kernel in kernels(graph, AVX512)
        for function in kernel.module.functions
        for loop in function.operations()
    ]
    assert max(fetches) == wanted


@pytest.mark.parametrize(
    ("columns", "epilogue", "registers", "half"),
    [
        (24, "relu", AVX512, True),
        (21, "relu", AVX512, True),
        (26, "relu", AVX512, False),
        (24, "gelu", AVX512, False),  # its sums pass through memory, a whole vector at a time
        (12, "relu", AVX2, False),
    ],
)
def test_half_a_vector_holds_few_last_columns(
    columns: int, epilogue: str, registers: Registers, *, half: bool
) -> None:
    graph = dense(64, 32, columns, epilogue)
    shapes = {
        operation.results[0].type.shape
        for _, kernel in kernels(graph, registers)
        for function in kernel.module.functions
        for operation in function.operations()
        if isinstance(operation.op, Fma)
    }
    lanes = registers.lanes(4)
    assert (lanes,) in shapes
    assert ((lanes // 2,) in shapes) is half


@pytest.mark.parametrize("columns", [24, 21])
def test_machine_code_with_half_a_vector_agrees(columns: int) -> None:
    graph = dense("n", 65, columns, "relu")
    executor = compile_graph(graph, num_threads=1).executor
    for rows in (1, 14, 200):
        inputs = inputs_for(graph, {"n": rows})
        want = evaluate(graph, inputs, precision="float64")[0]
        np.testing.assert_allclose(executor.run(inputs)[0], want, rtol=2e-5, atol=2e-4)
