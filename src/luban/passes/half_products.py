"""Products of f32 factors as products of bf16 pairs, where fast numerics allow it.

Runs on products with panels. The left operand is rounded where it is made, before it is moved or
padded, so that the kernel that makes it stores half as much; panels are rounded as they are packed,
at load. Sums stay in f32. The casts stand in the graph, so its meaning says what is rounded.
"""

from __future__ import annotations

from dataclasses import replace

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.dtypes import DTYPES
from luban.core.registers import Registers
from luban.graph import build
from luban.graph.ops.data import Constant
from luban.graph.ops.packed import (
    PackPanels,
    PanelConvolution,
    PanelDot,
    panel_depth,
    product_in_words,
)
from luban.graph.ops.structure import Pad, Reshape, Transpose
from luban.ir.node import Graph, Node, map_graph, node, rebuilt
from luban.passes.constant_nodes import constant_nodes
from luban.passes.decision import Decision
from luban.passes.quads import whole_groups

__all__ = ["GROUP", "half_products"]

GROUP = 2
_HALF = DTYPES["bf16"]
_FEW_COLUMNS = 8  # fewer leave most lanes empty
_SHORT_SUM = 8  # products a sum: fewer do not repay rounding their factors


def half_products(graph: Graph, registers: Registers) -> tuple[Graph, list[Decision]]:
    """The graph with products of bf16 pairs where they pay, and the decisions taken."""
    decisions: list[Decision] = []
    constant = constant_nodes(graph.nodes())

    def change(old: Node, operands: tuple[Node, ...]) -> Node:
        if not isinstance(old.op, (PanelDot, PanelConvolution)):
            return rebuilt(old, operands)
        why_not = _keeps(old, old.op, constant, registers)
        decisions.append(
            Decision(old, not why_not, why_not or "factors rounded to bf16, sums in f32")
        )
        return rebuilt(old, operands) if why_not else _in_pairs(old, old.op, operands, registers)

    return map_graph(graph, change), decisions


def _keeps(
    old: Node, op: PanelDot | PanelConvolution, constant: set[Node], registers: Registers
) -> str:
    """Why a product stays as it is; empty if it does not."""
    rows, panels = old.operands
    if {op.dtype, rows.tensor.dtype, panels.tensor.dtype} != {DTYPES["f32"]}:
        return f"products of {rows.tensor.dtype} as {op.dtype} are not in f32"
    if not registers.pair_products:
        return "this target has no instruction for products of bf16 pairs (avx512_bf16)"
    if panels not in constant or not isinstance(panels.op, PackPanels):
        return "a right operand that a call computes would be rounded in every call"
    if isinstance(op.columns, int) and op.columns < _FEW_COLUMNS:
        return f"{op.columns} columns leave most of a vector empty"
    depth = panel_depth(old)
    if isinstance(depth, int) and depth < _SHORT_SUM:
        return f"sums of {depth} products do not repay rounding their factors"
    return ""


def _in_pairs(
    old: Node,
    op: PanelDot | PanelConvolution,
    operands: tuple[Node, ...],
    registers: Registers,
) -> Node:
    rows, panels = operands
    left = whole_groups(_rounded(rows), -1, GROUP)
    matrix = panels.operands[0]
    inner = rows.tensor.shape[-1]
    if left.tensor.shape[-1] != inner:
        matrix = _padded_matrix(matrix, inner)
    made = replace(op, group=GROUP)
    depth = matrix.tensor.shape[-2]
    shape = left.tensor.shape
    if isinstance(op, PanelDot):
        count, step = dims.num_elements(shape[op.batch : -1]), shape[-1]
    else:
        count, step = old.tensor.shape[-2], shape[-1] * op.strides[-1]
    words = product_in_words(made, left.tensor)
    width = registers.panel_width(op.columns, _HALF.size_bytes, count, depth, step, words)
    packed = node(PackPanels(width, GROUP), build.cast(matrix, _HALF), loc=panels.loc)
    return node(made, left, packed, loc=old.loc)


def _rounded(x: Node) -> Node:
    """x in bf16, rounded before what only moves it: there the kernel that makes it can do it."""
    match x.op:
        case Reshape():
            return build.reshape(_rounded(x.operands[0]), x.tensor.shape)
        case Transpose(permutation=permutation) if permutation[-1] == len(permutation) - 1:
            return build.transpose(_rounded(x.operands[0]), permutation)
        case Pad() if isinstance(x.operands[1].op, Constant):
            return node(x.op, _rounded(x.operands[0]), build.cast(x.operands[1], _HALF), loc=x.loc)
    return build.cast(x, _HALF, flush=True)


def _padded_matrix(matrix: Node, inner: DimLike) -> Node:
    """A matrix [*B, taps * inner, N] with a row of zeros behind each `inner` odd rows."""
    *batch, depth, columns = matrix.tensor.shape
    taps = dims.floor_div(depth, inner)
    split = build.reshape(matrix, (*batch, taps, inner, columns))
    whole = whole_groups(split, -2, GROUP)
    return build.reshape(whole, (*batch, taps * whole.tensor.shape[-2], columns))
