"""The meaning of products in panels: unpack, then the plain product."""

from __future__ import annotations

import numpy as np

from luban.core import dims
from luban.graph.meaning.context import Array, Context, Meaning
from luban.graph.meaning.contract import convolution, dot_general
from luban.graph.ops.contract import Convolution, DotGeneral
from luban.graph.ops.packed import PackPanels, PanelConvolution, PanelDot
from luban.ir.node import Op

__all__ = ["MEANING"]


def _pack(op: PackPanels, operands: list[Array], _context: Context) -> Array:
    (matrix,) = operands
    *batch, depth, columns = matrix.shape
    panels = -(-columns // op.width)
    padded = np.zeros((*batch, depth, panels * op.width), matrix.dtype)
    padded[..., :columns] = matrix
    split = padded.reshape(*batch, depth, panels, op.width)
    return np.ascontiguousarray(np.swapaxes(split, -3, -2))


def unpacked(panels: Array, columns: int) -> Array:
    """[*B, P, K, W] as the matrix [*B, K, columns]."""
    *batch, count, depth, width = panels.shape
    rows = np.swapaxes(panels, -3, -2).reshape(*batch, depth, count * width)
    return rows[..., :columns]


def _panel_dot(op: PanelDot, operands: list[Array], context: Context) -> Array:
    lhs, panels = operands
    matrix = unpacked(panels, dims.evaluate(op.columns, context.sizes))
    batch = tuple(range(op.batch))
    dot = DotGeneral(batch, batch, (lhs.ndim - 1,), (op.batch,), op.dtype)
    return dot_general(dot, [lhs, matrix], context)


def _panel_convolution(op: PanelConvolution, operands: list[Array], context: Context) -> Array:
    lhs, panels = operands
    matrix = unpacked(panels, dims.evaluate(op.columns, context.sizes))
    filters = matrix.reshape(*op.window, lhs.shape[-1], matrix.shape[-1])
    none, ones = (0,) * len(op.window), (1,) * len(op.window)
    plain = Convolution(op.strides, none, none, ones, op.dilation, 1, op.dtype, "channels_last")
    return convolution(plain, [lhs, filters], context)


MEANING: dict[type[Op], Meaning] = {
    PackPanels: _pack,
    PanelDot: _panel_dot,
    PanelConvolution: _panel_convolution,
}
