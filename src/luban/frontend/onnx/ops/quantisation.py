"""Quantised tensors: to and from integers and tiny floats, and integer products."""

from __future__ import annotations

import numpy as np

from luban.core.dtypes import DTYPES, DType
from luban.frontend.onnx.ops.convolution import kernel_shape
from luban.frontend.onnx.registry import NodeContext, op
from luban.frontend.onnx.scaling import dequantized, quantized, spread
from luban.frontend.onnx.windows import Windows, windows
from luban.graph import build
from luban.graph.ops.reduce import ReduceWindow
from luban.ir.node import Node, node

__all__ = [
    "dynamically_quantized",
    "integer_convolution",
    "integer_matmul",
    "is_zero",
    "requantized",
]


@op("QuantizeLinear", since=10)
@op("QuantizeLinear", since=1, domain="com.microsoft")
def quantize_linear(ctx: NodeContext, x: Node, scale: Node, zero_point: Node | None = None) -> Node:
    """saturate(round(x / scale) + zero_point), for all, along an axis or in blocks."""
    axis, block = _axis(ctx, x), ctx.int("block_size", 0)
    stated = ctx.dtype("output_dtype", DTYPES["u8"]) if ctx.int("output_dtype", 0) else None
    element = zero_point.tensor.dtype if zero_point is not None else stated or DTYPES["u8"]
    if stated is not None and stated is not element:
        raise ctx.wrong(f"output_dtype is {stated}, the zero point {element}")
    wide = spread(ctx, scale, x, axis, block)
    if ctx.int("precision", 0):
        wide = build.cast(wide, ctx.dtype("precision"))
    point = None if zero_point is None else spread(ctx, zero_point, x, axis, block)
    return quantized(x, wide, point, element, saturate=bool(ctx.int("saturate", 1)))


@op("DequantizeLinear", since=10)
@op("DequantizeLinear", since=1, domain="com.microsoft")
def dequantize_linear(
    ctx: NodeContext, x: Node, scale: Node, zero_point: Node | None = None
) -> Node:
    """(x - zero_point) * scale, for all, along an axis or in blocks."""
    axis, block = _axis(ctx, x), ctx.int("block_size", 0)
    given = scale.tensor.dtype
    element = ctx.dtype("output_dtype", given) if ctx.int("output_dtype", 0) else given
    point = None if zero_point is None else spread(ctx, zero_point, x, axis, block)
    return dequantized(x, spread(ctx, scale, x, axis, block), point, element)


def _axis(ctx: NodeContext, x: Node) -> int:
    rank = x.tensor.rank
    axis = ctx.int("axis", 1)
    if rank and not -rank <= axis < rank and ctx.has("axis"):
        raise ctx.wrong(f"axis is {axis} for {x.tensor}")
    return axis % rank if rank else 0


@op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(_ctx: NodeContext, x: Node) -> tuple[Node, Node, Node]:
    """x as u8 with the scale and zero point that fit its range, which always holds 0."""
    return dynamically_quantized(x)


def dynamically_quantized(x: Node) -> tuple[Node, Node, Node]:
    """x as u8, its scale and zero point: 0 to 255 span its values and 0."""
    axes = range(x.tensor.rank)
    high = build.maximum(build.reduce("maximum", x, axes), 0)
    low = build.minimum(build.reduce("minimum", x, axes), 0)
    scale = build.divide(build.subtract(high, low), 255)
    exact = build.minimum(build.maximum(build.divide(build.negative(low), scale), 0), 255)
    # All zeros: 0 / 0 is NaN, which casts to the zero point 0.
    zero_point = build.cast(build.round_even(exact), "u8")
    return quantized(x, scale, zero_point, DTYPES["u8"]), scale, zero_point


def is_zero(ctx: NodeContext, x: Node | None) -> bool:
    """True if there is no zero point, or all of it is known to be 0."""
    if x is None:
        return True
    value = ctx.constant_value(x)
    return value is not None and not np.any(value)


