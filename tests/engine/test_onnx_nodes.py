"""The onnx package's node tests on the compiled path: a sample, or with `-m slow` all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
import pytest

import luban
from tests.frontend.onnx.backend_cases import cases, check, unsupported

NAMES = sorted(cases())
SAMPLE = NAMES[::23]


def run(model: onnx.ModelProto, inputs: Sequence[Any]) -> Sequence[Any]:
    return list(luban.compile(model, threads=1)(*inputs).values())


def check_compiled(name: str) -> None:
    if name not in unsupported("compiled"):
        check(name, run)
        return
    try:
        check(name, run)
    except Exception:  # noqa: BLE001 - any failure is what the table states
        return
    pytest.fail(f"{name} passes: take it out of support_table.toml")


def test_at_least_99_percent_pass() -> None:
    assert len(unsupported("compiled")) <= len(NAMES) // 100


@pytest.mark.parametrize("name", SAMPLE)
def test_sampled_node(name: str) -> None:
    check_compiled(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(NAMES) - set(SAMPLE)))
def test_node(name: str) -> None:
    check_compiled(name)
