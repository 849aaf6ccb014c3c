"""Host functions: Python code behind `host_call` nodes, one file a family.

A host function takes the node's options and operand values and gives its results as a tuple.
Values are numpy arrays, lists (sequences), and None or a value (optionals). Each family file
registers its functions with `@host("name")`; the files are imported when a name is first asked for
that nobody has registered yet, so a saved program finds its functions without the front end.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, TypeAlias

from luban.core.errors import InternalError

__all__ = ["HOST", "HostFunction", "host", "host_function"]

HostFunction: TypeAlias = Callable[[dict[str, Any], list[Any]], tuple[Any, ...]]

HOST: dict[str, HostFunction] = {}


def host(name: str) -> Callable[[HostFunction], HostFunction]:
    """Register a host function under a name. Raises InternalError if the name is taken.

    >>> @host("doc_example_join")
    ... def join(options, values):
    ...     return (options["separator"].join(values[0]),)
    >>> host_function("doc_example_join")({"separator": "-"}, [["a", "b"]])
    ('a-b',)
    >>> _ = HOST.pop("doc_example_join")
    """

    def register(function: HostFunction) -> HostFunction:
        if name in HOST:
            raise InternalError(f"two host functions are called {name!r}")
        HOST[name] = function
        return function

    return register


def host_function(name: str) -> HostFunction:
    """The host function of this name. Raises InternalError if no family registers it."""
    if name not in HOST:
        for module in pkgutil.iter_modules(__path__, f"{__name__}."):
            importlib.import_module(module.name)
    found = HOST.get(name)
    if found is None:
        raise InternalError(f"no host function {name!r}: add it to a file in graph/host/")
    return found
