"""Layout: images with channels last, and matrix products that read their right operand in panels.

`dot_general` becomes transposes, `pack_panels` and `panel_dot`. Packing constants happens once, at
load; packing what a call computes pays when several rows use each panel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.registers import Registers
from luban.graph import build
from luban.graph.ops.coded import CodedDot
from luban.graph.ops.contract import DotGeneral
from luban.graph.ops.data import Constant
from luban.graph.ops.packed import PackPanels, PanelDot, product_in_words
from luban.ir.node import Graph, Node, map_graph, node, rebuilt
from luban.passes.channels_last import channels_last
from luban.passes.codes import coded_in_panels
from luban.passes.decision import Decision
from luban.passes.panels import has_panels
from luban.passes.quads import GROUP, Factors, byte_factors, takes_quads

__all__ = ["choose_layouts"]

_FEW_ROWS = 8  # fewer rows than this do not repay packing within a call


def choose_layouts(graph: Graph, registers: Registers) -> tuple[Graph, list[Decision]]:
    """The graph with operands in the layouts that kernels want, and the decisions taken."""
    graph, decisions = channels_last(graph, registers)
    constant = _constants(graph.nodes())

    def change(old: Node, operands: tuple[Node, ...]) -> Node:
        if isinstance(old.op, CodedDot):
            decisions.append(Decision(old, True, "codes in panels, rows as integers"))
            return coded_in_panels(rebuilt(old, operands), registers)
        if not isinstance(old.op, DotGeneral):
            return rebuilt(old, operands)
        why_not = _keeps(old, old.op, constant)
        decisions.append(Decision(old, not why_not, why_not or "the right operand in panels"))
        if why_not:
            return rebuilt(old, operands)
        return _in_panels(old, old.op, operands, registers)

    return map_graph(graph, change), decisions


def _constants(order: Sequence[Node]) -> set[Node]:
    """Nodes that depend on constants only."""
    found: set[Node] = set()
    for n in order:
        if isinstance(n.op, Constant) or (n.operands and all(o in found for o in n.operands)):
            found.add(n)
    return found


def _free(rank: int, *taken: Sequence[int]) -> list[int]:
    used = {axis for axes in taken for axis in axes}
    return [axis for axis in range(rank) if axis not in used]


def _sizes(n: Node, axes: Sequence[int]) -> list[DimLike]:
    return [n.tensor.shape[axis] for axis in axes]


def _keeps(old: Node, op: DotGeneral, constant: set[Node]) -> str:
    """Why a product stays as it is; empty if it does not."""
    lhs, rhs = old.operands
    if not all(has_panels(operand.tensor.dtype, op.dtype) for operand in (lhs, rhs)):
        return f"products of {lhs.tensor.dtype} as {op.dtype} have no panels yet"
    columns = dims.num_elements(_sizes(rhs, _free(rhs.tensor.rank, op.rhs_batch, op.rhs_contract)))
    if columns == 1:
        return "one column is a plain sum"
    if lhs in constant and rhs in constant:
        return "both operands are constants"
    rows = dims.num_elements(_sizes(lhs, _free(lhs.tensor.rank, op.lhs_batch, op.lhs_contract)))
    if rhs not in constant and dims.bounds(rows)[1] < _FEW_ROWS:
        return f"{rows} rows do not repay packing {rhs.tensor} in every call"
    return ""


def _in_panels(old: Node, op: DotGeneral, operands: tuple[Node, ...], registers: Registers) -> Node:
    lhs, rhs = operands
    batch = len(op.lhs_batch)
    rows = _free(lhs.tensor.rank, op.lhs_batch, op.lhs_contract)
    columns = _free(rhs.tensor.rank, op.rhs_batch, op.rhs_contract)
    depth = dims.num_elements(_sizes(lhs, op.lhs_contract))
    count = dims.num_elements(_sizes(rhs, columns))
    row_shape = (*_sizes(lhs, op.lhs_batch), *_sizes(lhs, rows))
    left = _arranged(lhs, (*op.lhs_batch, *rows, *op.lhs_contract), (*row_shape, depth))
    matrix = _arranged(
        rhs,
        (*op.rhs_batch, *op.rhs_contract, *columns),
        (*_sizes(rhs, op.rhs_batch), depth, count),
    )
    total = dims.num_elements(_sizes(lhs, rows))
    made = PanelDot(batch, count, op.dtype)
    factors: Factors | None = None
    if takes_quads(lhs.tensor.dtype, rhs.tensor.dtype, op.dtype):
        factors = byte_factors(left, matrix)
        left, matrix = factors.rows, factors.matrix
        made, depth = replace(made, group=GROUP), left.tensor.shape[-1]
    words = product_in_words(made, left.tensor)
    width = registers.panel_width(count, rhs.tensor.dtype.size_bytes, total, depth, depth, words)
    panels = node(PackPanels(width, made.group), matrix, loc=old.loc)
    product = node(made, left, panels, loc=old.loc)
    if factors is not None:
        product = factors.corrected(product)
    return build.reshape(product, old.tensor.shape)


def _arranged(n: Node, permutation: tuple[int, ...], shape: tuple[DimLike, ...]) -> Node:
    """The axes in this order, then in this shape."""
    return build.reshape(build.transpose(n, permutation), shape)
