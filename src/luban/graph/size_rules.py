"""Rules between symbolic sizes that operations rely on and that inference cannot prove."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.size_rules import SizeRule
from luban.core.types import TensorType
from luban.graph.ops.contract import Convolution, DotGeneral
from luban.graph.ops.control import Scan
from luban.graph.ops.reduce import ArgReduce, TopK
from luban.graph.ops.structure import (
    BroadcastInDim,
    Concatenate,
    DynamicSlice,
    DynamicUpdateSlice,
    Gather,
    Reshape,
    Scatter,
    Slice,
)
from luban.ir.node import Graph, Node, Op

__all__ = ["size_rules"]

Pair = tuple[str, DimLike, DimLike, str]
"""Relation, left, right, and which sizes these are."""


def size_rules(graph: Graph) -> tuple[SizeRule, ...]:
    """What must hold between the sizes of a call, in the order of the nodes, each thing once."""
    found: dict[tuple[str, DimLike, DimLike], SizeRule] = {}
    for n in graph.nodes():
        collect = _RULES.get(type(n.op))
        if collect is None or not all(isinstance(o.type, TensorType) for o in n.operands):
            continue
        for relation, left, right, what in collect(n.op, n):
            rule = SizeRule(relation, left, right, f"{n.op.name}: {what}", n.loc)
            if not rule.is_proved:
                found.setdefault((relation, left, right), rule)
    return tuple(found.values())


def _at_most(left: DimLike, right: DimLike) -> bool:
    """True if left <= right whatever the symbols are."""
    return dims.bounds(right - left)[0] >= 0


def _broadcast(op: BroadcastInDim, n: Node) -> Iterator[Pair]:
    for i, axis in enumerate(op.axes):
        what = f"axis {i} of {n.operands[0].tensor} and axis {axis} of the result"
        yield "repeats_to", n.operands[0].tensor.shape[i], op.shape[axis], what


def _reshape(op: Reshape, n: Node) -> Iterator[Pair]:
    given = n.operands[0].tensor
    what = f"the elements of {given} and of {list(op.shape)}"
    yield "equal", given.num_elements, dims.num_elements(op.shape), what


def _slice(op: Slice, n: Node) -> Iterator[Pair]:
    given = n.operands[0].tensor
    rows = zip(given.shape, op.starts, op.sizes, op.strides, strict=True)
    for axis, (size, start, count, stride) in enumerate(rows):
        what = f"the end of the slice and axis {axis} of {given}"
        end = start + (count - 1) * stride + 1
        if not _at_most(end, size):
            # A slice of no elements may lie anywhere.
            yield "at_most", end * dims.minimum(count, 1), size, what
        if dims.bounds(start)[0] < 0:
            yield "at_most", start * -1 * dims.minimum(count, 1), 0, f"the start of {what}"


def _concatenate(op: Concatenate, n: Node) -> Iterator[Pair]:
    first = n.operands[0].tensor
    for other in n.operands[1:]:
        for axis, (a, b) in enumerate(zip(first.shape, other.tensor.shape, strict=True)):
            if axis != op.axis:
                yield "equal", a, b, f"axis {axis} of {first} and of {other.tensor}"


def _dot(op: DotGeneral, n: Node) -> Iterator[Pair]:
    lhs, rhs = (o.tensor for o in n.operands)
    left, right = (*op.lhs_batch, *op.lhs_contract), (*op.rhs_batch, *op.rhs_contract)
    for a, b in zip(left, right, strict=True):
        yield "equal", lhs.shape[a], rhs.shape[b], f"axis {a} of {lhs} and axis {b} of {rhs}"


def _convolution(op: Convolution, n: Node) -> Iterator[Pair]:
    lhs, rhs = (o.tensor for o in n.operands)
    first = op.layout == "channels_first"
    channels, inputs = (lhs.shape[1], rhs.shape[1]) if first else (lhs.shape[-1], rhs.shape[-2])
    what = f"the channels of {lhs} and of {op.groups} groups of {rhs}"
    yield "equal", channels, inputs * op.groups, what


def _gather(op: Gather, n: Node) -> Iterator[Pair]:
    given, indices = (o.tensor for o in n.operands)
    # Nothing is read where the result has no elements.
    some = dims.minimum(n.tensor.num_elements, 1)
    for axis, (size, whole) in enumerate(zip(op.slice_sizes, given.shape, strict=True)):
        if axis not in op.operand_batching_axes and not _at_most(size, whole):
            yield "at_most", size * some, whole, f"the slice and axis {axis} of {given}"
    for a, b in zip(op.operand_batching_axes, op.indices_batching_axes, strict=True):
        what = f"axis {b} of the indices {indices} and axis {a} of {given}"
        yield "equal", indices.shape[b], given.shape[a], what


def _scatter(op: Scatter, n: Node) -> Iterator[Pair]:
    given, indices, updates = (o.tensor for o in n.operands)
    outer = (s for axis, s in enumerate(updates.shape) if axis not in op.window_axes)
    for axis, (a, b) in enumerate(zip(outer, indices.shape, strict=False)):
        yield "equal", a, b, f"the updates {updates} and axis {axis} of the indices {indices}"
    for a, b in zip(op.operand_batching_axes, op.indices_batching_axes, strict=True):
        what = f"axis {b} of the indices {indices} and axis {a} of {given}"
        yield "equal", indices.shape[b], given.shape[a], what
    for axis, position in op.windows(given.rank).items():
        if axis not in op.scatter_axes:  # along those, what does not lie inside is left out
            what = f"axis {position} of the updates {updates} and axis {axis} of {given}"
            yield "at_most", updates.shape[position], given.shape[axis], what


def _dynamic_slice(op: DynamicSlice, n: Node) -> Iterator[Pair]:
    yield from _block(op.sizes, n)


def _dynamic_update(_op: DynamicUpdateSlice, n: Node) -> Iterator[Pair]:
    yield from _block(n.operands[1].tensor.shape, n)


def _block(sizes: tuple[DimLike, ...], n: Node) -> Iterator[Pair]:
    given = n.operands[0].tensor
    for axis, (size, whole) in enumerate(zip(sizes, given.shape, strict=True)):
        yield "at_most", size, whole, f"the block and axis {axis} of {given}"


def _top_k(op: TopK, n: Node) -> Iterator[Pair]:
    given = n.operands[0].tensor
    yield "at_most", op.k, given.shape[op.axis], f"k and axis {op.axis} of {given}"


def _arg_reduce(op: ArgReduce, n: Node) -> Iterator[Pair]:
    given = n.operands[0].tensor
    yield "at_most", 1, given.shape[op.axis], f"1 and the size of axis {op.axis} of {given}"


def _scan(op: Scan, n: Node) -> Iterator[Pair]:
    scanned = [o.tensor for o in n.operands[op.num_carried :][: len(op.scan_axes)]]
    lengths = [x.shape[axis] for x, axis in zip(scanned, op.scan_axes, strict=True)]
    for x, length in zip(scanned[1:], lengths[1:], strict=True):
        yield "equal", lengths[0], length, f"the lengths of {scanned[0]} and {x}"


_RULES: dict[type[Op], Callable[[Any, Node], Iterator[Pair]]] = {
    ArgReduce: _arg_reduce,
    BroadcastInDim: _broadcast,
    Concatenate: _concatenate,
    Convolution: _convolution,
    DotGeneral: _dot,
    DynamicSlice: _dynamic_slice,
    DynamicUpdateSlice: _dynamic_update,
    Gather: _gather,
    Reshape: _reshape,
    Scan: _scan,
    Scatter: _scatter,
    Slice: _slice,
    TopK: _top_k,
}
