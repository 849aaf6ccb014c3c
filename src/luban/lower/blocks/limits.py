"""Strips that a mask leaves out: how far the live ones go, and what the others amount to.

A row of 781 elements in a block of 1,024 has strips in which every lane is masked off. Nothing is
stored there, and what a fold takes in is one number, the same for all of them: folding it once is
enough where more of it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from luban.lower.blocks.places import Coordinates, Frame, Slot
from luban.lower.blocks.recipes import ELEMENTWISE
from luban.lower.blocks.strips import all_positions, at, first, operand_coordinates, slope
from luban.tile.expr import Expr
from luban.tile.function import Operation, Value
from luban.tile.memory_ops import Gather
from luban.tile.ops import Binary, Broadcast, Compare, ExtractSlice, Reshape, Transpose

__all__ = ["dead_value", "live_lanes"]


def live_lanes(f: Frame, mask: Value, coordinates: Coordinates) -> Expr | None:
    """How many of the first lanes a mask may be true for, i64; all later ones are false.

    None where that is not seen from its form, or where it is known to be true.
    """
    if mask in f.true_masks:
        return None
    place = f.places.get(mask)
    match place:
        case Operation(op=Binary(kind="and")):
            parts = [live_lanes(f, operand, coordinates) for operand in place.operands]
            known = [part for part in parts if part is not None]
            return None if not known else known[0] if len(known) == 1 else f.b.min(*known)
        case Operation(op=Broadcast() | Transpose() | Reshape() | ExtractSlice()):
            inner = operand_coordinates(f, place, coordinates)
            if inner is None:
                return None
            return live_lanes(f, place.operands[0], all_positions(inner))
        case Operation(op=Compare(predicate="lt" | "le" as predicate)):
            small, large = place.operands
            return _below(f, small, large, coordinates, equal=predicate == "le")
        case Operation(op=Compare(predicate="gt" | "ge" as predicate)):
            large, small = place.operands
            return _below(f, small, large, coordinates, equal=predicate == "ge")
    return None


def _below(
    f: Frame, small: Value, large: Value, coordinates: Coordinates, *, equal: bool
) -> Expr | None:
    """Lanes of x + lane < y, for integers."""
    if not small.type.dtype.is_integer:
        return None
    steps = slope(f, small, coordinates, None), slope(f, large, coordinates, None)
    if not all(isinstance(step, int) for step in steps) or steps != (1, 0):
        return None
    ends = [f.b.cast(at(f, value, first(coordinates)), "i64") for value in (small, large)]
    return f.b.max(ends[1] - ends[0] + int(equal), 0)


def dead_value(f: Frame, value: Value, coordinates: Coordinates, limits: list[Expr]) -> Expr | None:
    """The one number that a value is in all lanes beyond some, whose numbers are added to `limits`.

    None where those lanes differ, or where that is not seen.
    """
    place = f.places.get(value)
    match place:
        case Expr():
            return place
        case Slot(strides=strides):
            wide = zip(coordinates, strides, strict=True)
            uniform = all(p.width == 1 or stride == 0 for p, stride in wide)
            return at(f, value, first(coordinates)) if uniform else None
        case Operation(op=Gather()):
            return _dead_read(f, place, coordinates, limits)
        case Operation(op=Broadcast() | Transpose() | Reshape() | ExtractSlice()):
            inner = operand_coordinates(f, place, coordinates)
            if inner is None:
                return None
            return dead_value(f, place.operands[0], all_positions(inner), limits)
    if not isinstance(place, Operation) or not isinstance(place.op, ELEMENTWISE):
        return None
    if value.type.dtype.kind == "bool":
        live = live_lanes(f, value, coordinates)
        if live is not None:
            limits.append(live)
            return f.b.constant(False, "bool")
    parts = _all_dead(f, place.operands, coordinates, limits)
    return None if parts is None else f.b.emit(place.op, *[part.value for part in parts])[0]


def _all_dead(
    f: Frame, values: Sequence[Value], coordinates: Coordinates, limits: list[Expr]
) -> list[Expr] | None:
    found = []
    for value in values:
        part = dead_value(f, value, coordinates, limits)
        if part is None:
            return None
        found.append(part)
    return found


def _dead_read(
    f: Frame, operation: Operation, coordinates: Coordinates, limits: list[Expr]
) -> Expr | None:
    """What a masked read gives where the mask is false."""
    _, _, *rest = operation.operands
    live = live_lanes(f, rest[0], coordinates) if rest else None
    if live is None:
        return None
    limits.append(live)
    if len(rest) > 1:
        return dead_value(f, rest[1], coordinates, limits)
    elem = operation.result.type.dtype
    return f.b.constant(False if elem.kind == "bool" else 0.0 if elem.is_float else 0, elem)
