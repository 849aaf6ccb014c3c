"""What every example prints after its answer: the check against float64, and the time.

The time stands next to ONNX Runtime's, measured in turns in the same run.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
from rich.console import Console
from rich.table import Table

import luban
from luban.frontend.onnx import import_model
from luban.graph.evaluate import evaluate

Inputs = Mapping[str, npt.NDArray[np.generic]]

ROUNDS = 7
BURST_SECONDS = 0.1
PAUSE_SECONDS = 0.02  # lets the other engine's threads stop spinning


def print_check(console: Console, model: Path, inputs: Inputs) -> None:
    """Print how far both engines are from the model's meaning, its value in float64.

    Then what `luban check` says of every layer. Raises SystemExit if one is wrong.
    """
    graph = import_model(model).graph
    oracle = dict(
        zip(graph.result_names, evaluate(graph, inputs, precision="float64"), strict=True)
    )
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    engines = {
        "Luban": luban.load(model)(inputs),
        "ONNX Runtime": dict(zip(oracle, session.run(list(oracle), inputs), strict=True)),
    }
    table = Table("engine", "output", "largest error", "relative", title="Check against float64")
    for engine, outputs in engines.items():
        for name, exact in oracle.items():
            error = float(np.abs(outputs[name] - exact).max())
            relative = error / float(np.abs(exact).max())
            table.add_row(engine, name, f"{error:.1e}", f"{relative:.1e}")
    console.print(table)
    report = luban.check(model, inputs)
    console.print(str(report))
    if not report.ok:
        raise SystemExit(1)


def onnxruntime_call(model: Path, inputs: Inputs, threads: int) -> Callable[[], object]:
    """One inference by ONNX Runtime with its default optimisations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


def luban_call(model: Path, inputs: Inputs, threads: int) -> Callable[[], object]:
    """One inference by Luban."""
    compiled = luban.load(model, threads=threads)
    return lambda: compiled(inputs)


def burst_us(call: Callable[[], object]) -> float:
    """Median time of one call in a burst, after a pause and two calls to warm up."""
    time.sleep(PAUSE_SECONDS)
    call()
    call()
    times: list[float] = []
    end = time.perf_counter() + BURST_SECONDS
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def print_times(console: Console, model: Path, inputs: Inputs, what: str) -> None:
    """Time both engines in turns, so that a change of clock or load meets both; print the ratio."""
    table = Table(
        "threads", "Luban", "ONNX Runtime", "ratio", "lowest", "highest", title=f"Time for {what}"
    )
    for threads in (1, 2):
        ours, theirs = (make(model, inputs, threads) for make in (luban_call, onnxruntime_call))
        pairs = [(burst_us(ours), burst_us(theirs)) for _ in range(ROUNDS)]
        our_us, their_us = (statistics.median(times) for times in zip(*pairs, strict=True))
        ratios = [theirs_us / ours_us for ours_us, theirs_us in pairs]
        shown = (statistics.median(ratios), min(ratios), max(ratios))
        table.add_row(
            str(threads),
            f"{our_us:,.0f} us",
            f"{their_us:,.0f} us",
            *(f"{ratio:.2f}x" for ratio in shown),
        )
    console.print(table)
    console.print(f"Medians of {ROUNDS} pairs. A ratio above 1 means that Luban is faster.")
    console.print("Where lowest and highest lie far apart, the machine was busy: run it again.")
