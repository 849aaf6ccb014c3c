"""The cost model: what work takes at least on a machine, and what it is bound by.

The roofline form (S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual
performance model", CACM 2009), with a ceiling for each level of memory: arithmetic and every level
are busy side by side, so the busiest of them sets the time; starting a kernel comes on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from luban.core.hardware import Limits

__all__ = ["Prediction", "Traffic", "Work", "fastest_conceivable", "predict", "rank_correlation"]

COMPUTE, LAUNCH = "compute", "launch"


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that are read or written, and how many there are to be held meanwhile.

    resident_bytes   what must fit into a level for these bytes to be found there
    """

    size_bytes: float
    resident_bytes: float


@dataclass(frozen=True, slots=True)
class Work:
    """What there is to do.

    operations   by kind of arithmetic (see core.hardware.ARITHMETIC); a multiply-add is two
    launches     kernels that are started
    """

    operations: Mapping[str, float] = field(default_factory=dict)
    traffic: tuple[Traffic, ...] = ()
    launches: float = 1.0

    @property
    def num_operations(self) -> float:
        """Of all kinds."""
        return float(sum(self.operations.values()))

    @property
    def size_bytes(self) -> float:
        """All bytes that move."""
        return float(sum(part.size_bytes for part in self.traffic))


@dataclass(frozen=True, slots=True)
class Prediction:
    """The least time, and its cause: "compute", "launch" or the name of a level of memory.

    parts   seconds by cause
    """

    seconds: float
    bound: str
    parts: Mapping[str, float]


def predict(work: Work, limits: Limits) -> Prediction:
    """The least seconds that work takes.

    >>> from luban.core.hardware import Level
    >>> levels = (Level("L2", 1 << 20, 50e9), Level("DRAM", None, 10e9))
    >>> here = Limits(1, {"f32": 100e9}, levels, 1e-7)
    >>> found = predict(Work({"f32": 1e6}, (Traffic(1e6, 1e8),)), here)
    >>> found.bound, round(found.seconds * 1e6, 1)
    ('DRAM', 100.1)
    """
    parts = {COMPUTE: sum(n / limits.rate(kind) for kind, n in work.operations.items())}
    for part in work.traffic:
        level = limits.level(part.resident_bytes)
        parts[level.name] = parts.get(level.name, 0.0) + part.size_bytes / level.bytes_s
    busiest = max(parts, key=parts.__getitem__)
    launching = work.launches * limits.launch_s
    bound = LAUNCH if launching > parts[busiest] else busiest
    return Prediction(launching + parts[busiest], bound, {**parts, LAUNCH: launching})


def fastest_conceivable(work: Work, limits: Limits) -> float:
    """Seconds that work cannot be done in less, wherever its bytes lie.

    Unlike `predict`, it does not hang on slow memory, whose measured rate others may have lowered.
    """
    return predict(replace(work, traffic=(Traffic(work.size_bytes, 0.0),)), limits).seconds


def rank_correlation(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Spearman's: 1 if both rank alike, whatever their scale; 1 for less than two.

    It is what a choice between candidates needs of a cost model.

    >>> round(rank_correlation([1.0, 2.0, 3.0], [10.0, 20.0, 21.0]), 3)
    1.0
    >>> round(rank_correlation([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]), 3)
    -1.0
    """
    if len(predicted) < 2:
        return 1.0
    one, other = (np.argsort(np.argsort(values)) for values in (predicted, measured))
    return float(np.corrcoef(one, other)[0, 1])
