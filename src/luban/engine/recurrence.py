"""Scans whose bodies are kernels only: what makes them run without Python, and why some do not."""

from __future__ import annotations

import functools
from dataclasses import replace

from luban.core.types import TensorType, Type
from luban.engine.steps import Launch, Program
from luban.graph.ops.control import Scan
from luban.graph.ops.fusion import Fusion
from luban.graph.ops.structure import Reshape
from luban.ir.node import GetItem, Graph, Node, Parameter, map_graph, node, rebuilt

__all__ = ["copy_of", "copies_for", "scans_of", "separate_results", "why_not_native"]


def copy_of(value: Node) -> Node:
    """A kernel that copies a value into memory of its own."""
    return node(Fusion("loop", _copy_body(value.type)), value, loc=value.loc)


@functools.cache
def _copy_body(type_: Type) -> Graph:
    source = node(Parameter("x0", type_))
    return Graph("copy", (source,), (source,))


def copies_for(scan: Node) -> tuple[Node, ...]:
    """A kernel for each carried value of a scan that copies its start, for scans of no turns."""
    assert isinstance(scan.op, Scan)
    starts = scan.operands[: scan.op.num_carried]
    return tuple(copy_of(node(Parameter("start", start.type))) for start in starts)


def scans_of(graph: Graph) -> list[Node]:
    """The scans of a graph over tensors along first axes: those that may run natively."""
    return [n for n in graph.nodes() if isinstance(n.op, Scan) and _along_first_axes(n.op)]


def _along_first_axes(op: Scan) -> bool:
    return not any((*op.scan_axes, *op.stack_axes))


def separate_results(graph: Graph) -> Graph:
    """Give each result of a scan's body a kernel of its own that makes it, by a copy where need be.

    A new state that is also stacked, or is the old state or a constant, has no place of its own.
    """

    def inside(old: Node, operands: tuple[Node, ...]) -> Node:
        if not isinstance(old.op, Scan) or not _along_first_axes(old.op):
            return rebuilt(old, operands)
        body = _separated(old.op.body)
        return node(replace(old.op, body=body), *operands, loc=old.loc)

    return map_graph(graph, inside)


def _separated(body: Graph) -> Graph:
    results: list[Node] = []
    taken: set[Node] = set()
    for result in body.results:
        root = result
        while isinstance(root.op, Reshape):
            root = root.operands[0]
        made = root.operands[0] if isinstance(root.op, GetItem) else root
        if root in taken or not isinstance(made.op, Fusion):
            result = root = copy_of(result)
            while root in taken:  # equal copies are one node: copy the copy
                result = root = copy_of(result)
        taken.add(root)
        results.append(result)
    return Graph(body.name, body.parameters, tuple(results), body.result_names)


def why_not_native(scan: Node, body: Program) -> str | None:
    """Why a scan is driven from Python, or None if its turns can be written out."""
    op = scan.op
    assert isinstance(op, Scan)
    if not _along_first_axes(op):
        return "it runs along an axis that is not the first"
    for step in body.steps:
        if not isinstance(step, Launch):
            return f"its body has a step on the host: {step.node.op.name if step.node else '?'}"
    roots = [value.root for value in body.outputs]
    if len(set(roots)) < len(roots) or any(root.origin != "launch" for root in roots):
        return "a result of its body has no memory of its own"
    if not _types_agree(scan):
        return "sizes of its body are known in each turn only"
    return None


def _types_agree(scan: Node) -> bool:
    """True if the body's types are those of the operands' slices, symbol for symbol."""
    op = scan.op
    assert isinstance(op, Scan)
    expected: list[Type] = [o.type for o in scan.operands]
    for number in range(op.num_carried, op.num_carried + len(op.scan_axes)):
        given = expected[number]
        if not isinstance(given, TensorType):
            return False
        expected[number] = given.with_shape(given.shape[1:])
    carried = tuple(r.type for r in op.body.results[: op.num_carried])
    same = [p.type for p in op.body.parameters] == expected
    return same and list(carried) == expected[: op.num_carried]
