"""One decoding step, next to the time that reading its weights and its cache from memory takes.

    python -m benchmarks.decode [--models name ...] [--threads 1 2]     exit 1 if one misses

A step reads every weight of a matrix product and the whole cache once, so memory bounds it. The
limit is the most that the same run measures with kernels that do nothing but read: a buffer far
larger than any cache, each thread a part of it. Times are the fastest of the run. Copying the cache
into the results takes its share of the time but is not counted as bytes.
"""

import argparse
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx

from benchmarks.compare import COLLECTION
from benchmarks.harness import OURS, EngineProcess, save_feeds
from benchmarks.kernels import fastest
from benchmarks.report import milliseconds, table
from benchmarks.worker import raise_priority
from luban.codegen.llvm import emit
from luban.native.compile import compile_object
from luban.native.link import link
from luban.native.target import host_target
from luban.runtime.program import Arguments, Step, StepTable
from luban.tile.builder import FunctionBuilder

MODELS = ("gpt2_decode", "llama_130m_decode")
ENGINES = (OURS, "onnxruntime", "openvino")
TARGET = 0.9
_BUFFER_BYTES = 1 << 29
_PROGRAMS = 256
_SUMS = 16
_ROUNDS, _TURN_S = 7, 0.5


class MemoryReads:
    """How fast this machine reads memory on a number of threads."""

    def __init__(self, threads: int) -> None:
        target = host_target()
        lanes = target.vector_bits // 32
        part = _BUFFER_BYTES // 4 // _PROGRAMS
        b = FunctionBuilder("reads")
        x, y = b.pointer("x", "f32", access="read"), b.pointer("y", "f32", access="write")
        program = b.program_id()
        start = [b.full((lanes,), 0.0, "f32")] * _SUMS
        first = program * part
        with b.for_(first, first + part, _SUMS * lanes, carried=start) as loop:
            numbers = [b.load(x, loop.index + i * lanes, (lanes,)) for i in range(_SUMS)]
            loop.yield_(*(a + n for a, n in zip(loop.carried, numbers, strict=True)))
        total = loop.results[0]
        for other in loop.results[1:]:
            total = total + other
        b.store(y, program * lanes, total)
        self._library = link([compile_object(emit(b.finish_module(), target), target)], ["reads"])
        self._memory = np.ones(_BUFFER_BYTES // 4, np.float32)
        self._sums = np.zeros(_PROGRAMS * lanes, np.float32)
        self._arguments = Arguments(2)
        self._arguments.slots[0] = self._memory.ctypes.data
        self._arguments.slots[1] = self._sums.ctypes.data
        step = Step(self._library.address("reads"), self._arguments.address(0), _PROGRAMS)
        self._table = StepTable([step], num_threads=threads)

    def gb_s(self) -> float:
        """Now: other work on the machine takes its share."""
        return _BUFFER_BYTES / fastest(self._table.replay, 0.2) / 1e9


def bytes_read(path: Path, feeds: dict[str, np.ndarray]) -> int:
    """Bytes of the constants of matrix products, and of the cache that comes in."""
    model = onnx.load(path)
    sizes = {
        tensor.name: int(np.prod(tensor.dims))
        * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        for tensor in model.graph.initializer
    }
    made = {
        output: node.input[0]
        for node in model.graph.node
        for output in node.output[:1]
        if node.op_type in ("Transpose", "Identity")
    }
    names = {
        made.get(name, name)
        for node in model.graph.node
        if node.op_type in ("MatMul", "Gemm")
        for name in node.input[:2]
    }
    cache = sum(array.nbytes for array in feeds.values() if array.ndim == 4)
    return sum(size for name, size in sizes.items() if name in names) + cache


def measure(name: str, threads: int) -> tuple[list[list[str]], float]:
    """A row for each engine, and the share of the limit that ours reaches."""
    case = COLLECTION[name]
    feeds = case.inputs()
    size = bytes_read(case.path(), feeds)
    reads = MemoryReads(threads)
    times: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    limits: list[float] = []
    with tempfile.TemporaryDirectory(prefix="luban-decode-") as folder:
        saved = str(save_feeds(feeds, Path(folder) / "feeds.npz"))
        running = {engine: EngineProcess(engine, Path(folder)) for engine in ENGINES}
        try:
            for process in running.values():
                process.ask("load", path=str(case.path()), feeds=saved, threads=threads)
                process.ask("time", budget_s=0.5, least=3)
            for _ in range(_ROUNDS):
                limits.append(reads.gb_s())
                for engine, process in running.items():
                    times[engine] += process.ask("time", budget_s=_TURN_S, least=3)["durations_s"]
        finally:
            for process in running.values():
                process.close()
    limit = max(limits)
    best = {engine: min(taken) for engine, taken in times.items()}
    share = {engine: size / seconds / 1e9 / limit for engine, seconds in best.items()}
    shown = [f"{size / 1e6:.0f}", f"{limit:.1f}"]
    rows = [
        [name, str(threads), e, milliseconds(best[e]), *shown, f"{share[e]:.0%}"] for e in ENGINES
    ]
    return rows, share[OURS]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    with suppress(PermissionError):
        os.setsid()  # a scheduler group of its own, as the engines have
    raise_priority()
    rows, met = [], True
    for threads in given.threads:
        for name in given.models:
            lines, share = measure(name, threads)
            rows += lines
            met = met and share >= TARGET
    header = ["model", "threads", "engine", "ms", "MB read", "limit GB/s", "of the limit"]
    print(table(header, rows))
    print(f"target: {TARGET:.0%} of the measured read bandwidth: {'met' if met else 'MISSED'}")
    return int(not met)


if __name__ == "__main__":
    raise SystemExit(main())
