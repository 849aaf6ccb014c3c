"""The judge of the model tests: it must say no where the answers differ."""

from __future__ import annotations

import numpy as np

from benchmarks.cases import Array, Feeds, ModelCase, relative_error
from benchmarks.engines import load_reference
from benchmarks.models import BUILT
from tests.models.oracle import disagreements


def tiny() -> ModelCase:
    return next(case for case in BUILT if case.name == "tiny_mlp")


def test_a_model_agrees_with_itself() -> None:
    case = tiny()
    assert list(disagreements(case, load_reference(case.path(), 1))) == []


def test_an_answer_outside_the_bound_is_named_with_its_size_and_error() -> None:
    case = tiny()
    exact = load_reference(case.path(), 1)

    def wrong(feeds: Feeds) -> list[Array]:
        outputs = exact(feeds)
        return [outputs[0] * np.float32(1.001)]

    found = list(disagreements(case, wrong))
    assert len(found) == 2  # batch 1 and 7; batch 0 has nothing to be wrong
    assert found[0].startswith("batch=1: output 0 float32[1, 10] has error 1.0e-03, allowed 1e-04")


def test_a_missing_output_is_named() -> None:
    assert next(disagreements(tiny(), lambda _: [])) == "batch=1: 0 outputs, expected 1"


def test_another_shape_or_dtype_is_an_infinite_error() -> None:
    value = np.ones((2, 3), np.float32)
    assert relative_error(value.reshape(3, 2), value) == np.inf
    assert relative_error(value.astype(np.float64), value) == np.inf


def test_nan_is_wrong_only_where_the_reference_has_none() -> None:
    value = np.array([1.0, np.nan, np.inf])
    assert relative_error(value, value) == 0.0
    assert relative_error(np.array([np.nan, np.nan, np.inf]), value) == np.inf
    assert relative_error(np.array([1.0, np.nan, -np.inf]), value) == np.inf


def test_the_error_of_zeros_is_absolute() -> None:
    assert relative_error(np.array([0.5, 0.0]), np.zeros(2)) == 0.5


def test_text_must_be_equal() -> None:
    words = np.array(["a", "b"], object)
    assert relative_error(words, words.copy()) == 0.0
    assert relative_error(np.array(["a", "c"], object), words) == np.inf
