"""Products with weights of 4 bits, next to ONNX Runtime's and to the time of reading the weights.

    python -m benchmarks.int4 [--threads 1 2] [--rows 1 16 128] [--groups 32 64 128] [--levels 4 0]

A model is a chain of `MatMulNBits` of 4096 x 4096, together larger than the last cache. With one
row, memory bounds it: the limit is the most that the same run measures with kernels that do nothing
but read. With more rows the figure is the ratio to ONNX Runtime. Accuracy level 4 lets rows be
rounded to 8 bits, at level 0 they keep float32's precision; the targets are those of level 4, in
which such models are exported for CPUs.
"""

import argparse
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.decode import MemoryReads
from benchmarks.harness import EngineProcess, save_feeds
from benchmarks.report import table
from benchmarks.worker import raise_priority

ENGINES = ("luban", "onnxruntime")
TARGET_SHARE = 0.85  # of the read bandwidth, with one row
TARGET_RATIO = 2.0  # to ONNX Runtime, with more
SIZE = 4096
_CHAIN = 8  # products of one model: 84 MB and more
_ROUNDS, _TURN_S = 7, 0.3
_BITS = 4


@dataclass(frozen=True, slots=True)
class Case:
    """One chain of products. `level` is the accuracy level that the model states."""

    rows: int
    group: int
    level: int

    @property
    def bytes_read(self) -> int:
        """Of codes and scales, in a call."""
        return _CHAIN * (SIZE * SIZE * _BITS // 8 + SIZE * SIZE // self.group * 4)

    def model(self) -> onnx.ModelProto:
        """From x0 to x8, each product about as large as its operand."""
        random = np.random.default_rng(0)
        nodes, weights = [], []
        blocks = SIZE // self.group
        attributes: dict[str, Any] = {"K": SIZE, "N": SIZE, "bits": _BITS, "block_size": self.group}
        for i in range(_CHAIN):
            codes = random.integers(0, 256, (SIZE, blocks, self.group * _BITS // 8), np.uint8)
            scales = random.uniform(0.5, 1.5, SIZE * blocks) / (4.6 * SIZE**0.5)
            weights.append(numpy_helper.from_array(codes, f"w{i}"))
            weights.append(numpy_helper.from_array(scales.astype(np.float32), f"s{i}"))
            names = [f"x{i}", f"w{i}", f"s{i}"]
            product = helper.make_node(
                "MatMulNBits",
                names,
                [f"x{i + 1}"],
                domain="com.microsoft",
                accuracy_level=self.level,
                **attributes,
            )
            nodes.append(product)
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [self.rows, SIZE])
            for name in ("x0", f"x{_CHAIN}")
        ]
        graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds of a call, the fastest of the run; `limit_gb_s` is what reading reached."""

    case: Case
    threads: int
    ours_s: float
    theirs_s: float
    limit_gb_s: float

    @property
    def gb_s(self) -> float:
        """Of weights."""
        return self.case.bytes_read / self.ours_s / 1e9

    @property
    def target(self) -> str:
        """Met or MISSED; empty where there is none."""
        if self.case.level != 4:
            return ""
        if self.case.rows == 1:
            met = self.gb_s >= TARGET_SHARE * self.limit_gb_s
        else:
            met = self.theirs_s >= TARGET_RATIO * self.ours_s
        return "met" if met else "MISSED"

    def row(self) -> list[str]:
        """The outcome as text, times of one product."""
        case = self.case
        return [
            *map(str, (case.level, case.rows, case.group, self.threads)),
            f"{self.ours_s / _CHAIN * 1e6:.0f}",
            f"{self.theirs_s / _CHAIN * 1e6:.0f}",
            f"{self.theirs_s / self.ours_s:.2f}",
            f"{self.gb_s:.1f}",
            f"{self.gb_s / self.limit_gb_s:.0%}",
            self.target,
        ]


HEADER = [
    "level", "rows", "group", "threads", "us", "ONNX Runtime us", "ratio", "GB/s", "of the limit",
    "target",
]  # fmt: skip


def measure(case: Case, threads: int, reads: MemoryReads) -> Outcome:
    """Both engines in turns, each in a process of its own."""
    times: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    limits: list[float] = []
    with tempfile.TemporaryDirectory(prefix="luban-int4-") as folder:
        path = Path(folder) / "chain.onnx"
        onnx.save(case.model(), path)
        x = np.random.default_rng(1).standard_normal((case.rows, SIZE)).astype(np.float32)
        feeds = str(save_feeds({"x0": x}, Path(folder) / "feeds.npz"))
        running = {engine: EngineProcess(engine, Path(folder)) for engine in ENGINES}
        try:
            for process in running.values():
                process.ask("load", path=str(path), feeds=feeds, threads=threads)
                process.ask("time", budget_s=0.2, least=2)
            for _ in range(_ROUNDS):
                limits.append(reads.gb_s())
                for engine, process in running.items():
                    times[engine] += process.ask("time", budget_s=_TURN_S, least=2)["durations_s"]
        finally:
            for process in running.values():
                process.close()
    ours, theirs = (min(times[engine]) for engine in ENGINES)
    return Outcome(case, threads, ours, theirs, max(limits))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 128])
    parser.add_argument("--groups", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--levels", type=int, nargs="+", default=[4, 0])
    given = parser.parse_args(arguments)
    with suppress(PermissionError):
        os.setsid()  # a scheduler group of its own, as the engines have
    raise_priority()
    cases = [Case(m, g, level) for level in given.levels for m in given.rows for g in given.groups]
    outcomes = []
    for threads in given.threads:
        reads = MemoryReads(threads)
        outcomes += [measure(case, threads, reads) for case in cases]
    print(table(HEADER, [outcome.row() for outcome in outcomes]))
    missed = any(outcome.target == "MISSED" for outcome in outcomes)
    print(
        f"targets at level 4: {TARGET_SHARE:.0%} of the measured read bandwidth with one row, "
        f"{TARGET_RATIO:g} times ONNX Runtime with more"
    )
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
