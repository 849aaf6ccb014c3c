"""Values that a loop carries but never changes: captured instead; constants move into the body.

Converters of other frameworks carry everything a loop reads, weights included. Carried, a weight is
copied every turn and cannot be packed; as a constant of the body it is packed once, at load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from luban.graph.ops.control import Loop, Scan
from luban.graph.ops.data import Constant
from luban.ir.node import GetItem, Graph, Node, map_graph, node, rebuilt
from luban.passes.decision import Decision

__all__ = ["move_invariants"]


@dataclass(frozen=True, slots=True)
class _Moved:
    """What became of the results of a loop: for each old index the start value or the new index."""

    results: tuple[Node | int, ...]


def move_invariants(graph: Graph) -> tuple[Graph, list[Decision]]:
    """The graph with loops that carry only what they change. Sub-graphs are left to the caller."""
    decisions: list[Decision] = []
    moved: dict[Node, _Moved] = {}

    def build(old: Node, operands: tuple[Node, ...]) -> Node:
        if isinstance(old.op, GetItem) and old.operands[0] in moved:
            found = moved[old.operands[0]].results[old.op.index]
            return node(GetItem(found), operands[0]) if isinstance(found, int) else found
        if not isinstance(old.op, (Loop, Scan)):
            return rebuilt(old, operands)
        same = _invariants(old)
        if not same:
            return rebuilt(old, operands)
        decisions.append(Decision(old, True, f"{len(same)} carried values never change"))
        new, moved[old] = _without(old, operands, same)
        return new

    return map_graph(graph, build), decisions


def _layout(op: Loop | Scan) -> tuple[int, int]:
    """(parameters before the carried ones, results before the carried ones) of a body."""
    return (2, 1) if isinstance(op, Loop) else (0, 0)


def _invariants(loop: Node) -> list[int]:
    """Which carried values the body hands on as they are."""
    op = loop.op
    assert isinstance(op, (Loop, Scan))
    before, results_before = _layout(op)
    found: list[int] = []
    for number in range(op.num_carried):
        parameter = op.body.parameters[before + number]
        start = loop.operands[before + number]
        unchanged = op.body.results[results_before + number] is parameter
        if unchanged and start.type == parameter.type:
            found.append(number)
    return found


def _without(old: Node, operands: tuple[Node, ...], same: Sequence[int]) -> tuple[Node, _Moved]:
    op = old.op
    assert isinstance(op, (Loop, Scan))
    before, results_before = _layout(op)
    body = op.body
    carried = [number for number in range(op.num_carried) if number not in same]
    starts = {number: operands[before + number] for number in same}
    captured = [number for number in same if not isinstance(starts[number].op, Constant)]
    constants = {
        body.parameters[before + number]: starts[number]
        for number in same
        if number not in captured
    }
    stop = before + op.num_carried
    kept = [*range(before), *(before + number for number in carried)]
    places = [*kept, *range(stop, len(operands)), *(before + number for number in captured)]
    results = [
        *range(results_before),
        *(results_before + number for number in carried),
        *range(results_before + op.num_carried, len(body.results)),
    ]
    mapped = map_graph(body, rebuilt, constants)
    new_body = Graph(
        body.name,
        tuple(body.parameters[place] for place in places),
        tuple(mapped.results[place] for place in results),
    )
    new_op: Loop | Scan
    if isinstance(op, Loop):
        types = tuple(op.result_types[place - results_before] for place in results[results_before:])
        new_op = Loop(new_body, len(carried), types)
    else:
        new_op = replace(op, body=new_body, num_carried=len(carried))
    new = node(new_op, *(operands[place] for place in places), loc=old.loc)
    index = {place - results_before: i for i, place in enumerate(results[results_before:])}
    count = len(body.results) - results_before
    moved = tuple(starts[i] if i in starts else index[i] for i in range(count))
    return new, _Moved(moved)
