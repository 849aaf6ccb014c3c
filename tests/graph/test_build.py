"""Builders: broadcasting, numbers as operands, what they refuse and what they leave out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from luban.core.dims import symbol
from luban.core.errors import ShapeError
from luban.core.types import tensor
from luban.graph import build
from tests.graph.calls import call

N = symbol("n")
X = build.parameter("x", tensor("f32", N, 3))


def test_numbers_take_the_dtype_of_the_other_operand() -> None:
    half = build.parameter("h", tensor("f16", 2))
    assert str(build.add(half, 1).type) == "f16[2]"
    assert str(build.subtract(1, half).type) == "f16[2]"
    assert str(build.select(build.less(half, 0), 0, half).type) == "f16[2]"


def test_operands_broadcast() -> None:
    y = build.parameter("y", tensor("f32", 4, 1, 1))
    assert str(build.add(X, y).type) == "f32[4,n,3]"
    assert str(build.add(X, build.parameter("z", tensor("f32", "m", 3))).type) == (
        "f32[broadcast(m,n),3]"
    )


@pytest.mark.parametrize(
    "same",
    [
        build.reshape(X, (N, 3)),
        build.transpose(X, (0, 1)),
        build.cast(X, "f32"),
        build.broadcast_to(X, (N, 3)),
        build.slice_axis(X, 0, 0, N),
        build.concatenate([X], 0),
        build.pad(X, (0, 0), (0, 0)),
        build.reduce("sum", X, []),
    ],
)
def test_what_changes_nothing_is_left_out(same: object) -> None:
    assert same is X


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: build.broadcast_to(X, (3,)), r"f32\[n,3\] has more axes than the target \[3\]"),
        (lambda: build.squeeze(X, [1]), r"squeeze of axis 1 of f32\[n,3\]: expected size 1"),
        (
            lambda: build.matmul(X, build.constant(1.0, "f32")),
            r"matmul of f32\[n,3\] and f32\[\]: expected at least one axis each",
        ),
        (lambda: build.add(X, build.constant([1.0] * 4, "f32")), "sizes 3 and 4 do not broadcast"),
    ],
)
def test_what_does_not_fit_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        make()


def test_two_numbers_make_no_node() -> None:
    with pytest.raises(TypeError, match="add of two Python numbers: make one a constant"):
        build.add(1, 2)
    with pytest.raises(TypeError, match="select of two Python numbers"):
        build.select(build.constant(True), 1, 2)


def test_constants_are_copied_only_from_arrays_that_may_change() -> None:
    array = np.arange(3.0)
    view = array[1:]
    literal = build.constant(view)
    view[0] = 9
    assert call(lambda: literal).tolist() == [1, 2]
    assert not build.constant([1]).op.value.array.flags.writeable  # type: ignore[attr-defined]


def test_compositions() -> None:
    x = np.array([[1, 2, 3], [4, 5, 9]], np.float32)
    np.testing.assert_allclose(call(lambda a: build.mean(a, [1]), x), [2, 6])
    assert call(lambda a: build.mean(a, [0, 1], keep_axes=True), x).shape == (1, 1)
    shifted = np.exp(x - x.max(1, keepdims=True))
    softmax = shifted / shifted.sum(1, keepdims=True)
    np.testing.assert_allclose(call(lambda a: build.softmax(a, 1), x), softmax, rtol=1e-6)
    pieces = call(lambda a: build.split(a, 1, [1, 2]), x)
    assert [p.tolist() for p in pieces] == [[[1], [4]], [[2, 3], [5, 9]]]
    assert call(lambda a: build.expand_dims(a, [0, 3]), x).shape == (1, 2, 3, 1)
    assert call(lambda: build.iota((2, 2), 1)).tolist() == [[0, 1], [0, 1]]
    assert call(lambda: build.full((2,), 7, "i8")).tolist() == [7, 7]


def test_the_mean_of_half_precision_does_not_overflow() -> None:
    x = np.full(70_000, 3.0, np.float16)  # neither the sum nor the count is an f16
    mean = call(lambda a: build.mean(a, [0]), x)
    assert mean.dtype == np.float16
    assert mean == 3


def test_the_mean_of_nothing_is_nan() -> None:
    assert np.isnan(call(lambda a: build.mean(a, [0]), np.zeros((0, 2), np.float32))).all()


def test_shape_vector_is_constant_only_for_constant_shapes() -> None:
    assert build.shape_vector((2, 3)).op.name == "constant"
    assert build.shape_vector((N, 3)).op.name == "concatenate"
    assert build.shape_vector(()).type == tensor("i64", 0)
