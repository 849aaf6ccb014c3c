"""A model while another process keeps one core busy, next to its fair share of the machine.

    python -m benchmarks.competitor [name ...]        exit 1 where p90 is above the target

With `n` cores and one of them shared by two, `n` threads have (n - 1/2) / n of the machine: the
fair time is the quiet one divided by that. A runtime whose threads wait for each other at every
step is held up by the slowest, and takes far longer.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.compare import COLLECTION
from benchmarks.harness import OURS, EngineProcess, save_feeds
from benchmarks.report import milliseconds, table

MODELS = ("mobilenet_v2", "resnet50", "minilm")
ENGINES = (OURS, "onnxruntime", "openvino")
TARGET = 1.5
_BUSY = "import os\nos.sched_setaffinity(0, {%d})\nwhile True: pass"
_ROUNDS, _TURN_S = 5, 1.0


def quiet_and_busy(name: str, engine: str) -> tuple[float, float, float]:
    """Seconds: the quiet median; median and 90th percentile beside a competitor, in turns."""
    case = COLLECTION[name]
    cpus = sorted(os.sched_getaffinity(0))
    quiet: list[float] = []
    busy: list[float] = []
    with tempfile.TemporaryDirectory(prefix="luban-busy-") as folder:
        feeds = str(save_feeds(case.inputs(), Path(folder) / "feeds.npz"))
        with EngineProcess(engine, Path(folder), plain_priority=True) as process:
            process.ask("load", path=str(case.path()), feeds=feeds, threads=len(cpus))
            process.ask("time", budget_s=0.5, least=3)
            for _ in range(_ROUNDS):
                quiet += process.ask("time", budget_s=_TURN_S / 2, least=3)["durations_s"]
                rival = subprocess.Popen(
                    [sys.executable, "-c", _BUSY % cpus[-1]], start_new_session=True
                )
                try:
                    busy += process.ask("time", budget_s=_TURN_S, least=3)["durations_s"]
                finally:
                    rival.kill()
                    rival.wait()
    return float(np.median(quiet)), float(np.median(busy)), float(np.percentile(busy, 90))


def main() -> int:
    """Print the times of each engine and what they are of the fair share."""
    count = len(os.sched_getaffinity(0))
    share = (count - 0.5) / count
    lines, met = [], True
    for name in sys.argv[1:] or MODELS:
        for engine in ENGINES:
            quiet, busy, p90 = quiet_and_busy(name, engine)
            ratio = p90 * share / quiet
            met = met and (engine != OURS or ratio <= TARGET)
            times = [milliseconds(value) for value in (quiet, quiet / share, busy, p90)]
            lines.append([name, engine, *times, f"{ratio:.2f}"])
    header = ["model", "engine", "quiet ms", "fair ms", "busy ms", "busy p90 ms", "p90 / fair"]
    print(table(header, lines))
    print(f"target: p90 at most {TARGET:g} times the fair time: {'met' if met else 'MISSED'}")
    return int(not met)


if __name__ == "__main__":
    raise SystemExit(main())
