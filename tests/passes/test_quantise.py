"""Quantised models: what becomes integer products, what does not and why, and that it means it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from luban.engine.compile import compile_graph
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.contract import Convolution, DotGeneral
from luban.graph.ops.elementwise import BINARY
from luban.graph.ops.reduce import ReduceWindow
from luban.ir.node import Graph, Node, node
from luban.native.target import host_target, named_target
from luban.passes.quantise import integer_products
from tests.programs import p

FEW = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
TARGETS = [t for t in (host_target(), named_target("avx2")) if t.runs_here]
LIMITS = {"u8": (0, 255), "i8": (-128, 127)}


def some(dtype: str, *shape: int, seed: int = 0) -> Any:
    low, high = LIMITS[dtype]
    return np.random.default_rng(seed).integers(low, high + 1, shape)


def dequantised(x: Node, scale: Any, zero: int | None) -> Node:
    """(x - zero) * scale as the ONNX front end says it."""
    wide = g.cast(x, "f32")
    if zero is not None:
        wide = g.subtract(wide, g.cast(g.constant(zero, x.tensor.dtype), "f32"))
    return g.multiply(wide, g.constant(scale, "f32"))


def quantised(x: Node, scale: float, zero: int, dtype: str) -> Node:
    whole = g.round_even(g.divide(x, g.constant(scale, "f32")))
    return g.cast(g.add(whole, g.cast(g.constant(zero, dtype), "f32")), dtype)


def layer(
    left: str = "u8",
    zero: int | None = 3,
    *,
    out: str = "u8",
    per_channel: bool = True,
    relu: bool = True,
    window: int = 3,
    pad: int = 1,
    filter_zero: int | None = None,
) -> Graph:
    """dequantise, convolve, add a bias, quantise"""
    x = p("x", 1, 5, 7, 6, dtype=left)
    filters = g.constant(some("i8", 9, 5, window, window, seed=1), "i8")
    scales = np.linspace(0.01, 0.03, 9).reshape(9, 1, 1, 1) if per_channel else 0.02
    sums = g.convolution(
        dequantised(x, 0.05, zero),
        dequantised(filters, scales, filter_zero),
        (1, 1),
        (pad, pad),
        (pad, pad),
    )
    bias = g.constant(np.linspace(-1, 1, 9).reshape(1, 9, 1, 1), "f32")
    value = g.add(sums, bias)
    value = g.maximum(value, 0.0) if relu else value
    return Graph("layer", (x,), (quantised(value, 0.21, 17, out),))


def dense(left: str = "u8", zero: int | None = 3, *, transposed: bool = False) -> Graph:
    x = p("x", "n", 12, dtype=left)
    weights = g.constant(some("i8", 12, 7, seed=1), "i8")
    matrix = dequantised(weights, np.linspace(0.01, 0.03, 7).reshape(1, 7), None)
    if transposed:
        weights = g.constant(some("i8", 7, 12, seed=1), "i8")
        matrix = g.transpose(
            dequantised(weights, np.linspace(0.01, 0.03, 7).reshape(7, 1), None), (1, 0)
        )
    return Graph("dense", (x,), (g.matmul(dequantised(x, 0.05, zero), matrix),))


def products(graph: Graph) -> list[str]:
    """The dtypes of the convolutions and products that are left."""
    found = integer_products(graph)[0].nodes()
    return [str(n.tensor.dtype) for n in found if isinstance(n.op, (Convolution, DotGeneral))]


def reasons(graph: Graph) -> str:
    return "\n".join(d.reason for d in integer_products(graph)[1] if not d.done)


def agree(graph: Graph, inputs: list[Any], quantum: float) -> None:
    """Within rounding of the exact value; a code may differ by one where that lies between two."""
    (exact,) = evaluate(graph, inputs, precision="float64")
    results = [
        compile_graph(graph, num_threads=2, target=target).executor.run(inputs)[0]
        for target in TARGETS
    ]
    for result in results:
        np.testing.assert_array_equal(result, results[0])  # the same on every machine
        apart = np.abs(np.asarray(result, np.float64) - np.asarray(exact, np.float64))
        assert apart.max(initial=0) <= quantum
        if quantum == 1:
            assert np.count_nonzero(apart) <= 0.01 * apart.size


@pytest.mark.parametrize("graph", [layer(), layer("i8", -5), layer(pad=0), layer(zero=None)])
def test_convolutions_of_codes_are_of_integers(graph: Graph) -> None:
    assert products(graph) == ["i32"]


@pytest.mark.parametrize("graph", [dense(), dense("i8", None), dense(transposed=True)])
def test_products_of_codes_are_of_integers(graph: Graph) -> None:
    assert products(graph) == ["i32"]


def test_sums_are_scaled_and_quantised_by_one_factor() -> None:
    ops = [type(n.op) for n in integer_products(layer())[0].nodes()]
    dividing = BINARY["divide"]
    left = [n for n in integer_products(layer())[0].nodes() if isinstance(n.op, dividing)]
    assert Convolution in ops
    assert all(n.tensor.num_elements in (1, 9) for n in left)  # constants only


def with_filters(change: Callable[[Node], Node]) -> Graph:
    x = p("x", 1, 4, 5, 5, dtype="u8")
    filters = change(g.constant(some("i8", 4, 4, 1, 1), "i8"))
    return Graph(
        "g", (x,), (g.convolution(dequantised(x, 0.1, 0), filters, (1, 1), (0, 0), (0, 0)),)
    )


def grouped() -> Graph:
    x = p("x", 1, 4, 5, 5, dtype="u8")
    filters = dequantised(g.constant(some("i8", 4, 1, 3, 3), "i8"), 0.1, None)
    sums = g.convolution(dequantised(x, 0.1, 0), filters, (1, 1), (0, 0), (0, 0), groups=4)
    return Graph("g", (x,), (sums,))


def scaled_by_row() -> Graph:
    x = p("x", 3, 8, dtype="u8")
    rows = g.multiply(g.cast(x, "f32"), g.constant(np.ones((3, 1)) * 0.5, "f32"))
    weights = dequantised(g.constant(some("i8", 8, 4), "i8"), 0.1, None)
    return Graph("g", (x,), (g.matmul(rows, weights),))


def very_deep() -> Graph:
    x = p("x", 2, 65537, dtype="u8")
    weights = dequantised(g.constant(np.ones((65537, 4)), "i8"), 0.1, None)
    return Graph("g", (x,), (g.matmul(dequantised(x, 0.1, None), weights),))


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (layer(filter_zero=2), "the zero point of the right factor is not 0"),
        (grouped(), "grouped and transposed convolutions stay in f32"),
        (scaled_by_row(), "the scale of the left factor differs from place to place"),
        (
            with_filters(lambda w: dequantised(w, np.full((1, 4, 1, 1), 0.1), None)),
            "the scale of the right factor does not go with its columns",
        ),
        (very_deep(), "a sum could leave i32"),
    ],
)
def test_what_stays_says_why(graph: Graph, reason: str) -> None:
    assert products(graph) == ["f32"]
    assert reason in reasons(graph)


@pytest.mark.parametrize("scale", [0.0, -0.1, 1e-30, np.inf])
def test_scales_out_of_range_stay(scale: float) -> None:
    assert products(with_filters(lambda w: dequantised(w, scale, None))) == ["f32"]


def test_the_largest_code_stands_for_the_largest_number() -> None:
    x = p("x", 1, 2, 6, 6, dtype="i8")
    ones = (1, 1, 1, 1)
    pool = ReduceWindow("maximum", (1, 1, 3, 3), (1, 1, 2, 2), (0, 0, 1, 1), (0, 0, 1, 1), ones)
    largest = node(pool, dequantised(x, 0.1, -4))
    graph = Graph("g", (x,), (quantised(largest, 0.1, -4, "i8"),))
    changed = integer_products(graph)[0]
    assert changed.results[0].op == pool  # the codes themselves
    agree(graph, [some("i8", 1, 2, 6, 6).astype(np.int8)], 0)


def test_windows_in_the_padding_alone_keep_the_numbers() -> None:
    x = p("x", 1, 2, 6, 6, dtype="i8")
    pool = ReduceWindow(
        "maximum", (1, 1, 2, 2), (1, 1, 2, 2), (0, 0, 2, 2), (0, 0, 0, 0), (1, 1, 1, 1)
    )
    graph = Graph("g", (x,), (node(pool, dequantised(x, 0.1, -4)),))
    assert str(integer_products(graph)[0].results[0].op) == str(pool)


def test_quantised_by_another_scale_is_not_the_same() -> None:
    x = p("x", 4, dtype="u8")
    graph = Graph("g", (x,), (quantised(dequantised(x, 0.1, 3), 0.2, 3, "u8"),))
    assert integer_products(graph)[0].results[0] is not x
    same = Graph("g", (x,), (quantised(dequantised(x, 0.1, 3), 0.1, 3, "u8"),))
    assert integer_products(same)[0].results[0] is x


@pytest.mark.parametrize("scale", [1e-12, 0.1, 1 / 3, 7.0, 1e12])
def test_every_code_survives_being_a_number(scale: float) -> None:
    numbers = np.arange(-255, 256).astype(np.float32)
    step = np.float32(scale)
    np.testing.assert_array_equal(np.rint(numbers * step / step), numbers)


@FEW
@given(st.data())
def test_layers_keep_their_meaning(data: st.DataObject) -> None:
    left, out = (data.draw(st.sampled_from(["u8", "i8"])) for _ in range(2))
    low, high = LIMITS[left]
    graph = layer(
        left,
        data.draw(st.one_of(st.none(), st.integers(low, high))),
        out=out,
        per_channel=data.draw(st.booleans()),
        relu=data.draw(st.booleans()),
        window=data.draw(st.integers(1, 3)),
        pad=data.draw(st.integers(0, 2)),
    )
    seed = data.draw(st.integers(0, 9))
    agree(
        graph, [some(left, 1, 5, 7, 6, seed=seed).astype(graph.parameters[0].tensor.dtype.numpy)], 1
    )


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("left", "zero"), [("u8", 3), ("i8", -7), ("u8", None), ("u8", 255)])
def test_products_keep_their_meaning(left: str, zero: int | None, transposed: bool) -> None:
    graph = dense(left, zero, transposed=transposed)
    x = some(left, 9, 12).astype(graph.parameters[0].tensor.dtype.numpy)
    agree(graph, [x], 2e-4)


def test_residual_sums_of_codes_keep_their_meaning() -> None:
    x, y = p("x", 1, 8, 5, 5, dtype="u8"), p("y", 1, 8, 5, 5, dtype="u8")
    filters = dequantised(g.constant(some("i8", 8, 8, 1, 1), "i8"), 0.01, None)
    sums = g.convolution(dequantised(x, 0.05, 0), filters, (1, 1), (0, 0), (0, 0))
    codes = quantised(sums, 0.31, 120, "u8")
    total = g.maximum(g.add(dequantised(codes, 0.31, 120), dequantised(y, 0.23, 5)), 0.0)
    graph = Graph("g", (x, y), (quantised(total, 0.41, 0, "u8"),))  # hardly a tie at these scales
    inputs = [some("u8", 1, 8, 5, 5, seed=s).astype(np.uint8) for s in (0, 1)]
    agree(graph, inputs, 1)


def residual(zero: int = 5) -> Graph:
    x, y = p("x", 1, 8, 5, 5, dtype="u8"), p("y", 1, 8, 5, 5, dtype="i8")
    filters = dequantised(g.constant(some("i8", 8, 8, 1, 1), "i8"), 0.01, None)
    sums = g.convolution(dequantised(x, 0.05, 0), filters, (1, 1), (0, 0), (0, 0))
    total = g.maximum(g.add(sums, dequantised(y, 0.23, zero)), 0.0)
    return Graph("g", (x, y), (quantised(total, 0.41, 0, "u8"),))


@pytest.mark.parametrize("zero", [0, 5])
def test_sums_with_codes_are_scaled_by_one_factor_each(zero: int) -> None:
    graph = residual(zero)
    changed = integer_products(graph)[0]
    divided = [n for n in changed.nodes() if isinstance(n.op, BINARY["divide"])]
    assert {n.tensor.rank for n in divided} <= {0, 1}  # factors only
    inputs = [some("u8", 1, 8, 5, 5).astype(np.uint8), some("i8", 1, 8, 5, 5).astype(np.int8)]
    agree(graph, inputs, 1)


def test_a_sum_with_a_number_is_divided_as_it_says() -> None:
    """Numbers that are no codes may be infinite, or overflow when scaled."""
    x, y = p("x", 1, 8, 5, 5, dtype="u8"), p("y", 1, 8, 5, 5)
    filters = dequantised(g.constant(some("i8", 8, 8, 1, 1), "i8"), 0.01, None)
    sums = g.convolution(dequantised(x, 0.05, 0), filters, (1, 1), (0, 0), (0, 0))
    graph = Graph("g", (x, y), (quantised(g.add(sums, y), 0.41, 0, "u8"),))
    changed = integer_products(graph)[0]
    assert any(isinstance(n.op, BINARY["divide"]) and n.tensor.rank == 4 for n in changed.nodes())


@pytest.mark.parametrize(("zero", "added"), [(0, False), (17, True)])
def test_a_zero_point_of_0_is_not_added(zero: int, added: bool) -> None:
    graph = Graph("g", (x := p("x", 9),), (quantised(x, 0.25, zero, "i8"),))
    (result,) = integer_products(graph)[0].results
    assert isinstance(result.operands[0].op, BINARY["add"]) is added
    x_values = np.array([-0.1, 0.1, 0.0, 3e38, -3e38, np.nan, np.inf, 0.125, 0.375], np.float32)
    (want,) = evaluate(graph, [x_values])
    for target in TARGETS:
        got = compile_graph(graph, num_threads=1, target=target).executor.run([x_values])[0]
        np.testing.assert_array_equal(got, want)
