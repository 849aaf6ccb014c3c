"""Which symbols a node needs and settles, and the order of execution that follows.

A size that is known only once a node has run (a count of non-zeros, the trips of a loop) orders
nodes as an operand does, though no operand says so: `dimension_size(count)` has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.types import OptionalType, SequenceType, TensorType, TupleType, Type
from luban.graph.ops.control import If, Loop, sub_graphs
from luban.graph.ops.data import DimensionSize, HostCall, Nonzero
from luban.graph.ops.reduce import TopK
from luban.graph.ops.structure import DynamicReshape
from luban.ir.node import Graph, Node, Op, attributes

__all__ = [
    "execution_order",
    "attribute_symbols",
    "needed_symbols",
    "settled_symbols",
    "settlers",
    "type_symbols",
]


def type_symbols(type_: Type) -> frozenset[str]:
    """The names of all symbols in a type.

    >>> from luban.core.types import tensor
    >>> sorted(type_symbols(tensor("f32", "a", "2*b")))
    ['a', 'b']
    """
    match type_:
        case TensorType():
            return _names(type_.shape)
        case TupleType():
            return frozenset().union(*map(type_symbols, type_.items))
        case SequenceType() | OptionalType():
            return type_symbols(type_.item)


def settled_symbols(node: Node) -> frozenset[str]:
    """The symbols that are known once this node has run: counts, trips and other run-time sizes."""
    match node.op:
        case Nonzero() | DynamicReshape() | If() | Loop() | HostCall():
            return type_symbols(node.type)
        case TopK() if len(node.operands) == 2:
            return _names((node.op.k,))
    return frozenset()


def _names(shape: Iterable[DimLike]) -> frozenset[str]:
    return frozenset(symbol.name for size in shape for symbol in dims.symbols(size))


def attribute_symbols(op: Op) -> frozenset[str]:
    """Symbols in an op's own sizes: the starts of a slice need not show in its type."""
    if isinstance(op, DimensionSize):
        return _names((op.size,))
    found: set[str] = set()
    for value in attributes(op).values():
        if isinstance(value, tuple):
            found |= _names(v for v in value if isinstance(v, dims.Dim))
    return frozenset(found)


def needed_symbols(node: Node) -> frozenset[str]:
    """The symbols that must have sizes before the node runs, those of its sub-graphs included."""
    needed = type_symbols(node.type) | attribute_symbols(node.op)
    for graph in sub_graphs(node.op).values():
        for inner in graph.nodes():
            needed |= needed_symbols(inner)
    return needed - settled_symbols(node)


def execution_order(graph: Graph) -> list[Node]:
    """Every node that a result needs, after its operands and after the nodes that settle its sizes.

    A node that settles a symbol which nothing else needs still runs only if a result needs it.
    """
    plain = graph.nodes()
    before = settlers(graph)
    return _ordered(graph.results, before) if before else plain


def settlers(graph: Graph) -> dict[Node, list[Node]]:
    """For each node the nodes that settle sizes it needs, if there are any besides operands."""
    plain = graph.nodes()
    found: dict[str, Node] = {}
    bound = frozenset[str]().union(*(type_symbols(p.type) for p in graph.parameters))
    for n in plain:
        for name in settled_symbols(n) - bound:
            found.setdefault(name, n)
    if not found:
        return {}
    before = {n: [found[name] for name in sorted(needed_symbols(n) & found.keys())] for n in plain}
    return {n: rows for n, rows in before.items() if rows}


def _ordered(roots: Iterable[Node], before: dict[Node, list[Node]]) -> list[Node]:
    def earlier(n: Node) -> Iterator[Node]:
        return iter((*n.operands, *before.get(n, ())))

    order: list[Node] = []
    seen: set[Node] = set()
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        stack: list[tuple[Node, Iterator[Node]]] = [(root, earlier(root))]
        while stack:
            current, rest = stack[-1]
            following = next((n for n in rest if n not in seen), None)
            if following is None:
                order.append(current)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, earlier(following)))
    return order
