"""Random operators: distribution, seeds, and that runs differ without one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luban.core.errors import ModelError, UnsupportedError
from luban.graph.evaluate import evaluate
from tests.frontend.onnx.ops.comparison import graph_of, model, run

MANY = [100, 100]


def test_uniform() -> None:
    (x,) = run("RandomUniform", [], shape=MANY, low=-1.0, high=3.0, seed=1.0)
    assert x.dtype == np.float32
    assert x.min() >= -1
    assert x.max() < 3
    assert abs(x.mean() - 1) < 0.05
    assert abs(x.std() - 4 / np.sqrt(12)) < 0.02


@pytest.mark.parametrize("code", [1, 10, 11, 16])
def test_normal_in_every_float(code: int) -> None:
    (x,) = run("RandomNormal", [], shape=MANY, mean=2.0, scale=0.5, seed=1.0, dtype=code)
    wide = x.astype(np.float64)
    assert abs(wide.mean() - 2) < 0.03
    assert abs(wide.std() - 0.5) < 0.02
    assert abs(np.mean(np.abs(wide - 2) < 0.5) - 0.6827) < 0.02


def test_half_floats_stay_below_one() -> None:
    for code in (10, 16):
        (x,) = run("RandomUniform", [], shape=[200, 200], seed=3.0, dtype=code)
        assert x.astype(np.float32).max() < 1


def test_a_seed_repeats_and_none_does_not() -> None:
    seeded = graph_of(model("RandomUniform", [], shape=[8], seed=5.0))
    first, second = (evaluate(seeded, [])[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = graph_of(model("RandomUniform", [], shape=[8], seed=6.0))
    assert not np.array_equal(first, evaluate(other, [])[0])
    free = graph_of(model("RandomUniform", [], shape=[8]))
    assert not np.array_equal(evaluate(free, [])[0], evaluate(free, [])[0])


def test_like_takes_shape_and_dtype() -> None:
    x = np.zeros((3, 5), np.float16)
    assert run("RandomNormalLike", [x], seed=1.0)[0].dtype == np.float16
    assert run("RandomUniformLike", [x], seed=1.0, dtype=11)[0].dtype == np.float64
    with pytest.raises(ModelError, match="dtype is i32, expected a float"):
        run("RandomUniformLike", [x], dtype=6)


def test_bernoulli() -> None:
    chances = np.full(MANY, 0.3)
    (x,) = run("Bernoulli", [chances], seed=1.0, dtype=9)
    assert x.dtype == np.bool_
    assert abs(x.mean() - 0.3) < 0.02
    edges = np.array([0.0, 1.0], np.float32)
    assert run("Bernoulli", [edges])[0].tolist() == [0, 1]


def test_multinomial() -> None:
    logits = np.log(np.array([[0.1, 0.2, 0.7], [1e-30, 1, 1e-30]], np.float32))
    (x,) = run("Multinomial", [logits], sample_size=5000, seed=1.0)
    assert x.dtype == np.int32
    shares = np.bincount(x[0], minlength=3) / 5000
    np.testing.assert_allclose(shares, [0.1, 0.2, 0.7], atol=0.03)
    assert (x[1] == 1).all()


def dropout(training: bool, **options: Any) -> tuple[Any, ...]:
    x = np.ones(MANY, np.float32)
    return run("Dropout", [x, np.float32(0.25), np.array(training)], results=2, **options)


def test_dropout() -> None:
    y, mask = dropout(True, seed=4)
    assert abs(mask.mean() - 0.75) < 0.02
    np.testing.assert_allclose(y, mask / np.float32(0.75), rtol=1e-6)
    y, mask = dropout(False)
    assert (y == 1).all()
    assert mask.all()


def test_old_dropout() -> None:
    x = np.ones(3, np.float32)
    y, mask = run("Dropout", [x], opset=7, results=2)
    assert y.tolist() == [1, 1, 1]
    assert mask.dtype == np.float32
    assert run("Dropout", [x], opset=10, results=2)[1].dtype == np.bool_
    with pytest.raises(UnsupportedError, match=r"training \(is_test=0\)"):
        run("Dropout", [x], opset=6)
