"""Products of halves: rows widened before the loop, and roundings that a choice spares."""

from __future__ import annotations

import numpy as np
import pytest

from luban.core.registers import Registers
from luban.engine.compile import compile_graph
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.ir.node import Graph
from luban.native.target import named_target
from luban.tile.function import Operation
from luban.tile.memory_ops import Scratch
from luban.tile.ops import Binary
from tests.lower.test_gemm import check, weights
from tests.lower.tiles import AVX2, AVX512, kernels
from tests.programs import inputs_for, p

REGISTERS = pytest.mark.parametrize("registers", [AVX512, AVX2], ids=["avx512", "avx2"])
HALVES = pytest.mark.parametrize("dtype", ["f16", "bf16"])


def product(dtype: str, rows: int | str, depth: int | str, columns: int = 40) -> Graph:
    x = p("x", rows, depth, dtype=dtype)
    if isinstance(depth, int):
        return Graph("product", (x,), (g.matmul(x, weights(depth, columns, dtype)),))
    matrix = p("w", depth, columns, dtype=dtype)
    return Graph("product", (x, matrix), (g.matmul(x, matrix),))


def operations(graph: Graph) -> list[Operation]:
    modules = [kernel.module for _, kernel in kernels(graph, AVX512)]
    return [op for m in modules for function in m.functions for op in function.operations()]


def scratches(graph: Graph) -> int:
    return sum(isinstance(operation.op, Scratch) for operation in operations(graph))


@HALVES
def test_rows_of_halves_are_widened(dtype: str) -> None:
    assert scratches(product(dtype, "n", 128)) == 1


def test_wide_rows_are_not() -> None:
    assert scratches(product("f32", "n", 128)) == 0


def test_rows_beyond_the_first_cache_are_not() -> None:
    assert scratches(product("f16", "n", 8192)) == 0


def test_rows_of_unknown_length_are_not() -> None:
    assert scratches(product("f16", "n", "k")) == 0


@REGISTERS
@HALVES
@pytest.mark.parametrize("depth", [1, 7, 16, 23])
@pytest.mark.parametrize("rows", [1, "n"])
def test_every_depth(dtype: str, rows: int | str, depth: int, registers: Registers) -> None:
    tolerance = {"f16": 2e-3, "bf16": 2e-2}[dtype]
    check(product(dtype, rows, depth), {"n": 9}, registers, tolerance)


@pytest.mark.parametrize("name", ["avx512", "avx2"])
def test_compiled(name: str) -> None:
    graph = product("f16", "n", 23)
    inputs = inputs_for(graph, {"n": 9})
    (want,) = evaluate(graph, inputs)
    (got,) = compile_graph(graph, target=named_target(name)).executor.run(inputs)
    np.testing.assert_allclose(np.float32(got), np.float32(want), rtol=2e-3, atol=2e-3)


def clipped(dtype: str, name: str) -> Graph:
    """min(max(op(x, y), z), 6)"""
    x, y, z = (p(label, "n", dtype=dtype) for label in "xyz")
    ops = {"add": g.add, "subtract": g.subtract, "multiply": g.multiply, "divide": g.divide}
    return Graph("g", (x, y, z), (g.minimum(g.maximum(ops[name](x, y), z), 6.0),))


@pytest.mark.parametrize(
    ("name", "dtype"), [("add", "f32"), ("multiply", "f16"), ("divide", "f16")]
)
def test_a_choice_comes_before_the_rounding_of_a_sum_or_product(name: str, dtype: str) -> None:
    """Not where the rounding is that of another op, nor where there is none."""
    spared = dtype == "f16" and name != "divide"
    chosen = {
        operation.results[0].type.dtype.name
        for operation in operations(clipped(dtype, name))
        if isinstance(operation.op, Binary) and operation.op.kind in ("max", "min")
    }
    floats = chosen & {"f16", "f32"}
    assert floats == {"f32" if spared or dtype == "f32" else "f16"}


@HALVES
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_choices_are_those_of_the_evaluator_to_the_bit(dtype: str, name: str) -> None:
    graph = clipped(dtype, name)
    kind = graph.parameters[0].tensor.dtype.numpy
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 65504.0, 6e-8, -6e-8, 3e-5, 0.1]
    values = np.concatenate([special, np.random.default_rng(0).standard_normal(20)])
    every = [part.ravel() for part in np.meshgrid(values, values, [-1.0, -0.0, 0.0, np.nan])]
    inputs = [part.astype(kind) for part in every]
    (want,) = evaluate(graph, inputs)
    (got,) = compile_graph(graph).executor.run(inputs)
    known = ~np.isnan(np.float32(want))
    np.testing.assert_array_equal(np.isnan(np.float32(got)), ~known)
    np.testing.assert_array_equal(got[known].view(np.uint16), want[known].view(np.uint16))
