"""Comparisons, logic, bitwise operations and shifts."""

from __future__ import annotations

from luban.core.dtypes import DTYPES
from luban.core.types import TensorType
from luban.frontend.onnx.context import NodeContext
from luban.frontend.onnx.ops.elementwise import legacy_broadcast
from luban.frontend.onnx.registry import op
from luban.graph import build
from luban.graph.infer import broadcast_shapes
from luban.ir.node import Node

__all__: list[str] = []

_COMPARE = {
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
}
_LOGIC = {
    "And": "bitwise_and",
    "Or": "bitwise_or",
    "Xor": "bitwise_xor",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
}


def _register(name: str, primitive: str) -> None:
    @op(name, since=1)
    def handler(ctx: NodeContext, x: Node, y: Node) -> Node:
        return build.binary(primitive, x, legacy_broadcast(ctx, x, y))


for _name, _primitive in (_COMPARE | _LOGIC).items():
    _register(_name, _primitive)


@op("Equal", since=1)
def equal(ctx: NodeContext, x: Node, y: Node) -> Node:
    """x == y; strings are compared on the host."""
    if x.tensor.dtype is DTYPES["str"]:
        shape = broadcast_shapes(x.tensor.shape, y.tensor.shape)
        return ctx.host_call("string_equal", [x, y], [TensorType(DTYPES["bool"], shape)])[0]
    return build.equal(x, legacy_broadcast(ctx, x, y))


@op("Not", since=1)
@op("BitwiseNot", since=18)
def invert(_ctx: NodeContext, x: Node) -> Node:
    """Every bit flipped."""
    return build.bitwise_not(x)


@op("BitShift", since=11)
def bit_shift(ctx: NodeContext, x: Node, y: Node) -> Node:
    """x shifted by y bits; a y below 0 or of at least the width leaves nothing but the sign."""
    left = ctx.text("direction", "") == "LEFT"
    if not left and ctx.text("direction", "") != "RIGHT":
        raise ctx.wrong(f"direction is {ctx.text('direction', '')!r}, expected LEFT or RIGHT")
    if y.tensor.dtype.kind == "int":
        y = build.select(build.less(y, 0), y.tensor.dtype.bits, y)
    return build.shift_left(x, y) if left else build.shift_right(x, y)
