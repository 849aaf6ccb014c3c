"""The table of the language's functions: one row each, found by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from luban.core.errors import LubanError

__all__ = ["BUILTINS", "Builtin", "builtin", "lookup"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Builtin:
    """A function of the language, as kernels name it. It means nothing outside a kernel.

    run      (interpreter, *arguments) -> value
    method   blocks have it as a method, too
    """

    name: str
    run: Callable[..., Any] = field(repr=False)
    family: str
    method: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "__doc__", inspect.getdoc(self.run))
        object.__setattr__(self, "__name__", self.name.rpartition(".")[2])

    @property
    def signature(self) -> str:
        """How it is called, without the interpreter."""
        parameters = list(inspect.signature(self.run).parameters.values())[1:]
        plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
        return f"{self.name}{inspect.Signature(plain)}"

    def __call__(self, *_arguments: Any, **_keywords: Any) -> Any:
        """Refuse: raises LubanError."""
        raise LubanError(
            f"{self.name} was called outside a kernel",
            hint="the language's functions work inside a function with @luban.lang.jit only",
        )


BUILTINS: dict[str, Builtin] = {}


def builtin(family: str, *names: str, method: bool = False) -> Callable[[F], F]:
    """Put a function into the table, under its own name unless others are given."""

    def register(run: F) -> F:
        for name in names or (run.__name__.rstrip("_"),):
            BUILTINS[name] = Builtin(name, run, family, method)
        return run

    return register


def lookup(value: Any) -> Builtin | None:
    """The row for a function of the language: our stand-in, or an installed Triton's, by name."""
    if isinstance(value, Builtin):
        return value
    module = str(getattr(value, "__module__", "") or "")
    if module.startswith("luban.lang.") and not hasattr(value, "kernel_source"):
        return BUILTINS.get(str(getattr(value, "__name__", "")))
    if module.startswith("triton."):
        name = str(getattr(value, "__name__", ""))
        found = BUILTINS.get(f"libdevice.{name}") if "libdevice" in module else None
        return found or BUILTINS.get(name)
    return None
