"""Matrix products and convolutions against plain sums."""

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from luban.core.dtypes import DTYPES
from luban.core.errors import ShapeError
from luban.graph import build
from luban.graph.meaning.context import Array
from luban.graph.ops.contract import Convolution, DotGeneral
from luban.ir.node import node
from tests.graph.calls import apply, call, symbolic

F32 = DTYPES["f32"]


def whole(*shape: int, low: int = -3, high: int = 4, element: Any = np.float32) -> Array:
    return np.random.default_rng(len(shape)).integers(low, high, shape).astype(element)


@pytest.mark.parametrize(
    ("numbers", "shapes", "formula"),
    [
        (((), (), (1,), (0,)), ((3, 4), (4, 5)), "ij,jk->ik"),
        (((0,), (0,), (2,), (1,)), ((2, 3, 4), (2, 4, 5)), "bij,bjk->bik"),
        (((0,), (2,), (1,), (0,)), ((2, 4, 3), (4, 5, 2)), "bji,jkb->bik"),
        (((), (), (0, 2), (1, 0)), ((2, 3, 4), (4, 2, 5)), "aib,bak->ik"),
        (((), (), (), ()), ((2,), (3,)), "i,j->ij"),
        (((0, 1), (0, 1), (), ()), ((2, 3), (2, 3, 4)), "ab,abk->abk"),
    ],
)
def test_dot_general(numbers: tuple[Any, Any, Any, Any], shapes: Any, formula: str) -> None:
    x, y = whole(*shapes[0]), whole(*shapes[1])
    result = apply(DotGeneral(*numbers, F32), x, y)
    np.testing.assert_array_equal(result, np.einsum(formula, x, y))


@pytest.mark.parametrize("shapes", [((0, 3), (3, 2)), ((2, 0), (0, 3)), ((2, 3), (3, 0))])
def test_dot_general_of_nothing(shapes: Any) -> None:
    x, y = np.ones(shapes[0], np.float32), np.ones(shapes[1], np.float32)
    np.testing.assert_array_equal(call(build.matmul, x, y), x @ y)


def test_matmul_broadcasts_like_numpy() -> None:
    for a, b in [((3,), (3,)), ((3,), (2, 3, 4)), ((2, 1, 4, 3), (5, 3, 2)), ((5, 2, 3), (3,))]:
        x, y = whole(*a), whole(*b)
        np.testing.assert_array_equal(call(build.matmul, x, y), np.matmul(x, y))


def test_eight_bit_products_are_exact_in_i32() -> None:
    x, y = np.array([[255, 255]], np.uint8), np.array([[127], [127]], np.int8)
    result = call(lambda a, b: build.matmul(a, b, "i32"), x, y)
    assert (result.dtype, result.item()) == (np.int32, 64770)


def test_wide_integer_products_wrap() -> None:
    x = np.array([[2**31 - 1, 2**31 - 1]], np.int32)
    result = call(lambda a, b: build.matmul(a, b), x, x.T.copy())
    assert result.item() == ((2 * (2**31 - 1) ** 2 + 2**31) % 2**32) - 2**31
    y = np.array([[2**62, 3]])
    assert call(build.matmul, y, y.T.copy()).item() == 9


def test_half_products_accumulate_in_f32() -> None:
    for element in (np.float16, ml_dtypes.bfloat16):
        x = np.full((1, 4096), 1, element)
        result = call(build.matmul, x, x.T.copy())
        assert (result.dtype, float(result.item())) == (element, 4096)


def test_contracted_sizes_must_agree_at_run_time() -> None:
    x, y = whole(2, 3), whole(4, 5)
    with pytest.raises(ShapeError, match=r"\[2, 3\] and \[4, 5\]: axis 1 of one must equal axis 0"):
        call(build.matmul, x, y, types=symbolic(x, y))


