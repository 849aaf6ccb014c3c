"""Programs of torch.export among the sources: told apart without PyTorch, read with it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from luban.core.errors import ModelError, OptionError
from luban.ir.node import Graph

__all__ = ["exported_graph", "is_exported"]


def is_exported(source: Any) -> bool:
    """Whether a source is a `.pt2` file or an ExportedProgram.

    >>> is_exported("model.pt2"), is_exported("model.onnx")
    (True, False)
    """
    if isinstance(source, str | os.PathLike):
        return Path(source).suffix == ".pt2"
    return type(source).__module__.startswith("torch.export")


def exported_graph(source: Any, shapes: Mapping[str, Sequence[int | str]] | None = None) -> Graph:
    """The graph of an exported program.

    Raises OptionError for `shapes`, ModelError without PyTorch and for a file that is none.
    """
    if shapes:
        raise OptionError(
            f"shapes={dict(shapes)!r}: the sizes of an exported program are its own",
            hint="state them with dynamic_shapes when it is exported",
        )
    try:
        import_exported = import_module("luban.frontend.torch.exported").import_exported
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        shown = source if isinstance(source, str | os.PathLike) else type(source).__name__
        raise ModelError(
            f"{shown}: reading an exported program needs PyTorch, which is not installed",
            hint="pip install 'luban[torch]'",
        ) from None
    graph: Graph = import_exported(source)
    return graph
