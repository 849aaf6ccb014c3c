"""What templates share: operands as loads, and a program's number as places."""

from __future__ import annotations

from luban.core.dims import DimLike
from luban.lower.affine import Linear
from luban.lower.scope import Scope
from luban.lower.trace import Declined, Ref
from luban.tile.expr import Expr

__all__ = ["loaded", "offset_of", "split_place"]


def loaded(value: Ref) -> Ref:
    """The load under a widening cast. Raises Declined for anything else."""
    if value.kind == "cast":
        value = value.args[0]
    if value.kind != "load":
        raise Declined(f"an operand is computed ({value.kind}), not in memory")
    if offset_of(value).values:
        raise Declined("an operand is read at places that are computed")
    return value


def offset_of(load: Ref) -> Linear:
    """Where a load reads."""
    assert load.offset is not None
    return load.offset


def split_place(scope: Scope, place: Expr, size: DimLike) -> tuple[Expr, Expr]:
    """(place // size, place % size)"""
    if size == 1:
        return place, scope.b.constant(0)
    count = scope.size(size)
    quotient = place // count
    return quotient, place - quotient * count
