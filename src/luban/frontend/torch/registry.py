"""Which Python function turns which ATen operator into graph nodes.

A handler takes a `Call` and the operator's arguments by position and name, as PyTorch's schema has
them: tensors as nodes, integers as dimensions, all else as it is. It gives a node, or a tuple of
nodes for several results:

    @aten("relu.default")
    def relu(call: Call, x: Node) -> Node:
        return build.maximum(x, 0)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from luban.frontend.torch.call import Call
from luban.ir.node import Node

__all__ = ["Call", "Handler", "aten", "find", "names"]

Handler = Callable[..., Node | tuple[Node | None, ...]]
H = TypeVar("H", bound=Callable[..., Any])

_HANDLERS: dict[str, Handler] = {}


def aten(*overloads: str) -> Callable[[H], H]:
    """Register the handler of some overloads, such as `add.Tensor`; TypeError if there is one."""

    def register(handler: H) -> H:
        for name in overloads:
            if name in _HANDLERS:
                raise TypeError(f"{name} has two handlers")
            _HANDLERS[name] = handler
        return handler

    return register


def find(name: str) -> Handler | None:
    """The handler of an overload; None if there is none.

    >>> find("no_such_operator.default") is None
    True
    """
    return _HANDLERS.get(name)


def names() -> tuple[str, ...]:
    """Every overload that has a handler, sorted."""
    return tuple(sorted(_HANDLERS))