def integer_matmul(
    ctx: NodeContext, a: Node, b: Node, a_zero: Node | None, b_zero: Node | None
) -> Node:
    """(a - a_zero) @ (b - b_zero) in i32.

    The product is taken of the narrow integers themselves; zero points are corrected for afterwards
    by sums over rows and columns, of which constant ones fold away. A correction is the first
    operand of its sum, so that it is there when the product's kernel adds it.
    """
    result = build.matmul(a, b, "i32")
    if a.tensor.rank < 2 or b.tensor.rank < 2:
        return build.matmul(_shifted(a, a_zero), _shifted(b, b_zero), "i32")
    a_point = None if is_zero(ctx, a_zero) else _row_point(a_zero)
    b_point = None if is_zero(ctx, b_zero) else _column_point(b_zero)
    if a_point is not None:
        columns = build.reduce("sum", build.cast(b, "i32"), [b.tensor.rank - 2], keep_axes=True)
        result = build.add(build.multiply(build.negative(a_point), columns), result)
    if b_point is not None:
        rows = build.reduce("sum", build.cast(a, "i32"), [a.tensor.rank - 1], keep_axes=True)
        result = build.add(build.multiply(rows, build.negative(b_point)), result)
    if a_point is not None and b_point is not None:
        depth = build.cast(build.dimension(a.tensor.shape[-1]), "i32")
        result = build.add(build.multiply(build.multiply(a_point, b_point), depth), result)
    return result


def _shifted(x: Node, zero: Node | None) -> Node:
    wide = build.cast(x, "i32")
    if zero is None:
        return wide
    return build.subtract(wide, build.cast(build.reshape(zero, ()), "i32"))


def _row_point(zero: Node | None) -> Node:
    """The zero point of the left side: a scalar, or one for each row."""
    assert zero is not None
    wide = build.cast(zero, "i32")
    if zero.tensor.num_elements == 1:
        return build.reshape(wide, ())
    return build.reshape(wide, (*zero.tensor.shape, 1)) if zero.tensor.rank == 1 else wide


def _column_point(zero: Node | None) -> Node:
    """The zero point of the right side: a scalar, or one for each column."""
    assert zero is not None
    wide = build.cast(zero, "i32")
    if zero.tensor.num_elements == 1:
        return build.reshape(wide, ())
    return wide


@op("MatMulInteger", since=10)
def matmul_integer(
    ctx: NodeContext, a: Node, b: Node, a_zero: Node | None = None, b_zero: Node | None = None
) -> Node:
    """The exact product of integers in i32."""
    return integer_matmul(ctx, a, b, a_zero, b_zero)


def integer_convolution(
    ctx: NodeContext, x: Node, filters: Node, x_zero: Node | None, f_zero: Node | None
) -> Node:
    """The exact convolution of (x - x_zero) with (filters - f_zero) in i32; padding counts as 0."""
    geometry = windows(ctx, x.tensor.shape[2:], kernel_shape(ctx, filters))
    low, high = geometry.low, geometry.high
    correction: Node | None = None
    if not is_zero(ctx, f_zero) and ctx.int("group", 1) == 1:
        assert f_zero is not None
        point = build.constant(0, x.tensor.dtype)
        if x_zero is not None and not is_zero(ctx, x_zero):
            point = build.reshape(x_zero, ())
        x = build.pad(x, (0, 0, *low), (0, 0, *high), point)
        low = high = (0,) * geometry.rank
        correction = _share_of_zeros(x, filters, point, f_zero, geometry)
    elif not is_zero(ctx, f_zero):
        assert f_zero is not None
        ones = (1,) * (filters.tensor.rank - 1)
        place = f_zero.tensor.shape[:1] if f_zero.tensor.num_elements != 1 else (1,)
        point = build.cast(build.reshape(f_zero, (*place, *ones)), "i32")
        filters = build.subtract(build.cast(filters, "i32"), point)
        x = _shifted(x, x_zero)
    elif not is_zero(ctx, x_zero):
        # With the zero point as padding every window is complete: its share is a constant.
        assert x_zero is not None
        point = build.reshape(x_zero, ())
        x = build.pad(x, (0, 0, *low), (0, 0, *high), point)
        low = high = (0,) * geometry.rank
        sums = build.reduce("sum", build.cast(filters, "i32"), range(1, filters.tensor.rank))
        share = build.multiply(sums, build.cast(point, "i32"))
        correction = build.reshape(share, (1, *share.tensor.shape, *(1,) * geometry.rank))
    result = build.convolution(
        x,
        filters,
        geometry.strides,
        low,
        high,
        rhs_dilation=geometry.dilations,
        groups=ctx.int("group", 1),
        element="i32",
    )
    return result if correction is None else build.add(build.negative(correction), result)


