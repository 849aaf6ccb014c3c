"""Attention as one kernel: every shape, mask and size against its meaning, and what stays apart."""

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
from luban.ir.node import Graph, Node
from luban.lower.attention_plan import no_attention
from luban.lower.fusion import lower_fusion
from luban.lower.support import no_kernel
from luban.native.compile import assembly, count_spills
from luban.native.target import named_target
from luban.passes.attention import fuse_attention
from tests.lower.test_gemm import TILES
from tests.lower.tiles import AVX512, run_tiles
from tests.programs import inputs_for, p

HEADS = (0, 2, 1, 3)
Scores = Callable[[Node], Node]


def attend(q: Node, k: Node, v: Node, scores: Scores = lambda s: g.divide(s, 8.0)) -> Node:
    """softmax(scores(q k')) v for [batch, heads, length, size]."""
    rank = q.tensor.rank
    turned = g.transpose(k, (*range(rank - 2), rank - 1, rank - 2))
    return g.matmul(g.softmax(scores(g.matmul(q, turned)), rank - 1), v)


def heads(
    queries: int | str, keys: int | str, size: int = 8, columns: int = 0, batch: int | str = 2
) -> Graph:
    """Heads that lie beside each other in memory, as projections leave them."""
    q = p("q", batch, queries, 3, size)
    k, v = p("k", batch, keys, 3, size), p("v", batch, keys, 3, columns or size)
    q_heads, k_heads, v_heads = (g.transpose(x, HEADS) for x in (q, k, v))
    result = attend(q_heads, k_heads, v_heads)
    return Graph("heads", (q, k, v), (g.transpose(result, HEADS),))


def fused(graph: Graph) -> Graph:
    return fuse_attention(graph, no_attention, no_kernel)[0]


def bodies(graph: Graph) -> list[Fusion]:
    return [n.op for n in fused(graph).nodes() if isinstance(n.op, Fusion)]


def check(
    graph: Graph, registers: Registers = AVX512, tolerance: float = 1e-5, **sizes: int
) -> None:
    """One kernel, and what it computes is what the graph means."""
    assert [op.kind for op in bodies(graph)] == ["attention"]
    inputs = inputs_for(graph, sizes)
    (want,) = evaluate(graph, inputs, precision="float64")
    (got,) = run_tiles(fused(graph), inputs, registers)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@TILES
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 35), (2, 16), (6, 70), (13, 15)])
def test_known_lengths(queries: int, keys: int, registers: Registers) -> None:
    check(heads(queries, keys, batch=1), registers)


@TILES
@pytest.mark.parametrize(("queries", "keys"), [(1, 257), (7, 0), (1, 0), (0, 3), (2, 258)])
def test_lengths_known_at_run_time(queries: int, keys: int, registers: Registers) -> None:
    check(heads("n", "m", 4, batch=1), registers, n=queries, m=keys)


def test_more_queries_than_one_program_takes() -> None:
    check(heads("n", 5, 4, batch=1), n=100)
    check(heads(200, 5, 4, batch=1))


def test_more_keys_than_one_block_holds() -> None:
    check(heads(2, 600, 4, batch=1))


@TILES
@pytest.mark.parametrize(("size", "columns"), [(3, 5), (20, 70), (64, 16)])
def test_sizes_of_keys_and_values(size: int, columns: int, registers: Registers) -> None:
    check(heads(7, 19, size, columns, batch=1), registers)
    check(heads("n", 19, size, columns, batch=1), registers, n=1)


MASKS: dict[str, tuple[int | str, ...]] = {
    "key": (2, 1, 1, "m"),
    "query and key": ("n", "m"),
    "head": (1, 3, "n", "m"),
    "query": (2, 1, "n", 1),
    "one": (1,),
}


def masked(
    mask: Node, scores: Callable[[Node, Node], Node], lead: tuple[int, ...] = (2, 3)
) -> Graph:
    q, k, v = (p(name, *lead, length, 4) for name, length in zip("qkv", "nmm", strict=True))
    return Graph("masked", (q, k, v, mask), (attend(q, k, v, lambda s: scores(s, mask)),))


