"""A process that runs one model in one engine and is timed.

    python -m benchmarks.worker ENGINE [plain]

Reads one JSON request a line from stdin, answers one a line on stdout, ends when stdin ends. The
requests are load, time, save, memory and limit; one that raises is answered by {"error": text}.
`plain`: at the priority that it was started with.
"""

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import Feeds
from benchmarks.engines import ENGINES, Call

Request = dict[str, Any]
Answer = dict[str, Any]


def raise_priority() -> bool:
    """Give this session's scheduler group the highest weight; False where that is not allowed.

    The parent started this process in a session of its own, so no other work gains from it.
    """
    try:
        Path("/proc/self/autogroup").write_text("-20")
    except OSError:
        return False
    return True


def peak_memory_bytes() -> int:
    """The largest resident size so far.

    Linux's VmHWM where there is one: `ru_maxrss` also counts what the parent had before exec.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


class Worker:
    """One engine, and once loaded one model with its feeds."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.call: Call | None = None
        self.feeds: Feeds = {}

    def load(self, request: Request) -> Answer:
        """Import the engine, load the model, run it once; how long each took, in seconds."""
        with np.load(request["feeds"]) as stored:
            self.feeds = {name: stored[name] for name in stored.files}
        before_bytes = peak_memory_bytes()
        begin = time.perf_counter()
        self.call = ENGINES[self.engine](Path(request["path"]), request["threads"])
        loaded = time.perf_counter()
        self.call(self.feeds)
        return {
            "load_s": loaded - begin,
            "first_call_s": time.perf_counter() - loaded,
            "empty_bytes": before_bytes,
        }

    def time(self, request: Request) -> Answer:
        """Call for about `budget_s` seconds, at least `least` times; the duration of each, in s."""
        call, feeds = self._loaded(), self.feeds
        clock = time.perf_counter
        deadline = clock() + request["budget_s"]
        durations: list[float] = []
        while len(durations) < request["least"] or clock() < deadline:
            begin = clock()
            call(feeds)
            durations.append(clock() - begin)
        return {"durations_s": durations}

    def save(self, request: Request) -> Answer:
        """Run once and write the outputs, in order, to the .npz file `path`."""
        outputs = self._loaded()(self.feeds)
        np.savez(request["path"], *outputs)
        return {"count": len(outputs)}

    def memory(self, _: Request) -> Answer:
        """The peak resident size."""
        return {"peak_bytes": peak_memory_bytes()}

    def limit(self, request: Request) -> Answer:
        """The least seconds of a call of Luban's kernels, by the cost model and this machine."""
        with np.load(request["feeds"]) as stored:
            feeds = {name: stored[name] for name in stored.files}
        limits = importlib.import_module("benchmarks.limits")
        return {"limit_s": limits.least_seconds(request["path"], feeds, request["threads"])}

    def _loaded(self) -> Call:
        if self.call is None:
            raise RuntimeError("no model is loaded: the first request must be load")
        return self.call


def serve(worker: Worker) -> None:
    """Answer requests until stdin ends."""
    handlers: dict[str, Callable[[Request], Answer]] = {
        "load": worker.load,
        "time": worker.time,
        "save": worker.save,
        "memory": worker.memory,
        "limit": worker.limit,
    }
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an engine prints must not end up between two answers
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = handlers[request["do"]](request)
        except Exception as error:  # noqa: BLE001  # any engine, any error: an answer, not the end
            answer = {"error": f"{type(error).__name__}: {error}"}
        channel.write(json.dumps(answer) + "\n")
        channel.flush()


if __name__ == "__main__":
    if sys.argv[2:] != ["plain"]:
        raise_priority()
    serve(Worker(sys.argv[1]))
