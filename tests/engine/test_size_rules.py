"""Compiled programs check sizes that do not fit together before a kernel sees them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from luban.core.errors import ShapeError
from luban.core.types import tensor
from luban.engine.compile import compile_graph
from luban.graph import build
from luban.ir.node import Graph, Node

X = build.parameter("x", tensor("f32", "n", "m"))
Y = build.parameter("y", tensor("f32", "k", "l"))


def runner(result: Node) -> Callable[..., list[np.ndarray]]:
    executor = compile_graph(Graph("g", (X, Y), (result,)), num_threads=1).executor

    def run(*shapes: tuple[int, int]) -> list[np.ndarray]:
        return executor.run([np.ones(shape, np.float32) for shape in shapes])

    return run


def test_a_product_of_sizes_that_do_not_fit() -> None:
    run = runner(build.matmul(X, Y))
    assert run((2, 3), (3, 4))[0].shape == (2, 4)
    for _ in range(2):  # the second time there is a plan for the first sizes only
        with pytest.raises(ShapeError, match=r"dot_general: axis 1 of .* m is 3, k is 5"):
            run((2, 3), (5, 4))
    np.testing.assert_array_equal(run((2, 3), (3, 4))[0], np.full((2, 4), 3))


def test_a_sum_of_sizes_that_do_not_broadcast() -> None:
    run = runner(build.add(X, Y))
    assert run((2, 3), (1, 3))[0].shape == (2, 3)
    with pytest.raises(ShapeError, match=r"do not broadcast|must be 1 or equal"):
        run((2, 3), (2, 4))


def test_a_slice_that_does_not_lie_inside() -> None:
    run = runner(build.concatenate([build.slice_axis(X, 0, 1, 2), Y], 0))
    assert run((3, 4), (1, 4))[0].shape == (3, 4)
    with pytest.raises(ShapeError, match="the end of the slice and axis 0"):
        run((2, 4), (1, 4))
    with pytest.raises(ShapeError, match="concatenate: axis 1"):
        run((3, 4), (1, 5))
