"""Every primitive has a cost; products count by definition, Winograd both ways, bytes once."""

import numpy as np
import pytest

from luban.core.dims import DimLike, evaluate
from luban.core.dtypes import dtype
from luban.core.types import tensor
from luban.graph import build
from luban.graph.cost import COSTS, bytes_moved, cost_of, product_terms
from luban.graph.ops import PRIMITIVES
from luban.graph.ops.coded import PanelCodedDot
from luban.graph.ops.contract import Convolution
from luban.graph.ops.fusion import Fusion
from luban.graph.ops.packed import PanelConvolution, PanelDot
from luban.graph.ops.winograd import WinogradConvolution
from luban.ir.node import Graph, Node, node

F32 = dtype("f32")


def at(size: DimLike, **sizes: int) -> int:
    return evaluate(size, sizes)


def test_every_primitive_has_a_row() -> None:
    assert set(COSTS) == set(PRIMITIVES.values())


def convolution(channels: int, columns: int) -> Node:
    x = build.parameter("x", tensor("f32", "n", 14, 14, channels))
    weights = build.parameter("w", tensor("f32", 3, 3, channels, columns))
    one = (1, 1)
    return node(Convolution(one, one, one, one, one, 1, F32, "channels_last"), x, weights)


def test_products_count_two_for_each_term() -> None:
    assert at(cost_of(convolution(8, 40)).done, n=2) == 2 * (2 * 14 * 14 * 40) * 72
    x = build.parameter("x", tensor("f32", "n", 64))
    dot = node(PanelDot(0, 40, F32), x, build.parameter("w", tensor("f32", 3, 64, 16)))
    assert at(cost_of(dot).done, n=5) == 2 * 5 * 40 * 64


@pytest.mark.parametrize(
    ("narrow", "group", "result", "kind"), [("i8", 4, "i32", "i8"), ("bf16", 2, "f32", "bf16")]
)
def test_products_in_groups_are_of_their_own_kind(
    narrow: str, group: int, result: str, kind: str
) -> None:
    x = build.parameter("x", tensor(narrow, 6, 64))
    panels = build.parameter("w", tensor(narrow, 3, 64 // group, 16, group))
    dot = node(PanelDot(0, 40, dtype(result), group), x, panels)
    assert cost_of(dot).operations == {kind: 2 * 6 * 40 * 64}
    image = build.parameter("i", tensor(narrow, 1, 9, 9, 8))
    filters = build.parameter("f", tensor(narrow, 3, 72 // group, 16, group))
    convolved = node(
        PanelConvolution((3, 3), (1, 1), (1, 1), 40, dtype(result), group), image, filters
    )
    assert product_terms(convolved) == 72


@pytest.mark.parametrize("digits", [1, 4])
def test_digits_multiply_products_of_bytes(digits: int) -> None:
    rows = (tensor("i8", 6, digits, 64), tensor("f32", 6, 2), tensor("i32", 6, digits, 2))
    given = (*rows, tensor("u8", 3, 8, 16, 4), tensor("f32", 3, 2, 16))
    parameters = [build.parameter(f"p{i}", each) for i, each in enumerate(given)]
    cost = cost_of(node(PanelCodedDot(4, 32, 40, F32), *parameters))
    assert cost.operations == {"i8": digits * 2 * 6 * 40 * 64}
    assert cost.definition == 2 * 6 * 40 * 64


@pytest.mark.parametrize(("tile", "low", "high"), [(2, 1.5, 2.25), (4, 2.0, 4.0)])
def test_winograd_does_less_than_it_means(tile: int, low: float, high: float) -> None:
    x = build.parameter("x", tensor("f32", "n", 16, 16, 64))
    panels = build.parameter("w", tensor("f32", (tile + 2) ** 2, 1, 64, 64))
    n = node(WinogradConvolution(tile, (1, 1), (1, 1), 64, F32), x, panels)
    cost = cost_of(n)
    assert at(cost.definition, n=3) == 2 * (3 * 16 * 16 * 64) * 9 * 64
    assert low < at(cost.definition, n=3) / at(cost.done, n=3) < high
    taps = build.parameter("t", tensor("f32", (tile + 2) * 3, 1, 64, 64))
    half = node(WinogradConvolution(tile, (1, 1), (1, 1), 64, F32, filter_axes=1), x, taps)
    assert 0 < at(cost_of(half).done, n=3) - at(cost.done, n=3) < 0.05 * at(cost.done, n=3)


def test_a_fusion_costs_what_is_in_it_and_moves_its_ends() -> None:
    x = build.parameter("x", tensor("f32", "n", 64))
    w = build.parameter("w", tensor("f32", 64, 8))
    body = Graph("body", (x, w), (build.exp(build.matmul(x, w)),))
    fused = node(Fusion("dot", body), x, w)
    assert at(cost_of(fused).done, n=3) == 3 * 8 * (128 + 12)
    assert cost_of(fused).saved == 0
    moved = bytes_moved(body)
    assert [at(size, n=3) for size in moved.read] == [3 * 64 * 4, 64 * 8 * 4]
    assert [at(size, n=3) for size in moved.written] == [3 * 8 * 4]


def test_a_table_that_is_looked_up_in_is_not_read_whole() -> None:
    table = build.parameter("table", tensor("f32", 1000, 16))
    rows = build.parameter("rows", tensor("i64", 5))
    taken = build.take(table, rows, 0)
    body = Graph("body", (table, rows), (build.exp(taken),))
    assert bytes_moved(body).read == (5 * 16 * 4, 5 * 8)
    used = Graph("body", (table, rows), (taken, build.exp(table)))
    assert bytes_moved(used).read == (1000 * 16 * 4, 5 * 8)


def test_what_only_moves_costs_nothing() -> None:
    x = build.parameter("x", tensor("f32", 4, 6))
    assert cost_of(build.transpose(x, (1, 0))).done == 0
    assert cost_of(build.constant(np.zeros(3, np.float32), "f32")).done == 0
