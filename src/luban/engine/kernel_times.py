"""What each kernel takes: predicted by the cost model, and measured on inputs that are made up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from luban.core.cost_model import fastest_conceivable, predict
from luban.engine.compile import Compiled
from luban.engine.hardware import known_hardware
from luban.engine.kernel_work import kernel_works
from luban.engine.samples import sample_inputs
from luban.engine.steps import LinkedKernel
from luban.engine.timed_calls import fastest_possible, timed_calls
from luban.native.hardware_file import stored_hardware

__all__ = ["KernelTimes", "kernel_times"]

_TIMING_S = 0.5


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """Seconds of one run, as far as they are known; what bounds it by the prediction."""

    predicted_s: float | None = None
    bound: str = ""
    measured_s: float | None = None


def kernel_times(
    compiled: Compiled, sizes: Mapping[str, int], *, measure: bool = False
) -> dict[LinkedKernel, KernelTimes]:
    """Predicted times if this machine has been measured; with `measure`, both.

    Raises UnsupportedError if inputs cannot be made up.
    """
    target, threads = compiled.target, compiled.executor.num_threads
    if not target.runs_here:
        return {}
    hardware = known_hardware(target) if measure else stored_hardware(target)
    if hardware is None:
        return {}
    limits = hardware.at(threads)
    found: dict[LinkedKernel, KernelTimes] = {}
    floors: dict[LinkedKernel, float] = {}
    for kernel, work in kernel_works(compiled, sizes).items():
        least = predict(work.work, limits)
        found[kernel] = KernelTimes(least.seconds, least.bound)
        floors[kernel] = fastest_conceivable(work.work, limits)
    if measure:
        for kernel, seconds in _measured(compiled, sizes, floors).items():
            found[kernel] = replace(found.get(kernel, KernelTimes()), measured_s=seconds)
    return found


def _measured(
    compiled: Compiled, sizes: Mapping[str, int], floors: Mapping[LinkedKernel, float]
) -> dict[LinkedKernel, float]:
    """Seconds of one run of each kernel that ran.

    floors   what no run can be below
    """
    program = compiled.executor.program
    named = list(zip(program.input_names, program.inputs, strict=True))
    inputs = list(sample_inputs(named, sizes).values())
    calls = timed_calls(compiled, inputs, seconds=_TIMING_S).kernels
    found: dict[LinkedKernel, float] = {}
    for kernel, last in calls[-1].kernels.items():
        if last.runs:
            times = [call.kernels[kernel].ns / 1e9 / last.runs for call in calls]
            found[kernel] = fastest_possible(times, floors.get(kernel, 0.0))
    return found
