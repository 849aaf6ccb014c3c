"""The first call after a load from the cache, next to the steady ones after it.

python -m benchmarks.first_call [name ...]        exit 1 where it takes more than the target
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.compare import COLLECTION
from benchmarks.harness import OURS, EngineProcess, save_feeds
from benchmarks.report import milliseconds, table

MODELS = ("mobilenet_v2", "resnet50", "bert_base", "minilm", "ppocr5_rec")
PEER = "onnxruntime"
TARGET = 1.5
_STARTS = 5


def first_and_steady(name: str, engine: str, threads: int) -> tuple[float, float]:
    """Medians over fresh processes: seconds of the first call, and of those that follow."""
    case = COLLECTION[name]
    firsts, steadies = [], []
    with tempfile.TemporaryDirectory(prefix="luban-first-") as folder:
        feeds = str(save_feeds(case.inputs(), Path(folder) / "feeds.npz"))
        for number in range(_STARTS + 1):
            with EngineProcess(engine, Path(folder)) as process:
                loaded = process.ask("load", path=str(case.path()), feeds=feeds, threads=threads)
                steady = process.ask("time", budget_s=0.5, least=5)
            if number:  # the first process fills the cache
                firsts.append(loaded["first_call_s"])
                steadies.append(float(np.median(steady["durations_s"])))
    return float(np.median(firsts)), float(np.median(steadies))


def main() -> int:
    """Print both, and their ratio, for Luban and a peer."""
    lines, met = [], True
    for name in sys.argv[1:] or MODELS:
        for engine in (OURS, PEER):
            first, steady = first_and_steady(name, engine, 2)
            ratio = first / steady
            met = met and (engine != OURS or ratio <= TARGET)
            lines.append([name, engine, milliseconds(first), milliseconds(steady), f"{ratio:.2f}"])
    print(table(["model", "engine", "first ms", "steady ms", "ratio"], lines))
    print(f"target: first at most {TARGET:g} times steady: {'met' if met else 'MISSED'}")
    return int(not met)


if __name__ == "__main__":
    raise SystemExit(main())
