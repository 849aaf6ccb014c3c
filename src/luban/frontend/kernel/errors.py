"""Errors of the kernel front end: the user's line, a caret under the place, what was expected."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from luban.core.errors import LubanError
from luban.core.loc import Loc

__all__ = ["KernelError", "Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """A spot in the source of a kernel: its file, the first line of the function, its text."""

    file: str
    first_line: int
    text: str
    name: str

    def loc(self, node: ast.AST) -> Loc:
        """Where a node of the function stands."""
        return Loc(self.file, self.name, self.first_line + getattr(node, "lineno", 1) - 1)

    def quoted(self, node: ast.AST) -> str:
        """The line of a node, and a caret under where it starts."""
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0)
        lines = self.text.splitlines()
        shown = lines[line - 1] if line <= len(lines) else ""
        where = f"{self.file}:{self.first_line + line - 1}:{column + 1}"
        return f"{where}\n    {shown}\n    {' ' * column}^"


class KernelError(LubanError):
    """A kernel that cannot be compiled: the message ends with the line and a caret."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        place: Place | None = None,
        node: ast.AST | None = None,
    ) -> None:
        self.reason = message
        if place is not None and node is not None:
            message = f"{message}\n{place.quoted(node)}"
        super().__init__(message, hint=hint)
