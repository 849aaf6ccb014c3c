"""Reading and writing at run-time places. Negative indices count from the end."""

from __future__ import annotations

from collections.abc import Sequence

from luban.core.dims import Dim
from luban.core.errors import ShapeError
from luban.core.types import Type
from luban.frontend.onnx.arguments import axis_from
from luban.frontend.onnx.context import NodeContext, RunTimeValueNeeded
from luban.frontend.onnx.places import put_each, take_each, wrapped
from luban.frontend.onnx.registry import op
from luban.graph import build
from luban.graph.ops.structure import Gather, Scatter
from luban.ir.node import Node, node

__all__: list[str] = []

_COMBINE = {
    "none": "replace",
    "add": "add",
    "mul": "multiply",
    "max": "maximum",
    "min": "minimum",
}


@op("Gather", since=1)
def gather(ctx: NodeContext, x: Node, indices: Node) -> Node:
    """Slices of x at `indices` along `axis`, in the indices' shape."""
    axis = axis_from(ctx.int("axis", 0), x.tensor.rank)
    return build.take(x, wrapped(indices, x.tensor.shape[axis]), axis)


@op("GatherElements", since=11)
def gather_elements(ctx: NodeContext, x: Node, indices: Node) -> Node:
    """For each index the element of x at the same place, but for the index along `axis`."""
    axis = axis_from(ctx.int("axis", 0), x.tensor.rank)
    return take_each(x, wrapped(indices, x.tensor.shape[axis]), axis)


@op("GatherND", since=11)
def gather_nd(ctx: NodeContext, x: Node, indices: Node) -> Node:
    """Slices of x at index vectors, which lie along the last axis of `indices`."""
    batch = ctx.int("batch_dims", 0)
    if batch < 0:
        raise ctx.wrong(f"batch_dims is {batch}, expected 0 or more")
    depth = _depth(x, indices, batch)
    shared = tuple(range(batch))
    named = tuple(range(batch, batch + depth))
    rest = x.tensor.shape[batch + depth :]
    first = indices.tensor.rank - 1
    gathered = Gather(
        tuple(range(first, first + len(rest))),
        named,
        shared,
        shared,
        named,
        (*(1,) * (batch + depth), *rest),
    )
    return node(gathered, x, _wrapped_vectors(x, indices, batch, depth))


def _depth(x: Node, indices: Node, batch: int, results: Sequence[Type] | None = None) -> int:
    depth = indices.tensor.shape[-1] if indices.tensor.rank else 0
    if isinstance(depth, Dim):
        raise RunTimeValueNeeded(indices, results)
    if not 1 <= depth <= x.tensor.rank - batch:
        raise ShapeError(
            f"indices are {indices.tensor}, expected a last axis of 1 to {x.tensor.rank - batch} "
            f"for {x.tensor} with {batch} batch axes"
        )
    return depth


def _wrapped_vectors(x: Node, indices: Node, batch: int, depth: int) -> Node:
    sizes = x.tensor.shape[batch : batch + depth]
    if depth == 1:
        return wrapped(indices, sizes[0])
    above = build.add(indices, build.cast(build.shape_vector(sizes), indices.tensor.dtype))
    return build.select(build.less(indices, 0), above, indices)


@op("Scatter", since=9)
@op("ScatterElements", since=11)
def scatter_elements(ctx: NodeContext, x: Node, indices: Node, updates: Node) -> Node:
    """x with `updates` combined in at the same place, but for the index along `axis`."""
    axis = axis_from(ctx.int("axis", 0), x.tensor.rank)
    places = wrapped(indices, x.tensor.shape[axis])
    return put_each(x, places, updates, axis, _combine(ctx))


@op("ScatterND", since=11)
def scatter_nd(ctx: NodeContext, x: Node, indices: Node, updates: Node) -> Node:
    """x with slices combined in at index vectors, which lie along the last axis of `indices`."""
    depth = _depth(x, indices, 0, [x.type])
    first = indices.tensor.rank - 1
    window = tuple(range(first, first + x.tensor.rank - depth))
    named = tuple(range(depth))
    scattered = Scatter(_combine(ctx), window, named, (), (), named)
    return node(scattered, x, _wrapped_vectors(x, indices, 0, depth), updates)


def _combine(ctx: NodeContext) -> str:
    given = ctx.text("reduction", "none")
    if given not in _COMBINE:
        raise ctx.wrong(f"reduction is {given!r}, expected one of {', '.join(_COMBINE)}")
    return _COMBINE[given]


@op("TensorScatter", since=24)
def tensor_scatter(
    ctx: NodeContext, cache: Node, update: Node, write_indices: Node | None = None
) -> Node:
    """The cache with `update` written along `axis` from each sample's write index on."""
    rank = cache.tensor.rank
    axis = axis_from(ctx.int("axis", -2), rank)
    if axis == 0:
        raise ctx.wrong("axis is 0, the batch, expected a sequence axis")
    batch, length = update.tensor.shape[0], update.tensor.shape[axis]
    places = build.iota((batch, length), 1)
    if write_indices is not None:
        start = build.reshape(build.cast(write_indices, "i64"), (batch, 1))
        places = build.add(places, start)
    if ctx.text("mode", "linear") == "circular":
        places = build.floor_mod(places, build.dimension(cache.tensor.shape[axis]))
    window = tuple(a for a in range(rank) if a not in (0, axis))
    scattered = Scatter("replace", window, (axis,), (0,), (0,), (axis,))
    return node(scattered, cache, build.expand_dims(places, [2]), update)