@pytest.mark.parametrize("queries", [1, 7])
@pytest.mark.parametrize("kind", MASKS)
def test_biases_of_every_shape(kind: str, queries: int) -> None:
    graph = masked(p("mask", *MASKS[kind]), lambda s, mask: g.add(g.multiply(s, 0.5), mask))
    check(graph, n=queries, m=21)


@pytest.mark.parametrize("kind", MASKS)
def test_masks_of_every_shape(kind: str) -> None:
    mask = p("mask", *MASKS[kind], dtype="bool")
    check(
        masked(mask, lambda s, m: g.select(g.broadcast_to(m, s.tensor.shape), s, -1e9)), n=7, m=21
    )


def test_a_cap_on_scores() -> None:
    graph = masked(p("mask", "m"), lambda s, m: g.add(g.multiply(g.tanh(g.divide(s, 5.0)), 5.0), m))
    check(graph, n=2, m=9)


def inputs_with_mask(graph: Graph, visible: list[list[int]], keys: int) -> list[np.ndarray]:
    """Inputs whose mask hides all keys of query i but `visible[i]`."""
    inputs = inputs_for(graph, {"n": len(visible), "m": keys})
    mask = np.full((len(visible), keys), -np.inf, np.float32)
    for query, seen in enumerate(visible):
        mask[query, seen] = 0
    return [*inputs[:3], mask]


@pytest.mark.parametrize("keys", [20, 300])
@pytest.mark.parametrize("queries", [1, 3])
def test_a_query_that_sees_nothing_gives_nan_and_one_that_sees_the_last_key_its_value(
    keys: int, queries: int
) -> None:
    graph = masked(p("mask", "n", "m"), lambda s, mask: g.add(s, mask), (1,))
    for visible in ([[], [keys - 1], [0]], [[keys - 1], [], [0]]):
        inputs = inputs_with_mask(graph, visible[:queries], keys)
        (got,) = run_tiles(fused(graph), inputs, AVX512)
        for query, seen in enumerate(visible[:queries]):
            want = inputs[2][:, seen[0]] if seen else np.full((1, 4), np.nan)
            np.testing.assert_allclose(got[:, query], want, rtol=1e-6)


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_specials_spread_as_softmax_spreads_them(special: float) -> None:
    graph = masked(p("mask", "n", "m"), lambda s, mask: g.add(s, mask), (1,))
    inputs = inputs_with_mask(graph, [list(range(300))] * 3, 300)
    inputs[3][1, 280] = special
    (want,) = evaluate(graph, inputs)
    (got,) = run_tiles(fused(graph), inputs, AVX512)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


Blind = Callable[[Node, Node], Node]
BLIND: dict[str, Blind] = {
    "nan": lambda weights, _: g.select(g.is_nan(weights), 0.0, weights),
    "mask": lambda weights, mask: g.select(
        g.broadcast_to(
            g.equal(g.reduce("maximum", mask, [1], keep_axes=True), -np.inf), weights.tensor.shape
        ),
        0.0,
        weights,
    ),
}


def blind(kind: str) -> Graph:
    """A query that sees no key gives 0."""
    q, k, v = (p(name, 1, 2, length, 4) for name, length in zip("qkv", "nmm", strict=True))
    mask = p("mask", "n", "m")
    scores = g.add(g.matmul(q, g.transpose(k, (0, 1, 3, 2))), mask)
    weights = BLIND[kind](g.softmax(scores, 3), mask)
    return Graph("blind", (q, k, v, mask), (g.matmul(weights, v),))


@pytest.mark.parametrize("keys", [20, 300])
@pytest.mark.parametrize("kind", BLIND)
def test_a_query_that_is_to_see_nothing_gives_zeros(kind: str, keys: int) -> None:
    graph = blind(kind)
    inputs = inputs_with_mask(graph, [[], [keys - 1], [0]], keys)
    (got,) = run_tiles(fused(graph), inputs, AVX512)
    assert [op.kind for op in bodies(graph)] == ["attention"]
    values = inputs[2]
    for query, want in enumerate((values[:, :, 0] * 0, values[:, :, -1], values[:, :, 0])):
        np.testing.assert_allclose(got[:, :, query], want, rtol=1e-6)


