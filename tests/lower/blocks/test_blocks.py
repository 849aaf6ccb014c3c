"""Whole block programs: evaluator and compiled code agree."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lower.blocks.programs import check_lowering, matmul, numbers, softmax, vector_add


@pytest.mark.parametrize("block", [1, 8, 64, 128, 1024])
@pytest.mark.parametrize("count", [1, 300, 1024])
def test_vector_add(block: int, count: int) -> None:
    x, y = numbers(count), numbers(count, seed=1)
    out = np.full(count, 7, np.float32)
    programs = -(-count // block)
    _, _, found = check_lowering(vector_add(block), [x, y, out, count], programs)
    np.testing.assert_array_equal(found, x + y)


@pytest.mark.parametrize(
    ("columns", "block"), [(1, 1), (13, 16), (64, 64), (100, 128), (781, 1024)]
)
def test_softmax(columns: int, block: int) -> None:
    x = numbers(3, columns)
    out = np.zeros(3 * columns, np.float32)
    found, _ = check_lowering(softmax(block), [out, x.reshape(-1), columns], 3, exact=False)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(
        found.reshape(3, -1), powers / powers.sum(axis=1, keepdims=True), rtol=1e-5
    )


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("blocks", [(16, 16, 16), (32, 64, 16), (64, 32, 32)])
def test_matmul(blocks: tuple[int, int, int], masked: bool) -> None:
    m, n, k = blocks
    rows, columns = 70, 45
    depth = 50 if masked else 64
    a, b = numbers(rows, depth), numbers(depth, columns, seed=1)
    c = np.zeros(rows * columns, np.float32)
    programs = -(-rows // m) * -(-columns // n)
    *_, found = check_lowering(
        matmul(m, n, k, masked),
        [a.reshape(-1), b.reshape(-1), c, rows, columns, depth],
        programs,
    )
    np.testing.assert_allclose(found.reshape(rows, columns), a @ b, rtol=1e-4, atol=1e-4)
