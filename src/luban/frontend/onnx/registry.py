"""Which Python function turns which ONNX operator into graph nodes.

A handler takes a `NodeContext` and the node's inputs (None for one left out in between, absent at
the end) and gives its result, or a tuple of results. It is registered for a version of the operator
set and serves until a later one that is registered too:

    @op("Relu", since=6)
    def relu(ctx: NodeContext, x: Node) -> Node:
        return build.maximum(x, 0)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from luban.frontend.onnx.context import NodeContext, RunTimeValueNeeded
from luban.ir.node import Node

__all__ = ["Handler", "NodeContext", "RunTimeValueNeeded", "find", "op", "supported_versions"]

Handler = Callable[..., Node | tuple[Node, ...]]

_HANDLERS: dict[tuple[str, str], dict[int, Handler]] = {}


def op(*names: str, since: int = 1, domain: str = "") -> Callable[[Any], Any]:
    """Register the handler of some operators from a version of their operator set on.

    Raises TypeError if there is one already.
    """

    def register(handler: Handler) -> Handler:
        for name in names:
            versions = _HANDLERS.setdefault((domain, name), {})
            if since in versions:
                raise TypeError(f"{domain or 'ai.onnx'}.{name} version {since} has two handlers")
            versions[since] = handler
        return handler

    return register


def find(domain: str, name: str, opset: int) -> Handler | None:
    """The handler for an operator at a version of its operator set; None if there is none.

    >>> find("", "NoSuchOperator", 21) is None
    True
    """
    versions = _HANDLERS.get((domain, name), {})
    fitting = [since for since in versions if since <= opset]
    return versions[max(fitting)] if fitting else None


def supported_versions(domain: str, name: str) -> tuple[int, ...]:
    """The versions that have a handler of their own, ascending."""
    return tuple(sorted(_HANDLERS.get((domain, name), {})))


def names(domain: str) -> tuple[str, ...]:
    """Every operator of a domain that has a handler, sorted."""
    return tuple(sorted(name for d, name in _HANDLERS if d == domain))
