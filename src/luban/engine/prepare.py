"""What depends on constants only is computed once, when a model is loaded.

Small results become constants of the graph (bit for bit what the evaluator gives). Large ones
(packed weights, dequantised tables) become `once` nodes: a program of their own computes them all
before the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from luban.core import dims
from luban.core.dtypes import DTYPES
from luban.core.types import TensorType
from luban.graph import build
from luban.graph.evaluate import evaluate_node
from luban.graph.ops.data import Constant
from luban.graph.ops.fusion import Once
from luban.graph.ops.structure import BroadcastInDim, Reshape
from luban.ir.node import Graph, Node, map_graph, node, rebuilt
from luban.passes.constant_nodes import SOURCES, constant_nodes

__all__ = ["FOLD_BYTES", "compute_once", "fold_constants", "once_bodies", "prepare_graph"]

FOLD_BYTES = 1 << 14  # results up to this size are folded at compile time


def _size_bytes(n: Node) -> int | None:
    if not isinstance(n.type, TensorType) or not n.type.is_static:
        return None
    size = n.type.size_bytes
    return size if isinstance(size, int) else None


def fold_constants(
    graph: Graph, on_fold: Callable[[Node, Node], None] = lambda _old, _new: None
) -> tuple[Graph, int]:
    """(the graph with small constant results computed, how many); not in its sub-graphs."""
    order = graph.nodes()
    fixed = constant_nodes(order)
    folded = 0

    def fold(old: Node, operands: tuple[Node, ...]) -> Node:
        nonlocal folded
        new = rebuilt(old, operands)
        small = _size_bytes(old)
        if old not in fixed or not operands or small is None or small > FOLD_BYTES:
            return new
        if not all(isinstance(o.op, Constant) for o in operands):
            return new
        if sum(_size_bytes(o) or 0 for o in operands) > 1 << 20:
            return new
        values = [o.op.value.array for o in operands if isinstance(o.op, Constant)]
        folded += 1
        result = build.constant(evaluate_node(old, values, {}), old.tensor.dtype)
        on_fold(old, result)
        return result

    return map_graph(graph, fold), folded


def compute_once(graph: Graph) -> tuple[Graph, int]:
    """(the graph with large constant-only work behind `once`, how many values). Broadcasts stay."""
    order = graph.nodes()
    fixed = constant_nodes(order)
    wanted: dict[Node, None] = {}
    for n in order:
        if n not in fixed:
            wanted.update((o, None) for o in n.operands if o in fixed and _worth(o))
    wanted.update((r, None) for r in graph.results if r in fixed and _worth(r))
    if not wanted:
        return graph, 0
    once = {n: node(Once(Graph(f"once_{i}", (), (n,))), loc=n.loc) for i, n in enumerate(wanted)}
    return map_graph(graph, lambda old, new: once.get(old) or rebuilt(old, new)), len(once)


def once_bodies(graphs: Iterable[Graph]) -> list[Graph]:
    """The distinct bodies of all `once` nodes, in order."""
    return list({n.op.body: None for g in graphs for n in g.nodes() if isinstance(n.op, Once)})


def prepare_graph(bodies: Sequence[Graph]) -> Graph:
    """One graph that computes every body: its results are in their order."""
    return Graph("prepare", (), tuple(body.results[0] for body in bodies))


def _worth(n: Node) -> bool:
    """True if keeping the result beats computing it again: it takes work to make."""
    if not isinstance(n.type, TensorType) or n.type.dtype is DTYPES["str"]:
        return False
    current = n
    while isinstance(current.op, (BroadcastInDim, Reshape)):
        current = current.operands[0]
    if isinstance(current.op, SOURCES):
        return False
    return dims.bounds(n.type.num_elements)[1] > 1
