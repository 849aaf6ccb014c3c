"""Measures what this machine can do, and remembers it: the hardware description.

Rates are those of the fastest of many short runs. A clock drifts by tens of percent and others use
the machine too, so what judges kernels (`luban bench --roofline`) is measured in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path

import numpy as np

from luban.core.hardware import Hardware, Level, Limits
from luban.core.progress import report
from luban.engine.probes import READS_AT_ONCE, build_probes
from luban.native.hardware_file import (
    hardware_path,
    machine_name,
    remember_hardware,
    stored_hardware,
)
from luban.native.target import Target
from luban.native.threads import available_threads
from luban.runtime.program import Arguments, Step, StepTable

__all__ = ["Meter", "cache_sizes", "hardware_of", "known_hardware", "measure_hardware"]

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_USUAL = {1: 1 << 15, 2: 1 << 20, 3: 1 << 25}  # bytes, where the system does not tell
_LARGEST = 1 << 28  # bytes that the reads of memory go over
_READ_BYTES = 1 << 21  # by one program at least, so that its launch does not count
_STEPS = 6  # of what is timed at once, so that the call does not count
_PARTS = 8
_LAUNCHES = 256
_SHORT_TURNS = 256  # a program of some microseconds
_PAGE = 4096
_TURN_S = 0.04  # of one figure
_MOST_TURNS = 12
_SETTLED = 2  # turns in a row in which nothing rose
_RISE = 1.03
_TOGETHER = 0.75  # of the threads' peaks added up


def cache_sizes(folder: Path = _CACHES) -> dict[int, int]:
    """Bytes of the data caches of a core by level, as the system tells; else usual ones."""
    found: dict[int, int] = {}
    for entry in sorted(folder.glob("index*")):
        try:
            level, kind, text = (
                (entry / name).read_text().strip() for name in ("level", "type", "size")
            )
        except OSError:
            continue
        scale = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        digits = text.rstrip("KM")
        if level.isdigit() and digits.isdigit() and kind != "Instruction":
            found[int(level)] = int(digits) * scale
    return {level: found.get(level, usual) for level, usual in _USUAL.items()}


class Meter:
    """Probes ready to run: each `limits` measures anew, in about half a second."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._probes = build_probes(target)
        self._caches = cache_sizes()
        size = min(4 * self._caches[3], _LARGEST)
        # Each level reads the front; no vector lies across two cache lines.
        memory = np.ones(size // 4 + _PAGE // 4, np.float32)
        start = -memory.ctypes.data % _PAGE // 4
        self._data = memory[start : start + size // 4]

    def limits(self, threads: int, turn_s: float = _TURN_S) -> Limits:
        """The machine now, for so many threads. Raises OptionError for a number out of range."""
        rates = {
            kind: probe.operations * threads / self._arithmetic(probe.name, threads, turn_s)
            for kind, probe in self._probes.arithmetic.items()
        }
        levels = tuple(
            Level(name, capacity, self._bytes_s(size, threads, turn_s))
            for name, capacity, size in self._levels(threads)
        )
        return Limits(threads, rates, levels, self._launch_s(threads, turn_s))

    def _levels(self, threads: int) -> list[tuple[str, int | None, int]]:
        """Name, capacity and how much to read of each level; the last cache is shared."""
        own1, own2, shared = (self._caches[level] for level in (1, 2, 3))
        rows: list[tuple[str, int | None, int]] = [
            ("L1", own1 * threads, own1 * threads // 2),
            ("L2", own2 * threads, own2 * threads // 2),
        ]
        if shared > own2 * threads:
            rows.append(("L3", shared, min(2 * own2 * threads, (own2 * threads + shared) // 2)))
        return [*rows, ("DRAM", None, self._data.nbytes)]

    def _arithmetic(self, name: str, threads: int, turn_s: float) -> float:
        memory = np.zeros(self._probes.memory_bytes(threads), np.uint8)
        slots = [memory.ctypes.data] * 3
        return self._fastest(name, threads, slots, turn_s)

    def _bytes_s(self, size_bytes: int, threads: int, turn_s: float) -> float:
        block = READS_AT_ONCE * self._target.lanes(32)
        memory = size_bytes == self._data.nbytes
        programs = threads * (_PARTS if memory else 1)  # caches belong to threads, memory does not
        share = max(size_bytes // 4 // programs // block, 1) * block
        turns = 1 if memory else max(_READ_BYTES // (share * 4), 1)
        sums = np.zeros(programs * self._target.lanes(32), np.float32)
        slots = [self._data.ctypes.data, sums.ctypes.data, share, turns]
        steps = 1 if memory else _STEPS
        seconds = self._fastest("read", threads, slots, turn_s, steps, programs)
        return share * 4 * turns * programs / seconds

    def _launch_s(self, threads: int, turn_s: float) -> float:
        """What a step takes beyond its work; on several threads, to hand it out and to meet again.

        Empty programs would all be run by the caller before another thread looks.
        """
        alone = self._fastest("empty", 1, [], turn_s, _LAUNCHES)
        if threads == 1:
            return alone
        sums = np.zeros(threads * self._target.lanes(32), np.float32)
        share = READS_AT_ONCE * self._target.lanes(32)
        slots = [self._data.ctypes.data, sums.ctypes.data, share, _SHORT_TURNS]
        one, all_ = (self._fastest("read", n, slots, turn_s, _LAUNCHES) for n in (1, threads))
        return alone + max(all_ - one, 0.0)

    def _fastest(
        self,
        name: str,
        threads: int,
        slots: Sequence[int],
        turn_s: float,
        steps: int = _STEPS,
        programs: int = 0,
    ) -> float:
        """Seconds of a step with a program for each thread or so many: the fastest of a turn.

        By the clock round several steps: a caller that was put aside reads the counter late.
        """
        arguments = Arguments(max(len(slots), 1))
        arguments.slots[: len(slots)] = slots
        kernel = self._probes.library.address(name)
        step = Step(kernel, arguments.address(), programs or threads, grain=1)
        table = StepTable([step] * steps, threads)
        table.replay()
        clock = time.perf_counter
        best, end = float("inf"), clock() + turn_s
        while (start := clock()) < end:
            table.replay()
            best = min(best, clock() - start)
        return best / steps


def hardware_of(target: Target, limits: Sequence[Limits]) -> Hardware:
    """A description from measurements of this machine, made today."""
    today = datetime.now(UTC).date().isoformat()
    parts = [Hardware(machine_name(target), today, (each,)) for each in limits]
    return reduce(Hardware.merged, parts)


def measure_hardware(target: Target, meter: Meter | None = None) -> Hardware:
    """Measure one thread and all threads of a call, in turns, and keep the description.

    Goes on while figures still rise: where others use the machine too, it takes patience until all
    threads have a core at once. Takes 2 to 10 seconds. Raises OptionError if the file cannot be
    written.
    """
    meter = meter or Meter(target)
    counts = sorted({1, available_threads()})
    found: list[Limits] = []
    settled = 0
    for turn in range(_MOST_TURNS):
        report("measuring this machine", turn, _MOST_TURNS)
        before = hardware_of(target, found) if found else None
        found += [meter.limits(count) for count in counts]
        after = hardware_of(target, found)
        moving = before is None or _rose(before, after) or _held_up(after)
        settled = 0 if moving else settled + 1
        if settled == _SETTLED:
            break
        time.sleep(_TURN_S)
    return remember_hardware(hardware_path(), hardware_of(target, found))


def _rose(before: Hardware, after: Hardware) -> bool:
    """Whether any rate is clearly above what it was."""
    return any(
        new > _RISE * old
        for one, two in zip(before.limits, after.limits, strict=True)
        for old, new in zip(_rates(one), _rates(two), strict=True)
    )


def _held_up(found: Hardware) -> bool:
    """Whether several threads have hardly done more than one: they never ran side by side."""
    one, *more = found.limits
    return any(
        any(
            limits.rate(kind) < _TOGETHER * limits.threads * rate
            for kind, rate in one.operations_s.items()
        )
        or any(many < alone for alone, many in zip(_rates(one), _rates(limits), strict=True))
        for limits in more
    )


def _rates(limits: Limits) -> list[float]:
    return [*limits.operations_s.values(), *(level.bytes_s for level in limits.levels)]


def known_hardware(target: Target) -> Hardware:
    """The stored description of this machine; measured now and kept if there is none."""
    return stored_hardware(target) or measure_hardware(target)