@pytest.mark.parametrize("keys", [20, 300])
def test_values_that_are_not_finite_show_through_weights_of_zero(keys: int) -> None:
    graph = blind("nan")
    inputs = inputs_with_mask(graph, [[], [1, 2], [0]], keys)
    inputs[0][0, 0, 1] = np.nan
    inputs[2][0, 1, 5, 2] = np.inf
    (want,) = evaluate(graph, inputs)
    (got,) = run_tiles(fused(graph), inputs, AVX512)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert got[0, 0, 1].tolist() == [0.0] * 4


def test_known_lengths_with_queries_that_see_nothing() -> None:
    q, k, v = (p(name, 7, 4) for name in "qkv")
    weights = g.softmax(g.matmul(q, g.transpose(k, (1, 0))), 1)
    graph = Graph("blind", (q, k, v), (g.matmul(BLIND["nan"](weights, q), v),))
    inputs = inputs_for(graph, {})
    inputs[0][3] = np.nan
    (got,) = run_tiles(fused(graph), inputs, AVX512)
    (want,) = evaluate(graph, inputs)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert got[3].tolist() == [0.0] * 4


def test_single_weights_set_to_zero_stay_apart() -> None:
    q, k, v = (p(name, 7, 4) for name in "qkv")
    weights = g.softmax(g.matmul(q, g.transpose(k, (1, 0))), 1)
    dropped = g.select(p("drop", 7, 7, dtype="bool"), 0.0, weights)
    graph = Graph("dropped", (q, k, v, dropped.operands[0]), (g.matmul(dropped, v),))
    assert "single weights are set to 0" in reasons(graph)[0]
    halved = g.select(g.is_nan(weights), 0.5, weights)
    graph = Graph("halved", (q, k, v), (g.matmul(halved, v),))
    assert "more is computed of the weights" in reasons(graph)[0]


def grouped(form: str) -> Graph:
    """6 heads of queries, 2 of keys and values."""
    q, k, v = p("q", 2, "n", 6, 8), p("k", 2, 2, "m", 8), p("v", 2, 2, "m", 8)
    turned = g.transpose(q, HEADS)
    if form == "repeated":
        m = k.tensor.shape[2]
        wide, flat = (2, 2, 3, m, 8), (2, 6, m, 8)
        apart = (g.reshape(x, (2, 2, 1, m, 8)) for x in (k, v))
        k6, v6 = (g.reshape(g.broadcast_to(x, wide), flat) for x in apart)
        return Graph("grouped", (q, k, v), (g.transpose(attend(turned, k6, v6), HEADS),))
    n, m = q.tensor.shape[1], k.tensor.shape[2]
    mask = p("mask", "n", "m")
    scores = g.matmul(g.reshape(turned, (2, 2, 3 * n, 8)), g.transpose(k, (0, 1, 3, 2)))
    biased = g.add(g.reshape(scores, (2, 6, n, m)), mask)
    weights = g.reshape(g.softmax(biased, 3), (2, 2, 3 * n, m))
    result = g.transpose(g.reshape(g.matmul(weights, v), (2, 6, n, 8)), HEADS)
    return Graph("grouped", (q, k, v, mask), (result,))


@pytest.mark.parametrize("form", ["repeated", "stacked"])
@pytest.mark.parametrize("queries", [1, 5])
def test_heads_that_share_keys(form: str, queries: int) -> None:
    check(grouped(form), n=queries, m=18)


def test_heads_flattened_for_the_products() -> None:
    """[batch * heads, length, size] as older exporters write it, the mask on [batch, heads]."""
    q, k, v = (p(name, 6, length, 4) for name, length in (("q", 7), ("k", 9), ("v", 9)))
    mask = p("mask", 2, 1, 1, 9)
    scores = g.add(g.reshape(g.matmul(q, g.transpose(k, (0, 2, 1))), (2, 3, 7, 9)), mask)
    weights = g.softmax(g.reshape(scores, (6, 7, 9)), 2)
    check(Graph("flat", (q, k, v, mask), (g.matmul(weights, v),)))


