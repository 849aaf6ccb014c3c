"""Memory plan: where buffers live in one arena. Pure: sizes and lifetimes in, offsets out.

See docs/adr/0004-memory-plan.md.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from luban.core.errors import CheckError

__all__ = [
    "ALIGNMENT",
    "Lifetime",
    "MemoryPlan",
    "aligned",
    "lower_bound_bytes",
    "plan_memory",
    "verify_plan",
]

ALIGNMENT = 64  # a cache line, and the widest vector


@dataclass(frozen=True, slots=True)
class Lifetime:
    """One buffer: its size, and the first and last step (inclusive) in which it must hold."""

    size_bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Byte offset of each buffer, the arena's size, and the least that any plan would need."""

    offsets: tuple[int, ...]
    size_bytes: int
    lower_bound_bytes: int

    @property
    def gap(self) -> float:
        """How far above the lower bound the plan is: 0.0 is perfect."""
        return self.size_bytes / self.lower_bound_bytes - 1 if self.lower_bound_bytes else 0.0


def aligned(size_bytes: int) -> int:
    """The size rounded up to whole cache lines."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def plan_memory(buffers: Sequence[Lifetime]) -> MemoryPlan:
    """Pack buffers, largest first, each at the lowest offset free for its whole life.

    >>> plan_memory([Lifetime(100, 0, 1), Lifetime(64, 1, 2), Lifetime(100, 2, 3)])
    MemoryPlan(offsets=(0, 128, 0), size_bytes=192, lower_bound_bytes=192)
    """
    order = sorted(range(len(buffers)), key=lambda i: (-buffers[i].size_bytes, buffers[i].first))
    offsets = [0] * len(buffers)
    placed: list[tuple[int, int, int]] = []  # (offset, end, buffer), by offset
    total = 0
    for i in order:
        buffer = buffers[i]
        size = aligned(buffer.size_bytes)
        offset = 0
        for start, end, j in placed:
            other = buffers[j]
            if other.last < buffer.first or other.first > buffer.last or end <= offset:
                continue
            if start >= offset + size:
                break
            offset = end
        offsets[i] = offset
        if size:
            insort(placed, (offset, offset + size, i))
        total = max(total, offset + size)
    return MemoryPlan(tuple(offsets), total, lower_bound_bytes(buffers))


def lower_bound_bytes(buffers: Sequence[Lifetime]) -> int:
    """The most bytes alive in any one step: no plan can be smaller.

    >>> lower_bound_bytes([Lifetime(64, 0, 1), Lifetime(64, 1, 2)])
    128
    """
    live = peak = 0
    ends: list[tuple[int, int]] = []
    for buffer in sorted(buffers, key=lambda b: b.first):
        while ends and ends[0][0] < buffer.first:
            live -= heapq.heappop(ends)[1]
        size = aligned(buffer.size_bytes)
        live += size
        heapq.heappush(ends, (buffer.last, size))
        peak = max(peak, live)
    return peak


def verify_plan(buffers: Sequence[Lifetime], plan: MemoryPlan) -> None:
    """Check, independently of the planner, that live buffers share no byte and all are inside.

    Walks the steps with the set of live buffers instead of comparing placements.
    Raises CheckError with the two buffers.
    """
    events: dict[int, tuple[list[int], list[int]]] = {}
    for i, (buffer, offset) in enumerate(zip(buffers, plan.offsets, strict=True)):
        if offset < 0 or offset % ALIGNMENT or offset + buffer.size_bytes > plan.size_bytes:
            raise CheckError(
                f"memory plan: buffer {i} of {buffer.size_bytes} bytes at {offset} does not lie "
                f"aligned inside {plan.size_bytes} bytes"
            )
        if buffer.size_bytes:
            events.setdefault(buffer.first, ([], []))[0].append(i)
            events.setdefault(buffer.last, ([], []))[1].append(i)
    live: list[tuple[int, int, int]] = []
    for step in sorted(events):
        born, dying = events[step]
        for i in born:
            insort(live, (plan.offsets[i], plan.offsets[i] + buffers[i].size_bytes, i))
        for (_, end, i), (start, _, j) in pairwise(live):
            if start < end:
                raise CheckError(f"memory plan: buffers {i} and {j} overlap in step {step}")
        for i in dying:
            live.remove((plan.offsets[i], plan.offsets[i] + buffers[i].size_bytes, i))
