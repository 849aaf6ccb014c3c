"""Attention operators of com.microsoft."""

from __future__ import annotations

from collections.abc import Sequence

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.dtypes import DType
from luban.frontend.onnx.attention import (
    attend,
    heads_of_size,
    merged_heads,
    rotated,
    split_heads,
    visible,
)
from luban.frontend.onnx.ops.microsoft import MICROSOFT
from luban.frontend.onnx.ops.microsoft_quantised import integer_product
from luban.frontend.onnx.registry import NodeContext, op
from luban.graph import build
from luban.ir.node import Node

__all__: list[str] = []


def _wall(seen: Node, element: DType, value: float) -> Node:
    """0 where a key is seen, else a large negative number."""
    return build.select(seen, 0, build.full(seen.tensor.shape, value, element))


def _lowest(element: DType) -> float:
    """The most negative finite number of a float type: what is added to shut a key off."""
    return float(_FINITE[element.name])


_FINITE = {"f16": -65504.0, "bf16": -3.3895313892515355e38, "f32": -3.4028234663852886e38}


def _sum(parts: Sequence[Node | None]) -> Node | None:
    """The sum of those that are there."""
    found: Node | None = None
    for part in parts:
        if part is not None:
            found = part if found is None else build.add(found, part)
    return found


def _mask_bias(
    ctx: NodeContext, mask: Node | None, q: Node, keys: DimLike, past: DimLike
) -> Node | None:
    """A mask in any of its forms as a bias that broadcasts with [batch, heads, queries, keys].

    [batch] holds lengths, [2 batch] ends and then starts, others are 1 for a key that is seen.
    """
    if mask is None:
        return None
    batch, queries, element = q.tensor.shape[0], q.tensor.shape[2], q.tensor.dtype
    low = ctx.float("mask_filter_value", -10000.0)
    given = mask.tensor
    if given.rank == 1:
        place = build.iota((1, 1, 1, keys), 3, "i64")
        wide = build.cast(mask, "i64")
        if given.shape[0] == 2 * batch:
            ends, starts = (
                build.reshape(piece, (batch, 1, 1, 1))
                for piece in build.split(wide, 0, (batch, batch))
            )
            seen = build.bitwise_and(build.less(place, ends), build.greater_equal(place, starts))
        else:
            seen = build.less(place, build.reshape(wide, (batch, 1, 1, 1)))
        return _wall(seen, element, low)
    flag = build.not_equal(mask, 0) if given.dtype.kind != "bool" else mask
    if given.rank == 2:
        flag = build.expand_dims(flag, [1, 2])
    elif given.rank == 3:
        flag = build.expand_dims(flag, [1])
    elif given.rank == 4:
        flag = build.slice_axis(build.slice_axis(flag, 2, past, queries), 3, 0, keys)
    else:
        raise ctx.unsupported(f"mask of {given}", "a mask of 1 to 4 axes")
    return _wall(flag, element, low)


def _causal(ctx: NodeContext, q: Node, keys: DimLike, past: DimLike) -> Node | None:
    if not ctx.int("unidirectional", 0):
        return None
    offset = build.dimension(past)
    seen = visible(q.tensor.shape[2], keys, offset, -1, 0)
    assert seen is not None
    return _wall(seen, q.tensor.dtype, _lowest(q.tensor.dtype))


def _scale(ctx: NodeContext) -> float | None:
    return ctx.float("scale", 0.0) or None


@op("Attention", domain=MICROSOFT)
def attention(
    ctx: NodeContext,
    x: Node,
    weights: Node,
    bias: Node | None = None,
    mask: Node | None = None,
    past: Node | None = None,
    added: Node | None = None,
    past_length: Node | None = None,
) -> tuple[Node, ...]:
    """Self attention with the projections inside, and a cache [2, batch, heads, length, size]."""
    if past_length is not None or ctx.int("past_present_share_buffer", 0):
        raise ctx.unsupported("past_present_share_buffer", "a past that grows")
    projected = build.dot_general(x, weights, ([2], [0]))
    if bias is not None:
        projected = build.add(projected, bias)
    return _self_attention(ctx, projected, mask, past, added)


