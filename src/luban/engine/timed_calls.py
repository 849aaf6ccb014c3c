"""Calls of a model that are timed kernel by kernel, and what of those times to believe."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from luban.core.progress import report
from luban.engine.compile import Compiled
from luban.engine.executor import CallTimes

__all__ = ["Calls", "fastest_possible", "timed_calls"]

_TIMING_S = 1.5
_CALLS = (5, 300)  # at least and at most
_PARTS = 3
_MISJUDGED = 1.25  # how far a kernel may be above what the cost model takes for conceivable


@dataclass(frozen=True, slots=True)
class Calls:
    """What was timed: kernels, call by call, and as many whole calls by themselves, in seconds."""

    kernels: list[CallTimes]
    whole_s: list[float]


def timed_calls(
    compiled: Compiled,
    inputs: Sequence[Any],
    between: Callable[[], None] = lambda: None,
    seconds: float = _TIMING_S,
) -> Calls:
    """Call a model for a while, with and without timing its kernels in turns.

    between   what else is measured in the same run: called three times, evenly
    """
    timed, plain = compiled.executor.timed(), compiled.executor.run
    clock = time.perf_counter
    timed(inputs), plain(inputs)  # memory is touched, plans are made
    found = Calls([], [])
    for part in range(_PARTS):
        report("timing kernels", part, _PARTS)
        between()
        end, least, most = clock() + seconds / _PARTS, *(n * (part + 1) // _PARTS for n in _CALLS)
        while len(found.whole_s) < least or (clock() < end and len(found.whole_s) < most):
            start = clock()
            plain(inputs)
            found.whole_s.append(clock() - start)
            found.kernels.append(timed(inputs))
    return found


def fastest_possible(times: Sequence[float], floor: float) -> float:
    """The least of times that are no less than a floor, about; the median if all are less.

    While the calling thread is put aside, others run kernels that then seem to take no time, at
    the cost of the one that it was put aside in.

    >>> fastest_possible([9.0, 8.0, 0.1], 7.0), fastest_possible([0.1, 0.2, 0.3], 7.0)
    (8.0, 0.2)
    """
    return min((t for t in times if t >= floor / _MISJUDGED), default=median(times))
