"""Products with codes: every form, size and target agrees with the meaning in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from luban.codegen.llvm import emit
from luban.core.dtypes import dtype
from luban.core.registers import Registers
from luban.engine.compile import compile_graph
from luban.engine.kernels import registers_of
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.coded import CodedDot
from luban.graph.ops.fusion import Fusion
from luban.ir.node import Graph, node
from luban.native.compile import assembly, count_spills
from luban.native.target import Target, host_target, named_target
from tests.lower.tiles import AVX2, AVX512, NEON, kernels, notes, run_tiles
from tests.programs import p

TILES = pytest.mark.parametrize("registers", [AVX512, AVX2, NEON], ids=["avx512", "avx2", "neon"])
TARGETS = [t for t in (host_target(), named_target("avx512"), named_target("avx2")) if t.runs_here]


@dataclass(frozen=True)
class Form:
    """One product; `zeros` names their type, `rows_type` i8 for rows that come with steps."""

    rows: int | str = 3
    depth: int = 64
    columns: int = 40
    bits: int = 4
    block: int = 32
    zeros: str = ""
    rows_type: str = "f32"
    scales: str = "f32"

    def graph(self) -> Graph:
        random = np.random.default_rng(0)
        count = -(-self.depth // self.block)
        codes = random.integers(0, 256, (self.columns, count, self.block * self.bits // 8))
        scales = random.uniform(0.5, 1.5, (self.columns, count)) / 16
        x = p("x", self.rows, self.depth, dtype=self.rows_type)
        given = [x, g.constant(codes.astype(np.uint8), "u8"), g.constant(scales, self.scales)]
        if self.zeros:
            zeros = random.integers(0, 1 << self.bits, (self.columns, count))
            given.append(g.constant(zeros, self.zeros))
        parameters = [x]
        if self.rows_type == "i8":
            parameters.append(p("steps", self.rows, count))
            given.append(parameters[-1])
        op = CodedDot(self.bits, self.block, dtype("f32"), bool(self.zeros))
        return Graph("coded", tuple(parameters), (node(op, *given),))

    def inputs(self, rows: int | None = None) -> list[Any]:
        random = np.random.default_rng(1)
        shape = (rows if rows is not None else int(self.rows), self.depth)
        if self.rows_type == "i8":
            steps = random.uniform(0.01, 0.02, (shape[0], -(-self.depth // self.block)))
            codes = random.integers(-127, 128, shape).astype(np.int8)
            return [codes, steps.astype(np.float32)]
        return [random.standard_normal(shape).astype(dtype(self.rows_type).numpy)]


def close(got: Any, want: Any, tolerance: float = 2e-6) -> None:
    got = np.asarray(got, np.float64)
    assert got.shape == want.shape
    np.testing.assert_array_less(np.abs(got - want), tolerance * np.abs(want).max(initial=1))


FORMS = [
    Form(),
    Form(rows=1, columns=70),
    Form(rows=7, depth=40, block=16),
    Form(depth=128, block=128),
    Form(depth=300, block=256, columns=5),
    Form(zeros="u8"),
    Form(zeros="f32"),
    Form(bits=8, zeros="u8"),
    Form(rows_type="i8"),
    Form(rows_type="i8", rows=13, zeros="u8", columns=33),
    Form(rows_type="i8", bits=8, rows=1, block=16),
    Form(rows_type="f16", scales="f16"),
]


@TILES
@pytest.mark.parametrize(
    "form", [FORMS[0], Form(rows=1, depth=24, block=16, zeros="u8"), FORMS[9], FORMS[10]], ids=str
)
def test_every_access_is_inside(form: Form, registers: Registers) -> None:
    graph, inputs = form.graph(), form.inputs()
    (want,) = evaluate(graph, inputs, precision="float64")
    (got,) = run_tiles(graph, inputs, registers)
    close(got, want)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_forms_agree_with_float64_and_with_each_other(form: Form) -> None:
    graph, inputs = form.graph(), form.inputs()
    (want,) = evaluate(graph, inputs, precision="float64")
    results = [run(graph, inputs, target) for target in TARGETS]
    for got in results:
        close(got, want)
        np.testing.assert_array_equal(got, results[0])  # the same on every machine


def run(graph: Graph, inputs: list[Any], target: Target, threads: int = 2) -> Any:
    return compile_graph(graph, num_threads=threads, target=target).executor.run(inputs)[0]


@pytest.mark.parametrize("rows_type", ["f32", "i8"])
def test_one_program_serves_every_row_count(rows_type: str) -> None:
    form = Form(rows="n", rows_type=rows_type)
    graph = form.graph()
    executor = compile_graph(graph, num_threads=2, target=TARGETS[0]).executor
    for rows in (0, 1, 2, 5, 13, 40):
        inputs = form.inputs(rows)
        (want,) = evaluate(graph, inputs, precision="float64")
        close(executor.run(inputs)[0], want)


def test_results_do_not_depend_on_threads_or_on_other_rows() -> None:
    graph, inputs = Form(rows="n").graph(), Form().inputs(9)
    whole = run(graph, inputs, TARGETS[0], threads=1)
    np.testing.assert_array_equal(run(graph, inputs, TARGETS[0], threads=2), whole)
    np.testing.assert_array_equal(run(graph, [inputs[0][4:5]], TARGETS[0])[0], whole[4])


def test_rows_of_more_than_one_axis_share_the_tiles() -> None:
    form = Form()
    x = p("x", 2, "n", form.depth)
    (product,) = form.graph().results
    whole = Graph("batches", (x,), (node(product.op, x, *product.operands[1:]),))
    inputs = [np.random.default_rng(2).standard_normal((2, 3, form.depth)).astype(np.float32)]
    (want,) = evaluate(whole, inputs, precision="float64")
    close(run(whole, inputs, TARGETS[0]), want)


def test_what_follows_runs_on_the_sums_in_registers() -> None:
    graph = Form(rows="n").graph()
    (product,) = graph.results
    after = g.maximum(g.add(product, g.constant(np.linspace(-1, 1, 40), "f32")), 0.0)
    whole = Graph("biased", graph.parameters, (after,))
    kinds = [n.op.kind for n, _ in kernels(whole, AVX512) if isinstance(n.op, Fusion)]
    assert kinds.count("contraction") == 1
    assert kinds.count("rows") == 2  # steps and whole numbers, then digits and their totals
    inputs = Form().inputs(4)
    (want,) = evaluate(whole, inputs, precision="float64")
    close(run(whole, inputs, TARGETS[0]), want)


def test_codes_stay_packed_and_tiles_are_told() -> None:
    graph = Form(rows_type="i8", rows="n").graph()
    assert "codes of 4 bits; tiles of 6 x 32 sums" in notes(graph)


def test_numbers_far_below_the_largest_of_their_block_keep_their_bits() -> None:
    """One number 2**12 times the others, at a code of zero: the sum of the others counts."""
    x = np.random.default_rng(3).uniform(0.5, 1, (1, 32)).astype(np.float32)
    x[0, 5] = 4096
    codes = np.full((4, 1, 32), 9, np.uint8)
    codes[:, :, 5] = 8
    packed = codes[..., 0::2] | (codes[..., 1::2] << 4)
    given = (p("x", 1, 32), g.constant(packed, "u8"), g.constant(np.ones((4, 1)), "f32"))
    graph = Graph("far", given[:1], (node(CodedDot(4, 32, dtype("f32")), *given),))
    (want,) = evaluate(graph, [x], precision="float64")
    np.testing.assert_allclose(run(graph, [x], TARGETS[0]), want, rtol=1e-6)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30])
def test_blocks_of_any_magnitude(scale: float) -> None:
    graph, (x,) = Form().graph(), Form().inputs()
    x = (x * scale).astype(np.float32)
    (want,) = evaluate(graph, [x], precision="float64")
    got = run(graph, [x], TARGETS[0])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=4e-6 * float(np.abs(want).max()))


def test_infinities_and_nans_go_where_they_belong() -> None:
    form = Form(rows=4, zeros="f32")
    graph, (x,) = form.graph(), form.inputs()
    x[0, 3], x[1, 40], x[2, 7] = np.inf, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        (want,) = evaluate(graph, [x], precision="float64")
    got = run(graph, [x], TARGETS[0])
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got) * np.sign(got), np.isinf(want) * np.sign(want))
    close(got[3:], want[3:])


def test_tiles_stay_in_registers() -> None:
    for target in (named_target("avx512"), host_target()):
        for form in (Form(rows=1), Form(rows=12), Form(rows_type="i8", rows=12)):
            for n, kernel in kernels(form.graph(), registers_of(target)):
                if isinstance(n.op, Fusion) and n.op.kind == "contraction":
                    text = assembly(emit(kernel.module, target), target)
                    assert count_spills(text) == 0 or not target.has("avx512vnni")
