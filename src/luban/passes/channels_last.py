"""Images with channels last: convolutions read whole pixels, vector lanes run along channels.

Each value is kept in the layout in which it is made; the other one is a transpose that is added
only where somebody needs it. Convolutions and pooling make channels-last values, and whatever does
not care about the order of axes (elementwise maths, padding, slices, concatenation, reductions)
stays in that layout once an operand is. So transposes appear at the borders of a network only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from luban.core.registers import Registers
from luban.graph import build
from luban.graph.ops.contract import Convolution
from luban.graph.ops.elementwise import Bitcast, Cast, ElementwiseOp, Select
from luban.graph.ops.reduce import Reduce, ReduceWindow
from luban.graph.ops.structure import (
    BroadcastInDim,
    Concatenate,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from luban.ir.node import Graph, Node, Op, node, rebuilt
from luban.passes.decision import Decision
from luban.passes.panels import convolution_by_phases, convolution_in_panels, has_panels

__all__ = ["channels_last"]

T = TypeVar("T")


def channels_last(graph: Graph, registers: Registers) -> tuple[Graph, list[Decision]]:
    """The graph with its convolutions channels-last, and the decisions taken."""
    order = graph.nodes()
    if not any(isinstance(n.op, Convolution) for n in order):
        return graph, []
    images = _Images(registers)
    for n in dict.fromkeys((*graph.parameters, *order)):  # a parameter may have no use
        images.add(n)
    results = tuple(images.plain(r) for r in graph.results)
    parameters = tuple(images.plain(p) for p in graph.parameters)
    return Graph(graph.name, parameters, results, graph.result_names), images.decisions


def _to_last(values: Sequence[T]) -> tuple[T, ...]:
    """Per-axis values in channels-first order, in channels-last order."""
    first, channel, *space = values
    return (first, *space, channel)


def _last_axis_of(axis: int, rank: int) -> int:
    """Where an axis of the channels-first order is in the channels-last order."""
    return axis if axis == 0 else rank - 1 if axis == 1 else axis - 1


def _is_pixel(n: Node) -> bool:
    """True if there is only one place, so that both layouts are the same in memory."""
    return n.tensor.rank >= 3 and all(size == 1 for size in n.tensor.shape[2:])


class _Images:
    """Both layouts of every old node, made when asked for."""

    def __init__(self, registers: Registers) -> None:
        self.registers = registers
        self.decisions: list[Decision] = []
        self._plain: dict[Node, Node] = {}
        self._last: dict[Node, Node] = {}

    def add(self, old: Node) -> None:
        """Make an old node in the layout that suits it."""
        rule = _rule(old.op)
        made = None if rule is None else rule(self, old)
        if made is not None:
            self._last[old] = made
        elif old not in self._plain:
            self._plain[old] = rebuilt(old, tuple(self.plain(o) for o in old.operands))

    def has_last(self, old: Node) -> bool:
        """True if the value is made channels-last."""
        return old in self._last

    def set_plain(self, old: Node, new: Node) -> None:
        """State a value in its own layout."""
        self._plain[old] = new

    def plain(self, old: Node) -> Node:
        """The value in its own layout."""
        if old not in self._plain:
            last = self._last[old]
            if _is_pixel(old):
                self._plain[old] = build.reshape(last, old.tensor.shape)
            else:
                rank = old.tensor.rank
                self._plain[old] = build.transpose(last, (0, rank - 1, *range(1, rank - 1)))
        return self._plain[old]

    def last(self, old: Node) -> Node:
        """The value with its channels last."""
        if old not in self._last:
            if _is_pixel(old):
                made = build.reshape(self.plain(old), _to_last(old.tensor.shape))
            elif isinstance(old.op, BroadcastInDim):
                made = self.broadcast(old, old.op)
            else:
                made = build.transpose(self.plain(old), _to_last(range(old.tensor.rank)))
            self._last[old] = made
        return self._last[old]

    def broadcast(self, old: Node, op: BroadcastInDim) -> Node:
        """A broadcast straight into the channels-last layout."""
        rank = old.tensor.rank
        (source,) = old.operands
        if source.tensor.rank == rank:
            small = self.last(source)
            return node(BroadcastInDim(_to_last(op.shape), op.axes), small, loc=old.loc)
        places = [_last_axis_of(axis, rank) for axis in op.axes]
        order = sorted(range(len(places)), key=places.__getitem__)
        small = build.transpose(self.plain(source), order)
        axes = tuple(sorted(places))
        return node(BroadcastInDim(_to_last(op.shape), axes), small, loc=old.loc)


def _convolution(images: _Images, old: Node) -> Node | None:
    op, (lhs, filters) = old.op, old.operands
    assert isinstance(op, Convolution)
    if op.layout != "channels_first":
        return None
    rank = len(op.strides)
    x = images.last(lhs)
    weights = build.transpose(images.plain(filters), (*range(2, rank + 2), 1, 0))
    dtypes = (lhs.tensor.dtype, filters.tensor.dtype)
    if op.groups == 1 and all(has_panels(dtype, op.dtype) for dtype in dtypes):
        if all(d == 1 for d in op.lhs_dilation):
            images.decisions.append(Decision(old, True, "channels last, filters in panels"))
            return convolution_in_panels(images.registers, op, x, weights, old.loc)
        phases = convolution_by_phases(images.registers, op, x, weights, old.tensor.shape[2:])
        if phases is not None:
            why = "a transposed convolution as one plain convolution for each phase of its stride"
            images.decisions.append(Decision(old, True, why))
            return phases
    images.decisions.append(Decision(old, True, "channels last"))
    return node(replace(op, layout="channels_last"), x, weights, loc=old.loc)


def _reduce_window(images: _Images, old: Node) -> Node | None:
    op, (x,) = old.op, old.operands
    assert isinstance(op, ReduceWindow)
    if not images.has_last(x) and not _slides_in_space(op):
        return None
    fields = {
        name: _to_last(getattr(op, name))
        for name in ("window", "strides", "low", "high", "dilation")
    }
    return node(ReduceWindow(op.kind, **fields), images.last(x), loc=old.loc)


def _slides_in_space(op: ReduceWindow) -> bool:
    return len(op.window) >= 3 and op.window[:2] == (1, 1)


def _elementwise(images: _Images, old: Node) -> Node | None:
    if not any(images.has_last(o) for o in old.operands):
        return None
    operands = [o if not o.tensor.rank else images.last(o) for o in old.operands]
    scalars = [images.plain(o) if not o.tensor.rank else o for o in operands]
    return node(old.op, *scalars, loc=old.loc)


def _permuted(images: _Images, old: Node) -> Node | None:
    """Padding, slices, reversal, concatenation: the same with attributes in the other order."""
    if not any(images.has_last(o) for o in old.operands):
        return None
    rank = old.tensor.rank
    match old.op:
        case Pad(low=low, high=high, interior=interior):
            op: Op = Pad(_to_last(low), _to_last(high), _to_last(interior))
            return node(op, images.last(old.operands[0]), images.plain(old.operands[1]))
        case Slice(starts=starts, sizes=sizes, strides=strides):
            op = Slice(_to_last(starts), _to_last(sizes), _to_last(strides))
        case Reverse(axes=axes):
            op = Reverse(tuple(sorted(_last_axis_of(axis, rank) for axis in axes)))
        case Concatenate(axis=axis):
            op = Concatenate(_last_axis_of(axis, rank))
        case _:
            return None
    return node(op, *(images.last(o) for o in old.operands), loc=old.loc)


def _broadcast(images: _Images, old: Node) -> Node | None:
    assert isinstance(old.op, BroadcastInDim)
    (source,) = old.operands
    if source.tensor.rank != old.tensor.rank or not images.has_last(source):
        return None
    return images.broadcast(old, old.op)


def _reshape(images: _Images, old: Node) -> Node | None:
    """A reshape that keeps batch and channels only changes the places."""
    (source,) = old.operands
    kept = old.tensor.rank >= 3 and old.tensor.shape[:2] == source.tensor.shape[:2]
    if not kept or not images.has_last(source):
        return None
    return build.reshape(images.last(source), _to_last(old.tensor.shape))


def _transpose(images: _Images, old: Node) -> Node | None:
    """A transpose of a channels-last value: one transpose, or none."""
    (source,) = old.operands
    assert isinstance(old.op, Transpose)
    if images.has_last(source):
        rank = source.tensor.rank
        order = [_last_axis_of(axis, rank) for axis in old.op.permutation]
        images.set_plain(old, build.transpose(images.last(source), order))
    return None


def _reduce(images: _Images, old: Node) -> Node | None:
    op, (source,) = old.op, old.operands
    assert isinstance(op, Reduce)
    if not images.has_last(source):
        return None
    rank = source.tensor.rank
    axes = tuple(sorted(_last_axis_of(axis, rank) for axis in op.axes))
    left = [axis for axis in range(rank) if axis not in op.axes]
    moved = [_last_axis_of(axis, rank) for axis in left]
    made = node(Reduce(op.kind, axes), images.last(source), loc=old.loc)
    if moved == sorted(moved):
        images.set_plain(old, made)
        return None
    return made if left[:2] == [0, 1] else None


Rule = Callable[[_Images, Node], Node | None]
_RULES: dict[type[Op], Rule] = {
    Convolution: _convolution,
    ReduceWindow: _reduce_window,
    Select: _elementwise,
    Cast: _elementwise,
    Bitcast: _elementwise,
    Pad: _permuted,
    Slice: _permuted,
    Reverse: _permuted,
    Concatenate: _permuted,
    BroadcastInDim: _broadcast,
    Reshape: _reshape,
    Transpose: _transpose,
    Reduce: _reduce,
}


def _rule(op: Op) -> Rule | None:
    return _elementwise if isinstance(op, ElementwiseOp) else _RULES.get(type(op))
