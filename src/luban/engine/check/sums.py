"""How much the order of summation may cost: the part of the bound that knows reduction lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod, sqrt
from typing import Any

import numpy as np

from luban.core import dims
from luban.core.errors import LubanError
from luban.graph import build
from luban.graph.evaluate import evaluate_node
from luban.graph.ops.coded import CodedDot, PanelCodedDot, coded_depth
from luban.graph.ops.contract import Convolution, DotGeneral
from luban.graph.ops.control import sub_graphs
from luban.graph.ops.fusion import Fusion
from luban.graph.ops.packed import PanelConvolution, PanelDot, panel_depth
from luban.graph.ops.reduce import Cumulative, Reduce, ReduceWindow
from luban.graph.ops.winograd import WinogradConvolution
from luban.ir.node import Graph, Node, node

__all__ = ["longest_sum", "sums_of_graph", "sums_of_step"]

_UNIT = 2.0**-24  # half an ulp of 1 in f32, the narrowest accumulator
_PRODUCTS = (DotGeneral, Convolution, PanelDot, PanelConvolution)


def length(n: Node, sizes: dict[str, int]) -> int:
    """How many terms one element of a summing node has; 1 for all others."""
    op = n.op
    try:
        match op:
            case DotGeneral():
                shape = n.operands[0].tensor.shape
                return prod(dims.evaluate(shape[axis], sizes) for axis in op.lhs_contract)
            case Convolution(layout="channels_first"):
                return prod(dims.evaluate(s, sizes) for s in n.operands[1].tensor.shape[1:])
            case Convolution():
                return prod(dims.evaluate(s, sizes) for s in n.operands[1].tensor.shape[:-1])
            case PanelDot() | PanelConvolution():
                return dims.evaluate(panel_depth(n), sizes)
            case CodedDot() | PanelCodedDot():
                return dims.evaluate(coded_depth(n), sizes)
            case WinogradConvolution():  # at each pair of points
                return dims.evaluate(n.operands[0].tensor.shape[-1], sizes)
            case Reduce(kind="sum"):
                shape = n.operands[0].tensor.shape
                return prod(dims.evaluate(shape[axis], sizes) for axis in op.axes)
            case ReduceWindow(kind="sum"):
                return prod(op.window)
            case Cumulative(kind="sum"):
                return dims.evaluate(n.operands[0].tensor.shape[op.axis], sizes)
    except LubanError:  # a size that only the run knows: the plain evaluation alone has to do
        return 1
    return 1


def longest_sum(graph: Graph, sizes: dict[str, int]) -> int:
    """The most terms of any float sum in a graph and its sub-graphs."""
    longest = 1
    stack = [graph]
    while stack:
        for n in stack.pop().nodes():
            stack.extend(sub_graphs(n.op).values())
            longest = max(longest, length(n, sizes))
    return longest


def sums_of_graph(graph: Graph, sizes: dict[str, int], exact: Any) -> float:
    """For values that a whole graph computes: the longest sum, at the size of the values."""
    return _UNIT * sqrt(longest_sum(graph, sizes)) * _largest(exact)


def sums_of_step(n: Node, operands: Sequence[Any], sizes: dict[str, int], exact: Any) -> float:
    """For the results of one step: every float sum in it, from its terms' magnitudes."""
    if not isinstance(n.op, Fusion):
        inner = sub_graphs(n.op).values()
        longest = max((longest_sum(g, sizes) for g in inner), default=length(n, sizes))
        return _UNIT * sqrt(longest) * _largest(exact)
    body = n.op.body
    summing = [m for m in body.nodes() if length(m, sizes) > 1 and m.tensor.dtype.is_float]
    if not summing:
        return 0.0
    terms = tuple(_of_magnitudes(m) for m in summing)
    graph = Graph("magnitudes", body.parameters, (*terms, *summing))
    values = evaluate_node(
        node(Fusion("loop", graph), *n.operands), operands, dict(sizes), "float64"
    )
    total = 0.0
    for number, m in enumerate(summing):
        grown = max(1.0, _largest(exact) / max(_largest(values[len(terms) + number]), 1e-300))
        total += _UNIT * sqrt(length(m, sizes)) * _largest(values[number]) * grown
    return total


def _of_magnitudes(m: Node) -> Node:
    """The same sum over the absolute values of its terms."""
    operands = [build.absolute(o) if o.tensor.dtype.is_float else o for o in m.operands]
    op = m.op
    return node(
        replace(op, magnitudes=True) if isinstance(op, WinogradConvolution) else op, *operands
    )


def _largest(value: Any) -> float:
    parts = value if isinstance(value, (tuple, list)) else (value,)
    found = 0.0
    for part in parts:
        if isinstance(part, np.ndarray) and part.size and part.dtype.kind == "f":
            finite = part[np.isfinite(part)]
            found = max(found, float(np.max(np.abs(finite), initial=0)))
    return found
