"""Where a piece of a program came from: shown in every error."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Loc"]


@dataclass(frozen=True, slots=True)
class Loc:
    """A place in the user's source: a node path inside a model file, or a line of a program.

    >>> print(Loc("model.onnx", "main/Loop_3/Add_1"))
    model.onnx: main/Loop_3/Add_1
    """

    source: str
    path: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{place}: {self.path}" if self.path else place
