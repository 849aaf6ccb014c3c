"""Rules between sizes: what proves them, what breaks them, and what is said then."""

from __future__ import annotations

import pytest

from luban.core.dims import DimLike, symbol
from luban.core.errors import ShapeError
from luban.core.loc import Loc
from luban.core.size_rules import SizeRule, check_sizes

n, m = symbol("n"), symbol("m")


@pytest.mark.parametrize(
    ("relation", "left", "right", "proved"),
    [
        ("equal", n, n, True),
        ("equal", n, m, False),
        ("equal", n + 1, 1 + n, True),
        ("at_most", n, n + 1, True),
        ("at_most", n + 1, n, False),
        ("at_most", 1, symbol("k", 1), True),
        ("at_most", 1, n, False),
        ("repeats_to", 1, n, True),
        ("repeats_to", n, m, False),
    ],
)
def test_proofs(relation: str, left: DimLike, right: DimLike, proved: bool) -> None:
    assert SizeRule(relation, left, right, "x").is_proved == proved


@pytest.mark.parametrize(
    ("relation", "sizes", "message"),
    [
        ("equal", (3, 4), "x must be equal: n is 3, m is 4"),
        ("at_most", (4, 3), "x must be at most: n is 4, m is 3"),
        ("repeats_to", (2, 3), "x must be 1 or equal: n is 2, m is 3"),
    ],
)
def test_a_broken_rule_says_where_and_how(
    relation: str, sizes: tuple[int, int], message: str
) -> None:
    rule = SizeRule(relation, n, m, "x", Loc("model.onnx", "Gemm_1"))
    with pytest.raises(ShapeError, match=message) as error:
        check_sizes([rule], dict(zip("nm", sizes, strict=True)))
    assert "at model.onnx: Gemm_1" in str(error.value)


@pytest.mark.parametrize(
    ("relation", "sizes"),
    [("equal", (3, 3)), ("at_most", (3, 3)), ("repeats_to", (1, 3)), ("repeats_to", (3, 3))],
)
def test_rules_that_hold_say_nothing(relation: str, sizes: tuple[int, int]) -> None:
    check_sizes([SizeRule(relation, n, m, "x")], dict(zip("nm", sizes, strict=True)))


def test_open_sizes_are_left_for_later() -> None:
    check_sizes([SizeRule("equal", n, m, "x")], {"n": 3})
