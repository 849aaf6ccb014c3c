"""Control flow whose bodies are kernels only: it runs without Python. Why some does not.

See docs/adr/0022-native-control-flow.md.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace

from luban.core import dims
from luban.core.types import TensorType, Type
from luban.engine.steps import Branch, Control, HostStep, Program, Recurrence, Repeat, Value
from luban.graph.ops.control import If, Loop, Scan, sub_graphs
from luban.graph.ops.fusion import Fusion
from luban.graph.ops.structure import Reshape
from luban.ir.node import GetItem, Graph, Node, Parameter, map_graph, node, rebuilt

__all__ = ["control_nodes", "control_step", "separate_results", "why_not_native"]


def control_nodes(graph: Graph) -> list[Node]:
    """The nodes of control flow in a graph, without those in its sub-graphs."""
    return [n for n in graph.nodes() if isinstance(n.op, (If, Loop, Scan))]


def separate_results(graph: Graph) -> Graph:
    """Give each result of a body a kernel of its own that makes it, by a copy where need be.

    A new state that is also stacked, or is the old state or a constant, has no place of its own.
    """

    def inside(old: Node, operands: tuple[Node, ...]) -> Node:
        if not isinstance(old.op, (If, Loop, Scan)):
            return rebuilt(old, operands)
        if isinstance(old.op, If):
            then, otherwise = _separated(old.op.then), _separated(old.op.otherwise)
            return node(replace(old.op, then=then, otherwise=otherwise), *operands, loc=old.loc)
        return node(replace(old.op, body=_separated(old.op.body)), *operands, loc=old.loc)

    return map_graph(graph, inside)


def _separated(body: Graph) -> Graph:
    results: list[Node] = []
    taken: set[Node] = set()
    for result in body.results:
        root = _root(result)
        made = root.operands[0] if isinstance(root.op, GetItem) else root
        if root in taken or not isinstance(made.op, Fusion):
            if not isinstance(result.type, TensorType):
                return body
            result = root = _copy_of(result)
            while root in taken:  # equal copies are one node: copy the copy
                result = root = _copy_of(result)
        taken.add(root)
        results.append(result)
    return Graph(body.name, body.parameters, tuple(results), body.result_names)


def _root(n: Node) -> Node:
    while isinstance(n.op, Reshape):
        n = n.operands[0]
    return n


def _copy_of(value: Node) -> Node:
    """A kernel that copies a value into memory of its own."""
    return node(Fusion("loop", _copy_body(value.type)), value, loc=value.loc)


@functools.cache
def _copy_body(type_: Type) -> Graph:
    source = node(Parameter("x0", type_))
    return Graph("copy", (source,), (source,))


def why_not_native(n: Node, bodies: Mapping[Graph, Program], known: frozenset[str]) -> str | None:
    """Why control flow is driven from Python, or None if its bodies can be part of the program.

    known   the symbols that have sizes before it runs
    """
    op = n.op
    if isinstance(op, Scan) and any((*op.scan_axes, *op.stack_axes)):
        return "it runs along an axis that is not the first"
    for name, graph in sub_graphs(op).items():
        body = bodies.get(graph)
        if body is None:
            return f"its {name} is not compiled"
        why = _why_not_inside(name, body)
        if why is not None:
            return why
    if not _types_agree(n) or (isinstance(op, Loop) and not _trips_are_plain(op, known)):
        return "sizes of its body are known in each turn only"
    return None


def _why_not_inside(name: str, body: Program) -> str | None:
    for step in body.steps:
        if isinstance(step, HostStep):
            what = getattr(step.node.op, "function", step.node.op.name)
            return f"its {name} has a step on the host: {what}"
        if isinstance(step, Repeat) and step.trips is not None:
            return f"its {name} has a loop whose number of turns sizes depend on"
    roots = [value.root for value in body.outputs]
    if len(set(roots)) < len(roots) or any(root.origin != "launch" for root in roots):
        return f"a result of its {name} has no memory of its own"
    return None


def _types_agree(n: Node) -> bool:
    """True if the bodies' types are those of operands and results, symbol for symbol."""
    op = n.op
    given = [o.type for o in n.operands]
    match op:
        case If():
            return all(
                _types(branch.parameters) == given[1:]
                and _types(branch.results) == list(op.result_types)
                for branch in (op.then, op.otherwise)
            )
        case Loop():
            carried = given[2 : 2 + op.num_carried]
            rows = [_row(t) for t in op.result_types[op.num_carried :]]
            return (
                _types(op.body.parameters)[2:] == given[2:]
                and _types(op.body.results)[1:] == [*carried, *rows]
                and list(op.result_types[: op.num_carried]) == carried
            )
        case Scan():
            stop = op.num_carried + len(op.scan_axes)
            slices = [_row(t) for t in given[op.num_carried : stop]]
            expected = [*given[: op.num_carried], *slices, *given[stop:]]
            carried = _types(op.body.results)[: op.num_carried]
            return _types(op.body.parameters) == expected and carried == given[: op.num_carried]
    return False


def _types(nodes: Iterable[Node]) -> list[Type]:
    return [n.type for n in nodes]


def _row(type_: Type) -> Type | None:
    """The type without its first axis."""
    return type_.with_shape(type_.shape[1:]) if isinstance(type_, TensorType) else None


def _trips_are_plain(op: Loop, known: frozenset[str]) -> bool:
    """True if all stacks have one length: a symbol of its own, or a size known before."""
    lengths = {t.shape[0] for t in op.result_types[op.num_carried :] if isinstance(t, TensorType)}
    name = _open_trips(op, known)
    return len(lengths) <= 1 and (name is None or lengths == {dims.symbol(name)})


def control_step(
    n: Node,
    bodies: Mapping[Graph, Program],
    operands: tuple[Value, ...],
    results: tuple[Value, ...],
    known: frozenset[str],
) -> Control:
    """The step of a node that `why_not_native` has nothing against.

    known   the symbols that have sizes before it runs
    """
    op = n.op
    match op:
        case If():
            return Branch(n, bodies[op.then], bodies[op.otherwise], operands, results)
        case Scan():
            return Recurrence(
                n,
                bodies[op.body],
                op.num_carried,
                op.scan_reverse,
                op.stack_reverse,
                operands,
                results,
            )
    assert isinstance(op, Loop)
    trips = _open_trips(op, known)
    return Repeat(n, bodies[op.body], op.num_carried, operands, results, trips)


def _open_trips(op: Loop, known: frozenset[str]) -> str | None:
    """The symbol of a stack's length that nothing before the loop has settled."""
    for type_ in op.result_types[op.num_carried :]:
        assert isinstance(type_, TensorType)
        names = {symbol.name for symbol in dims.symbols(type_.shape[0])} - known
        if names:
            return min(names)
    return None
