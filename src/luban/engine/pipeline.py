"""The passes, in order: the only list of them. Each is named, can be left out, and reports its effect."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from luban.core.errors import OptionError
from luban.engine.prepare import compute_once, fold_constants
from luban.graph.ops.control import sub_graphs
from luban.graph.ops.fusion import Fusion, Once
from luban.ir.node import Graph, Node, map_graph, node
from luban.lower.support import no_kernel
from luban.passes.fuse import Decision, fuse

__all__ = ["PASSES", "Pass", "PassReport", "optimise"]

Transform = Callable[[Graph, list[Decision]], Graph]


@dataclass(frozen=True, slots=True)
class Pass:
    """One step of the pipeline."""

    name: str
    doc: str
    apply: Transform


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass did to one graph."""

    name: str
    graph: str
    nodes_before: int
    nodes_after: int
    decisions: tuple[Decision, ...]


def _fuse(graph: Graph, decisions: list[Decision]) -> Graph:
    fused, taken = fuse(graph, no_kernel)
    decisions.extend(taken)
    return fused


def _fold(graph: Graph, decisions: list[Decision]) -> Graph:
    del decisions
    return fold_constants(graph)[0]


def _once(graph: Graph, decisions: list[Decision]) -> Graph:
    del decisions
    return compute_once(graph)[0]


PASSES: tuple[Pass, ...] = (
    Pass("fold", "small results of constants become constants", _fold),
    Pass("once", "large results of constants are computed once, at load", _once),
    Pass("fuse", "one kernel for neighbouring operations", _fuse),
)


def optimise(graph: Graph, without: Collection[str] = ()) -> tuple[Graph, list[PassReport]]:
    """Run the passes over a graph and its sub-graphs. Raises OptionError for an unknown pass name."""
    unknown = set(without) - {p.name for p in PASSES}
    if unknown:
        raise OptionError(
            f"unknown pass {', '.join(sorted(unknown))}",
            hint="the passes are " + ", ".join(p.name for p in PASSES),
        )
    reports: list[PassReport] = []
    for each in PASSES:
        if each.name not in without:
            graph = _apply(each, graph, reports)
    return graph, reports


def _apply(each: Pass, graph: Graph, reports: list[PassReport]) -> Graph:
    def inside(old: Node, operands: tuple[Node, ...]) -> Node:
        inner = {} if isinstance(old.op, (Fusion, Once)) else sub_graphs(old.op)
        if not inner:
            return old if operands == old.operands else node(old.op, *operands, loc=old.loc)
        new = {name: _apply(each, sub, reports) for name, sub in inner.items()}
        return node(replace(old.op, **new), *operands, loc=old.loc)  # type: ignore[arg-type]

    graph = map_graph(graph, inside)
    decisions: list[Decision] = []
    before = len(graph.nodes())
    result = each.apply(graph, decisions)
    reports.append(PassReport(each.name, graph.name, before, len(result.nodes()), tuple(decisions)))
    return result
