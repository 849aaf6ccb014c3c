"""Operators of com.microsoft on quantised tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from luban.core.dtypes import DTYPES, DType
from luban.frontend.onnx.ops.microsoft import MICROSOFT
from luban.frontend.onnx.ops.quantisation import dynamically_quantized, integer_matmul, is_zero
from luban.frontend.onnx.ops.recurrent import LSTM_ACTIVATIONS, lstm_of
from luban.frontend.onnx.recurrence import (
    Layer,
    Products,
    activations_of,
    num_directions,
    one_direction,
)
from luban.frontend.onnx.registry import NodeContext, op
from luban.frontend.onnx.scaling import dequantized, quantized
from luban.graph import build
from luban.ir.node import Node

__all__ = ["integer_product"]


def _real(x: Node, scale: Node, zero: Node | None) -> Node:
    return dequantized(x, _one(scale), None if zero is None else _one(zero), DTYPES["f32"])


def _one(x: Node) -> Node:
    """A scale or zero point of one element as a scalar."""
    return build.reshape(x, ()) if x.tensor.num_elements == 1 else x


def _narrow(x: Node, scale: Node, zero: Node | None, element: DType) -> Node:
    return quantized(x, _one(scale), None if zero is None else _one(zero), element)


def _register_binary(name: str, function: Callable[[Node, Node], Node]) -> None:
    @op(name, domain=MICROSOFT)
    def handler(
        _ctx: NodeContext,
        a: Node,
        a_scale: Node,
        a_zero: Node | None,
        b: Node,
        b_scale: Node,
        b_zero: Node | None,
        c_scale: Node,
        c_zero: Node | None = None,
    ) -> Node:
        result = function(_real(a, a_scale, a_zero), _real(b, b_scale, b_zero))
        return _narrow(result, c_scale, c_zero, a.tensor.dtype)


_register_binary("QLinearAdd", build.add)
_register_binary("QLinearMul", build.multiply)


def _register_unary(name: str, function: Callable[[NodeContext, Node], Node]) -> None:
    @op(name, domain=MICROSOFT)
    def handler(
        ctx: NodeContext,
        x: Node,
        x_scale: Node,
        x_zero: Node | None,
        y_scale: Node,
        y_zero: Node | None = None,
    ) -> Node:
        result = function(ctx, _real(x, x_scale, x_zero))
        return _narrow(result, y_scale, y_zero, x.tensor.dtype)


def _leaky_relu(ctx: NodeContext, x: Node) -> Node:
    return build.select(build.less(x, 0), build.multiply(x, ctx.float("alpha", 0.01)), x)


def _softmax(ctx: NodeContext, x: Node) -> Node:
    (result,) = ctx.call(
        "Softmax", x, opset=ctx.int("opset", 13), attributes={"axis": ctx.int("axis", -1)}
    )
    return result


def _pool(name: str) -> Callable[[NodeContext, Node], Node]:
    def pool(ctx: NodeContext, x: Node) -> Node:
        rank = x.tensor.rank
        last = bool(ctx.int("channels_last", 0))
        first = build.transpose(x, (0, rank - 1, *range(1, rank - 1))) if last else x
        attributes: dict[str, object] = {}
        if name == "AveragePool":
            for key in ("kernel_shape", "strides", "pads"):
                if ctx.has(key):
                    attributes[key] = ctx.ints(key)
            for key in ("ceil_mode", "count_include_pad"):
                attributes[key] = ctx.int(key, 0)
            attributes["auto_pad"] = ctx.text("auto_pad", "NOTSET")
        (result,) = ctx.call(name, first, attributes=attributes)
        return build.transpose(result, (0, *range(2, rank), 1)) if last else result

    return pool


_register_unary("QLinearSigmoid", lambda _, x: build.logistic(x))
_register_unary("QLinearLeakyRelu", _leaky_relu)
_register_unary("QLinearSoftmax", _softmax)
_register_unary("QLinearAveragePool", _pool("AveragePool"))
_register_unary("QLinearGlobalAveragePool", _pool("GlobalAveragePool"))


@op("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(ctx: NodeContext, y_scale: Node, y_zero: Node, *given: Node) -> Node:
    """Quantised tensors joined along an axis under one scale."""
    if len(given) % 3:
        raise ctx.wrong(f"{len(given)} inputs after the scale, expected triples")
    pieces: list[Node] = []
    for i in range(0, len(given), 3):
        x, scale, zero = given[i : i + 3]
        is_same = _same_constant(ctx, scale, y_scale) and _same_constant(ctx, zero, y_zero)
        pieces.append(
            x if is_same else _narrow(_real(x, scale, zero), y_scale, y_zero, y_zero.tensor.dtype)
        )
    return build.concatenate(pieces, ctx.int("axis") % pieces[0].tensor.rank)


def _same_constant(ctx: NodeContext, a: Node, b: Node) -> bool:
    first, second = ctx.constant_value(a), ctx.constant_value(b)
    return first is not None and second is not None and bool((first == second).all())


@op("QLinearReduceMean", domain=MICROSOFT)
def qlinear_reduce_mean(
    ctx: NodeContext,
    x: Node,
    x_scale: Node,
    x_zero: Node | None,
    y_scale: Node,
    y_zero: Node | None = None,
) -> Node:
    """The mean along axes, quantised again."""
    rank = x.tensor.rank
    axes = [axis % rank for axis in ctx.ints("axes", tuple(range(rank)))]
    keep = bool(ctx.int("keepdims", 1))
    result = build.mean(_real(x, x_scale, x_zero), axes, keep_axes=keep)
    return _narrow(result, y_scale, y_zero, x.tensor.dtype)


@op("QLinearWhere", domain=MICROSOFT)
def qlinear_where(
    _ctx: NodeContext,
    condition: Node,
    x: Node,
    x_scale: Node,
    x_zero: Node,
    y: Node,
    y_scale: Node,
    y_zero: Node,
    z_scale: Node,
    z_zero: Node,
) -> Node:
    """One of two quantised values, under one scale."""
    element = z_zero.tensor.dtype
    first = _narrow(_real(x, x_scale, x_zero), z_scale, z_zero, element)
    second = _narrow(_real(y, y_scale, y_zero), z_scale, z_zero, element)
    return build.select(condition, first, second)


@op("QGemm", domain=MICROSOFT)
def qgemm(
    ctx: NodeContext,
    a: Node,
    a_scale: Node,
    a_zero: Node,
    b: Node,
    b_scale: Node,
    b_zero: Node,
    c: Node | None = None,
    y_scale: Node | None = None,
    y_zero: Node | None = None,
) -> Node:
    """alpha * A' B' + C of quantised matrices; f32 without a scale for the result."""
    a = build.transpose(a, (1, 0)) if ctx.int("transA", 0) else a
    b = build.transpose(b, (1, 0)) if ctx.int("transB", 0) else b
    total = integer_matmul(ctx, a, b, a_zero, b_zero)
    if c is not None:
        total = build.add(total, c)
    factor = build.multiply(build.multiply(_one(a_scale), ctx.float("alpha", 1.0)), _one(b_scale))
    result = build.multiply(build.cast(total, "f32"), factor)
    if y_scale is None:
        return result
    element = y_zero.tensor.dtype if y_zero is not None else a.tensor.dtype
    return _narrow(result, y_scale, y_zero, element)


@op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    ctx: NodeContext,
    a: Node,
    b: Node,
    a_scale: Node,
    b_scale: Node,
    a_zero: Node | None = None,
    b_zero: Node | None = None,
    bias: Node | None = None,
) -> Node:
    """The integer product times both scales, plus a bias."""
    return integer_product(ctx, a, b, a_scale, b_scale, a_zero, b_zero, bias)


def integer_product(
    ctx: NodeContext,
    a: Node,
    b: Node,
    a_scale: Node,
    b_scale: Node,
    a_zero: Node | None,
    b_zero: Node | None,
    bias: Node | None,
) -> Node:
    """(a - a_zero) @ (b - b_zero) * a_scale * b_scale + bias"""
    total = integer_matmul(ctx, a, b, a_zero, b_zero)
    factor = build.multiply(_one(a_scale), _one(b_scale))
    result = build.multiply(build.cast(total, factor.tensor.dtype), factor)
    return result if bias is None else build.add(result, bias)


@op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    ctx: NodeContext,
    a: Node,
    b: Node,
    b_scale: Node,
    b_zero: Node | None = None,
    bias: Node | None = None,
) -> Node:
    """A quantised by its range, the integer product with B, times both scales, plus a bias."""
    quantised, scale, zero = dynamically_quantized(a)
    return integer_product(ctx, quantised, b, scale, b_scale, zero, b_zero, bias)


@op("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(
    ctx: NodeContext,
    x: Node,
    weights: Node,
    recurrent: Node,
    bias: Node | None,
    lengths: Node | None,
    initial_h: Node | None,
    initial_c: Node | None,
    peepholes: Node | None,
    w_scale: Node,
    w_zero: Node,
    r_scale: Node,
    r_zero: Node,
) -> tuple[Node, ...]:
    """An LSTM with integer weights [directions, inputs, 4 * hidden] and quantised states."""
    layer = Layer(
        ctx,
        x,
        _integer_products(ctx, weights, w_scale, w_zero),
        _integer_products(ctx, recurrent, r_scale, r_zero),
        recurrent.tensor.shape[1],
        bias,
        lengths,
        4,
        activations_of(ctx, LSTM_ACTIVATIONS, num_directions(ctx)),
    )
    return lstm_of(layer, initial_h, initial_c, peepholes)


def _integer_products(ctx: NodeContext, weights: Node, scale: Node, zero: Node) -> Products:
    """x quantised by its range, times integer weights [directions, inputs, results].

    What depends on the weights alone (their column sums) is computed once, outside the steps.
    """
    has_zero = not is_zero(ctx, zero)

    def operands(direction: int) -> list[Node]:
        matrix = one_direction(weights, direction)
        sums = build.reduce("sum", build.cast(matrix, "i32"), [0])
        found = [matrix, _direction(scale, direction), sums]
        if has_zero:
            point = build.cast(_direction(zero, direction), "i32")
            depth = build.cast(build.dimension(matrix.tensor.shape[0]), "i32")
            found[2] = build.subtract(sums, build.multiply(point, depth))
            found.append(point)
        return found

    def of(x: Node, given: Sequence[Node]) -> Node:
        codes, x_scale, x_zero = dynamically_quantized(x)
        total = build.matmul(codes, given[0], "i32")
        total = build.subtract(total, build.multiply(build.cast(x_zero, "i32"), given[2]))
        if has_zero:
            rows = build.reduce(
                "sum", build.cast(codes, "i32"), [x.tensor.rank - 1], keep_axes=True
            )
            total = build.subtract(total, build.multiply(rows, given[3]))
        return build.multiply(build.cast(total, "f32"), build.multiply(x_scale, given[1]))

    return Products(operands, of)


def _direction(parameter: Node, direction: int) -> Node:
    """The scale or zero point of one direction: one for all results, or one for each."""
    piece = one_direction(parameter, direction)
    return _one(piece)
