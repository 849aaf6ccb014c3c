"""Scales and zero points: one for all, one for each place along an axis, or one for each block."""

from __future__ import annotations

from luban.core import dims
from luban.core.dtypes import DType
from luban.frontend.onnx.context import NodeContext
from luban.graph import build
from luban.ir.node import Node

__all__ = ["dequantized", "quantized", "spread"]


def spread(ctx: NodeContext, parameter: Node, x: Node, axis: int, block: int = 0) -> Node:
    """A scale or zero point in a shape that broadcasts with x.

    A scalar serves all; a vector has one entry for each place along `axis`; with `block` every
    entry serves that many neighbours along `axis`.
    """
    given = parameter.tensor
    if given.num_elements == 1 and not block:
        return build.reshape(parameter, ())
    if block:
        return _repeated(ctx, parameter, x, axis, block)
    if given.rank != 1:
        raise ctx.wrong(f"scale or zero point is {given}, expected a scalar or a vector")
    shape = [1] * x.tensor.rank
    return build.reshape(parameter, [*shape[:axis], given.shape[0], *shape[axis + 1 :]])


def _repeated(ctx: NodeContext, parameter: Node, x: Node, axis: int, block: int) -> Node:
    given = parameter.tensor
    if given.rank != x.tensor.rank:
        raise ctx.wrong(f"blocked scale or zero point is {given}, expected the rank of {x.tensor}")
    count, size = given.shape[axis], x.tensor.shape[axis]
    if count != dims.ceil_div(size, block):
        raise ctx.wrong(
            f"scale or zero point is {given}, expected {dims.ceil_div(size, block)} blocks "
            f"of {block} along axis {axis} of {x.tensor}"
        )
    before, after = given.shape[:axis], given.shape[axis + 1 :]
    column = build.reshape(parameter, (*before, count, 1, *after))
    wide = build.broadcast_to(column, (*before, count, block, *after))
    flat = build.reshape(wide, (*before, count * block, *after))
    return build.slice_axis(flat, axis, 0, size)


def quantized(
    x: Node, scale: Node, zero_point: Node | None, element: DType, *, saturate: bool = True
) -> Node:
    """saturate(round(x / scale) + zero_point), ties to even, divided in the dtype of `scale`.

    Tiny floats are not rounded to whole numbers, and have no zero point.
    """
    ratio = build.divide(build.cast(x, scale.tensor.dtype), scale)
    if element.is_float:
        return build.cast(ratio, element, saturate=saturate)
    # Sums with a 16-bit zero point need more digits than a half float has.
    whole = build.cast(build.round_even(ratio), "f32")
    if zero_point is not None:
        whole = build.add(whole, build.cast(zero_point, "f32"))
    return build.cast(whole, element)


def dequantized(x: Node, scale: Node, zero_point: Node | None, element: DType) -> Node:
    """(x - zero_point) * scale, computed in f32 (f64 for f64 scales) and rounded once."""
    wide = "f64" if scale.tensor.dtype.bits == 64 else "f32"
    if zero_point is not None and x.tensor.dtype.is_integer:
        if x.tensor.dtype.bits >= 32:
            x, zero_point = build.subtract(x, zero_point), None
        else:
            x, zero_point = build.cast(x, wide), build.cast(zero_point, wide)
            x = build.subtract(x, zero_point)
    product = build.multiply(build.cast(x, wide), build.cast(scale, wide))
    return build.cast(product, element)
