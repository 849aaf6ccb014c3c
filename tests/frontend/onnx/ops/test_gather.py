"""Reading and writing at indices: negative ones, depth of index vectors, duplicates."""

from __future__ import annotations

import numpy as np
import pytest

from luban.core.errors import LubanError
from tests.frontend.onnx.ops.comparison import Array, compare, run

rng = np.random.default_rng(3)
SMALLER = {0: (3, 5, 6), 1: (4, 4, 6), -1: (4, 5, 2)}


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_with_negative_indices(axis: int) -> None:
    compare("Gather", [normal(4, 5, 6), np.array([[0, -1], [2, 1]])], axis=axis)
    compare("Gather", [normal(4, 5, 6), np.array(-2, np.int32)], axis=axis, known=[1])


@pytest.mark.parametrize("element", [np.float16, np.int8, np.bool_, np.int64])
def test_gather_of_other_dtypes(element: type) -> None:
    x: Array = rng.integers(0, 2, (100, 8)).astype(element)
    (result,) = run("Gather", [x, np.array([[3, 99], [0, -1]])])
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(result, x[[[3, 99], [0, -1]]])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements(axis: int) -> None:
    indices = rng.integers(-4, 4, SMALLER[axis])
    compare("GatherElements", [normal(4, 5, 6), indices], axis=axis)


def test_gather_nd() -> None:
    x = normal(2, 3, 4, 5)
    for batch_dims in (0, 1):
        indices = rng.integers(-2, 2, (2, 3, 2))
        (result,) = run("GatherND", [x, indices], batch_dims=batch_dims)
        wanted = (
            x[indices[..., 0], indices[..., 1]]
            if not batch_dims
            else np.stack([x[b][i[:, 0], i[:, 1]] for b, i in enumerate(indices)])
        )
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements(axis: int, reduction: str) -> None:
    shape = SMALLER[axis]
    indices = (
        np.argsort(rng.random(shape), axis=axis)  # no duplicates, whose order is not stated
        if reduction == "none"
        else rng.integers(-4, 4, shape)
    )
    inputs = [normal(4, 5, 6), indices, normal(*shape)]
    compare("ScatterElements", inputs, axis=axis, reduction=reduction, opset=18)


def test_scatter_changes_only_what_the_indices_name() -> None:
    data = np.zeros((2, 3, 4), np.float32)
    indices = np.array([1, 0, 1]).reshape(1, 3, 1)
    updates = np.array([1, 2, 3], np.float32).reshape(1, 3, 1)
    (result,) = run("ScatterElements", [data, indices, updates], axis=0)
    wanted = np.zeros_like(data)
    wanted[1, 0, 0], wanted[0, 1, 0], wanted[1, 2, 0] = 1, 2, 3
    np.testing.assert_array_equal(result, wanted)


def test_scatter_nd_wraps_negative_indices() -> None:
    data, updates = np.zeros((4, 4), np.float32), np.array([9, 8], np.float32)
    (result,) = run("ScatterND", [data, np.array([[0, 1], [-1, -2]]), updates])
    assert {
        tuple(map(int, place)): float(result[tuple(place)]) for place in np.argwhere(result)
    } == {
        (0, 1): 9.0,
        (3, 2): 8.0,
    }


def test_duplicates_add_up_in_order() -> None:
    indices = rng.integers(0, 100, (1000, 1))
    updates = normal(1000)
    first, second = (
        run("ScatterND", [np.zeros(100, np.float32), indices, updates], reduction="add")[0]
        for _ in range(2)
    )
    wanted = np.zeros(100, np.float32)
    for place, update in zip(indices[:, 0], updates, strict=True):
        wanted[place] += update
    np.testing.assert_array_equal(first, wanted)
    np.testing.assert_array_equal(first, second)


def test_the_last_of_duplicates_stays() -> None:
    inputs = [np.zeros(3, np.float32), np.array([[1], [1]]), np.array([5, 6], np.float32)]
    np.testing.assert_array_equal(run("ScatterND", inputs)[0], [0, 6, 0])


def test_index_vectors_that_are_too_long_are_an_error() -> None:
    with pytest.raises(LubanError, match=r"expected a last axis of 1 to 2 for f32\[4,4\]"):
        run("GatherND", [normal(4, 4), np.zeros((2, 3), np.int64)])


def test_an_unknown_reduction_is_an_error() -> None:
    inputs = [normal(4), np.array([[1]]), normal(1)]
    with pytest.raises(LubanError, match="reduction is 'mean', expected one of none, add"):
        run("ScatterND", inputs, reduction="mean")


def test_indices_of_another_rank_are_an_error() -> None:
    with pytest.raises(LubanError, match=r"indices are i64\[2\], expected the rank of f32\[4,4\]"):
        run("GatherElements", [normal(4, 4), np.zeros(2, np.int64)])


def test_tensor_scatter_wraps_round() -> None:
    cache = np.zeros((2, 4, 1), np.float32)
    update = np.arange(1, 5, dtype=np.float32).reshape(2, 2, 1)
    (result,) = run(
        "TensorScatter", [cache, update, np.array([3, 1])], opset=24, mode="circular", axis=1
    )
    np.testing.assert_array_equal(result[..., 0], [[2, 0, 0, 1], [0, 3, 4, 0]])
