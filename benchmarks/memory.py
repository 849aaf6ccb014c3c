"""Peak resident size of a process that loads a model and runs it, next to ONNX Runtime's.

    python -m benchmarks.memory [all | name ...]        exit 1 where Luban's process needs more

Cold: with an empty cache. Warm: with the cache that it left. Of a cold start the peak of the whole
tree is shown too: Luban compiles in a child process, which ends some seconds after its last work.
There a page that processes share counts once (the proportional set size).
"""

import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cases import ModelCase
from benchmarks.compare import COLLECTION
from benchmarks.harness import OURS, EngineError, EngineProcess, save_feeds
from benchmarks.report import table

MODELS = ("tiny_mlp", "magika", "mobilenet_v2", "resnet50", "bert_base", "minilm_int8_weights")
_LOOK_S = 0.01
_CALLS_S = 0.05  # short: the worker keeps the time of every call
_STORING_S = 1.5  # longer than the cache needs to store a model in the background


@dataclass(frozen=True, slots=True)
class Peak:
    """The most memory that was resident at once, in bytes.

    own   in the process itself, as the system counts it
    tree  in the process and its children together, looked at every few milliseconds; of a page
          that several processes share, each has its part
    """

    own: int
    tree: int


class TreeWatch:
    """Adds up the proportional set sizes of a process and its descendants, until it is stopped."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._pid = pid
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(_LOOK_S):
            self.peak_bytes = max(self.peak_bytes, tree_bytes(self._pid))


def tree_bytes(pid: int) -> int:
    """The proportional set sizes of a process and its descendants, added up; 0 if it is gone."""
    folder = Path("/proc") / str(pid)
    try:
        sizes = (folder / "smaps_rollup").read_text()
        children = [
            int(child)
            for task in (folder / "task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except (OSError, ValueError):
        return 0
    resident = [line for line in sizes.splitlines() if line.startswith("Pss:")]
    own = int(resident[0].split()[1]) * 1024 if resident else 0
    return own + sum(tree_bytes(child) for child in children)


def measured(case: ModelCase, engine: str, cache: Path) -> Peak:
    """Start a process, load the model and run it for a while. Raises EngineError."""
    with tempfile.TemporaryDirectory(prefix="luban-bench-") as folder:
        feeds = save_feeds(case.inputs(), Path(folder) / "feeds.npz")
        with EngineProcess(engine, cache) as process:
            watch = TreeWatch(process.pid)
            try:
                process.ask("load", path=str(case.path()), feeds=str(feeds), threads=2)
                process.ask("time", budget_s=_CALLS_S, least=2)
                time.sleep(_STORING_S)
                process.ask("time", budget_s=_CALLS_S, least=2)
                own: int = process.ask("memory")["peak_bytes"]
            finally:
                watch.stop()
    return Peak(own, watch.peak_bytes)


def main() -> int:
    """Print the peaks in MB."""
    lines, met = [], True
    for name in list(COLLECTION) if sys.argv[1:] == ["all"] else sys.argv[1:] or MODELS:
        case = COLLECTION[name]
        with tempfile.TemporaryDirectory(prefix="luban-cache-") as folder:
            try:
                cold, warm, peer = (
                    measured(case, engine, Path(folder)) for engine in (OURS, OURS, "onnxruntime")
                )
            except EngineError as error:
                print(f"{name}: {error}")
                met = False
                continue
        met = met and cold.own <= peer.own
        print(f"{name}: {cold.own / peer.own:.2f}", file=sys.stderr, flush=True)
        sizes = (case.path().stat().st_size, cold.own, cold.tree, warm.own, peer.own)
        ratios = (peak / peer.own for peak in (cold.own, cold.tree, warm.own))
        lines.append(
            [name, *(f"{size / 1e6:.0f}" for size in sizes), *(f"{ratio:.2f}" for ratio in ratios)]
        )
    header = [
        "model", "file MB", "cold", "with its child", "warm", "onnxruntime",
        "cold / ort", "with child / ort", "warm / ort",
    ]  # fmt: skip
    print(table(header, lines))
    print("never above ONNX Runtime" if met else "MISSED: above ONNX Runtime somewhere")
    return int(not met)


if __name__ == "__main__":
    raise SystemExit(main())
