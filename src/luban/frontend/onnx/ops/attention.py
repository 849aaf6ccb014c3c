"""Attention and RotaryEmbedding of the standard."""

from __future__ import annotations

import math

from luban.core import dims
from luban.core.dims import DimLike
from luban.frontend.onnx.attention import attend, merged_heads, rotated, split_heads, visible
from luban.frontend.onnx.registry import NodeContext, op
from luban.graph import build
from luban.ir.node import Node

__all__: list[str] = []


@op("Attention", since=23)
def attention(
    ctx: NodeContext,
    q: Node,
    k: Node,
    v: Node,
    mask: Node | None = None,
    past_key: Node | None = None,
    past_value: Node | None = None,
    num_valid: Node | None = None,
) -> tuple[Node, ...]:
    """Scaled dot-product attention with caches, masks, windows and grouped heads."""
    if (past_key is None) != (past_value is None):
        raise ctx.wrong("past_key and past_value must be given together")
    if num_valid is not None and past_key is not None:
        raise ctx.wrong("nonpad_kv_seqlen does not go with past_key and past_value")
    ranks = {x.tensor.rank for x in (q, k, v)}
    if ranks not in ({3}, {4}):
        given = ", ".join(str(x.type) for x in (q, k, v))
        raise ctx.wrong(f"Q, K and V are {given}, expected 3 or 4 axes each")
    is_flat = ranks == {3}
    if is_flat:
        q = split_heads(q, ctx.int("q_num_heads"))
        k, v = (split_heads(x, ctx.int("kv_num_heads")) for x in (k, v))
    offset: Node | None = None
    if past_key is not None and past_value is not None:
        offset = build.dimension(past_key.tensor.shape[2])
        k = build.concatenate([past_key, k], 2)
        v = build.concatenate([past_value, v], 2)
    elif num_valid is not None:
        offset = build.subtract(build.cast(num_valid, "i64"), build.dimension(q.tensor.shape[2]))
    bias, may_mask_all = _bias(ctx, q, k.tensor.shape[2], mask, offset, num_valid)
    softmax_dtype = ctx.dtype("softmax_precision", q.tensor.dtype)
    scores = attend(
        q,
        k,
        v,
        scale=ctx.float("scale", None),
        bias=bias,
        softcap=ctx.float("softcap", 0.0),
        softmax_dtype=softmax_dtype,
        may_mask_all=may_mask_all,
    )
    shown = (scores.raw, scores.capped, scores.biased, scores.weights)
    mode = ctx.int("qk_matmul_output_mode", 0)
    if not 0 <= mode < len(shown):
        raise ctx.wrong(f"qk_matmul_output_mode is {mode}, expected 0 to 3")
    result = merged_heads(scores.result) if is_flat else scores.result
    return result, k, v, shown[mode]


def _bias(
    ctx: NodeContext,
    q: Node,
    keys: DimLike,
    mask: Node | None,
    offset: Node | None,
    num_valid: Node | None,
) -> tuple[Node | None, bool]:
    """What is added to the scores, and whether it can be -inf for a whole query."""
    element, queries = q.tensor.dtype, q.tensor.shape[2]
    bias = None if mask is None else _as_bias(_filled(ctx, mask, keys), q)
    left, right = ctx.int("left_window_size", -1), ctx.int("right_window_size", -1)
    if min(left, right) < -1:
        raise ctx.wrong(f"windows are {left} and {right}, expected -1 or more")
    if ctx.int("is_causal", 0):
        right = 0
    conditions = [visible(queries, keys, offset, left, right)]
    if num_valid is not None:
        batch = num_valid.tensor.shape[0]
        place = build.iota((1, 1, 1, keys), 3, "i64")
        limit = build.reshape(build.cast(num_valid, "i64"), (batch, 1, 1, 1))
        conditions.append(build.less(place, limit))
    for seen in conditions:
        if seen is not None:
            wall = build.select(seen, 0, build.full(seen.tensor.shape, -math.inf, element))
            bias = wall if bias is None else build.add(bias, wall)
    only_causal = mask is None and num_valid is None and left < 0
    return bias, not only_causal


def _filled(ctx: NodeContext, mask: Node, keys: DimLike) -> Node:
    """The mask with the keys that it leaves out at the end shut off."""
    missing = keys - mask.tensor.shape[-1]
    if missing == 0:
        return mask
    if dims.bounds(missing)[1] < 0:
        raise ctx.wrong(f"attn_mask is {mask.tensor}, but there are {keys} keys")
    high = [*(0,) * (mask.tensor.rank - 1), dims.maximum(missing, 0)]
    value = False if mask.tensor.dtype.kind == "bool" else -math.inf
    return build.pad(mask, (0,) * mask.tensor.rank, high, value)


def _as_bias(mask: Node, q: Node) -> Node:
    if mask.tensor.dtype.kind != "bool":
        return build.cast(mask, q.tensor.dtype)
    return build.select(mask, 0, build.full(mask.tensor.shape, -math.inf, q.tensor.dtype))


@op("RotaryEmbedding", since=23)
def rotary_embedding(
    ctx: NodeContext, x: Node, cos: Node, sin: Node, positions: Node | None = None
) -> Node:
    """Pairs of elements of each head turned by angles that depend on the position."""
    is_flat = x.tensor.rank == 3
    heads = split_heads(x, ctx.int("num_heads")) if is_flat else x
    if positions is not None:
        cos, sin = (build.take(table, positions, 0) for table in (cos, sin))
    cos, sin = (build.expand_dims(table, [1]) for table in (cos, sin))
    result = rotated(
        heads,
        cos,
        sin,
        interleaved=bool(ctx.int("interleaved", 0)),
        size=ctx.int("rotary_embedding_dim", 0),
    )
    return merged_heads(result) if is_flat else result
