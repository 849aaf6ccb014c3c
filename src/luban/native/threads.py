"""How many threads a model call should use here: settings, CPU affinity and cgroup quota."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from luban.core import settings

__all__ = ["ThreadBudget", "available_threads", "thread_budget"]


@dataclass(frozen=True, slots=True)
class ThreadBudget:
    """A number of threads and the reason for it, for `luban doctor`."""

    count: int
    reason: str


def available_threads() -> int:
    """Threads a model call uses unless told otherwise; see `thread_budget`.

    >>> available_threads() >= 1
    True
    """
    return thread_budget().count


def thread_budget(root: Path = Path("/")) -> ThreadBudget:
    """The thread count and where it comes from; `root` holds /proc and /sys (replaced in tests).

    First of: LUBAN_NUM_THREADS; OMP_NUM_THREADS (its first number); else the physical cores this
    process may run on, bounded by the cgroup's CPU quota rounded down, as a throttled worker
    stalls every parallel region. Raises OptionError if LUBAN_NUM_THREADS is no number.
    """
    if (chosen := settings.NUM_THREADS.get()) is not None:
        return ThreadBudget(chosen, "LUBAN_NUM_THREADS")
    openmp = (settings.environment("OMP_NUM_THREADS") or "").split(",")[0].strip()
    if openmp.isdigit() and int(openmp) > 0:
        return ThreadBudget(int(openmp), "OMP_NUM_THREADS")
    cpus = _allowed_cpus()
    cores = _physical_cores(cpus, root)
    reason = f"{cores} cores of the {len(cpus)} CPUs that this process may run on"
    quota = min(_quotas(root), default=None)
    if quota is not None and quota < cores:
        return ThreadBudget(max(1, int(quota)), f"cgroup quota of {quota:.4g} CPUs; {reason}")
    return ThreadBudget(cores, reason)


def _allowed_cpus() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


@functools.cache
def _physical_cores(cpus: frozenset[int], root: Path) -> int:
    """Cores behind `cpus`: two hardware threads of one core share its FMA units, so count once."""
    topology = root / "sys/devices/system/cpu"
    siblings = {_read(topology / f"cpu{cpu}/topology/thread_siblings_list") or cpu for cpu in cpus}
    return max(1, len(siblings))


def _quotas(root: Path) -> Iterator[float]:
    """CPU quotas, in CPUs, of this process's cgroup and the groups above it; versions 1 and 2."""
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mounts = [root / "sys/fs/cgroup"]
        elif "cpu" in controllers.split(","):
            mounts = [root / "sys/fs/cgroup" / name for name in ("cpu", "cpu,cpuacct")]
        else:
            continue
        for mount in mounts:
            # In a container the path is often the host's, and only the mount itself exists.
            for folder in (path, *map(str, Path(path).parents)):
                yield from _quota(mount / folder.lstrip("/"))


def _quota(folder: Path) -> Iterator[float]:
    if text := _read(folder / "cpu.max"):
        quota, period = text.split()
    else:
        quota = _read(folder / "cpu.cfs_quota_us") or "-1"
        period = _read(folder / "cpu.cfs_period_us") or "100000"
    if quota not in {"max", "-1"}:
        yield int(quota) / int(period)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
