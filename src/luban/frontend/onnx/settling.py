"""Keeps alive what only a size depends on.

`Shape(NonZero(x))` needs the count alone: no operand leads from it to the node that settles the
count. A result is then made to depend on that node, through a host step that passes its last
operand on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from luban.graph.host import host
from luban.graph.ops.data import HostCall
from luban.graph.order import needed_symbols, settled_symbols, type_symbols
from luban.ir.node import Node, node, topological

__all__ = ["with_settlers"]

_STEP = "after_sizes_are_settled"


@host(_STEP)
def after_sizes_are_settled(_options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """The last operand; the others only have to run before."""
    return (values[-1],)


def with_settlers(
    results: Sequence[Node], parameters: Iterable[Node], made: Sequence[Node]
) -> tuple[Node, ...]:
    """The results, reaching every node of `made` that settles a size which they need."""
    settlers: dict[str, Node] = {}
    for n in topological(made):
        for name in settled_symbols(n):
            settlers.setdefault(name, n)
    found = list(results)
    bound = frozenset[str]().union(*(type_symbols(p.type) for p in parameters))
    while found and settlers:
        order = topological(found)
        needed = frozenset[str]().union(*map(needed_symbols, order))
        missing = needed - bound - frozenset[str]().union(*map(settled_symbols, order))
        extra = dict.fromkeys(settlers[name] for name in sorted(missing) if name in settlers)
        if not extra:
            break
        found[0] = node(HostCall(_STEP, (), (found[0].type,)), *extra, found[0])
    return tuple(found)
