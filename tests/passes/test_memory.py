"""The memory plan: tight on known cases, legal on random ones, and a verifier that says no."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from luban.core.errors import CheckError
from luban.passes.memory import Lifetime, MemoryPlan, lower_bound_bytes, plan_memory, verify_plan

LIFETIMES = st.lists(
    st.builds(
        lambda size, first, length: Lifetime(size, first, first + length),
        st.integers(0, 5000),
        st.integers(0, 12),
        st.integers(0, 6),
    ),
    max_size=30,
)


@given(LIFETIMES)
def test_plans_are_legal_and_not_below_the_lower_bound(buffers: list[Lifetime]) -> None:
    plan = plan_memory(buffers)
    verify_plan(buffers, plan)
    assert plan.size_bytes >= plan.lower_bound_bytes == lower_bound_bytes(buffers)


def test_buffers_that_never_live_together_share_memory() -> None:
    plan = plan_memory([Lifetime(4096, i, i) for i in range(10)])
    assert plan.size_bytes == 4096
    assert plan.gap == 0.0


def test_empty_plan() -> None:
    assert plan_memory([]) == MemoryPlan((), 0, 0)


def test_verifier_finds_an_overlap_and_names_both_buffers() -> None:
    buffers = [Lifetime(128, 0, 1), Lifetime(64, 1, 2)]
    with pytest.raises(CheckError, match="buffers 0 and 1 overlap in step 1"):
        verify_plan(buffers, MemoryPlan((0, 64), 192, 192))


def test_verifier_finds_an_overlap_with_a_long_lived_neighbour() -> None:
    buffers = [Lifetime(256, 0, 9), Lifetime(64, 3, 4), Lifetime(64, 4, 5)]
    with pytest.raises(CheckError, match="overlap in step 4"):
        verify_plan(buffers, MemoryPlan((0, 256, 128), 512, 320))


@pytest.mark.parametrize("offset", [-64, 32, 192])
def test_verifier_finds_a_buffer_that_is_misplaced(offset: int) -> None:
    with pytest.raises(CheckError, match="does not lie aligned inside 192 bytes"):
        verify_plan([Lifetime(64, 0, 0)], MemoryPlan((offset,), 192, 64))
