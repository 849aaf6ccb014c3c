"""`luban check`: hold a model against its float64 meaning; name the first thing that is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from luban.cli.options import add_input_options, add_numerics_option, read_arrays, sizes_of
from luban.cli.output import emit, heading, note, progress, table

if TYPE_CHECKING:
    from luban.engine.check import CheckReport

SUMMARY = "prove a model's answer layer by layer, and name what is wrong if it is not right"

_WRONG = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")
    parser.add_argument(
        "--runtime",
        default="luban",
        metavar="NAME",
        help="luban (default), or another that is installed: onnxruntime, openvino",
    )
    add_input_options(parser)
    parser.add_argument("--threads", type=int, metavar="N", help="threads of a call")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="PASS",
        help="leave a pass out; repeatable",
    )
    add_numerics_option(parser)
    parser.add_argument(
        "--repro",
        metavar="FILE",
        help="if something is wrong, write a Python file that shows it alone",
    )
    parser.add_argument(
        "--layers", type=int, default=5, metavar="N", help="layers nearest to their bound to show"
    )
    parser.add_argument(
        "--every-turn",
        action="store_true",
        help="hold all turns of long loops against float64, not a sample",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Check it; 1 if something left its bound."""
    from luban.engine.check import check

    with progress():
        found = check(
            arguments.model,
            read_arrays(arguments.inputs) if arguments.inputs is not None else None,
            runtime=arguments.runtime,
            sizes=sizes_of(arguments.size),
            seed=arguments.seed,
            threads=arguments.threads,
            without=arguments.without,
            numerics=arguments.numerics,
            repro=arguments.repro,
            every_turn=arguments.every_turn,
        )
    emit(found.to_json(), arguments.json, lambda: _text(found, arguments.layers))
    if arguments.inputs is None:
        made = ", ".join(f"{name}: {type_}" for name, type_ in found.inputs.items())
        note(f"inputs were made up with seed {arguments.seed}: {made}")
    return 0 if found.ok else _WRONG


def _text(found: CheckReport, count: int) -> Iterator[str]:
    yield from found.lines()
    for title, layers in (
        ("nearest to their bound", found.worst(count)),
        ("outputs", found.outputs),
    ):
        if layers:
            yield heading(title)
            yield from table(["layer", "operations", "error", "bound", ""], [*map(_row, layers)])


def _row(layer: Any) -> list[object]:
    verdict = layer.verdict
    mark = "ok" if verdict.ok else "WRONG"
    return [layer.name, layer.ops, f"{verdict.error:.2e}", f"{verdict.bound:.2e}", mark]
