"""What the kernel benchmarks share: the machine's peak, and Luban next to ONNX Runtime."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import luban
from luban.codegen.llvm import emit
from luban.native.compile import compile_object
from luban.native.link import link
from luban.native.target import host_target
from luban.runtime.program import Arguments, Step, StepTable
from luban.tile.builder import FunctionBuilder

ROUNDS = 9
TURN_S = 0.06
_SUMS = 24  # independent chains of multiply-adds: more than the latency needs


def fastest(function: Callable[[], object], seconds: float = TURN_S) -> float:
    """Seconds of the fastest call within a turn."""
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        function()
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return best


class Peak:
    """Multiply-adds in registers as fast as one thread can."""

    def __init__(self, steps: int = 20_000) -> None:
        target = host_target()
        lanes = target.vector_bits // 32
        sums = _SUMS if target.num_vector_registers == 32 else 12
        b = FunctionBuilder("peak")
        x = b.pointer("x", "f32")
        factor, term = b.load(x, 0, (lanes,)), b.load(x, lanes, (lanes,))
        start = [b.full((lanes,), float(i), "f32") for i in range(sums)]
        with b.for_(0, steps, 1, carried=start, unroll=4) as loop:
            loop.yield_(*(b.fma(total, factor, term) for total in loop.carried))
        total = loop.results[0]
        for other in loop.results[1:]:
            total = total + other
        b.store(x, 2 * lanes, total)
        self._library = link([compile_object(emit(b.finish_module(), target), target)], ["peak"])
        self._memory = np.zeros(3 * lanes, np.float32)
        self._arguments = Arguments(1)
        self._arguments.slots[0] = self._memory.ctypes.data
        step = Step(self._library.address("peak"), self._arguments.address(0), 1)
        self._table = StepTable([step], num_threads=1)
        self._flops = 2 * steps * sums * lanes

    def gflops(self) -> float:
        """Now: the clock drifts, so ask again next to each figure."""
        return self._flops / fastest(self._table.replay, 0.01) / 1e9


@dataclass(frozen=True)
class Outcome:
    """One case. Seconds are the fastest of the run; `ratio` is ONNX Runtime's over ours."""

    name: str
    threads: int
    flops: float
    ours_s: float
    theirs_s: float
    ratio: float
    of_peak: float

    def row(self) -> list[str]:
        """The outcome as text."""
        return [
            self.name,
            str(self.threads),
            f"{self.ours_s * 1e6:.0f}",
            f"{self.flops / self.ours_s / 1e9:.0f}",
            f"{self.of_peak:.0%}",
            f"{self.theirs_s * 1e6:.0f}",
            f"{self.ratio:.2f}",
        ]


HEADER = ["case", "threads", "us", "GFLOP/s", "of peak", "ONNX Runtime us", "ratio"]


def model_of(
    nodes: Sequence[onnx.NodeProto], shape: Sequence[int], weights: dict[str, np.ndarray]
) -> bytes:
    """An ONNX model with the input x and the output y."""
    graph = helper.make_graph(
        list(nodes),
        "kernel",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())


class Contest:
    """Both engines on one model. Raises AssertionError if they disagree."""

    def __init__(self, model: bytes, shape: Sequence[int], threads: int) -> None:
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        compiled = luban.compile(model, threads=threads)
        self.ours: Callable[[], dict[str, Any]] = lambda: compiled(x)
        self.theirs: Callable[[], list[Any]] = lambda: session.run(None, {"x": x})
        (mine,), (other,) = self.ours().values(), self.theirs()
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-3 * float(np.abs(other).max()))


def compare(
    name: str,
    threads: int,
    flops: float,
    contests: Sequence[Contest],
    peak: Peak,
    scale: float = 1.0,
) -> Outcome:
    """Take turns. With two contests the figure is the difference of their times, over `scale`."""
    ours, theirs = [float("inf")] * len(contests), [float("inf")] * len(contests)
    limit = 0.0
    for _ in range(ROUNDS):
        for i, contest in enumerate(contests):
            ours[i] = min(ours[i], fastest(contest.ours))
            theirs[i] = min(theirs[i], fastest(contest.theirs))
        limit = max(limit, peak.gflops())
    mine, other = ((t[-1] - (t[0] if len(t) > 1 else 0.0)) / scale for t in (ours, theirs))
    return Outcome(
        name, threads, flops, mine, other, other / mine, flops / mine / 1e9 / (limit * threads)
    )