@op("QAttention", domain=MICROSOFT)
def quantised_attention(
    ctx: NodeContext,
    x: Node,
    weights: Node,
    bias: Node,
    x_scale: Node,
    w_scale: Node,
    mask: Node | None = None,
    x_zero: Node | None = None,
    w_zero: Node | None = None,
    past: Node | None = None,
) -> tuple[Node, ...]:
    """The same with an integer projection."""
    projected = integer_product(ctx, x, weights, x_scale, w_scale, x_zero, w_zero, bias)
    return _self_attention(ctx, projected, mask, past, None)


def _self_attention(
    ctx: NodeContext, projected: Node, mask: Node | None, past: Node | None, added: Node | None
) -> tuple[Node, ...]:
    if ctx.int("do_rotary", 0):
        raise ctx.unsupported("do_rotary=1", "RotaryEmbedding before the attention")
    heads = ctx.int("num_heads")
    third = dims.floor_div(projected.tensor.shape[2], 3)
    widths: Sequence[DimLike] = ctx.ints("qkv_hidden_sizes", None) or (third, third, third)
    q, k, v = (split_heads(x, heads) for x in build.split(projected, 2, widths))
    past_size: DimLike = 0
    if past is not None:
        past_size = past.tensor.shape[3]
        old_k, old_v = (
            build.reshape(piece, past.tensor.shape[1:]) for piece in build.split(past, 0, (1, 1))
        )
        k, v = build.concatenate([old_k, k], 2), build.concatenate([old_v, v], 2)
    keys = k.tensor.shape[2]
    bias = _sum(
        [_mask_bias(ctx, mask, q, keys, past_size), _causal(ctx, q, keys, past_size), added]
    )
    scores = attend(q, k, v, scale=_scale(ctx), bias=bias, may_mask_all=False)
    result = merged_heads(scores.result)
    if not ctx.output_used(1):
        return (result,)
    return result, build.concatenate([build.expand_dims(x, [0]) for x in (k, v)], 0)


@op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    ctx: NodeContext,
    q: Node,
    k: Node | None = None,
    v: Node | None = None,
    bias: Node | None = None,
    mask: Node | None = None,
    added: Node | None = None,
    past_key: Node | None = None,
    past_value: Node | None = None,
    past_length: Node | None = None,
    indirection: Node | None = None,
) -> tuple[Node, ...]:
    """Attention of separate or packed queries, keys and values.

    With a past length, the cache has room for more keys than it holds: new ones are written behind
    those, and none further back is seen.
    """
    if indirection is not None:
        raise ctx.unsupported("cache_indirection (beams that share a cache)", "a cache a beam")
    heads = ctx.int("num_heads")
    q, k, v = _heads_of(q, k, v, bias, heads)
    if past_length is not None:
        if past_key is None or past_value is None:
            raise ctx.wrong("past_sequence_length needs past_key and past_value")
        return _with_shared_cache(ctx, (q, k, v), mask, added, (past_key, past_value), past_length)
    past: DimLike = 0
    if past_key is not None and past_value is not None:
        past = past_key.tensor.shape[2]
        k, v = build.concatenate([past_key, k], 2), build.concatenate([past_value, v], 2)
    keys = k.tensor.shape[2]
    total = _sum([_mask_bias(ctx, mask, q, keys, past), _causal(ctx, q, keys, past), added])
    scores = attend(q, k, v, scale=_scale(ctx), bias=total, may_mask_all=False)
    return merged_heads(scores.result), k, v, scores.raw


def _with_shared_cache(
    ctx: NodeContext,
    heads: tuple[Node, Node, Node],
    mask: Node | None,
    added: Node | None,
    cache: tuple[Node, Node],
    past_length: Node,
) -> tuple[Node, ...]:
    """Attention to a cache [batch, heads, room, size] up to the new keys; the new cache."""
    q, k, v = heads
    batch, length, room = q.tensor.shape[0], k.tensor.shape[2], cache[0].tensor.shape[2]
    start = build.reshape(build.cast(past_length, "i64"), (1,))
    held = build.broadcast_to(start, (batch,))
    k, v = (
        _appended(old, new, held, room, keep=True) for old, new in zip(cache, (k, v), strict=True)
    )
    causal = bool(ctx.int("unidirectional", 0))
    place = build.iota((1, 1, 1, room), 3, "i64")
    query = build.iota((1, 1, q.tensor.shape[2], 1), 2, "i64")
    last = build.reshape(start, (1, 1, 1, 1))
    end = build.add(last, build.add(query, 1) if causal else build.dimension(length))
    parts: list[Node | None] = [
        _wall(build.less(place, end), q.tensor.dtype, _lowest(q.tensor.dtype))
    ]
    for given in (_mask_bias(ctx, mask, q, room, 0), added):
        if given is not None:  # it may be as long as the keys that are seen
            behind = room - given.tensor.shape[3]
            parts.append(build.pad(given, (0, 0, 0, 0), (0, 0, 0, behind)))
    scores = attend(q, k, v, scale=_scale(ctx), bias=_sum(parts), may_mask_all=False)
    return merged_heads(scores.result), k, v, scores.raw