def test_keys_that_lie_side_by_side() -> None:
    q, k, v = p("q", 2, "n", 8), p("k", 2, 8, "m"), p("v", 2, "m", 8)
    graph = Graph("side", (q, k, v), (g.matmul(g.softmax(g.matmul(q, k), 2), v),))
    check(graph, n=1, m=21)
    check(graph, n=7, m=21)


def test_the_scale_of_queries_is_part_of_the_kernel() -> None:
    q, k, v = (p(name, 2, "n", 3, 8) for name in "qkv")
    scaled = g.multiply(g.transpose(q, HEADS), 0.25)
    k_heads, v_heads = (g.transpose(x, HEADS) for x in (k, v))
    graph = Graph("scaled", (q, k, v), (attend(scaled, k_heads, v_heads),))
    assert [p.tensor.shape for p in bodies(graph)[0].body.parameters] == [q.tensor.shape] * 3
    check(graph, n=5)


def test_the_bias_of_a_projection_stays_with_the_projection() -> None:
    """As an epilogue it costs nothing, and projections with one kernel stay alike."""
    x, bias = p("x", 5, 8), p("bias", 8)
    k, v = (p(name, "m", 8) for name in "kv")
    q = g.add(g.matmul(x, p("w", 8, 8)), bias)
    graph = Graph("projected", (x, bias, *q.operands[0].operands[1:], k, v), (attend(q, k, v),))
    (op,) = bodies(graph)
    assert bias.type not in [parameter.type for parameter in op.body.parameters]


def reasons(graph: Graph) -> list[str]:
    assert not bodies(graph)
    return [d.reason for d in fuse_attention(graph, no_attention, no_kernel)[1]]


def test_weights_that_somebody_else_needs_stay_apart() -> None:
    q, k, v = (p(name, 5, 8) for name in "qkv")
    weights = g.softmax(g.matmul(q, g.transpose(k, (1, 0))), 1)
    graph = Graph("shown", (q, k, v), (g.matmul(weights, v), weights))
    assert "divide inside it is used elsewhere" in reasons(graph)[0]


def test_other_floats_stay_apart() -> None:
    q, k, v = (p(name, 5, 8, dtype="f64") for name in "qkv")
    graph = Graph("wide", (q, k, v), (attend(q, k, v, lambda s: s),))
    assert "only attention in f32" in reasons(graph)[0]


def test_sizes_known_at_run_time_and_large_ones_stay_apart() -> None:
    for size, why in (("d", "is not known"), (300, "keys of 300")):
        q, k, v = (p(name, 5, size) for name in "qkv")
        assert why in reasons(Graph("odd", (q, k, v), (attend(q, k, v, lambda s: s),)))[0]


def test_softmax_along_another_axis_is_no_attention() -> None:
    q, k, v = (p(name, 8, 8) for name in "qkv")
    weights = g.softmax(g.matmul(q, k), 0)
    assert reasons(Graph("other", (q, k, v), (g.matmul(weights, v),))) == []


def test_a_softmax_of_no_product_is_no_attention() -> None:
    x, v = p("x", 5, 8), p("v", 8, 3)
    graph = Graph("pool", (x, v), (g.matmul(g.softmax(x, 1), v),))
    assert not bodies(graph)


@pytest.mark.parametrize("threads", [1, 2])
def test_compiled(threads: int) -> None:
    graph = grouped("stacked")
    for queries, keys in ((1, 300), (130, 130), (7, 1)):
        inputs = inputs_for(graph, {"n": queries, "m": keys})
        (want,) = evaluate(graph, inputs, precision="float64")
        (got,) = compile_graph(graph, num_threads=threads).executor.run(inputs)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    graph = heads("n", "m", 16)
    inputs = inputs_for(graph, {"n": 210, "m": 300})
    one, two = (compile_graph(graph, num_threads=n).executor.run(inputs)[0] for n in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_sums_stay_in_registers() -> None:
    target = named_target("avx512")
    (op,) = bodies(heads(197, 197, 64, batch=1))
    kernel = lower_fusion("kernel", op.body, AVX512)
    assert count_spills(assembly(emit(kernel.module, target), target)) == 0
    assert kernel.notes == ("tiles of 6 queries, 11 a program, 256 keys at once",)
