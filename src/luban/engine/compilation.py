"""One compilation from a source: the front end, then the compiler. Loads all of both."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from luban.core.errors import LubanWarning
from luban.core.numerics import Numerics
from luban.core.progress import report
from luban.engine.compile import Compiled, compile_graph
from luban.engine.exported import exported_graph, is_exported
from luban.engine.once import StartDraft
from luban.frontend.onnx import Imported, import_model
from luban.ir.node import Graph
from luban.native.target import Target

__all__ = ["Compilation", "compile_source"]


@dataclass(frozen=True, slots=True)
class Compilation:
    """What the compiler gave, and what the front end gave it if the source was a model file."""

    compiled: Compiled
    imported: Imported | None
    warnings: tuple[str, ...] = ()  # of the front end: a model from the cache repeats them

    @property
    def files(self) -> tuple[Path, ...]:
        """External data that it depends on."""
        return () if self.imported is None else self.imported.files


def compile_source(
    source: Any,
    num_threads: int | None,
    without: Collection[str],
    shapes: Mapping[str, Sequence[int | str]],
    target: Target,
    numerics: Numerics = "strict",
    start_draft: StartDraft = lambda _: None,
) -> Compilation:
    """Import and compile. Raises ModelError, UnsupportedError or OptionError."""
    told: list[str] = []
    imported = None
    if isinstance(source, Graph):
        graph = source
    elif is_exported(source):
        report("reading the program")
        graph = exported_graph(source, shapes)
    else:
        report("reading the model")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            imported = import_model(source, shapes=shapes)
        for each in caught:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
            if issubclass(each.category, LubanWarning):
                told.append(str(each.message))
        graph = imported.graph
    compiled = compile_graph(
        graph,
        num_threads=num_threads,
        without=without,
        numerics=numerics,
        target=target,
        start_draft=start_draft,
    )
    return Compilation(compiled, imported, tuple(told))
