"""Softmax and its kin: along one axis, or along all from `axis` on before opset 13."""

from __future__ import annotations

from collections.abc import Callable

from luban.core import dims
from luban.frontend.onnx.arguments import axis_from
from luban.frontend.onnx.context import NodeContext
from luban.frontend.onnx.registry import op
from luban.graph import build
from luban.ir.node import Node

__all__: list[str] = []


def _log_softmax(x: Node, axis: int) -> Node:
    shifted = build.subtract(x, build.reduce("maximum", x, [axis], keep_axes=True))
    total = build.reduce("sum", build.exp(shifted), [axis], keep_axes=True)
    return build.subtract(shifted, build.log(total))


def _hardmax(x: Node, axis: int) -> Node:
    best = build.expand_dims(build.arg_reduce("maximum", x, axis), [axis])
    return build.cast(build.equal(build.iota(x.tensor.shape, axis), best), x.tensor.dtype)


_KINDS: dict[str, Callable[[Node, int], Node]] = {
    "Softmax": build.softmax,
    "LogSoftmax": _log_softmax,
    "Hardmax": _hardmax,
}


def _register(name: str, function: Callable[[Node, int], Node]) -> None:
    @op(name, since=1)
    def flattened(ctx: NodeContext, x: Node) -> Node:
        rank = x.tensor.rank
        axis = ctx.int("axis", 1)
        axis = rank if axis == rank else axis_from(axis, rank)
        rows = dims.num_elements(x.tensor.shape[:axis])
        columns = dims.num_elements(x.tensor.shape[axis:])
        if axis == rank - 1:
            return function(x, axis)
        return build.reshape(function(build.reshape(x, (rows, columns)), 1), x.tensor.shape)

    @op(name, since=13)
    def along_one_axis(ctx: NodeContext, x: Node) -> Node:
        return function(x, axis_from(ctx.int("axis", -1), x.tensor.rank))


for _name, _function in _KINDS.items():
    _register(_name, _function)
