"""A process that runs one model in one engine and is timed: `python -m luban.engine.bench_worker`.

Reads one JSON request a line from stdin and answers each with one line; ends when stdin ends. What
an engine prints itself goes to stderr.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["LOADERS"]

Call = Callable[[dict[str, Any]], list[Any]]


def _luban(path: str, threads: int, numerics: str) -> Call:
    model = import_module("luban").load(path, threads=threads, numerics=numerics)
    return lambda feeds: list(model(feeds).values())


def _onnxruntime(path: str, threads: int, _numerics: str) -> Call:
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feeds: list(session.run(None, feeds))


def _openvino(path: str, threads: int, numerics: str) -> Call:
    core = import_module("openvino").Core()
    # Its default rounds to bfloat16 where the machine computes with that.
    precision = "bf16" if numerics == "fast" else "f32"
    choices = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": precision}
    compiled = core.compile_model(path, "CPU", {**choices, "PERFORMANCE_HINT": "LATENCY"})
    request = compiled.create_infer_request()
    numbers = range(len(compiled.outputs))

    def call(feeds: dict[str, Any]) -> list[Any]:
        outputs = request.infer(feeds, share_inputs=True, share_outputs=True)
        return [outputs[number] for number in numbers]

    return call


LOADERS: dict[str, Callable[[str, int, str], Call]] = {
    "luban": _luban,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}


def _peak_bytes() -> int:
    """The largest resident size; Linux's own figure, as the other also counts the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(lines[0].split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class _Worker:
    """One engine with one model."""

    def __init__(self) -> None:
        self.call: Call | None = None
        self.feeds: dict[str, Any] = {}

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Load the engine and the model, run once; seconds of both."""
        with np.load(request["feeds"]) as stored:
            self.feeds = dict(stored)
        begin = time.perf_counter()
        load = LOADERS[request["engine"]]
        self.call = load(request["model"], request["threads"], request["numerics"])
        loaded = time.perf_counter()
        outputs = self.call(self.feeds)
        first_s = time.perf_counter() - loaded
        np.savez(request["outputs"], *(np.asarray(output) for output in outputs))
        return {"load_s": loaded - begin, "first_s": first_s}

    def time(self, request: dict[str, Any]) -> dict[str, Any]:
        """Call for a while; the seconds of each call."""
        assert self.call is not None
        clock = time.perf_counter
        found: list[float] = []
        end = clock() + request["budget_s"]
        while not found or clock() < end:
            begin = clock()
            self.call(self.feeds)
            found.append(clock() - begin)
        return {"seconds": found}

    def memory(self, _: dict[str, Any]) -> dict[str, Any]:
        """The peak resident size."""
        return {"peak_bytes": _peak_bytes()}


def _serve() -> None:
    worker = _Worker()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request["do"])(request)
        except Exception as error:  # noqa: BLE001  # any engine, any error: it is the answer
            answer = {"failure": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
