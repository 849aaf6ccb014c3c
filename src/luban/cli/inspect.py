"""`luban inspect`: what a model file says about itself, without compiling it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from luban.cli.output import bytes_text, emit, heading, table

if TYPE_CHECKING:
    from luban.engine.describe import Description

SUMMARY = "show a model's inputs, outputs, operators, weights, sizes and what is not supported"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")


def execute(arguments: argparse.Namespace) -> int:
    """Print the description; exit code 1 if the model holds what is not supported."""
    from luban.engine.describe import describe

    found = describe(arguments.model)
    emit(found.to_json(), arguments.json, lambda: _text(found))
    return int(bool(found.missing))


def _text(found: Description) -> Iterator[str]:
    opset = ", ".join(f"{domain} {version}" for domain, version in found.opset.items())
    yield f"{found.name}: opset {opset}, IR {found.ir_version}, by {found.producer or 'unknown'}"
    yield (
        f"{found.num_nodes} nodes, {found.num_parameters:,} parameters in {found.num_weights} "
        f"weights, {bytes_text(found.weight_bytes)}"
    )
    if found.external_files:
        yield f"weights lie in {', '.join(found.external_files)}"
    yield heading("inputs and outputs")
    rows = [["input", *line] for line in found.inputs] + [["output", *x] for x in found.outputs]
    yield from table(["", "name", "type"], rows)
    if found.symbols:
        yield heading("sizes that the caller chooses")
        for symbol, inputs in found.symbols.items():
            yield f"{symbol}: in {', '.join(inputs)}"
    yield heading("operators")
    yield from table(["operator", "nodes"], list(found.operators.items()))
    for title, lines in (
        ("metadata", [f"{key} = {value[:200]}" for key, value in found.metadata.items()]),
        ("notes", found.notes),
        ("not supported", found.missing),
    ):
        if lines:
            yield heading(title)
            yield from lines
