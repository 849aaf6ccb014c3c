"""The verifier of graphs: what every pass must leave true.

Each type is what its op infers; names are unique; every graph and sub-graph is closed; every symbol
is settled by a parameter or by the node that brings it in.
"""

from __future__ import annotations

from luban.core.errors import CheckError, LubanError
from luban.graph.ops.control import sub_graphs
from luban.graph.order import attribute_symbols, settled_symbols, type_symbols
from luban.ir.node import Graph, Node, Parameter

__all__ = ["verify"]


def verify(graph: Graph) -> None:
    """Check a graph and its sub-graphs. Raises CheckError that names the graph and the node.

    >>> from luban.core.types import tensor
    >>> from luban.graph import build
    >>> x, y = (build.parameter(label, tensor("f32", 2)) for label in "xy")
    >>> verify(Graph("open", (x,), (build.add(x, y),)))
    Traceback (most recent call last):
    luban.core.errors.CheckError: graph open: parameter 'y' is used but not declared
    hint: pass it in as a parameter
    """
    _verify(graph, frozenset())


def _verify(graph: Graph, outer: frozenset[str]) -> None:
    _verify_names(graph)
    declared = set(graph.parameters)
    known = outer.union(*(type_symbols(p.type) for p in graph.parameters))
    order = graph.nodes()
    # Any node of the graph may settle a size: the execution order puts it before its users.
    known = known.union(*map(settled_symbols, order))
    for node in order:
        if isinstance(node.op, Parameter) and node not in declared:
            raise CheckError(
                f"graph {graph.name}: parameter {node.op.label!r} is used but not declared",
                hint="pass it in as a parameter",
                loc=node.loc,
            )
        _verify_type(graph, node)
        unknown = (type_symbols(node.type) | attribute_symbols(node.op)) - known
        if unknown:
            raise CheckError(
                f"graph {graph.name}: {node.op.name} of type {node.type} uses "
                f"{', '.join(sorted(unknown))}, which no parameter or node settles",
                hint="known: " + ", ".join(sorted(known)),
                loc=node.loc,
            )
        for sub_graph in sub_graphs(node.op).values():
            _verify(sub_graph, known)


def _verify_names(graph: Graph) -> None:
    for kind, names in (("parameter", graph.parameter_names), ("result", graph.result_names)):
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise CheckError(f"graph {graph.name}: {kind} names repeat: {', '.join(repeated)}")
    for parameter in graph.parameters:
        if not isinstance(parameter.op, Parameter):
            raise CheckError(
                f"graph {graph.name}: {parameter.op.name} stands among the parameters",
                loc=parameter.loc,
            )


def _verify_type(graph: Graph, node: Node) -> None:
    try:
        inferred = node.op.infer(*(operand.type for operand in node.operands))
    except LubanError as error:
        raise CheckError(
            f"graph {graph.name}: {node.op.name} does not fit its operands: {error.message}",
            loc=node.loc,
        ) from error
    if inferred != node.type:
        raise CheckError(
            f"graph {graph.name}: {node.op.name} has type {node.type}, expected {inferred}",
            loc=node.loc,
        )
