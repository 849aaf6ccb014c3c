"""`luban bench`: time a model, side by side with other runtimes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from luban.cli.options import add_compile_options, add_input_options, compiled_model, given_inputs
from luban.cli.output import bytes_text, emit, progress, table

if TYPE_CHECKING:
    from luban.engine.bench import Timing

SUMMARY = "time a model next to other runtimes: median, p95, cold and warm start, memory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add_compile_options(parser)
    add_input_options(parser)
    parser.add_argument(
        "--vs", default="", metavar="ENGINES", help="others to time: onnxruntime,openvino"
    )
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="turns of each engine")
    parser.add_argument("--turn", type=float, default=0.2, metavar="S", help="seconds of a turn")


def execute(arguments: argparse.Namespace) -> int:
    """Time them; exit code 1 if an engine failed."""
    from pathlib import Path

    from luban.core.errors import OptionError
    from luban.engine.bench import bench, check_engines

    if arguments.rounds < 1 or arguments.turn <= 0:
        raise OptionError("--rounds has to be at least 1 and --turn above 0")
    if arguments.without or arguments.shape or arguments.target:
        raise OptionError("bench times models as they are loaded by default: no --without, "
                          "--shape or --target")  # fmt: skip
    engines = ["luban", *(name.strip() for name in arguments.vs.split(",") if name.strip())]
    check_engines(engines)
    model = compiled_model(arguments)
    feeds = given_inputs(model, arguments)
    threads = model.num_threads
    with progress():
        timings = bench(
            Path(arguments.model),
            feeds,
            list(dict.fromkeys(engines)),
            threads,
            rounds=arguments.rounds,
            turn_s=arguments.turn,
        )
    document = {"model": model.name, "threads": threads, "engines": [t.to_json() for t in timings]}
    emit(document, arguments.json, lambda: _text(model.name, threads, timings))
    return int(any(timing.failure for timing in timings))


def _text(name: str, threads: int, timings: list[Timing]) -> Iterator[str]:
    yield f"{name}, {threads} thread{'s' * (threads > 1)}; times in ms"
    header = ["engine", "median", "p95", "luban is x", "cold", "warm", "first", "memory", "differs"]
    yield from table(
        header,
        [
            [
                t.engine,
                *(None if s is None else f"{s * 1e3:.3f}" for s in (t.median_s, t.p95_s)),
                None if t.speedup is None else f"{t.speedup:.2f}",
                *(None if s is None else f"{s * 1e3:.1f}" for s in (t.cold_s, t.warm_s, t.first_s)),
                bytes_text(t.peak_bytes),
                None if t.difference is None else f"{t.difference:.1e}",
            ]
            for t in timings
        ],
    )
    for timing in timings:
        if timing.failure:
            yield f"{timing.engine} failed: {timing.failure}"
