"""The onnx package's node tests, imported and run by the evaluator: none is left out silently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from luban.frontend.onnx import import_model
from luban.graph.evaluate import evaluate
from luban.graph.verify import verify
from tests.frontend.onnx.backend_cases import (
    cases,
    check_as_listed,
    plain,
    random_outputs,
    unsupported,
    wider_bounds,
)

NUM_CASES = 1884


def run(model: onnx.ModelProto, inputs: Sequence[Any]) -> Sequence[Any]:
    graph = import_model(model).graph
    verify(graph)
    return evaluate(graph, inputs)


def test_all_cases_are_here() -> None:
    assert len(cases()) == NUM_CASES


def test_at_least_99_percent_pass() -> None:
    assert len(unsupported("evaluate")) <= NUM_CASES // 100


def test_the_table_names_cases_that_exist() -> None:
    assert {*unsupported("evaluate"), *unsupported("compiled"), *random_outputs()} <= {*cases()}


@pytest.mark.parametrize("name", sorted(cases()))
def test_node(name: str) -> None:
    check_as_listed(name, run, "evaluate")


@pytest.mark.parametrize("name", sorted(wider_bounds()))
def test_where_a_wider_bound_stands_ours_are_as_near_to_the_exact_values(name: str) -> None:
    case = cases()[name]
    graph = import_model(case.model).graph
    for inputs, expected in case.data_sets:
        given = [plain(value) for value in inputs]
        exact = evaluate(graph, given, precision="float64")
        for ours, theirs, truth in zip(evaluate(graph, given), expected, exact, strict=True):
            ours_off, theirs_off = (
                np.square(np.asarray(plain(x)).astype(np.float64) - truth).sum()
                for x in (ours, theirs)
            )
            assert ours_off < 1.1 * theirs_off
