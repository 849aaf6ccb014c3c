"""The targets of products with 4-bit weights: what counts, and as what."""

from __future__ import annotations

import onnx
import pytest

from benchmarks.int4 import Case, Outcome


@pytest.mark.parametrize(
    ("rows", "level", "ours_s", "target"),
    [
        (1, 4, 0.01, "met"),
        (1, 4, 0.02, "MISSED"),
        (16, 4, 0.01, "met"),
        (16, 4, 0.02, "MISSED"),
        (16, 0, 0.02, ""),
    ],
)
def test_one_row_is_held_to_memory_and_more_to_the_peer(
    rows: int, level: int, ours_s: float, target: str
) -> None:
    case = Case(rows, 32, level)
    limit = case.bytes_read / 0.009 / 1e9
    assert Outcome(case, 1, ours_s, 0.03, limit).target == target


def test_bytes_are_those_of_codes_and_scales() -> None:
    assert Case(1, 32, 4).bytes_read == 8 * (4096 * 4096 // 2 + 4096 * 128 * 4)


def test_the_chain_is_a_model() -> None:
    model = Case(2, 128, 4).model()
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node] == ["MatMulNBits"] * 8
