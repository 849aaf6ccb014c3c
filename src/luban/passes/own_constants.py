"""Constants that a body of control flow captures become its own.

Captured, a weight is an operand like any other: it cannot be packed, and what is computed from it
is computed in every turn. As a constant of the body it is worked on once, at load.
"""

from __future__ import annotations

from dataclasses import replace

from luban.graph.ops.control import If, Loop, Scan
from luban.ir.node import Graph, Node, map_graph, node, rebuilt
from luban.passes.constant_nodes import constant_nodes
from luban.passes.decision import Decision

__all__ = ["own_constants"]


def own_constants(graph: Graph) -> tuple[Graph, list[Decision]]:
    """The graph with captured constants moved into the bodies that use them, inner ones too."""
    fixed = constant_nodes(graph.nodes())
    decisions: list[Decision] = []

    def build(old: Node, operands: tuple[Node, ...]) -> Node:
        op = old.op
        if not isinstance(op, (If, Loop, Scan)):
            return rebuilt(old, operands)
        first = _first_captured(op)
        moved = [i for i in range(first, len(operands)) if old.operands[i] in fixed]
        if not moved:
            return rebuilt(old, operands)
        constants = {i: operands[i] for i in moved}
        decisions.append(Decision(old, True, f"{len(moved)} captured constants become its own"))
        rest = [operands[i] for i in range(len(operands)) if i not in constants]
        new: If | Loop | Scan
        if isinstance(op, If):
            inside = {i - 1: x for i, x in constants.items()}  # the predicate is no parameter
            new = replace(
                op, then=_owning(op.then, inside), otherwise=_owning(op.otherwise, inside)
            )
        else:
            new = replace(op, body=_owning(op.body, constants))
        return node(new, *rest, loc=old.loc)

    return map_graph(graph, build), decisions


def _first_captured(op: If | Loop | Scan) -> int:
    """The number of the first operand that goes to the body as it is, in every turn."""
    match op:
        case If():
            return 1
        case Loop():
            return 2 + op.num_carried
        case Scan():
            return op.num_carried + len(op.scan_axes)


def _owning(body: Graph, constants: dict[int, Node]) -> Graph:
    """The body with constants in the place of some parameters, handed on to the bodies inside."""
    mapped = map_graph(body, rebuilt, {body.parameters[i]: x for i, x in constants.items()})
    parameters = [x for i, x in enumerate(mapped.parameters) if i not in constants]
    graph = Graph(body.name, tuple(parameters), mapped.results, body.result_names)
    return own_constants(graph)[0]
