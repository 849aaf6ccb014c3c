"""Batch normalisation with given statistics; all others PyTorch breaks into their parts."""

from __future__ import annotations

from luban.frontend.torch.call import Call
from luban.frontend.torch.registry import aten
from luban.graph import build
from luban.ir.node import Node

__all__: list[str] = []


@aten("_native_batch_norm_legit_no_training.default")
def batch_norm(
    call: Call,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    mean: Node,
    variance: Node,
    momentum: float,
    eps: float,
) -> tuple[Node, Node, Node]:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each channel; no statistics."""
    wide = build.accumulator_dtype(x)
    shape = (1, x.tensor.shape[1], *(1 for _ in x.tensor.shape[2:]))

    def each(given: Node) -> Node:
        return build.reshape(build.cast(given, wide), shape)

    scale = build.rsqrt(build.add(each(variance), eps))
    if weight is not None:
        scale = build.multiply(scale, each(weight))
    found = build.multiply(build.subtract(build.cast(x, wide), each(mean)), scale)
    if bias is not None:
        found = build.add(found, each(bias))
    nothing = build.full((0,), 0, call.types[1].dtype)
    return build.cast(found, x.tensor.dtype), nothing, nothing
