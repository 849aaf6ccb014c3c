"""What a machine can do, as measured: arithmetic, levels of memory, starting work.

The one description behind rooflines, the cost model and every choice that is priced by it. All
rates are the best that generated code was seen to reach, so a description only ever gets better:
`merged` keeps the faster of two measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["ARITHMETIC", "Hardware", "Level", "Limits"]

# Kinds of arithmetic that have a peak of their own; all else computes as f32 does.
ARITHMETIC = ("f32", "bf16", "i8")


@dataclass(frozen=True, slots=True)
class Level:
    """One level of memory, read by all threads of a call together.

    capacity_bytes   what it holds for these threads; None for the last level
    bytes_s          bytes a second
    """

    name: str
    capacity_bytes: int | None
    bytes_s: float


@dataclass(frozen=True, slots=True)
class Limits:
    """The machine for a call on a number of threads.

    operations_s   operations a second by kind of arithmetic; a multiply-add is two
    levels         of memory, the fastest first
    launch_s       seconds of a kernel that does nothing
    """

    threads: int
    operations_s: Mapping[str, float]
    levels: tuple[Level, ...]
    launch_s: float

    def level(self, size_bytes: float) -> Level:
        """The fastest level that holds so many bytes."""
        fitting = (e for e in self.levels if (e.capacity_bytes or size_bytes) >= size_bytes)
        return next(fitting, self.levels[-1])

    def rate(self, kind: str) -> float:
        """Operations a second of a kind of arithmetic; those of f32 if it has no figure."""
        return self.operations_s.get(kind) or self.operations_s["f32"]

    def merged(self, other: Limits) -> Limits:
        """The better of each of two measurements; capacities are those of the newer, `other`."""
        rates = {
            kind: max(self.operations_s.get(kind, 0.0), other.operations_s.get(kind, 0.0))
            for kind in {**self.operations_s, **other.operations_s}
        }
        known = {level.name: level.bytes_s for level in self.levels}
        levels = tuple(
            Level(e.name, e.capacity_bytes, max(e.bytes_s, known.get(e.name, 0.0)))
            for e in other.levels
        )
        return Limits(other.threads, rates, levels, min(self.launch_s, other.launch_s))


@dataclass(frozen=True, slots=True)
class Hardware:
    """One machine.

    machine    the fingerprint that it is stored under
    measured   the day of the newest measurement, YYYY-MM-DD
    limits     for one thread, and for all that a call uses
    """

    machine: str
    measured: str
    limits: tuple[Limits, ...]

    def at(self, threads: int) -> Limits:
        """The limits for a number of threads: as measured, or between what was measured.

        >>> one = Limits(1, {"f32": 100e9}, (Level("DRAM", None, 10e9),), 1e-7)
        >>> four = Limits(4, {"f32": 400e9}, (Level("DRAM", None, 16e9),), 4e-7)
        >>> found = Hardware("here", "2026-01-01", (one, four)).at(2)
        >>> found.threads, round(found.operations_s["f32"] / 1e9), found.levels[0].bytes_s / 1e9
        (2, 200, 12.0)
        """
        ordered = sorted(self.limits, key=lambda limits: limits.threads)
        below = next((e for e in reversed(ordered) if e.threads <= threads), ordered[0])
        above = next((e for e in ordered if e.threads >= threads), ordered[-1])
        if below.threads == above.threads:
            return below
        part = (threads - below.threads) / (above.threads - below.threads)

        def between(low: float, high: float) -> float:
            return low + part * (high - low)

        kinds = below.operations_s.keys() & above.operations_s.keys()
        return Limits(
            threads,
            {k: between(below.operations_s[k], above.operations_s[k]) for k in sorted(kinds)},
            tuple(_between(a, b, between) for a, b in zip(below.levels, above.levels, strict=True)),
            between(below.launch_s, above.launch_s),
        )

    def merged(self, other: Hardware) -> Hardware:
        """With the measurements of `other`, which is newer, each thread count by itself."""
        found = {limits.threads: limits for limits in self.limits}
        for new in other.limits:
            old = found.get(new.threads)
            found[new.threads] = new if old is None else old.merged(new)
        return Hardware(self.machine, other.measured, tuple(found[n] for n in sorted(found)))

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data; `from_json` reads them."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Hardware:
        """The reverse of `to_json`. Raises ValueError, KeyError or TypeError for other data.

        >>> one = Limits(1, {"f32": 1e9}, (Level("L1", 1024, 2e9), Level("DRAM", None, 1e9)), 1e-7)
        >>> here = Hardware("here", "2026-01-01", (one,))
        >>> Hardware.from_json(here.to_json()) == here
        True
        """
        limits = tuple(map(_limits, document["limits"]))
        if not limits:
            raise ValueError("it has no limits")
        return cls(str(document["machine"]), str(document["measured"]), limits)


def _between(a: Level, b: Level, between: Callable[[float, float], float]) -> Level:
    capacity = None
    if a.capacity_bytes is not None and b.capacity_bytes is not None:
        capacity = int(between(a.capacity_bytes, b.capacity_bytes))
    return Level(a.name, capacity, between(a.bytes_s, b.bytes_s))


def _limits(row: Mapping[str, Any]) -> Limits:
    rates = {str(kind): _positive(rate) for kind, rate in row["operations_s"].items()}
    levels = tuple(map(_level, row["levels"]))
    if "f32" not in rates or not levels:
        raise ValueError("limits without a peak for f32 or without a level of memory")
    return Limits(int(row["threads"]), rates, levels, float(row["launch_s"]))


def _level(row: Mapping[str, Any]) -> Level:
    capacity = row["capacity_bytes"]
    return Level(
        str(row["name"]), None if capacity is None else int(capacity), _positive(row["bytes_s"])
    )


def _positive(value: Any) -> float:
    rate = float(value)
    if not 0 < rate < float("inf"):
        raise ValueError(f"a rate is {value!r}, expected a number above 0")
    return rate
