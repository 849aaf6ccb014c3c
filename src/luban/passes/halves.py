"""Convolutions of f16 and bf16 as those of f32, with the conversions in the kernels around them.

Half precision accumulates in f32 anyway, so only the result is rounded. In the open, the
conversions become part of the kernels before and after (padding, activations), weights are
converted once, at load, and every kernel of f32 convolutions serves halves, too.
"""

from __future__ import annotations

from dataclasses import replace

from luban.core.dtypes import DTYPES
from luban.graph import build
from luban.graph.ops.contract import Convolution
from luban.ir.node import Graph, Node, map_graph, node, rebuilt
from luban.passes.decision import Decision

__all__ = ["wide_convolutions"]

_HALVES = ("f16", "bf16")


def wide_convolutions(graph: Graph) -> tuple[Graph, list[Decision]]:
    """The graph without convolutions of halves, and the decisions taken."""
    decisions: list[Decision] = []

    def change(old: Node, operands: tuple[Node, ...]) -> Node:
        if not isinstance(old.op, Convolution) or operands[0].tensor.dtype.name not in _HALVES:
            return rebuilt(old, operands)
        decisions.append(Decision(old, True, "computed in f32, rounded once at the end"))
        wide = (build.cast(operand, "f32") for operand in operands)
        sums = node(replace(old.op, dtype=DTYPES["f32"]), *wide, loc=old.loc)
        return build.cast(sums, old.op.dtype)

    return map_graph(graph, change), decisions
