"""The nodes that an artifact holds: of host steps, and of what control flow names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luban.core.types import Type
from luban.graph.host import host_function
from luban.graph.ops.data import HostCall
from luban.ir.node import Graph, Node, Op, Parameter, node

__all__ = ["alone", "flat", "host_modules", "restored", "stand_in"]


def host_modules(op: Op) -> set[str]:
    """The module that registers the host function of a `host_call`: it must be loaded to run."""
    if not isinstance(op, HostCall):
        return set()
    return {str(host_function(op.function).__module__)}


def flat(graph: Graph) -> tuple[Any, ...]:
    """A graph as a list, as its nodes are nested deeper than a pickle may be."""
    number = {n: i for i, n in enumerate(dict.fromkeys((*graph.parameters, *graph.nodes())))}
    rows = [(n.op, [number[operand] for operand in n.operands], n.loc) for n in number]
    parameters, results = ([number[n] for n in g] for g in (graph.parameters, graph.results))
    return graph.name, rows, parameters, results, graph.result_names


def stand_in(
    parameters: Sequence[Type],
    results: Sequence[Type],
    name: str,
    parameter_names: Sequence[str],
    result_names: tuple[str, ...],
) -> Graph:
    """A graph with the types of one that is compiled: its program runs in its place."""
    labelled = zip(parameter_names, parameters, strict=True)
    return Graph(
        name,
        tuple(node(Parameter(label, type_)) for label, type_ in labelled),
        tuple(node(Parameter(f"result_{i}", type_)) for i, type_ in enumerate(results)),
        result_names,
    )


def alone(op: Op, operands: Sequence[Type], loc: Any) -> Node:
    """A node on operands of which only the types matter."""
    given = (node(Parameter(f"operand_{i}", type_)) for i, type_ in enumerate(operands))
    return node(op, *given, loc=loc)


def restored(
    name: str,
    rows: Sequence[tuple[Op, Sequence[int], Any]],
    parameters: Sequence[int],
    results: Sequence[int],
    result_names: tuple[str, ...],
) -> Graph:
    """The graph that `flat` took apart."""
    nodes: list[Node] = []
    for op, operands, loc in rows:
        nodes.append(node(op, *(nodes[i] for i in operands), loc=loc))
    return Graph(
        name,
        tuple(nodes[i] for i in parameters),
        tuple(nodes[i] for i in results),
        result_names,
    )
