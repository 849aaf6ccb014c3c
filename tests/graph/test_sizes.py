"""Values as dimension expressions: what stays symbolic, what is given up, and that it is right."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from luban.core import dims
from luban.core.dims import DimLike, symbol
from luban.core.dtypes import dtype
from luban.core.types import tensor
from luban.graph import build
from luban.graph.evaluate import evaluate
from luban.graph.ops.data import Iota
from luban.graph.ops.elementwise import UNARY
from luban.graph.ops.structure import DynamicSlice, Pad
from luban.graph.sizes import constant_value, symbolic_value
from luban.ir.node import Graph, Node, node

N, H = symbol("n"), symbol("h", 1)
SHAPE = build.shape_vector((N, 3, H, H))


def entries(x: Node) -> Any:
    found = symbolic_value(x)
    return None if found is None else found.tolist()


def as_f32(x: Node) -> Node:
    return build.cast(x, "f32")


def scaled(x: Node, function: str, factor: float) -> Node:
    return build.cast(build.unary(function, build.multiply(as_f32(x), factor)), "i64")


HW = build.slice_axis(SHAPE, 0, 2, 2)

KNOWN: list[tuple[str, Node, list[DimLike] | DimLike]] = [
    ("shape", SHAPE, [N, 3, H, H]),
    ("take", build.take(SHAPE, build.constant([0, 2]), 0), [N, H]),
    ("take a scalar", build.take(SHAPE, build.constant(2), 0), H),
    ("slice", HW, [H, H]),
    ("concatenate", build.concatenate([HW, build.constant([-1])], 0), [H, H, -1]),
    ("reshape", build.reshape(build.dimension(N), (1,)), [N]),
    ("reverse", build.reverse(SHAPE, [0]), [H, H, 3, N]),
    ("transpose", build.transpose(build.reshape(SHAPE, (2, 2)), (1, 0)), [[N, H], [3, H]]),  # type: ignore[list-item]
    ("pad", node(Pad((1,), (0,), (0,)), HW, build.constant(7)), [7, H, H]),
    ("dynamic slice", node(DynamicSlice((2,)), SHAPE, build.constant([1])), [3, H]),
    ("product", build.reduce("product", SHAPE, [0]), 3 * H * H * N),
    ("sum", build.reduce("sum", SHAPE, [0]), 3 + 2 * H + N),
    ("maximum of all", build.reduce("maximum", HW, [0]), H),
    ("add", build.add(HW, 1), [H + 1, H + 1]),
    ("subtract", build.subtract(build.constant([9, 9]), HW), [9 - H, 9 - H]),
    ("divide", build.divide(HW, 2), [H // 2, H // 2]),
    ("exact divide", build.divide(build.multiply(HW, 4), 2), [2 * H, 2 * H]),
    ("floor_mod", build.floor_mod(HW, 2), [H % 2, H % 2]),
    ("remainder", build.remainder(HW, 2), [H % 2, H % 2]),
    ("negative", build.negative(HW), [-H, -H]),
    ("abs", build.absolute(build.negative(HW)), [H, H]),
    ("sign", build.sign(HW), [1, 1]),
    ("maximum by bounds", build.maximum(HW, 1), [H, H]),
    ("maximum", build.maximum(HW, 5), [dims.maximum(H, 5)] * 2),
    ("minimum", build.minimum(HW, 5), [dims.minimum(H, 5)] * 2),
    ("cast", build.cast(build.cast(SHAPE, "i32"), "i64"), [N, 3, H, H]),
    ("through f32", build.cast(as_f32(SHAPE), "i64"), [N, 3, H, H]),
    ("twice in f32", scaled(HW, "floor", 2.0), [2 * H, 2 * H]),
    ("half in f32, down", scaled(HW, "floor", 0.5), [H // 2, H // 2]),
    ("half in f32, up", scaled(HW, "ceil", 0.5), [dims.ceil_div(H, 2)] * 2),
    ("1.5 times in f32", scaled(HW, "trunc", 1.5), [3 * H // 2, 3 * H // 2]),
    (
        "divided in f32",
        build.cast(build.unary("floor", build.divide(as_f32(HW), 3.0)), "i64"),
        [H // 3] * 2,
    ),
    (
        "a quotient of sizes",
        build.cast(build.divide(as_f32(build.multiply(HW, 2)), as_f32(HW)), "i64"),
        [2, 2],
    ),
    (
        "provably equal",
        build.equal(SHAPE, build.take(SHAPE, build.constant([0, 1, 2, 3]), 0)),
        [True] * 4,
    ),
    ("provably unequal", build.equal(HW, -1), [False, False]),
    ("less", build.less(HW, 1), [False, False]),
    ("greater_equal", build.greater_equal(HW, 1), [True, True]),
    ("not", build.bitwise_not(build.less(HW, 1)), [True, True]),
    ("and", build.bitwise_and(build.less(HW, 1), build.less(HW, 1)), [False, False]),
    ("any", build.reduce("or", build.less(HW, 1), [0]), False),
    ("select", build.select(build.equal(SHAPE, -1), 1, SHAPE), [N, 3, H, H]),
    ("broadcast", build.broadcast_to(build.dimension(N), (2,)), [N, N]),
    ("iota", node(Iota(dtype("i64"), (3,), 0)), [0, 1, 2]),
    ("nothing", build.reduce("product", build.constant(np.zeros(0, np.int64)), [0]), 1),
]


@pytest.mark.parametrize(("name", "x", "expected"), KNOWN, ids=[row[0] for row in KNOWN])
@pytest.mark.parametrize(("n", "h"), [(0, 1), (1, 7), (5, 8)])
def test_known_values_are_right_for_every_size(
    name: str, x: Node, expected: object, n: int, h: int
) -> None:
    found = symbolic_value(x)
    assert found is not None
    assert found.tolist() == expected
    p = build.parameter("p", tensor("f32", N, H))
    (value,) = evaluate(Graph(name, (p,), (x,)), [np.zeros((n, h), np.float32)])
    sizes = {"n": n, "h": h}
    resolved = [dims.evaluate(entry, sizes) for entry in found.ravel().tolist()]
    assert resolved == value.ravel().tolist()


UNKNOWN: list[tuple[str, Callable[[], Node]]] = [
    ("an input", lambda: build.parameter("i", tensor("i64", 2))),
    ("sums with an input", lambda: build.add(build.parameter("i", tensor("i64", 2)), HW)),
    ("a large tensor", lambda: node(Iota(dtype("i64"), (65,), 0))),
    ("a size of its own", lambda: node(Iota(dtype("i64"), (N,), 0))),
    ("an open comparison", lambda: build.equal(HW, 3)),
    ("an open order", lambda: build.less(HW, 3)),
    ("division of what may be negative", lambda: build.divide(build.subtract(HW, 5), 2)),
    (
        "division by what may be zero",
        lambda: build.divide(SHAPE, build.take(SHAPE, build.constant([0]), 0)),
    ),
    ("the sign of what may be zero", lambda: build.sign(build.dimension(N))),
    ("the size of what may be negative", lambda: build.absolute(build.subtract(HW, 5))),
    ("a scale that rounds", lambda: scaled(HW, "floor", 1.3)),
    ("no whole number", lambda: build.cast(build.constant([0.1]), "i64")),
    ("not finite", lambda: build.cast(build.constant([float("inf")], "f32"), "i64")),
    ("a cast that may wrap", lambda: build.cast(HW, "i8")),
    ("a cast that wraps", lambda: build.cast(build.constant([300]), "i8")),
    ("bits of sizes", lambda: build.bitwise_and(HW, 1)),
    ("bitwise not of sizes", lambda: build.bitwise_not(HW)),
    (
        "the largest of nothing",
        lambda: build.reduce("maximum", build.constant(np.zeros(0, np.int64)), [0]),
    ),
    ("half precision", lambda: build.cast(build.cast(HW, "f16"), "i64")),
    ("an exponential", lambda: build.cast(node(UNARY["exp"](), as_f32(HW)), "i64")),
    ("indices that are sizes", lambda: build.take(SHAPE, build.dimension(N), 0)),
]


@pytest.mark.parametrize(("name", "make"), UNKNOWN, ids=[row[0] for row in UNKNOWN])
def test_what_is_not_sure_is_given_up(name: str, make: Callable[[], Node]) -> None:
    assert symbolic_value(make()) is None


def test_float_tensors_have_no_dimension_value() -> None:
    assert symbolic_value(as_f32(HW)) is None


def test_constant_value() -> None:
    assert constant_value(build.add(build.constant([1, 2]), 1)).tolist() == [2, 3]  # type: ignore[union-attr]
    assert constant_value(build.constant([1.5])).tolist() == [1.5]  # type: ignore[union-attr]
    small = constant_value(build.cast(build.constant([3]), "i32"))
    assert small is not None
    assert small.dtype == np.int32
    assert constant_value(HW) is None
    assert constant_value(build.parameter("i", tensor("i64", 2))) is None


def test_a_deep_chain_needs_no_recursion() -> None:
    x = HW
    for _ in range(10_000):
        x = build.add(x, 1)
    assert entries(x) == [H + 10_000, H + 10_000]


def test_values_are_read_only() -> None:
    found = symbolic_value(SHAPE)
    assert found is not None
    assert not found.flags.writeable


@given(
    st.lists(
        st.sampled_from(["add", "multiply", "maximum", "minimum", "divide", "floor_mod"]),
        max_size=6,
    ),
    st.data(),
)
def test_random_integer_expressions(names: list[str], data: st.DataObject) -> None:
    values = [build.dimension(N), build.dimension(H), build.constant(2), build.constant(5)]
    for name in names:
        x, y = (data.draw(st.sampled_from(values)) for _ in range(2))
        values.append(build.binary(name, x, y))
    found = symbolic_value(values[-1])
    if found is None:
        return
    p = build.parameter("p", tensor("f32", N, H))
    for n, h in ((0, 1), (3, 4), (7, 2)):
        (value,) = evaluate(Graph("f", (p,), (values[-1],)), [np.zeros((n, h), np.float32)])
        assert dims.evaluate(found.item(), {"n": n, "h": h}) == value
