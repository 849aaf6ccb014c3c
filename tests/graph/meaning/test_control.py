"""Branches, loops, scans and fusions; sizes that only a run can tell."""

from typing import Any

import numpy as np
import pytest

from luban.core.dims import symbol
from luban.core.errors import ShapeError
from luban.core.types import tensor
from luban.graph import build
from luban.graph.meaning.context import Array
from luban.graph.ops.control import If, Loop, Scan
from luban.graph.ops.fusion import Fusion
from luban.ir.node import Graph, Node, node, results_of
from tests.graph.calls import apply, call

SCALAR = tensor("f32")
VECTOR = tensor("f32", "n")


def graph(name: str, parameters: list[Node], *results: Node) -> Graph:
    return Graph(name, tuple(parameters), results)


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def test_if_runs_one_branch() -> None:
    x = build.parameter("x", VECTOR)
    op = If(
        graph("then", [x], build.add(x, 1.0)), graph("otherwise", [x], build.negative(x)), (VECTOR,)
    )
    types = [tensor("bool"), VECTOR]
    for predicate, expected in ((True, [2, 3]), (False, [-1, -2])):
        (result, *_) = call(
            lambda p, a: results_of(node(op, p, a))[:1] * 2,
            np.array(predicate),
            f32(1, 2),
            types=types,
        )[:1]
        assert result.tolist() == expected


def test_branches_may_differ_in_size() -> None:
    x = build.parameter("x", tensor("f32", 4))
    k = symbol("k")
    op = If(
        graph("then", [x], build.slice_axis(x, 0, 0, 3)),
        graph("otherwise", [x], build.slice_axis(x, 0, 0, 1)),
        (tensor("f32", k),),
    )

    def function(p: Node, a: Node) -> tuple[Node, ...]:
        return *results_of(node(op, p, a)), build.dimension(k)

    for predicate, length in ((True, 3), (False, 1)):
        result, size = call(function, np.array(predicate), f32(0, 1, 2, 3))
        assert result.tolist() == [0, 1, 2][:length]
        assert size == length


def counting_loop() -> Loop:
    """Doubles the carried value and stacks [value, captured] until it passes 20."""
    i, c = build.parameter("i", tensor("i64")), build.parameter("c", tensor("bool"))
    x, y = build.parameter("x", SCALAR), build.parameter("y", SCALAR)
    row = build.concatenate([build.reshape(x, (1,)), build.reshape(y, (1,))], 0)
    doubled = build.add(x, x)
    body = graph("body", [i, c, x, y], build.less(doubled, 20.0), doubled, row, i)
    trips = symbol("trips")
    return Loop(body, 1, (SCALAR, tensor("f32", trips, 2), tensor("i64", trips)))


@pytest.mark.parametrize(
    ("limit", "condition", "start", "trips"),
    [
        (9, True, 1, 5),
        (2, True, 1, 2),
        (0, True, 1, 0),
        (-1, True, 1, 5),
        (9, False, 1, 0),
        (5, True, 30, 1),
    ],
)
def test_loop_trips(limit: int, condition: bool, start: float, trips: int) -> None:
    final, rows, indices = apply(
        counting_loop(), np.array(limit), np.array(condition), np.float32(start), np.float32(7)
    )
    assert final == start * 2**trips
    assert rows.shape == (trips, 2)
    assert rows.tolist() == [[start * 2**i, 7] for i in range(trips)]
    assert indices.tolist() == list(range(trips))


def test_a_carried_value_may_grow_each_turn() -> None:
    i, c = build.parameter("i", tensor("i64")), build.parameter("c", tensor("bool"))
    x = build.parameter("x", tensor("f32", "m"))
    body = graph("body", [i, c, x], c, build.concatenate([x, x], 0))
    op = Loop(body, 1, (tensor("f32", "grown"),))
    (result, size) = call(
        lambda a, b, v: (*results_of(node(op, a, b, v)), build.dimension(symbol("grown"))),
        np.array(3),
        np.array(True),
        f32(1, 2),
    )
    assert result.tolist() == [1, 2] * 8
    assert size == 16


def running_sum(reverse: bool, stack_reverse: bool) -> Scan:
    total, x = build.parameter("total", SCALAR), build.parameter("x", SCALAR)
    factor = build.parameter("factor", SCALAR)
    new = build.add(total, build.multiply(x, factor))
    body = graph("step", [total, x, factor], new, new)
    return Scan(body, 1, (0,), (reverse,), (0,), (stack_reverse,))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("stack_reverse", [False, True])
def test_scan(reverse: bool, stack_reverse: bool) -> None:
    x = f32(1, 2, 3)
    final, sums = apply(running_sum(reverse, stack_reverse), np.float32(0), x, np.float32(10))
    expected = np.cumsum(x[::-1] if reverse else x) * 10
    assert final == 60
    assert sums.tolist() == (expected[::-1] if stack_reverse else expected).tolist()


def test_scan_over_nothing() -> None:
    final, sums = apply(running_sum(False, False), np.float32(5), f32(), np.float32(1))
    assert (float(final), sums.shape) == (5, (0,))


def test_scan_over_inner_axes() -> None:
    column = build.parameter("column", tensor("f32", 2))
    body = graph("step", [column], build.negative(column))
    op = Scan(body, 0, (1,), (False,), (1,), (False,))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (result,) = (apply(op, x),)
    np.testing.assert_array_equal(result, -x)


def test_a_fusion_means_its_body() -> None:
    x = build.parameter("x", VECTOR)
    op = Fusion("elementwise", graph("body", [x], build.exp(build.negative(x))))
    result = call(lambda a: node(op, a), f32(0, 1), types=[VECTOR])
    np.testing.assert_array_equal(result, np.exp(f32(-0.0, -1)))


def test_the_same_symbol_means_the_caller_s_size_unless_a_parameter_says_otherwise() -> None:
    """A body reads `n` of the caller; `m` is what its own parameter has in this turn."""
    i, c = build.parameter("i", tensor("i64")), build.parameter("c", tensor("bool"))
    x = build.parameter("x", tensor("f32", "m"))
    sizes = build.concatenate(
        [build.reshape(build.dimension(symbol(s)), (1,)) for s in ("m", "n")], 0
    )
    body = graph("body", [i, c, x], c, build.concatenate([x, x], 0), sizes)
    op = Loop(body, 1, (tensor("f32", "grown"), tensor("i64", "trips", 2)))

    def function(limit: Node, condition: Node, v: Node) -> Node:
        return results_of(node(op, limit, condition, v))[1]

    types = [tensor("i64"), tensor("bool"), tensor("f32", "n")]
    result = call(function, np.array(3), np.array(True), f32(1, 2), types=types)
    assert result.tolist() == [[2, 2], [4, 2], [8, 2]]


def test_an_error_inside_a_branch_names_the_node() -> None:
    x = build.parameter("x", VECTOR)
    bad = build.reshape(x, (3,))
    op = If(graph("then", [x], bad), graph("otherwise", [x], bad), (tensor("f32", 3),))
    types = [tensor("bool"), VECTOR]
    with pytest.raises(ShapeError, match=r"reshape: .* \[2\] has 2 elements, \[3\] needs 3"):
        call(lambda p, a: results_of(node(op, p, a)), np.array(True), f32(1, 2), types=types)


def test_float64_runs_through_control_flow() -> None:
    final: Any
    final, rows, _ = apply(
        counting_loop(),
        np.array(2),
        np.array(True),
        np.float32(0.1),
        np.float32(7),
        precision="float64",
    )
    assert (final.dtype, rows.dtype) == (np.float64, np.float64)
    assert float(final) == float(np.float32(0.1)) * 4
