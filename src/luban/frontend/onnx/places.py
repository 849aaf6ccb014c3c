"""Indices of elements: wrapping negative ones, reading and writing at them."""

from __future__ import annotations

from luban.core.dims import DimLike
from luban.core.errors import ShapeError
from luban.graph import build
from luban.graph.ops.data import Constant
from luban.graph.ops.structure import Gather, Scatter
from luban.ir.node import Node, node

__all__ = ["put_each", "take_each", "take_in_rows", "wrapped"]


def wrapped(indices: Node, size: DimLike) -> Node:
    """Indices with `size` added to the negative ones; as they are if none can be negative."""
    if isinstance(indices.op, Constant):
        values = indices.op.value.array
        if not (values < 0).any():
            return indices
        if isinstance(size, int):
            return build.constant(values + (values < 0) * size, indices.tensor.dtype)
    if indices.tensor.dtype.kind == "uint":
        return indices
    above = build.add(indices, build.cast(build.dimension(size), indices.tensor.dtype))
    return build.select(build.less(indices, 0), above, indices)


def take_each(x: Node, indices: Node, axis: int) -> Node:
    """numpy.take_along_axis: y[i, j, k] = x[i, indices[i, j, k], k] for axis 1. Indices are >= 0.

    Other axes of the indices may be shorter than those of x. Raises ShapeError for another rank.
    """
    _same_rank(x, indices)
    rank = x.tensor.rank
    for other in range(rank):
        if other != axis:
            x = build.slice_axis(x, other, 0, indices.tensor.shape[other])
    others = tuple(a for a in range(rank) if a != axis)
    op = Gather((), (axis,), others, others, (axis,), (1,) * rank)
    return node(op, x, build.expand_dims(indices, [rank]))


def take_in_rows(x: Node, indices: Node) -> Node:
    """For each row b of the batch, slices of x along axis 1: y[b, i] = x[b, indices[b, i]].

    x        [B, N, *rest]
    indices  integers [B, M], each in [0, N)
    """
    rest = x.tensor.shape[2:]
    op = Gather(tuple(range(2, 2 + len(rest))), (1,), (0,), (0,), (1,), (1, 1, *rest))
    return node(op, x, build.expand_dims(indices, [2]))


def put_each(x: Node, indices: Node, updates: Node, axis: int, combine: str) -> Node:
    """x with x[i, indices[i, j, k], k] = updates[i, j, k] for axis 1, combined as `scatter` says.

    Other axes of the indices may be shorter than those of x. Raises ShapeError for another rank.
    """
    _same_rank(x, indices)
    rank = x.tensor.rank
    others = tuple(a for a in range(rank) if a != axis)
    if all(x.tensor.shape[a] == indices.tensor.shape[a] for a in others):
        op = Scatter(combine, (), (axis,), others, others, (axis,))
        return node(op, x, build.expand_dims(indices, [rank]), updates)
    shape = indices.tensor.shape
    columns = [
        indices if a == axis else build.iota(shape, a, indices.tensor.dtype) for a in range(rank)
    ]
    places = build.concatenate([build.expand_dims(c, [rank]) for c in columns], rank)
    every = tuple(range(rank))
    return node(Scatter(combine, (), every, (), (), every), x, places, updates)


def _same_rank(x: Node, indices: Node) -> None:
    if indices.tensor.rank != x.tensor.rank:
        raise ShapeError(f"indices are {indices.tensor}, expected the rank of {x.tensor}")
