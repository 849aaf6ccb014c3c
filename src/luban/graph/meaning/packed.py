"""The meaning of products in panels: unpack, then the plain product."""

from __future__ import annotations

import numpy as np

from luban.core import dims
from luban.graph.meaning.context import Array, Context, Meaning
from luban.graph.meaning.contract import convolution, dot_general
from luban.graph.ops.contract import Convolution, DotGeneral
from luban.graph.ops.packed import PackPanels, PanelConvolution, PanelDot
from luban.ir.node import Op

__all__ = ["MEANING", "unpacked"]


def _pack(op: PackPanels, operands: list[Array], _context: Context) -> Array:
    (matrix,) = operands
    *batch, depth, columns = matrix.shape
    panels = -(-columns // op.width)
    padded = np.zeros((*batch, depth, panels * op.width), matrix.dtype)
    padded[..., :columns] = matrix
    split = padded.reshape(*batch, depth, panels, op.width)
    rows = np.swapaxes(split, -3, -2)
    if op.group > 1:
        grouped = rows.reshape(*batch, panels, depth // op.group, op.group, op.width)
        rows = np.swapaxes(grouped, -2, -1)
    return np.ascontiguousarray(rows)


def unpacked(panels: Array, columns: int, group: int = 1) -> Array:
    """[*B, P, K, W] or [*B, P, K / group, W, group] as the matrix [*B, K, columns]."""
    if group > 1:
        *batch, count, groups, width, _ = panels.shape
        panels = np.swapaxes(panels, -2, -1).reshape(*batch, count, groups * group, width)
    *batch, count, depth, width = panels.shape
    rows = np.swapaxes(panels, -3, -2).reshape(*batch, depth, count * width)
    return rows[..., :columns]


def _panel_dot(op: PanelDot, operands: list[Array], context: Context) -> Array:
    lhs, panels = operands
    matrix = unpacked(panels, dims.evaluate(op.columns, context.sizes), op.group)
    batch = tuple(range(op.batch))
    dot = DotGeneral(batch, batch, (lhs.ndim - 1,), (op.batch,), op.dtype)
    return dot_general(dot, [lhs, matrix], context)


def _panel_convolution(op: PanelConvolution, operands: list[Array], context: Context) -> Array:
    lhs, panels = operands
    matrix = unpacked(panels, dims.evaluate(op.columns, context.sizes), op.group)
    filters = matrix.reshape(*op.window, lhs.shape[-1], matrix.shape[-1])
    none, ones = (0,) * len(op.window), (1,) * len(op.window)
    plain = Convolution(op.strides, none, none, ones, op.dilation, 1, op.dtype, "channels_last")
    return convolution(plain, [lhs, filters], context)


MEANING: dict[type[Op], Meaning] = {
    PackPanels: _pack,
    PanelDot: _panel_dot,
    PanelConvolution: _panel_convolution,
}
