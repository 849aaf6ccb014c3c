"""Running totals, top-k, unique elements, non-maximum suppression."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.onnx.ops.comparison import Array, compare, run

rng = np.random.default_rng(8)


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("known", [(1,), ()])
def test_cumulative_sum(known: tuple[int, ...], exclusive: int, reverse: int) -> None:
    inputs = [normal(3, 4, 5), np.int64(-2)]
    compare("CumSum", inputs, known=known, exclusive=exclusive, reverse=reverse)


def test_cumulative_product() -> None:
    x = normal(3, 4)
    (result,) = run("CumProd", [x, np.int64(1)], opset=26, known=[1])
    np.testing.assert_allclose(result, np.cumprod(x, 1), rtol=1e-6)


@pytest.mark.parametrize("known", [(1,), ()])
def test_top_k(known: tuple[int, ...]) -> None:
    compare("TopK", [normal(3, 7), np.array([3])], known=known, results=2)
    compare("TopK", [normal(3, 7), np.array([2])], known=known, results=2, axis=0, largest=0)
    compare("TopK", [normal(3, 7)], opset=9, results=2, k=4)


def test_of_equal_elements_the_first_comes_first() -> None:
    values, indices = run("TopK", [np.array([1, 2, 2, 1.0]), np.array([4])], known=[1], results=2)
    np.testing.assert_array_equal(values, [2, 2, 1, 1])
    np.testing.assert_array_equal(indices, [1, 2, 0, 3])


def test_nonzero() -> None:
    compare("NonZero", [rng.integers(0, 2, (3, 4)).astype(np.float32)])
    compare("NonZero", [np.zeros((2, 2), np.float32)])
    np.testing.assert_array_equal(run("NonZero", [np.float32(3)])[0], [[0]])


def test_compress() -> None:
    compare("Compress", [normal(3, 4), np.array([True, False, True])], axis=0)
    compare("Compress", [normal(3, 4), np.array([False, True])])


@pytest.mark.parametrize("in_order", [0, 1])
def test_unique(in_order: int) -> None:
    x = rng.integers(0, 4, 12).astype(np.float32)
    compare("Unique", [x], results=4, sorted=in_order)
    rows = rng.integers(0, 2, (5, 2)).astype(np.float32)
    compare("Unique", [rows], axis=0, results=4, sorted=in_order)
    compare("Unique", [rows.T.copy()], axis=1, results=4, sorted=in_order)


def test_suppression() -> None:
    boxes = np.sort(rng.random((2, 12, 2, 2)).astype(np.float32), axis=2).reshape(2, 12, 4)
    scores = rng.random((2, 3, 12)).astype(np.float32)
    limits = [np.array([4]), np.array([0.3], np.float32), np.array([0.2], np.float32)]
    compare("NonMaxSuppression", [boxes, scores, *limits])
    compare("NonMaxSuppression", [boxes, scores, *limits[:2]], center_point_box=1)
    (nothing,) = run("NonMaxSuppression", [boxes, scores])
    assert nothing.shape == (0, 3)


def test_every_batch_is_suppressed_alike() -> None:
    boxes = np.repeat(np.array([[[0, 0, 1, 1], [0, 0, 1, 1.1], [5, 5, 6, 6]]], np.float32), 2, 0)
    scores = np.repeat(np.array([[[0.9, 0.8, 0.7]]], np.float32), 2, 0)
    (kept,) = run("NonMaxSuppression", [boxes, scores, np.array([3]), np.array([0.5], np.float32)])
    np.testing.assert_array_equal(kept, [[0, 0, 0], [0, 0, 2], [1, 0, 0], [1, 0, 2]])


def test_an_overlap_equal_to_the_threshold_keeps_both() -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 2]]], np.float32)
    scores = np.array([[[0.9, 0.8]]], np.float32)
    (kept,) = run("NonMaxSuppression", [boxes, scores, np.array([2]), np.array([0.5], np.float32)])
    assert len(kept) == 2
