"""The meaning of products with codes: the codes as numbers, then the plain product."""

from __future__ import annotations

import numpy as np

from luban.core import dims
from luban.graph.meaning.context import Array, Context, Meaning, stored, widened
from luban.graph.meaning.packed import unpacked
from luban.graph.ops.coded import CodedDot, PanelCodedDot
from luban.ir.node import Op

__all__ = ["MEANING"]


def _wide(array: Array, context: Context) -> Array:
    """As the floats that the product computes in."""
    return widened(array).astype(np.float64 if context.precision == "float64" else np.float32)


def _halves(codes: Array) -> tuple[Array, Array]:
    return codes & 15, codes >> 4


def _coded_dot(op: CodedDot, operands: list[Array], context: Context) -> Array:
    x, codes, scales, *rest = operands
    if op.bits == 4:
        codes = np.stack(_halves(codes), -1).reshape(*codes.shape[:-1], -1)
    zero = _wide(rest[0], context)[..., None] if op.has_zeros else 1 << (op.bits - 1)
    weights = (_wide(codes, context) - zero) * _wide(scales, context)[..., None]
    rows = _wide(x, context)
    if context.operand(0).dtype.name == "i8":
        rows = rows * np.repeat(_wide(rest[-1], context), op.block, -1)[..., : x.shape[-1]]
    flat = weights.reshape(codes.shape[0], -1)[:, : x.shape[-1]]
    return stored(rows @ flat.T, op.dtype, context.precision)


def _panel_coded_dot(op: PanelCodedDot, operands: list[Array], context: Context) -> Array:
    x, steps, totals, panels, scales, *zeros = operands
    columns = dims.evaluate(op.columns, context.sizes)
    if op.bits == 4:
        num_panels, groups, width, _ = panels.shape
        halves = np.stack(_halves(panels), 2)  # [P, K / 8, 2, W, 4]
        panels = halves.reshape(num_panels, 2 * groups, width, 4)
    codes = unpacked(panels, columns, 4).astype(np.int64)
    blocks = codes.shape[0] // op.block
    codes = codes.reshape(blocks, op.block, columns)
    digits = x.astype(np.int64).reshape(*x.shape[:-1], blocks, op.block)
    sums = np.einsum("...dbk,bkn->...dbn", digits, codes).astype(np.float64)
    middle = np.full((blocks, columns), 1 << (op.bits - 1), np.float64)
    zero = unpacked(zeros[0], columns).astype(np.float64) if op.has_zeros else middle
    sums = sums - zero * totals[..., None]
    weight = 256.0 ** np.arange(x.shape[-2])
    whole = np.einsum("...dbn,d->...bn", sums, weight)
    scaled = whole * _wide(steps, context)[..., None] * _wide(unpacked(scales, columns), context)
    return stored(scaled.sum(-2), op.dtype, context.precision)


MEANING: dict[type[Op], Meaning] = {CodedDot: _coded_dot, PanelCodedDot: _panel_coded_dot}
