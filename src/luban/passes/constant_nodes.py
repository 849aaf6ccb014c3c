"""Which nodes depend on constants only: what can be computed once, wherever it stands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from luban.core.types import TensorType
from luban.graph.ops.control import sub_graphs
from luban.graph.ops.data import Constant, DimensionSize, HostCall, Iota, RandomBits
from luban.ir.node import GetItem, Node, Parameter

__all__ = ["SOURCES", "constant_nodes"]

SOURCES: Final = (Constant, Iota)
_NEVER = (Parameter, DimensionSize, HostCall, RandomBits)


def constant_nodes(order: Iterable[Node]) -> set[Node]:
    """Nodes of a graph in order whose value depends on constants only; their types are static."""
    fixed: set[Node] = set()
    for n in order:
        if isinstance(n.op, SOURCES) and (isinstance(n.op, Constant) or n.tensor.is_static):
            fixed.add(n)
        elif isinstance(n.op, _NEVER) or sub_graphs(n.op) or not n.operands:
            continue
        elif all(o in fixed for o in n.operands) and (
            isinstance(n.op, GetItem) or not isinstance(n.type, TensorType) or n.type.is_static
        ):
            fixed.add(n)
    return fixed