def _heads_of(
    q: Node, k: Node | None, v: Node | None, bias: Node | None, heads: int
) -> tuple[Node, Node, Node]:
    """Queries, keys and values as [batch, heads, length, size], their biases added."""
    if k is None:
        q, k, v = _unpacked(q)
    elif v is None:
        k, v = _unpacked(k)
    flat = [merged_heads(x) if x.tensor.rank == 4 else x for x in (q, k, v)]
    if bias is not None:
        widths = [x.tensor.shape[2] for x in flat]
        biases = build.split(bias, 0, widths)
        is_cached = k.tensor.rank == 4  # keys of a cache have theirs in already
        flat = [
            build.add(x, b) if i == 0 or not is_cached else x
            for i, (x, b) in enumerate(zip(flat, biases, strict=True))
        ]
    q, k, v = (split_heads(x, heads) for x in flat)
    return q, k, v


def _unpacked(packed: Node) -> tuple[Node, ...]:
    """[batch, length, heads, n, size] as n times [batch, length, heads * size]."""
    batch, length, heads, count, size = packed.tensor.shape
    assert isinstance(count, int)
    pieces = build.split(packed, 3, (1,) * count)
    return tuple(build.reshape(p, (batch, length, heads * size)) for p in pieces)


@op("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(ctx: NodeContext, x: Node, positions: Node, cos: Node, sin: Node) -> Node:
    """Pairs of elements of each head turned by angles that depend on the position."""
    if ctx.int("is_packed_batching", 0):
        raise ctx.unsupported("is_packed_batching=1", "padded batches")
    size = ctx.int("rotary_embedding_dim", 0)
    is_flat = x.tensor.rank == 3
    heads = x
    if is_flat:
        count = ctx.int("num_heads", 0)
        whole = cos.tensor.shape[1] * 2
        heads = split_heads(x, count) if count else heads_of_size(x, whole)
    if positions.tensor.shape == (1,):
        length = heads.tensor.shape[2]
        start = build.reshape(build.cast(positions, "i64"), ())
        positions = build.add(build.iota((1, length), 1, "i64"), start)
    return _turned(ctx, heads, positions, cos, sin, "interleaved", size, is_flat=is_flat)


def _turned(
    ctx: NodeContext,
    heads: Node,
    positions: Node,
    cos: Node,
    sin: Node,
    attribute: str,
    size: int,
    *,
    is_flat: bool,
) -> Node:
    angles = [build.expand_dims(build.take(table, positions, 0), [1]) for table in (cos, sin)]
    interleaved = bool(ctx.int(attribute, 0))
    result = rotated(heads, angles[0], angles[1], interleaved=interleaved, size=size)
    return merged_heads(result) if is_flat else result


@op("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    ctx: NodeContext,
    q: Node,
    k: Node | None,
    v: Node | None,
    past_key: Node | None,
    past_value: Node | None,
    last: Node,
    total_length: Node,
    cos: Node | None = None,
    sin: Node | None = None,
    positions: Node | None = None,
    added: Node | None = None,
    sink: Node | None = None,
) -> tuple[Node, ...]:
    """Causal attention with a cache that holds last[b] + 1 keys of row b with the new ones."""
    if sink is None and ctx.int("smooth_softmax", 0) == 1:
        sink = build.full((1,), 0, q.tensor.dtype)
    num_heads, groups = ctx.int("num_heads"), ctx.int("kv_num_heads")
    if k is None or v is None:
        size = dims.floor_div(q.tensor.shape[2], num_heads + 2 * groups)
        q, k, v = build.split(q, 2, (num_heads * size, groups * size, groups * size))
    q = split_heads(q, num_heads)
    k, v = (x if x.tensor.rank == 4 else split_heads(x, groups) for x in (k, v))
    batch, _, length, _ = q.tensor.shape
    start = _held(last, batch, length)
    if ctx.int("do_rotary", 0):
        if cos is None or sin is None:
            raise ctx.wrong("do_rotary needs cos_cache and sin_cache")
        if positions is None:
            place = build.iota((batch, length), 1, "i64")
            positions = build.add(place, build.reshape(start, (batch, 1)))
        size = cos.tensor.shape[1] * 2
        width = size if isinstance(size, int) else 0
        q, k = (
            _turned(ctx, x, positions, cos, sin, "rotary_interleaved", width, is_flat=False)
            for x in (q, k)
        )
    if past_key is not None and past_value is not None:
        keys = ctx.static_sizes(total_length)[0]
        keys = dims.maximum(keys, past_key.tensor.shape[2])
        k, v = (_appended(old, new, start, keys) for old, new in ((past_key, k), (past_value, v)))
    window = ctx.int("local_window_size", -1)  # the query's own key is one of them
    seen = visible(length, k.tensor.shape[2], start, max(window - 1, -1), 0)
    assert seen is not None
    bias = _sum([_wall(seen, q.tensor.dtype, _lowest(q.tensor.dtype)), added])
    assert bias is not None
    all_k, all_v, bias = (k, v, bias) if sink is None else _with_sink(q, k, v, bias, sink)
    scores = attend(
        q,
        all_k,
        all_v,
        scale=_scale(ctx),
        bias=bias,
        softcap=ctx.float("softcap", 0.0),
        may_mask_all=False,
    )
    return merged_heads(scores.result), k, v


def _with_sink(q: Node, k: Node, v: Node, bias: Node, sink: Node) -> tuple[Node, Node, Node]:
    """Keys, values and bias with one more key, whose score is `sink` [heads or 1] and value 0.

    It takes its share of the softmax and gives nothing: exp(sink) more in the denominator.
    """
    batch, heads, length, _ = q.tensor.shape
    rows = build.broadcast_to(bias, (batch, heads, length, k.tensor.shape[2]))
    score = build.reshape(build.cast(sink, q.tensor.dtype), (1, sink.tensor.shape[0], 1, 1))
    column = build.broadcast_to(score, (batch, heads, length, 1))
    k, v = (build.pad(x, (0, 0, 0, 0), (0, 0, 1, 0)) for x in (k, v))
    return k, v, build.concatenate([rows, column], 3)


def _held(last: Node, batch: DimLike, length: DimLike) -> Node:
    """How many keys each row's cache holds before the new ones come: their place."""
    wide = build.cast(build.reshape(last, (batch,)), "i64")
    return build.maximum(build.subtract(wide, build.dimension(length - 1)), 0)


def _appended(old: Node, new: Node, start: Node, keys: DimLike, *, keep: bool = False) -> Node:
    """The cache [batch, heads, keys, size]: the old before `start`, then the new, then zeros, or
    what was there if `keep`.
    """
    batch, heads, past, size = old.tensor.shape
    length = new.tensor.shape[2]
    shape = (batch, heads, keys, size)
    place = build.iota((batch, keys), 1, "i64")
    offset = build.subtract(place, build.reshape(start, (batch, 1)))
    rows = _rows_at(new, offset)
    wide = build.pad(old, (0, 0, 0, 0), (0, 0, keys - past, 0))
    is_old, is_new = (
        build.broadcast_to(build.reshape(flag, (batch, 1, keys, 1)), shape)
        for flag in (
            build.less(offset, 0),
            build.less(offset, build.dimension(length)),
        )
    )
    return build.select(is_old, wide, build.select(is_new, rows, wide if keep else 0))


def _rows_at(x: Node, places: Node) -> Node:
    """x[b, :, places[b, i], :], places outside clamped."""
    batch, _, length, _ = x.tensor.shape
    moved = build.transpose(x, (0, 2, 1, 3))
    inside = build.minimum(build.maximum(places, 0), build.dimension(length - 1))
    flat = build.reshape(moved, (batch * length, *moved.tensor.shape[2:]))
    row = build.multiply(build.iota(places.tensor.shape, 0, "i64"), build.dimension(length))
    return build.transpose(build.take(flat, build.add(row, inside), 0), (0, 2, 1, 3))
