"""The onnx package's node tests on the compiled path: a sample, or with `-m slow` all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
import pytest

import luban
from tests.frontend.onnx.backend_cases import cases, check_as_listed, unsupported

NAMES = sorted(cases())
SAMPLE = NAMES[::23]


def run(model: onnx.ModelProto, inputs: Sequence[Any]) -> Sequence[Any]:
    return list(luban.compile(model, threads=1)(*inputs).values())


def test_at_least_99_percent_pass() -> None:
    assert len(unsupported("compiled")) <= len(NAMES) // 100


@pytest.mark.parametrize("name", SAMPLE)
def test_sampled_node(name: str) -> None:
    check_as_listed(name, run, "compiled")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(NAMES) - set(SAMPLE)))
def test_node(name: str) -> None:
    check_as_listed(name, run, "compiled")
