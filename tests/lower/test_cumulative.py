"""Running sums, products and extremes: equal to their meaning to the bit, whatever the axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luban.engine.compile import compile_graph
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.fusion import Fusion
from luban.graph.ops.reduce import Cumulative
from luban.ir.node import Graph, Node, node
from luban.lower.fusion import lower_fusion
from luban.lower.trace import Declined
from tests.lower.tiles import AVX2, AVX512, optimised, run_tiles
from tests.programs import p

KINDS = ("sum", "product", "maximum", "minimum")
ORDERS = ((False, False), (True, False), (False, True), (True, True))


def values(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    random = np.random.default_rng(1)
    whole = random.integers(0 if dtype.kind == "u" else -3, 4, shape)
    scale = random.standard_normal(shape) if dtype.kind == "f" else 1
    return (whole * scale).astype(dtype)


def running(x: Node, kind: str, axis: int, order: tuple[bool, bool] = (False, False)) -> Node:
    return node(Cumulative(kind, axis, *order), x)


@pytest.mark.parametrize("dtype", ["f32", "f16", "f64", "u8", "i64"])
@pytest.mark.parametrize("kind", KINDS)
def test_machine_code_equals_the_meaning_along_every_axis(dtype: str, kind: str) -> None:
    x = p("x", "n", 5, "m", dtype=dtype)
    results = tuple(running(x, kind, axis, order) for axis in range(3) for order in ORDERS)
    graph = Graph("running", (x,), results)
    compiled = compile_graph(graph, num_threads=2)
    assert len(compiled.executor.stages) == 1
    for n, m in ((3, 19), (1, 1), (0, 2), (70, 4)):
        given = values(x.tensor.dtype.numpy, (n, 5, m))
        rows = zip(compiled.executor.run([given]), evaluate(graph, [given]), strict=True)
        for got, expected in rows:
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("registers", [AVX512, AVX2], ids=["avx512", "avx2"])
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_tile_programs_equal_the_meaning(registers: Any, order: tuple[bool, bool]) -> None:
    x = p("x", "n", "m")
    results = tuple(running(x, kind, axis, order) for axis in range(2) for kind in KINDS)
    graph = Graph("running", (x,), results)
    given = values(np.dtype(np.float32), (6, 21))
    for got, expected in zip(
        run_tiles(graph, [given], registers), evaluate(graph, [given]), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def test_a_sum_that_starts_with_minus_zero_keeps_its_sign() -> None:
    x = p("x", 3)
    graph = Graph("signs", (x,), (running(x, "sum", 0), running(x, "sum", 0, (True, False))))
    whole, before = compile_graph(graph).executor.run([np.full(3, -0.0, np.float32)])
    assert np.signbit(whole).all()
    assert list(np.signbit(before)) == [False, True, True]


def test_nan_and_infinity_run_on() -> None:
    x = p("x", 5)
    graph = Graph("nan", (x,), tuple(running(x, kind, 0) for kind in KINDS))
    given = np.array([1, np.inf, -np.inf, 2, np.nan], np.float32)
    for got, expected in zip(
        compile_graph(graph).executor.run([given]), evaluate(graph, [given]), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def test_maths_on_both_sides_is_part_of_the_kernel() -> None:
    x = p("x", "n", 40)
    total = running(g.multiply(x, x), "sum", 1)
    graph = Graph("scaled", (x,), (g.multiply(total, 0.5), total))
    assert [n.op.kind for n in optimised(graph, AVX512).nodes() if isinstance(n.op, Fusion)] == [
        "running"
    ]
    given = values(np.dtype(np.float32), (9, 40))
    for got, expected in zip(
        compile_graph(graph).executor.run([given]), evaluate(graph, [given]), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def test_what_turns_the_running_values_is_another_kernel() -> None:
    x = p("x", 6, 6)
    total = running(x, "sum", 0)
    turned = Graph("turned", (x,), (g.add(x, g.transpose(total, (1, 0))),))
    assert len([n for n in optimised(turned, AVX512).nodes() if isinstance(n.op, Fusion)]) == 2
    with pytest.raises(Declined, match="used at another place than it is computed"):
        lower_fusion("kernel", turned, AVX512)


def test_a_result_of_another_shape_is_declined() -> None:
    x = p("x", 6, 4)
    total = running(x, "sum", 0)
    body = Graph("two", (x,), (total, g.reduce("sum", x, [0])))
    with pytest.raises(Declined, match=r"result \[4\] beside running \[6, 4\]"):
        lower_fusion("kernel", body, AVX512)
