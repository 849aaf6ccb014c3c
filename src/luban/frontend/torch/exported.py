"""torch.export in: an exported program, or a `.pt2` file of one, as a graph with its weights."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind

from luban.core.errors import ModelError, UnsupportedError
from luban.frontend.torch.decompositions import decompositions
from luban.frontend.torch.importer import Computed, Given, import_graph
from luban.frontend.torch.symbols import ranged
from luban.ir.node import Graph

__all__ = ["import_exported"]

_CONSTANTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def import_exported(given: torch.export.ExportedProgram | str | os.PathLike[str]) -> Graph:
    """The graph of an exported program: weights are constants, sizes keep their ranges.

    Inputs are called as in the program; outputs by their keys if the model gives a dict, else
    `output`, or `output_0`, `output_1`, ... Raises ModelError for a file that is none,
    UnsupportedError for a program that writes to its inputs or buffers, or has operators without a
    translation.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch about its own future
        is_program = isinstance(given, torch.export.ExportedProgram)
        program = given if is_program else _read(Path(given))  # type: ignore[arg-type]
        program = program.run_decompositions(decompositions())  # type: ignore[union-attr]
    name = "exported" if is_program else Path(str(given)).stem
    signature = program.graph_signature
    written = [spec for spec in signature.output_specs if spec.kind is not OutputKind.USER_OUTPUT]
    if written:
        raise UnsupportedError(
            f"{name}: {len(written)} outputs are not the user's:",
            items=[f"{spec.kind.name.lower()} of {spec.target}" for spec in written],
            hint="export the model after model.eval(), and return what changes",
        )
    tensors = {**program.state_dict, **program.constants}
    held: dict[int, torch.Tensor] = {}
    names: dict[int, str] = {}
    for number, spec in enumerate(signature.input_specs):
        if spec.kind in _CONSTANTS:
            held[number] = tensors[str(spec.target)]
        else:
            names[number] = spec.arg.name
    with ranged(program.range_constraints):
        imported = import_graph(program.graph_module, name, held=held, names=names)
    results = []
    for output in imported.outputs:
        if isinstance(output, Computed):
            results.append(imported.graph.results[output.number])
        elif isinstance(output, Given):
            results.append(imported.graph.parameters[imported.inputs.index(output.number)])
        else:
            raise UnsupportedError(f"{name}: an output is {output.value!r}, expected a tensor")
    labels = _output_names(program, len(results))
    return Graph(name, imported.graph.parameters, tuple(results), labels)


def _read(path: Path) -> torch.export.ExportedProgram:
    try:
        return torch.export.load(path)
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist") from None
    except Exception as error:  # the reader raises whatever it stumbles over
        raise ModelError(
            f"{path} is not a program of torch.export: {' '.join(str(error).split())[:200]}",
            hint="write one with torch.export.save(torch.export.export(model, inputs), path)",
        ) from error


def _output_names(program: torch.export.ExportedProgram, count: int) -> tuple[str, ...]:
    spec: Any = program.call_spec.out_spec
    if spec is not None and spec.type is dict and len(spec.context) == count:
        return tuple(map(str, spec.context))
    return ("output",) if count == 1 else tuple(f"output_{number}" for number in range(count))
