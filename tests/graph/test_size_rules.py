"""What a graph relies on between its symbolic sizes; the evaluator refuses the same sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from luban.core.dims import symbol
from luban.core.errors import ShapeError
from luban.core.size_rules import check_sizes
from luban.core.types import tensor
from luban.graph import build
from luban.graph.evaluate import evaluate
from luban.graph.ops.reduce import TopK
from luban.graph.ops.structure import BroadcastInDim, Reshape, Scatter
from luban.graph.size_rules import size_rules
from luban.ir.node import Graph, Node, node

X = build.parameter("x", tensor("f32", "n", "m"))
Y = build.parameter("y", tensor("f32", "k", "l"))
PLACE = build.iota((symbol("k"), 1), 0)

CASES: dict[str, tuple[Node, str]] = {
    "dot": (build.matmul(X, Y), "equal m k"),
    "concatenate": (build.concatenate([X, Y], 0), "equal m l"),
    "reshape": (node(Reshape((2, 3)), X), "equal m*n 6"),
    "slice": (build.slice_axis(X, 0, 1, 2), "at_most 3 n"),
    "broadcast": (node(BroadcastInDim((4, 3), (0, 1)), X), "repeats_to n 4"),
    "top_k": (node(TopK(3, 0), X), "at_most 3 n"),
    "scatter": (node(Scatter("replace", (1,), (0,), (), (), (0,)), X, PLACE, Y), "at_most l m"),
    "arg_reduce": (build.arg_reduce("maximum", X, 0), "at_most 1 n"),
}


def rules_of(result: Node) -> list[str]:
    return [f"{r.relation} {r.left} {r.right}" for r in size_rules(graph_of(result))]


def graph_of(result: Node) -> Graph:
    return Graph("g", (X, Y), (result,))


@pytest.mark.parametrize("name", CASES)
def test_rules(name: str) -> None:
    result, wanted = CASES[name]
    assert rules_of(result)[0] == wanted


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (3, 3, 3, 3), (4, 4, 4, 3), (0, 6, 6, 6)])
def test_the_evaluator_refuses_the_same(name: str, sizes: tuple[int, ...]) -> None:
    graph = graph_of(CASES[name][0])
    n, m, rows, columns = sizes
    given = [np.zeros((n, m), np.float32), np.zeros((rows, columns), np.float32)]

    def refuses(run: Callable[[], object]) -> bool:
        try:
            run()
        except ShapeError:
            return True
        return False

    names = dict(zip("nmkl", sizes, strict=True))
    assert refuses(lambda: check_sizes(size_rules(graph), names)) == refuses(
        lambda: evaluate(graph, given)
    )


@pytest.mark.parametrize(
    "result",
    [
        build.matmul(X, build.transpose(X, (1, 0))),
        build.add(X, 1.0),
        build.slice_axis(X, 1, 0, symbol("m")),
        build.reshape(X, (symbol("m") * symbol("n"),)),
        build.concatenate([X, X], 1),
    ],
)
def test_what_is_proved_needs_no_rule(result: Node) -> None:
    assert rules_of(result) == []


def test_a_gather_without_elements_reads_nothing() -> None:
    taken = build.take(X, build.parameter("i", tensor("i64", "k")), 0)
    rules = size_rules(Graph("g", (X, taken.operands[1]), (taken,)))
    check_sizes(rules, {"n": 0, "m": 3, "k": 0})
    with pytest.raises(ShapeError, match="gather: the slice and axis 0"):
        check_sizes(rules, {"n": 0, "m": 3, "k": 2})
