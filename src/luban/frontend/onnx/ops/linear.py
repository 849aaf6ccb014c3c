"""Matrix products, Einstein sums and determinants."""

from __future__ import annotations

from luban.core.types import TensorType
from luban.frontend.onnx.context import NodeContext
from luban.frontend.onnx.einsum import einsum as einstein_sum
from luban.frontend.onnx.ops.elementwise import legacy_broadcast
from luban.frontend.onnx.registry import op
from luban.graph import build
from luban.graph.host import matrices as host_matrices
from luban.ir.node import Node

__all__: list[str] = []


@op("MatMul", since=1)
def matmul(_ctx: NodeContext, x: Node, y: Node) -> Node:
    """numpy.matmul"""
    return build.matmul(x, y)


@op("Gemm", since=1)
def gemm(ctx: NodeContext, a: Node, b: Node, c: Node | None = None) -> Node:
    """alpha * A' * B' + beta * C, where ' transposes if asked for."""
    axes = ([0 if ctx.int("transA", 0) else 1], [1 if ctx.int("transB", 0) else 0])
    result = _scaled(build.dot_general(a, b, axes), ctx.float("alpha", 1.0))
    if c is None:
        return result
    if ctx.opset < 7:
        c = legacy_broadcast(ctx, result, c)
    return build.add(result, _scaled(c, ctx.float("beta", 1.0)))


def _scaled(x: Node, factor: float) -> Node:
    if factor == 1.0:
        return x
    if x.tensor.dtype.is_integer:
        # The standard allows integer matrices with float factors.
        scaled = build.multiply(build.cast(x, "f64"), factor)
        return build.cast(scaled, x.tensor.dtype)
    return build.multiply(x, factor)


@op("Einsum", since=12)
def einsum(ctx: NodeContext, *operands: Node) -> Node:
    """The Einstein sum that `equation` states."""
    return einstein_sum(ctx.text("equation"), operands)


@op("Det", since=11)
def determinant(ctx: NodeContext, x: Node) -> tuple[Node, ...]:
    """The determinant of each square matrix in the last two axes."""
    result = TensorType(x.tensor.dtype, x.tensor.shape[:-2])
    return ctx.host_call(host_matrices.DETERMINANT, [x], [result])