def convolution_by_definition(op: Convolution, x: Array, filters: Array) -> Array:
    """The double sum of the definition, channels first."""
    low = [int(str(v)) for v in op.low]
    high = [int(str(v)) for v in op.high]
    spread = [
        max(n - 1, 0) * d + min(n, 1) for n, d in zip(x.shape[2:], op.lhs_dilation, strict=True)
    ]
    wide = np.zeros((*x.shape[:2], *spread), np.int64)
    steps: tuple[Any, ...] = tuple(slice(None, None, d) for d in op.lhs_dilation)
    wide[(..., *steps)] = x
    outputs, per_group, *window = filters.shape
    rows = list(zip(spread, window, low, high, op.strides, op.rhs_dilation, strict=True))
    shape = [max((n + a + b - (k - 1) * d - 1) // s + 1, 0) for n, k, a, b, s, d in rows]
    result = np.zeros((x.shape[0], outputs, *shape), np.int64)
    for n, o, *place in np.ndindex(*result.shape):
        first = o // (outputs // op.groups) * per_group
        total = 0
        for c, *tap in product(range(per_group), *(range(k) for k in window)):
            at = [p * r[4] + t * r[5] - r[2] for p, t, r in zip(place, tap, rows, strict=True)]
            if all(0 <= i < size for i, size in zip(at, spread, strict=True)):
                total += int(wide[(n, first + c, *at)]) * int(filters[(o, c, *tap)])
        result[(n, o, *place)] = total
    return result


CONVOLUTIONS: list[tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]] = [
    ({}, (2, 3, 5, 6), (4, 3, 3, 2)),
    ({"strides": (2, 3)}, (1, 3, 7, 8), (2, 3, 3, 3)),
    ({"low": (1, 2), "high": (0, 1)}, (1, 2, 4, 4), (2, 2, 3, 3)),
    ({"low": (-1, 0), "high": (0, -2)}, (1, 2, 6, 6), (2, 2, 2, 2)),
    ({"rhs_dilation": (2, 3)}, (1, 2, 8, 9), (2, 2, 3, 3)),
    ({"lhs_dilation": (2, 3), "low": (1, 1), "high": (2, 2)}, (1, 2, 4, 3), (2, 2, 3, 3)),
    ({"groups": 2}, (2, 4, 5, 5), (6, 2, 3, 3)),
    ({"groups": 4, "low": (1, 1), "high": (1, 1)}, (2, 4, 5, 5), (8, 1, 3, 3)),
    ({}, (1, 2, 2, 2), (3, 2, 4, 4)),  # the window is wider than the input
    ({}, (0, 3, 5, 5), (4, 3, 3, 3)),  # no batch
    ({"low": (1, 1), "high": (1, 1)}, (1, 2, 0, 3), (1, 2, 3, 3)),  # no rows: only padding
]


def convolution(options: dict[str, Any], rank: int, element: str, layout: str) -> Convolution:
    ones, zeros = (1,) * rank, (0,) * rank
    fields: dict[str, Any] = {
        "strides": ones,
        "low": zeros,
        "high": zeros,
        "lhs_dilation": ones,
        "rhs_dilation": ones,
        "groups": 1,
    }
    return Convolution(**(fields | options), dtype=DTYPES[element], layout=layout)


@pytest.mark.parametrize(("options", "x_shape", "filter_shape"), CONVOLUTIONS)
@pytest.mark.parametrize("element", ["f32", "i32"])
def test_convolution(
    options: dict[str, Any], x_shape: tuple[int, ...], filter_shape: tuple[int, ...], element: str
) -> None:
    given = np.float32 if element == "f32" else np.int8
    x, filters = whole(*x_shape, element=given), whole(*filter_shape, element=given)
    op = convolution(options, 2, element, "channels_first")
    expected = convolution_by_definition(op, x, filters)
    np.testing.assert_array_equal(apply(op, x, filters), expected)
    last = convolution(options, 2, element, "channels_last")
    result = apply(last, np.moveaxis(x, 1, -1).copy(), filters.transpose(2, 3, 1, 0).copy())
    np.testing.assert_array_equal(np.moveaxis(result, -1, 1), expected)


@pytest.mark.parametrize("rank", [1, 3])
def test_convolution_in_other_ranks(rank: int) -> None:
    x, filters = whole(1, 4, *(5,) * rank), whole(2, 2, *(3,) * rank)
    op = convolution({"groups": 2}, rank, "f32", "channels_first")
    np.testing.assert_array_equal(apply(op, x, filters), convolution_by_definition(op, x, filters))


def test_convolution_with_an_even_kernel_and_many_groups() -> None:
    x, filters = whole(1, 32, 39), whole(32, 2, 128)
    op = convolution({"groups": 16, "low": (64,), "high": (64,)}, 1, "f32", "channels_first")
    result = apply(op, x, filters)
    assert result.shape == (1, 32, 40)
    np.testing.assert_array_equal(result, convolution_by_definition(op, x, filters))


def test_channels_must_agree_at_run_time() -> None:
    x, filters = whole(1, 3, 5), whole(2, 2, 3)
    types = symbolic(x, filters)
    types[1] = types[1].with_shape((*types[1].shape[:2], 3))
    op = convolution({}, 1, "f32", "channels_first")
    with pytest.raises(ShapeError, match="input has 3 channels, filter has 2 outputs of 2 inputs"):
        call(lambda a, b: node(op, a, b), x, filters, types=types)
