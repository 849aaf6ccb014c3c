"""Kernels whose answer is exact: powers of integers by squaring, random bits from their place."""

from __future__ import annotations

import numpy as np
import pytest

from luban.engine.compile import compile_graph
from luban.engine.steps import HostStep
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.data import RandomBits
from luban.ir.node import Graph, node
from tests.lower.tiles import AVX2, AVX512, run_tiles
from tests.programs import p

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_powers_wrap_as_their_meaning_says(dtype: str) -> None:
    x, y = p("x", "n", dtype=dtype), p("y", "n", dtype=dtype)
    results = (g.power(x, y), *(g.power(x, k) for k in (0, 1, 2, 5, 31)), g.power(3, y))
    graph = Graph("powers", (x, y), results)
    compiled = compile_graph(graph)
    assert not any(isinstance(s, HostStep) for s in compiled.executor.program.steps)
    info = np.iinfo(x.tensor.dtype.numpy)
    random = np.random.default_rng(2)
    base = random.integers(max(info.min, -6), 7, 75).astype(info.dtype)
    exponent = random.integers(max(info.min, -3), 40, 75).astype(info.dtype)
    base[:4], exponent[:4] = (info.min, info.max, 0, 2), (info.max, info.min, 0, info.max)
    expected = evaluate(graph, [base, exponent])
    for got, wanted in zip(compiled.executor.run([base, exponent]), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
    for registers in (AVX512, AVX2):
        for got, wanted in zip(
            run_tiles(graph, [base, exponent], registers), expected, strict=True
        ):
            np.testing.assert_array_equal(got, wanted)


def test_negative_exponents_give_what_the_inverse_truncates_to() -> None:
    x = p("x", 6, dtype="i32")
    graph = Graph("inverse", (x,), (g.power(x, -3), g.power(x, -2)))
    odd, even = compile_graph(graph).executor.run([np.array([-2, -1, 0, 1, 2, 9], np.int32)])
    assert odd.tolist() == [0, -1, 0, 1, 0, 0]
    assert even.tolist() == [0, 1, 0, 1, 0, 0]


def test_random_bits_are_those_of_the_meaning() -> None:
    key = p("key", 1, dtype="u64")
    like = p("like", "n", 7)
    bits = node(RandomBits(like.tensor.shape), key)
    uniform = g.multiply(g.cast(bits, "f32"), 2.0**-32)
    graph = Graph("random", (key, like), (bits, g.add(uniform, like)))
    compiled = compile_graph(graph, num_threads=2)
    (launch,) = compiled.executor.program.steps
    assert not isinstance(launch, HostStep)
    for seed, n in ((0, 1), (2**63 + 12345, 700), (7, 0)):
        inputs = [np.array([seed], np.uint64), np.ones((n, 7), np.float32)]
        for got, wanted in zip(compiled.executor.run(inputs), evaluate(graph, inputs), strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("registers", [AVX512, AVX2], ids=["avx512", "avx2"])
def test_random_bits_as_tiles(registers: object) -> None:
    key = p("key", 1, dtype="u64")
    graph = Graph("random", (key,), (node(RandomBits((5, 9)), key),))
    inputs = [np.array([0xFEDCBA9876543210], np.uint64)]
    got = run_tiles(graph, inputs, registers)  # type: ignore[arg-type]
    np.testing.assert_array_equal(got[0], evaluate(graph, inputs)[0])
