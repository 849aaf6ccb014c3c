"""Compiled programs check sizes that do not fit together before a kernel sees them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import luban
from luban.core.errors import ShapeError
from luban.core.types import tensor
from luban.engine.compile import compile_graph
from luban.graph import build
from luban.ir.node import Graph, Node
from tests.engine.models import model_of, saved, value

X = build.parameter("x", tensor("f32", "n", "m"))
Y = build.parameter("y", tensor("f32", "k", "l"))


def runner(*results: Node) -> Callable[..., list[np.ndarray]]:
    executor = compile_graph(Graph("g", (X, Y), results), num_threads=1).executor

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


def test_a_view_that_no_kernel_reads() -> None:
    run = runner(build.add(build.exp(X), 1.0), build.reshape(Y, (6,)))
    assert run((2, 2), (2, 3))[1].shape == (6,)
    for _ in range(2):
        with pytest.raises(ShapeError, match="reshape: the elements of"):
            run((2, 2), (2, 4))


def test_sizes_are_checked_in_a_model_from_the_cache(tmp_path: Path) -> None:
    product = helper.make_node("MatMul", ["x", "y"], ["z"])
    inputs = [value("x", ["n", "m"]), value("y", ["k", "l"])]
    path = saved(model_of([product], inputs, [value("z", None)]), tmp_path)
    x = np.ones((2, 3), np.float32)
    for from_cache in (False, True):
        model = luban.load(path)
        assert model.from_cache is from_cache
        with pytest.raises(ShapeError, match="dot_general: axis 1"):
            model(x, x)
