"""Attention as PyTorch dispatches it on the CPU, and its gradient, which recomputes the weights."""

from __future__ import annotations

import math
from typing import Any

from luban.frontend.torch.call import Call
from luban.frontend.torch.registry import aten
from luban.graph import build
from luban.ir.node import Node

__all__: list[str] = []

_FORWARD = "_scaled_dot_product_flash_attention_for_cpu"


def _scores(q: Node, k: Node, causal: bool, mask: Node | None, scale: float | None) -> Node:
    """Scaled products of queries and keys, masked."""
    width = q.tensor.shape[-1]
    if scale is None and not isinstance(width, int):
        root = build.sqrt(build.cast(build.dimension(width), q.tensor.dtype))
        factor: Any = build.divide(build.lift(1.0, q), root)
    else:
        factor = 1 / math.sqrt(width) if scale is None else scale  # type: ignore[arg-type]
    rank = q.tensor.rank
    turned = build.transpose(k, [*range(rank - 2), rank - 1, rank - 2])
    scores = build.multiply(build.matmul(q, turned), factor)
    if mask is not None:
        if mask.tensor.dtype.kind == "bool":
            scores = build.select(mask, scores, -math.inf)
        else:
            scores = build.add(scores, build.cast(mask, scores.tensor.dtype))
    if causal:
        rows, columns = scores.tensor.shape[-2:]
        row, column = (build.iota((rows, columns), axis) for axis in (0, 1))
        scores = build.select(build.less_equal(column, row), scores, -math.inf)
    return scores


@aten(f"{_FORWARD}.default")
def attention(
    call: Call,
    q: Node,
    k: Node,
    v: Node,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Node | None = None,
    scale: float | None = None,
) -> tuple[Node, Node]:
    """softmax(q k^T * scale + mask) v, and the logarithms of the sums of exponentials."""
    if dropout_p:
        raise call.wrong("with dropout")
    element = q.tensor.dtype
    wide = build.accumulator_dtype(q)
    scores = _scores(build.cast(q, wide), build.cast(k, wide), is_causal, attn_mask, scale)
    axis = scores.tensor.rank - 1
    top = build.reduce("maximum", scores, [axis], keep_axes=True)
    parts = build.exp(build.subtract(scores, top))
    sums = build.reduce("sum", parts, [axis], keep_axes=True)
    weights = build.divide(parts, sums)
    found = build.cast(build.matmul(weights, build.cast(v, wide)), element)
    logarithms = build.squeeze(build.add(top, build.log(sums)), [axis])
    return found, logarithms


@aten(f"{_FORWARD}_backward.default")
def attention_backward(
    call: Call,
    grad: Node,
    q: Node,
    k: Node,
    v: Node,
    out: Node,
    logarithms: Node,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Node | None = None,
    scale: float | None = None,
) -> tuple[Node, Node, Node]:
    """Gradients of queries, keys and values: the weights are computed again from the scores."""
    wide = build.accumulator_dtype(q)
    element, rank = q.tensor.dtype, q.tensor.rank
    grad, q, k, v, out = (build.cast(x, wide) for x in (grad, q, k, v, out))
    scores = _scores(q, k, is_causal, attn_mask, scale)
    sums = build.expand_dims(build.cast(logarithms, wide), [rank - 1])
    weights = build.exp(build.subtract(scores, sums))
    turn = [*range(rank - 2), rank - 1, rank - 2]
    for_v = build.matmul(build.transpose(weights, turn), grad)
    for_weights = build.matmul(grad, build.transpose(v, turn))
    along = build.reduce("sum", build.multiply(grad, out), [rank - 1], keep_axes=True)
    width = q.tensor.shape[-1]
    if scale is None and not isinstance(width, int):
        raise call.wrong("heads whose width only the run knows")
    factor = 1 / math.sqrt(width) if scale is None else scale  # type: ignore[arg-type]
    for_scores = build.multiply(build.multiply(weights, build.subtract(for_weights, along)), factor)
    for_q = build.matmul(for_scores, k)
    for_k = build.matmul(build.transpose(for_scores, turn), q)
    return (
        build.cast(for_q, element),
        build.cast(for_k, element),
        build.cast(for_v, element),
    )
