"""`luban bench`: time a model, side by side with other runtimes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from luban.cli.options import add_compile_options, add_input_options, compiled_model, given_inputs
from luban.cli.output import bytes_text, emit, progress, table

if TYPE_CHECKING:
    from luban.engine.bench import Timing
    from luban.profiler.layers import LayerReport
    from luban.profiler.roofline import KernelLine, Roofline

SUMMARY = "time a model next to other runtimes, or its kernels next to the machine's limits"

_WIDE = 72  # of a column


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add_compile_options(parser)
    add_input_options(parser)
    parser.add_argument(
        "--vs", default="", metavar="ENGINES", help="others to time: onnxruntime,openvino"
    )
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="turns of each engine")
    parser.add_argument("--turn", type=float, default=0.2, metavar="S", help="seconds of a turn")

    parser.add_argument(
        "--roofline",
        action="store_true",
        help="time each kernel, and tell what bounds it and how near it is to that limit",
    )
    parser.add_argument(
        "--layers",
        action="store_true",
        help="hold each layer of a quantised model against float32: time and error; exit code 1 "
        "if the model is slower than in float32",
    )
    parser.add_argument(
        "--html", metavar="FILE", help="with --roofline: a picture of it, as one page"
    )
    parser.add_argument(
        "--top",
        type=int,
        default=24,
        metavar="N",
        help="with --roofline and --layers: lines of the table",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Time them; exit code 1 if an engine failed."""
    from luban.core.errors import OptionError

    if arguments.roofline:
        if arguments.vs:
            raise OptionError("--roofline looks into Luban's kernels: no --vs")
        return _roofline(arguments)
    if arguments.layers:
        if arguments.vs:
            raise OptionError("--layers compares with float32 in Luban: no --vs")
        return _layers(arguments)
    if arguments.html:
        raise OptionError("--html is for the picture of --roofline")
    return _side_by_side(arguments)


def _side_by_side(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from luban.core.errors import OptionError
    from luban.core.numerics import numerics_mode
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
            numerics=numerics_mode(arguments.numerics),
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


def _roofline(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from luban.core.files import written_whole
    from luban.profiler.measure import measure_roofline
    from luban.profiler.picture import roofline_page

    model = compiled_model(arguments, cache=False)
    feeds = given_inputs(model, arguments)
    inputs = [feeds[info.name] for info in model.inputs]
    with progress():
        found = measure_roofline(model.compiled, inputs)
    if arguments.html:
        with written_whole(Path(arguments.html)) as file:
            file.write(roofline_page(found).encode())
    emit(found.to_json(), arguments.json, lambda: _kernels(found, arguments.top))
    return 0


def _layers(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from luban.core.errors import OptionError
    from luban.profiler.layers import measure_layers

    if arguments.without or arguments.shape or arguments.target:
        raise OptionError("--layers times models as they are: no --without, --shape or --target")
    model = compiled_model(arguments)
    feeds = given_inputs(model, arguments)
    with progress():
        found = measure_layers(Path(arguments.model), feeds, model.num_threads)
    emit(found.to_json(), arguments.json, lambda: _layer_lines(found, arguments.top))
    return int(found.verdict.startswith("refused"))


def _layer_lines(found: LayerReport, top: int) -> Iterator[str]:
    yield (
        f"{found.model}, {found.threads} thread{'s' * (found.threads > 1)}: quantised layers next "
        "to the same layers in float32"
    )
    lines = sorted(found.lines, key=lambda line: line.float_s - line.quantised_s)
    header = ["layer", "us", "float32 us", "faster", "error", "", "computes"]
    yield from table(
        header,
        [
            [
                line.name,
                f"{line.quantised_s * 1e6:.1f}",
                f"{line.float_s * 1e6:.1f}",
                f"{line.speedup:.2f}",
                None if line.error is None else f"{line.error:.1e}",
                "SLOWER" if line.loses else "",
                _short(line.computes),
            ]
            for line in lines[:top]
        ],
    )
    if len(lines) > top:
        yield f"and {len(lines) - top} more, which gain most (--top)"
    yield (
        f"between layers: {found.between_quantised_s * 1e6:.1f} us, in float32 "
        f"{found.between_float_s * 1e6:.1f} us: what quantises, and what stays float"
    )
    yield (
        f"a call takes {found.call_quantised_s * 1e3:.3f} ms, in float32 "
        f"{found.call_float_s * 1e3:.3f} ms; outputs differ by {found.error:.1e} of float32's"
    )
    yield found.verdict


def _kernels(found: Roofline, top: int) -> Iterator[str]:
    sizes = "".join(f", {name} = {size}" for name, size in found.sizes.items())
    yield f"{found.model}, {found.threads} thread{'s' * (found.threads > 1)}{sizes}"
    lines = found.grouped()
    header = [
        "us",
        "share",
        "GFLOP/s",
        "GB/s",
        "of limit",
        "bound by",
        "runs",
        "computes",
        "shapes",
    ]
    yield from table(header, [_cells(line) for line in lines[:top]])
    if len(lines) > top:
        yield f"and {len(lines) - top} more (--top)"
    yield (
        f"a call takes {found.call_s * 1e3:.3f} ms, its kernels {found.kernels_s * 1e3:.3f} ms; "
        f"their limit is {found.limit_s * 1e3:.3f} ms: {found.of_limit:.0%} of the call"
    )
    if any(line.threads < found.threads for line in lines):
        yield "kernels of loops that run side by side were timed one after the other"
    yield "time by bound: " + ", ".join(f"{name} {s:.0%}" for name, s in found.bounds().items())
    yield from _limits(found)
    if found.host_steps:
        yield f"{found.host_steps} host steps run in Python, in between: luban explain names them"
    if any(line.definition > line.operations for line in lines):
        yield "GFLOP/s count what convolutions mean; the limit counts what Winograd kernels do"
    if found.disturbed:
        yield f"disturbed: {found.disturbed}; times above may be too long"


def _cells(line: KernelLine) -> list[object]:
    rates = [f"{line.gflop_s:.1f}", f"{line.gb_s:.1f}"]
    times = [f"{line.time_s * 1e6:.1f}", f"{line.share:.1%}"]
    limit = [f"{line.of_limit:.0%}", line.bound]
    return [*times, *rates, *limit, line.runs, _short(line.computes), _short(line.shapes)]


def _short(text: str) -> str:
    return text if len(text) <= _WIDE else text[: _WIDE - 3] + "..."


def _limits(found: Roofline) -> Iterator[str]:
    limits = found.limits
    rates = ", ".join(f"{kind} {rate / 1e9:.0f}" for kind, rate in limits.operations_s.items())
    reads = ", ".join(f"{level.name} {level.bytes_s / 1e9:.0f}" for level in limits.levels)
    yield f"limits: {rates} GFLOP/s; {reads} GB/s; {limits.launch_s * 1e9:.0f} ns a launch"