def _share_of_zeros(x: Node, filters: Node, x_zero: Node, f_zero: Node, geometry: Windows) -> Node:
    """What zero points add to a convolution of whole windows, so that bytes stay bytes.

    sum (x - a) (f - b) = sum x f - (b sum x + a sum (f - b))
    """
    ones = (1,) * geometry.rank
    window = filters.tensor.shape[2:]
    size = f_zero.tensor.shape[:1] if f_zero.tensor.num_elements != 1 else (1,)
    point = build.cast(build.reshape(f_zero, (*size, 1, *ones)), "i32")  # like the filters
    wide = build.cast(filters, "i32")
    share = build.reduce("sum", build.subtract(wide, point), range(1, filters.tensor.rank))
    share = build.multiply(share, build.cast(x_zero, "i32"))
    pixels = build.reduce("sum", build.cast(x, "i32"), [1], keep_axes=True)
    none = (0,) * pixels.tensor.rank
    sizes = tuple(size for size in window if isinstance(size, int))
    slide = ReduceWindow(
        "sum", (1, 1, *sizes), (1, 1, *geometry.strides), none, none, (1, 1, *geometry.dilations)
    )
    rows = build.multiply(node(slide, pixels), build.reshape(point, (1, *size, *ones)))
    return build.add(build.reshape(share, (1, *share.tensor.shape, *ones)), rows)


@op("ConvInteger", since=10)
def conv_integer(
    ctx: NodeContext,
    x: Node,
    filters: Node,
    x_zero: Node | None = None,
    filters_zero: Node | None = None,
) -> Node:
    """The exact convolution of integers in i32."""
    return integer_convolution(ctx, x, filters, x_zero, filters_zero)


def requantized(total: Node, factor: Node, zero_point: Node | None, element: DType) -> Node:
    """saturate(round(total * factor) + zero_point): sums of products back to narrow integers."""
    scaled = build.multiply(build.cast(total, "f32"), factor)
    return quantized(scaled, build.constant(1.0, "f32"), zero_point, element)


def _scalar_or_last(x: Node) -> Node:
    return build.reshape(x, ()) if x.tensor.num_elements == 1 else x


@op("QLinearMatMul", since=10)
def qlinear_matmul(
    ctx: NodeContext,
    a: Node,
    a_scale: Node,
    a_zero: Node,
    b: Node,
    b_scale: Node,
    b_zero: Node,
    y_scale: Node,
    y_zero: Node,
) -> Node:
    """The product of quantised matrices, quantised again."""
    total = integer_matmul(ctx, a, b, a_zero, b_zero)
    left, right, out = (build.cast(s, "f32") for s in (a_scale, b_scale, y_scale))
    if left.tensor.num_elements != 1 and left.tensor.rank == 1:
        left = build.reshape(left, (*left.tensor.shape, 1))  # one for each row
    product = build.multiply(_scalar_or_last(left), _scalar_or_last(right))
    if out.tensor.num_elements != 1 and out.tensor.rank == 1:
        out = build.reshape(out, (*out.tensor.shape, 1))
    factor = build.divide(product, _scalar_or_last(out))
    point = y_zero
    if point.tensor.num_elements == 1:
        point = build.reshape(point, ())
    elif point.tensor.rank == 1:
        point = build.reshape(point, (*point.tensor.shape, 1))
    return requantized(total, factor, point, y_zero.tensor.dtype)


@op("QLinearConv", since=10)
def qlinear_conv(
    ctx: NodeContext,
    x: Node,
    x_scale: Node,
    x_zero: Node,
    filters: Node,
    f_scale: Node,
    f_zero: Node,
    y_scale: Node,
    y_zero: Node,
    bias: Node | None = None,
) -> Node:
    """The convolution of quantised tensors, quantised again; the bias is i32."""
    total = integer_convolution(ctx, x, filters, x_zero, f_zero)
    ones = (1,) * (x.tensor.rank - 2)
    if bias is not None:
        total = build.add(total, build.reshape(bias, (1, *bias.tensor.shape, *ones)))
    x_factor, y_factor = (build.reshape(build.cast(s, "f32"), ()) for s in (x_scale, y_scale))
    f_factor = build.cast(f_scale, "f32")
    if f_factor.tensor.num_elements == 1:
        f_factor = build.reshape(f_factor, ())
    else:
        f_factor = build.reshape(f_factor, (1, *f_factor.tensor.shape, *ones))
    factor = build.divide(build.multiply(x_factor, f_factor), y_factor)
    return requantized(total, factor, build.reshape(y_zero, ()), y_zero.tensor.dtype)
