"""A roofline measured now: the machine's limits and the kernels in turns, in one run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from luban.core.hardware import Limits
from luban.engine.compile import Compiled
from luban.engine.hardware import Meter, hardware_of, known_hardware
from luban.engine.timed_calls import timed_calls
from luban.native.hardware_file import hardware_path, remember_hardware
from luban.profiler.roofline import Roofline, judged

__all__ = ["measure_roofline"]

_TURN_S = 0.01  # of one figure of the machine, between two turns of the model


def measure_roofline(compiled: Compiled, inputs: Sequence[Any]) -> Roofline:
    """Time a model's kernels and the machine in turns; what the machine did better is kept.

    Takes about three seconds, and some more where this machine has not been measured before.
    Raises OptionError if the description of the machine cannot be written.
    """
    target, threads = compiled.target, compiled.executor.num_threads
    known_hardware(target)
    meter = Meter(target)
    counts = sorted({1, threads})
    measured: list[Limits] = []
    calls = timed_calls(
        compiled, inputs, lambda: measured.extend(meter.limits(n, _TURN_S) for n in counts)
    )
    best = remember_hardware(hardware_path(), hardware_of(target, measured))
    here = reduce(Limits.merged, (limits for limits in measured if limits.threads == threads))
    return judged(compiled, calls, best, here.rate("f32") / best.at(threads).rate("f32"))
