"""Each kernel of a model next to the limits of this machine: `luban bench MODEL --roofline`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from luban.core.cost_model import fastest_conceivable, predict
from luban.core.hardware import Hardware, Limits
from luban.core.types import TensorType, Type
from luban.engine.check.kernels import ops_of, places_of
from luban.engine.compile import Compiled
from luban.engine.kernel_work import KernelWork, kernel_works
from luban.engine.plan import Spent
from luban.engine.steps import HostStep, LinkedKernel
from luban.engine.timed_calls import Calls, fastest_possible

__all__ = [
    "UNKNOWN",
    "KernelLine",
    "Roofline",
    "judged",
]

_BUSY = 0.9  # of the machine's peak
_NOTICED_S = 1e-3  # that a call may take between kernels
UNKNOWN = "unknown"  # what bounds a kernel whose sizes only a part of the run knows


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One kernel; times and counts of all its runs in one call.

    computes     the operations in it, in a few words
    shapes       types of operands and results, with the sizes of this call
    threads      that its limit is for
    time_s       the fastest of several calls, as far as it is possible
    share        of the time of all kernels together
    operations   done; a multiply-add is two
    definition   that its definition asks for: more where it multiplies in Winograd tiles
    size_bytes   read of operands and written of results, once a run
    limit_s      the least that the cost model allows
    bound        what sets that: compute, launch, or a level of memory
    """

    name: str
    computes: str
    shapes: str
    places: tuple[str, ...]
    runs: int
    threads: int
    time_s: float
    share: float = 0.0
    operations: float = 0.0
    definition: float = 0.0
    size_bytes: float = 0.0
    limit_s: float = 0.0
    bound: str = UNKNOWN

    @property
    def gflop_s(self) -> float:
        """By definition: as a plain algorithm's would count."""
        return self.definition / self.time_s / 1e9 if self.time_s else 0.0

    @property
    def gb_s(self) -> float:
        """Bytes at its ends."""
        return self.size_bytes / self.time_s / 1e9 if self.time_s else 0.0

    @property
    def of_limit(self) -> float:
        """1: as fast as it can be."""
        return self.limit_s / self.time_s if self.time_s else 0.0

    @property
    def intensity(self) -> float:
        """Operations done for each byte."""
        return self.operations / self.size_bytes if self.size_bytes else 0.0

    def joined(self, other: KernelLine) -> KernelLine:
        """Both as one line; the rest of it is this one's."""
        return replace(
            self,
            places=(*self.places, *other.places),
            runs=self.runs + other.runs,
            time_s=self.time_s + other.time_s,
            share=self.share + other.share,
            operations=self.operations + other.operations,
            definition=self.definition + other.definition,
            size_bytes=self.size_bytes + other.size_bytes,
            limit_s=self.limit_s + other.limit_s,
        )

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data, and what follows from them."""
        rates = {"gflop_s": self.gflop_s, "gb_s": self.gb_s, "of_limit": self.of_limit}
        return {**asdict(self), **rates}


@dataclass(frozen=True, slots=True)
class Roofline:
    """A model's kernels, those that take longest first, and what they were held against.

    now          this machine's peak in this run, relative to the best that was ever measured
    calls        that were made
    call_s       a whole call, timed without looking at kernels
    host_steps   what ran in Python, in between
    """

    model: str
    threads: int
    sizes: dict[str, int]
    hardware: Hardware
    now: float
    calls: int
    call_s: float
    lines: tuple[KernelLine, ...]
    host_steps: int

    def grouped(self) -> list[KernelLine]:
        """The lines, those of one kernel on one kind of operands together."""
        groups: dict[tuple[str, str, int], KernelLine] = {}
        for line in self.lines:
            key = (line.name, line.shapes, line.threads)
            groups[key] = line if key not in groups else groups[key].joined(line)
        return sorted(groups.values(), key=lambda line: -line.time_s)

    def bounds(self) -> dict[str, float]:
        """The share of the kernels' time by what bounds it, the largest first."""
        found: dict[str, float] = {}
        for line in self.lines:
            found[line.bound] = found.get(line.bound, 0.0) + line.share
        return dict(sorted(found.items(), key=lambda row: -row[1]))

    @property
    def limits(self) -> Limits:
        """Of this machine, for the model's threads."""
        return self.hardware.at(self.threads)

    @property
    def kernels_s(self) -> float:
        """All kernels."""
        return sum(line.time_s for line in self.lines)

    @property
    def limit_s(self) -> float:
        """The least that all kernels could take; those on fewer threads may be side by side."""
        return sum(line.limit_s * line.threads / self.threads for line in self.lines)

    @property
    def of_limit(self) -> float:
        """The part of a call that no kernel could do without."""
        return self.limit_s / self.call_s if self.call_s else 0.0

    @property
    def disturbed(self) -> str:
        """What shows that other work held this run up; empty for a quiet one."""
        if self.now < _BUSY:
            return f"this machine reached {self.now:.0%} of its peak"
        waited_s = self.call_s - self.kernels_s
        if not self.host_steps and waited_s > max(self.kernels_s / 2, _NOTICED_S):
            return (
                f"the fastest whole call took {self.call_s / self.kernels_s:.1f} times its kernels"
            )
        return ""

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data, and the totals."""
        return {
            "model": self.model,
            "threads": self.threads,
            "sizes": self.sizes,
            "limits": asdict(self.limits),
            "now": self.now,
            "disturbed": self.disturbed,
            "calls": self.calls,
            "call_s": self.call_s,
            "kernels_s": self.kernels_s,
            "limit_s": self.limit_s,
            "of_limit": self.of_limit,
            "host_steps": self.host_steps,
            "kernels": [line.to_json() for line in self.lines],
        }


def judged(compiled: Compiled, calls: Calls, hardware: Hardware, now: float = 1.0) -> Roofline:
    """Kernels that were timed, held against a description of the machine."""
    sizes = calls.kernels[-1].sizes
    works = kernel_works(compiled, sizes)
    lines = []
    for kernel, last in calls.kernels[-1].kernels.items():
        if last.runs:
            samples = [call.kernels[kernel] for call in calls.kernels]
            lines.append(_line(kernel, samples, works.get(kernel), sizes, hardware))
    total = sum(line.time_s for line in lines) or 1.0
    lines = [replace(line, share=line.time_s / total) for line in lines]
    executor = compiled.executor
    return Roofline(
        executor.program.name,
        executor.num_threads,
        sizes,
        hardware,
        now,
        len(calls.whole_s),
        min(calls.whole_s),
        tuple(sorted(lines, key=lambda line: -line.time_s)),
        sum(isinstance(step, HostStep) for step in executor.program.steps),
    )


def _line(
    kernel: LinkedKernel,
    samples: Sequence[Spent],
    found: KernelWork | None,
    sizes: Mapping[str, int],
    hardware: Hardware,
) -> KernelLine:
    runs, threads = samples[-1].runs, samples[-1].threads
    times = [spent.ns / 1e9 for spent in samples]
    if found is None:
        return KernelLine(kernel.name, "", "", (), runs, threads, median(times))
    n, work = found.step.node, found.work
    assert n is not None
    limits = hardware.at(threads)
    least = predict(work, limits)
    operands, results = (
        ", ".join(_settled(value.type, sizes) for value in values)
        for values in (found.step.operands, found.step.results)
    )
    return KernelLine(
        kernel.name,
        ops_of(n),
        f"{operands} -> {results}",
        places_of(n),
        runs,
        threads,
        fastest_possible(times, runs * fastest_conceivable(work, limits)),
        operations=runs * work.num_operations,
        definition=runs * found.definition,
        size_bytes=runs * work.size_bytes,
        limit_s=runs * least.seconds,
        bound=least.bound,
    )


def _settled(given: Type, sizes: Mapping[str, int]) -> str:
    if not isinstance(given, TensorType):
        return str(given)
    return str(given.with_shape(given.resolve(sizes)))
