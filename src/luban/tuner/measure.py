"""Two compiled models timed in turns, kernel by kernel: what disturbs one disturbs the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from luban.engine.compile import Compiled
from luban.engine.executor import CallTimes
from luban.engine.steps import LinkedKernel

__all__ = ["Measure", "Times", "timed_in_turns"]

_TIMING_S = 0.8  # of one comparison
_CALLS = (7, 200)  # of each side, at least and at most

Times = Mapping[LinkedKernel, float]
# (one, the other, inputs) -> nanoseconds by kernel, of neighbouring calls of both
Measure = Callable[[Compiled, Compiled, Sequence[Any]], Sequence[tuple[Times, Times]]]


def _times(call: CallTimes) -> Times:
    return {kernel: spent.ns for kernel, spent in call.kernels.items()}


def timed_in_turns(
    one: Compiled, other: Compiled, inputs: Sequence[Any]
) -> list[tuple[Times, Times]]:
    """Pairs of neighbouring calls, for about a second: what each kernel took, in nanoseconds."""
    first, second = one.executor.timed(), other.executor.timed()

    def pair() -> tuple[Times, Times]:
        return _times(first(inputs)), _times(second(inputs))

    pair()  # memory is touched, plans are made
    start = time.perf_counter()
    pair()
    each = max(time.perf_counter() - start, 1e-9)
    count = int(min(max(_TIMING_S / each, _CALLS[0]), _CALLS[1]))
    return [pair() for _ in range(count)]
