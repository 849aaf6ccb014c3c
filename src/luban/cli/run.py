"""`luban run`: run a model once and show its outputs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

from luban.cli.options import add_compile_options, add_input_options, compiled_model, given_inputs
from luban.cli.output import emit, note, table

SUMMARY = "run a model on inputs from a file, or made up, and show or save its outputs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add_compile_options(parser)
    add_input_options(parser)
    parser.add_argument("--output", metavar="FILE", help="save all outputs to an .npz file")
    parser.add_argument(
        "--values", type=int, default=8, metavar="N", help="values to print of each"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Run it."""
    begin = time.perf_counter()
    model = compiled_model(arguments)
    loaded = time.perf_counter()
    feeds = given_inputs(model, arguments)
    before = time.perf_counter()
    outputs = model(feeds)
    run_s = time.perf_counter() - before
    if arguments.output is not None:
        _save(arguments.output, outputs)
    lines = [_line(name, value, arguments.values) for name, value in outputs.items()]
    document = {
        "model": model.name,
        "from_cache": model.from_cache,
        "load_s": loaded - begin,
        "run_s": run_s,
        "threads": model.num_threads,
        "outputs": lines,
    }
    emit(document, arguments.json, lambda: _text(lines))
    source = "from the cache" if model.from_cache else "compiled"
    note(f"{source} in {loaded - begin:.2f} s, ran in {run_s * 1e3:.2f} ms")
    return 0


def _line(name: str, value: Any, count: int) -> dict[str, Any]:
    import numpy as np

    if not isinstance(value, np.ndarray):
        return {"name": name, "type": type(value).__name__, "values": repr(value)[:200]}
    from luban.core.types import type_of_array

    line: dict[str, Any] = {"name": name, "type": str(type_of_array(value))}
    line["values"] = value.reshape(-1)[: max(count, 0)].tolist()
    if value.size and value.dtype.kind not in "OcSU":
        wide = value.astype(np.float64)
        line |= {"min": float(wide.min()), "max": float(wide.max()), "mean": float(wide.mean())}
        line["nans"] = int(np.isnan(wide).sum())
    return line


def _text(lines: list[dict[str, Any]]) -> Iterator[str]:
    header = ["output", "type", "min", "max", "mean", "first values"]
    rows = []
    for line in lines:
        values = line["values"]
        shown = values if isinstance(values, str) else " ".join(_short(v) for v in values)
        rows.append([line["name"], line["type"], *map(line.get, ("min", "max", "mean")), shown])
    yield from table(header, rows)
    for line in lines:
        if line.get("nans"):
            yield f"{line['name']} holds {line['nans']} NaN"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _save(path: str, outputs: dict[str, Any]) -> None:
    """All arrays, whole or not at all."""
    from pathlib import Path

    import numpy as np

    from luban.core.files import written_whole

    arrays = {name: value for name, value in outputs.items() if isinstance(value, np.ndarray)}
    with written_whole(Path(path)) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # numpy's stub takes names for options
    note(f"outputs are in {path}")
