"""Masks that are true for a whole block: then the block is done without them."""

from __future__ import annotations

from luban.lower.blocks.places import Frame, Position
from luban.lower.blocks.strips import at, slope
from luban.tile.expr import Expr
from luban.tile.function import Operation, Value
from luban.tile.ops import Binary, Broadcast, Compare, Reshape, Transpose

__all__ = ["all_true"]


def all_true(f: Frame, mask: Value) -> Expr | None:
    """A bool that is true only if every element of the mask is; None where that is not cheap."""
    place = f.places.get(mask)
    match place:
        case Expr():
            return place
        case Operation(op=Binary(kind="and")):
            left, right = (all_true(f, operand) for operand in place.operands)
            return None if left is None or right is None else left & right
        case Operation(op=Broadcast() | Transpose() | Reshape()):
            return all_true(f, place.operands[0])
        case Operation(op=Compare(predicate="lt" | "le" as predicate)):
            return _order(f, predicate, *place.operands)
        case Operation(op=Compare(predicate="gt")):
            return _order(f, "lt", *reversed(place.operands))
        case Operation(op=Compare(predicate="ge")):
            return _order(f, "le", *reversed(place.operands))
    return None


def _order(f: Frame, predicate: str, small: Value, large: Value) -> Expr | None:
    """Whether the largest of `small` is below the smallest of `large`."""
    if not small.type.dtype.is_integer:
        return None
    ends = _corner(f, small, highest=True), _corner(f, large, highest=False)
    if ends[0] is None or ends[1] is None:
        return None
    return f.b.compare("lt" if predicate == "lt" else "le", ends[0], ends[1])


def _corner(f: Frame, value: Value, *, highest: bool) -> Expr | None:
    """The greatest or least element of what grows evenly along every axis."""
    zero = f.b.constant(0)
    shape = value.type.shape
    corner = []
    for axis, extent in enumerate(shape):
        along = [Position(zero)] * len(shape)
        along[axis] = Position(zero, extent)
        step = slope(f, value, tuple(along), None)
        if not isinstance(step, int):
            return None
        corner.append(Position(f.b.constant(extent - 1 if (step > 0) == highest else 0)))
    return at(f, value, tuple(corner))
