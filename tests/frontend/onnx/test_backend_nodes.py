"""The onnx package's node tests, imported and run by the evaluator: none is left out silently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
import pytest

from luban.frontend.onnx import import_model
from luban.graph.evaluate import evaluate
from luban.graph.verify import verify
from tests.frontend.onnx.backend_cases import cases, check, random_outputs, unsupported

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
    if name not in unsupported("evaluate"):
        check(name, run)
        return
    try:
        check(name, run)
    except Exception:  # noqa: BLE001 - any failure is what the table states
        return
    pytest.fail(f"{name} passes: take it out of support_table.toml")
