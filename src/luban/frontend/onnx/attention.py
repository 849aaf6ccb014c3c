"""Scaled dot-product attention in primitives, shared by all attention operators."""

from __future__ import annotations

import math
from dataclasses import dataclass

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.dtypes import DType
from luban.graph import build
from luban.ir.node import Node

__all__ = ["Scores", "attend", "heads_of_size", "merged_heads", "rotated", "split_heads", "visible"]


@dataclass(frozen=True, slots=True)
class Scores:
    """The result, and what it went through: [batch, heads, queries, keys] each."""

    result: Node
    raw: Node
    capped: Node
    biased: Node
    weights: Node


def split_heads(x: Node, num_heads: DimLike) -> Node:
    """[batch, length, heads * size] as [batch, heads, length, size]."""
    width = x.tensor.shape[2]
    return heads_of_size(x, dims.floor_div(width, num_heads), num_heads)


def heads_of_size(x: Node, size: DimLike, num_heads: DimLike | None = None) -> Node:
    """The same for heads of a known size."""
    batch, length, width = x.tensor.shape
    if num_heads is None:
        num_heads = dims.floor_div(width, size)
    return build.transpose(build.reshape(x, (batch, length, num_heads, size)), (0, 2, 1, 3))


def merged_heads(x: Node) -> Node:
    """[batch, heads, length, size] as [batch, length, heads * size]."""
    batch, heads, length, size = x.tensor.shape
    return build.reshape(build.transpose(x, (0, 2, 1, 3)), (batch, length, heads * size))


def visible(
    queries: DimLike, keys: DimLike, offset: Node | None, left: int = -1, right: int = -1
) -> Node | None:
    """Which keys a query sees: bool[queries, keys], or [batch, 1, queries, keys] by row.

    A query stands at `offset` (i64[] or i64[batch], default 0) plus its index, and sees the keys
    from `left` before to `right` after; -1 is no bound. None if it sees all.
    """
    if left < 0 and right < 0:
        return None
    shape: tuple[DimLike, ...] = (queries, keys)
    place, key = build.iota(shape, 0, "i64"), build.iota(shape, 1, "i64")
    if offset is not None and offset.tensor.rank:
        place, key = (build.reshape(x, (1, 1, *shape)) for x in (place, key))
        place = build.add(place, build.reshape(offset, (*offset.tensor.shape, 1, 1, 1)))
    elif offset is not None:
        place = build.add(place, offset)
    distance = build.subtract(place, key)
    seen: Node | None = None
    if right >= 0:
        seen = build.greater_equal(distance, -right)
    if left >= 0:
        near = build.less_equal(distance, left)
        seen = near if seen is None else build.bitwise_and(seen, near)
    return seen


def attend(
    q: Node,
    k: Node,
    v: Node,
    *,
    scale: float | None = None,
    bias: Node | None = None,
    softcap: float = 0.0,
    softmax_dtype: DType | None = None,
    may_mask_all: bool = True,
) -> Scores:
    """softmax(q k' * scale + bias) v, half of the scale on q and on k: half floats do not overflow.

    q [batch, heads, queries, size], k and v [batch, kv heads, keys, size]: each kv head serves
    heads / kv heads neighbours. With `may_mask_all` a query whose bias is -inf throughout gives 0.
    """
    element = q.tensor.dtype
    size = q.tensor.shape[3]
    factor = 1 / math.sqrt(size) if scale is None and isinstance(size, int) else scale
    if factor is None:
        wide = build.cast(build.dimension(size), "f32")
        root = build.cast(build.rsqrt(build.sqrt(wide)), element)
    else:
        root = build.constant(math.sqrt(abs(factor)), element)
        if factor < 0:
            q = build.negative(q)
    raw = _products(build.multiply(q, root), build.multiply(k, root), (3, 3))
    capped = raw
    if softcap > 0:
        capped = build.multiply(build.tanh(build.divide(raw, softcap)), softcap)
    biased = capped if bias is None else build.add(capped, bias)
    wide = biased if softmax_dtype is None else build.cast(biased, softmax_dtype)
    weights = build.softmax(wide, wide.tensor.rank - 1)
    if bias is not None and may_mask_all:
        top = build.reduce("maximum", bias, [bias.tensor.rank - 1], keep_axes=True)
        empty = build.broadcast_to(build.equal(top, -math.inf), weights.tensor.shape)
        weights = build.select(empty, 0, weights)
    weights = build.cast(weights, element)
    return Scores(_products(weights, v, (3, 2)), raw, capped, biased, weights)


def _products(x: Node, y: Node, contract: tuple[int, int]) -> Node:
    """One matrix product a head; several heads of x share one of y without a copy of it."""
    batch, heads, rows, depth = x.tensor.shape
    groups = y.tensor.shape[1]
    if heads != groups:
        x = build.reshape(x, (batch, groups, dims.floor_div(heads, groups) * rows, depth))
    result = build.dot_general(x, y, ([contract[0]], [contract[1]]), ((0, 1), (0, 1)))
    return build.reshape(result, (batch, heads, rows, result.tensor.shape[3]))


def rotated(x: Node, cos: Node, sin: Node, *, interleaved: bool, size: int = 0) -> Node:
    """Rotary embedding of [batch, heads, length, head size]: pairs turned by the position's angles.

    cos and sin broadcast with [batch, heads, length, size / 2]; of each head the first `size`
    elements (0: all) turn, in pairs (i, i + size / 2), or (2 i, 2 i + 1) if interleaved.
    """
    *lead, width = x.tensor.shape
    turned, rest = x, None
    if size and size != width:
        turned, rest = build.split(x, 3, (size, width - size))
    span = turned.tensor.shape[3]
    half = dims.floor_div(span, 2)
    if interleaved:
        pairs = build.reshape(turned, (*lead, half, 2))
        first, second = (
            build.reshape(piece, (*lead, half)) for piece in build.split(pairs, 4, (1, 1))
        )
    else:
        first, second = build.split(turned, 3, (half, half))
    real = build.subtract(build.multiply(first, cos), build.multiply(second, sin))
    imaginary = build.add(build.multiply(first, sin), build.multiply(second, cos))
    if interleaved:
        joined = build.concatenate([build.expand_dims(p, [4]) for p in (real, imaginary)], 4)
        result = build.reshape(joined, (*lead, span))
    else:
        result = build.concatenate([real, imaginary], 3)
    return result if rest is None else build.concatenate([result, rest], 3)
