"""The source of a kernel: its syntax tree, the names that it can see, a hash of all it reaches."""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from luban.core.errors import LubanError
from luban.frontend.kernel.errors import Place

__all__ = ["KernelSource", "source_of"]

MISSING = object()


class KernelSource:
    """A Python function as a kernel.

    Raises LubanError where the function has no source (a lambda typed at a prompt, for one).

    >>> def double(x, n: int = 2):
    ...     return x * n
    >>> KernelSource(double).parameters
    ('x', 'n')
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = function.__name__
        try:
            lines, first = inspect.getsourcelines(function)
        except (OSError, TypeError) as error:
            raise LubanError(
                f"{self.name}: its source cannot be read: {error}",
                hint="a kernel is compiled from its source: define it in a file or notebook cell",
            ) from None
        text = textwrap.dedent("".join(lines))
        file = inspect.getsourcefile(function) or "<unknown>"
        self.place = Place(file, first, text, self.name)
        tree = ast.parse(text)
        found = next((n for n in tree.body if isinstance(n, ast.FunctionDef)), None)
        if found is None:
            raise LubanError(f"{self.name} is no function with a body, expected def")
        self.tree = found
        self.signature = inspect.signature(function)
        self.parameters = tuple(self.signature.parameters)
        self._defaults = {
            name: parameter.default
            for name, parameter in self.signature.parameters.items()
            if parameter.default is not inspect.Parameter.empty
        }

    @property
    def constexprs(self) -> frozenset[str]:
        """Parameters that are annotated as compile-time constants."""
        return frozenset(
            name
            for name, parameter in self.signature.parameters.items()
            if "constexpr"
            in str(getattr(parameter.annotation, "__name__", parameter.annotation)).lower()
        )

    def lookup(self, name: str) -> Any:
        """A name outside the function: closure, module, builtins; MISSING if there is none."""
        closure = (
            inspect.getclosurevars(self.function).nonlocals if self.function.__closure__ else {}
        )
        if name in closure:
            return closure[name]
        if name in self.function.__globals__:
            return self.function.__globals__[name]
        return getattr(builtins, name, MISSING)

    def reached(self) -> Iterator[tuple[str, Any]]:
        """The outer names that the function mentions, with what they stand for."""
        own = {n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name)}
        for name in sorted(own - set(self.parameters)):
            found = self.lookup(name)
            if found is not MISSING:
                yield name, found

    def digest(self) -> str:
        """A hash of the source, of every kernel that it calls, and of the numbers that it sees."""
        digest = hashlib.sha256()
        seen: set[str] = set()
        stack = [self]
        while stack:
            source = stack.pop()
            key = f"{source.place.file}:{source.place.first_line}:{source.place.text}"
            if key in seen:
                continue
            seen.add(key)
            digest.update(source.place.text.encode())
            for name, value in source.reached():
                inner = source_of(value)
                if inner is not None:
                    stack.append(inner)
                elif isinstance(value, (bool, int, float, str, type(None), tuple)):
                    digest.update(f"{name}={value!r};".encode())
                elif hasattr(value, "value"):
                    digest.update(f"{name}={value.value!r};".encode())
        return digest.hexdigest()

    def bind(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by parameter name, defaults filled in. Raises LubanError for a wrong call."""
        names = self.parameters
        found = {**self._defaults, **dict(zip(names, arguments)), **keywords}  # noqa: B905 - see below
        twice = not keywords.keys().isdisjoint(names[: len(arguments)])
        if len(found) == len(names) >= len(arguments) and not twice and found.keys() == set(names):
            return {name: found[name] for name in names}
        try:
            bound = self.signature.bind(*arguments, **keywords)
        except TypeError as error:
            hint = f"its parameters are {', '.join(names)}"
            raise LubanError(f"{self.name}: {error}", hint=hint) from None
        bound.apply_defaults()
        return dict(bound.arguments)


def source_of(value: Any) -> KernelSource | None:
    """The kernel source behind a decorated function, ours or an installed Triton's."""
    if isinstance(value, KernelSource):
        return value
    found = getattr(value, "kernel_source", None)
    if isinstance(found, KernelSource):
        return found
    kind = type(value)
    if kind.__module__.startswith("triton.runtime") and hasattr(value, "fn"):
        inner = value.fn
        return source_of(inner) if not inspect.isfunction(inner) else KernelSource(inner)
    return None
