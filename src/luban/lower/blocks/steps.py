"""Operations with loop nests of their own: scans, products, atomic updates."""

from __future__ import annotations

from collections.abc import Sequence

from luban.core.dtypes import DType
from luban.lower.blocks.clusters import Clusters
from luban.lower.blocks.nests import combine
from luban.lower.blocks.places import Pending, Position, Slot
from luban.lower.blocks.products import emit_product
from luban.lower.blocks.strips import at, write_slot
from luban.tile.block_ops import Scan
from luban.tile.expr import Expr
from luban.tile.function import Operation, Value
from luban.tile.ops import Cast

__all__ = ["dot", "scan", "update"]

_UPDATE_LANES = 8  # each is code of its own


def scan(w: Clusters, operation: Operation) -> None:
    """Running results, one step along the axis at a time."""
    op = operation.op
    assert isinstance(op, Scan)
    w.prepare(operation.operands)
    w.flush()
    f = w.f
    shape = operation.operands[0].type.shape
    slots = [f.slot(value.type.dtype, shape) for value in operation.results]
    lane_axis = len(shape) - 1 if op.axis != len(shape) - 1 else None
    width = 1 if lane_axis is None else min(shape[-1], 2 * f.registers.lanes(4))
    if lane_axis is not None and shape[-1] % width:
        width = 1

    def along(places: dict[int, Position]) -> None:
        extent = shape[op.axis]

        def coordinates(turn: Expr) -> tuple[Position, ...]:
            index = (extent - 1) - turn if op.reverse else turn
            full = places | {op.axis: Position(index)}
            return tuple(full[axis] for axis in range(len(shape)))

        def step(turn: Expr, so_far: Sequence[Expr]) -> list[Expr]:
            spot = coordinates(turn)
            lanes = (width,) if width > 1 else ()
            new = [f.b.broadcast(at(f, v, spot), lanes) for v in operation.operands]
            after = combine(f, operation, so_far, new) if so_far else new
            for slot, value in zip(slots, after, strict=True):
                write_slot(f, slot, spot, value)
            return after

        with f.scope():
            first = step(f.b.constant(0), ())
        with f.b.for_(1, extent, carried=first) as loop, f.scope():
            loop.yield_(*step(loop.index, loop.carried))

    def rows(axes: Sequence[int], places: dict[int, Position]) -> None:
        if not axes:
            along(places)
            return
        axis, *rest = axes
        lanes = width if axis == lane_axis else 1
        with f.b.for_(0, shape[axis], lanes) as loop, f.scope():
            rows(rest, places | {axis: Position(loop.index, lanes)})

    rows([axis for axis in range(len(shape)) if axis != op.axis], {})
    f.places.update(zip(operation.results, slots, strict=True))


def dot(w: Clusters, operation: Operation) -> None:
    """A product of blocks that lie in memory, in the type of its sums."""
    a, b, acc = operation.operands
    total = acc.type.dtype
    left, right = (_factor(w, value, total) for value in (a, b))
    w.prepare((acc,))
    w.flush()
    result = w.targets.pop(operation.result, None)
    result = result or w.f.slot(total, acc.type.shape)
    with w.f.scope():
        emit_product(w.f, operation, left, right, result)
    w.f.places[operation.result] = result


def _factor(w: Clusters, value: Value, total: DType) -> Slot:
    """A factor in memory, cast."""
    place = w.f.places.get(value)
    if value.type.dtype is total:
        return w.in_memory(value)
    if isinstance(place, Pending):
        w.flush()
    wide = Value(value.type.with_dtype(total))
    cast = Operation(Cast(total), (value,), (wide,))
    w.plan.makers[wide] = cast
    w.f.places[wide] = cast
    return w.in_memory(wide)


def update(w: Clusters, operation: Operation, base: Expr) -> None:
    """Atomic updates of a block, a few lanes at a time; the old values go to a slot if used."""
    offsets = operation.operands[1]
    f = w.f
    shape = offsets.type.shape
    w.prepare(operation.operands[1:])
    w.flush()
    used = bool(w.plan.users.get(operation.result))
    slot = f.slot(operation.result.type.dtype, shape) if used else None
    width = min(shape[-1], _UPDATE_LANES)
    if shape[-1] % width:
        width = 1

    def strip(spot: tuple[Position, ...]) -> None:
        lanes = (width,) if width > 1 else ()
        parts = [f.b.broadcast(at(f, v, spot), lanes) for v in operation.operands[1:]]
        (old,) = f.b.emit(operation.op, base.value, *[part.value for part in parts])
        if slot is not None:
            write_slot(f, slot, spot, old)

    def rows(spot: tuple[Position, ...]) -> None:
        axis = len(spot)
        if axis == len(shape):
            strip(spot)
            return
        step = width if axis == len(shape) - 1 else 1
        with f.b.for_(0, shape[axis], step) as loop, f.scope():
            rows((*spot, Position(loop.index, step)))

    with f.scope():
        rows(())
    if slot is not None:
        f.places[operation.result] = slot
