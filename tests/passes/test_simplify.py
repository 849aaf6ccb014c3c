"""Each rule: the effect, the refusal, the meaning, bit for bit on awkward values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

from luban.core.dtypes import DTYPES
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.graph.ops.elementwise import Cast
from luban.graph.ops.structure import Pad, Slice
from luban.ir.node import Graph, Node, node
from luban.ir.rewrite import rewrite
from luban.passes.simplify import RULES
from tests.passes.test_fuse import random_graphs
from tests.programs import p

X = p("x", 3, 4)
I = p("i", 3, 4, dtype="i32")
H = p("h", 3, 4, dtype="f16")
B = p("b", 3, 4, dtype="bool")
ODD = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45, -1e-45, 3.4e38, -1.5, 2.0, 0.5, -7.0]
VALUES = {
    "x": np.array(ODD, np.float32).reshape(3, 4),
    "i": np.array([0, 1, -1, 2**31 - 1, -(2**31), 7, -7, 2, 3, 4, 5, 6], np.int32).reshape(3, 4),
    "h": np.array([*ODD[:7], 6e4, *ODD[8:]], np.float16).reshape(3, 4),
    "b": np.array([True, False] * 6).reshape(3, 4),
}

FIRES: list[tuple[str, Callable[[], Node], str]] = [
    ("add_zero", lambda: g.add(X, -0.0), "parameter"),
    ("add_zero", lambda: g.add(I, 0), "parameter"),
    ("subtract_zero", lambda: g.subtract(X, 0.0), "parameter"),
    ("multiply_one", lambda: g.multiply(1.0, X), "parameter"),
    ("divide_one", lambda: g.divide(X, 1.0), "parameter"),
    ("divide_power_of_two", lambda: g.divide(X, 8.0), "multiply"),
    ("reciprocal_root", lambda: g.divide(1.0, g.sqrt(X)), "rsqrt"),
    ("power_one_two", lambda: g.power(X, 1.0), "parameter"),
    ("power_one_two", lambda: g.power(X, 2.0), "multiply"),
    ("twice_undone", lambda: g.negative(g.negative(X)), "parameter"),
    ("twice_undone", lambda: g.bitwise_not(g.bitwise_not(B)), "parameter"),
    ("twice_undone", lambda: g.reverse(g.reverse(X, [1]), [1]), "parameter"),
    ("same_operands", lambda: g.maximum(X, X), "parameter"),
    ("cast_there_and_back", lambda: g.cast(g.cast(H, "f32"), "f16"), "parameter"),
    ("cast_to_same", lambda: node(Cast(DTYPES["f32"]), X), "parameter"),
    (
        "pad_nothing",
        lambda: node(Pad((0, 0), (0, 0), (0, 0)), X, g.constant(0.0, "f32")),
        "parameter",
    ),
    ("select_known", lambda: g.select(B, X, X), "parameter"),
    ("select_known", lambda: g.select(g.constant(True, "bool"), X, g.exp(X)), "parameter"),
    ("reshape_chain", lambda: g.reshape(g.reshape(X, (12,)), (4, 3)), "reshape"),
    ("reshape_chain", lambda: g.reshape(g.reshape(X, (12,)), (3, 4)), "parameter"),
    ("transpose_chain", lambda: g.transpose(g.transpose(X, (1, 0)), (1, 0)), "parameter"),
    (
        "transpose_of_ones",
        lambda: g.transpose(g.reshape(X, (3, 1, 4)), (1, 0, 2)),
        "reshape",
    ),
    (
        "broadcast_chain",
        lambda: g.broadcast_to(g.broadcast_to(X, (2, 3, 4)), (5, 2, 3, 4)),
        "broadcast_in_dim",
    ),
    ("slice_all", lambda: node(Slice((0, 0), (3, 4), (1, 1)), X), "parameter"),
    ("slice_chain", lambda: g.slice_axis(g.slice_axis(X, 1, 1, 2), 1, 1, 1), "slice"),
    ("concatenate_one", lambda: g.concatenate([X, g.full((0, 4), 0.0, "f32")], 0), "parameter"),
    ("reduce_ones", lambda: g.reduce("maximum", g.reshape(X, (3, 1, 4)), [1]), "parameter"),
]
DECLINES: list[tuple[str, Callable[[], Node], str]] = [
    ("add_zero", lambda: g.add(X, 0.0), "-0.0 + 0.0 is 0.0"),
    ("subtract_zero", lambda: g.subtract(X, X), "NaN for infinities"),
    ("multiply_one", lambda: g.multiply(X, 0.0), "NaN for infinities"),
    ("divide_power_of_two", lambda: g.divide(X, 3.0), "is not exact"),
    ("power_one_two", lambda: g.power(X, 0.5), "sqrt(-0.0) is -0.0"),
    ("reduce_ones", lambda: g.reduce("sum", g.reshape(X, (3, 1, 4)), [1]), "-0.0 into 0.0"),
    ("cast_there_and_back", lambda: g.cast(g.cast(X, "f16"), "f32"), "f16 does not hold every f32"),
    (
        "concatenate_one",
        lambda: g.concatenate([g.full((0, 4), 0.0, "f32"), p("s", 3, "n")], 0),
        "states a size",
    ),
]
STAYS: list[Callable[[], Node]] = [
    lambda: g.multiply(X, 2.0),
    lambda: g.divide(g.constant(2.0, "f32"), g.sqrt(X)),
    lambda: g.divide(I, 2),
    lambda: g.negative(g.absolute(X)),
    lambda: g.maximum(X, 1.0),
    lambda: g.transpose(X, (1, 0)),
    lambda: g.slice_axis(X, 1, 1, 2),
    lambda: g.reduce("sum", X, [0]),
    lambda: g.select(B, X, g.exp(X)),
    lambda: g.power(X, 3.0),
]


def graph_of(result: Node) -> Graph:
    parameters = [q for q in (X, I, H, B) if q in set(Graph("g", (), (result,)).nodes())]
    return Graph("rule", tuple(parameters), (result,))


def assert_same_bits(before: Graph, after: Graph) -> None:
    given = {name: VALUES[name] for name in before.parameter_names}
    (a,), (b,) = (evaluate(x, given) for x in (before, after))
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a, b)
    if a.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


@pytest.mark.parametrize(("name", "build", "op"), FIRES)
def test_the_rule_fires_and_keeps_every_bit(name: str, build: Callable[[], Node], op: str) -> None:
    graph = graph_of(build())
    after, effects = rewrite(graph, RULES)
    assert effects.applied[name] >= 1
    assert after.results[0].op.name == op
    assert_same_bits(graph, after)


@pytest.mark.parametrize(("name", "build", "why"), DECLINES)
def test_the_rule_declines_with_its_reason(name: str, build: Callable[[], Node], why: str) -> None:
    graph = graph_of(build())
    after, effects = rewrite(graph, RULES)
    assert after.results[0] is graph.results[0]
    assert any(d.rule == name and why in d.why for d in effects.declined)


@pytest.mark.parametrize("build", STAYS)
def test_what_only_looks_alike_stays(build: Callable[[], Node]) -> None:
    graph = graph_of(build())
    assert rewrite(graph, RULES)[0].results[0] is graph.results[0]


def test_every_rule_has_a_case_where_it_fires() -> None:
    covered = {name for name, _, _ in FIRES}
    assert {r.name for r in RULES} == covered


@settings(max_examples=60, deadline=None)
@given(random_graphs())
def test_simplify_keeps_the_meaning_of_random_graphs(graph: Graph) -> None:
    arrays = [np.linspace(a, b, 16, dtype=np.float32).reshape(4, 4) for a, b in ((-1, 1), (2, -2))]
    for a, b in zip(
        evaluate(graph, arrays), evaluate(rewrite(graph, RULES)[0], arrays), strict=True
    ):
        np.testing.assert_array_equal(a, b)
