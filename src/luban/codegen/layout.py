"""How many lanes the chunks of each tile value have.

Values that meet in elementwise ops get one chunk size, that of the widest element among them: an i8
tile that becomes f32 is loaded 16 at a time, so no lane has to move. The result is a choice of
speed only: any chunk size is correct.
"""

from __future__ import annotations

from collections.abc import Sequence

from luban.codegen.registers import register_elem
from luban.codegen.writer import BITS
from luban.native.target import Target
from luban.tile.function import Function, Operation, Value
from luban.tile.memory_ops import For, Gather, If, Load, Scatter, Store, While
from luban.tile.ops import (
    Binary,
    Bitcast,
    Broadcast,
    Cast,
    Compare,
    Concat,
    Dot4,
    DotPair,
    ExtractSlice,
    Fma,
    Reduce,
    Select,
    Unary,
)

__all__ = ["choose_lanes"]

_ELEMENTWISE = (Binary, Bitcast, Cast, Fma, Select, Unary)


def choose_lanes(function: Function, target: Target) -> dict[Value, int]:
    """Lanes for every tile of at least one axis that `function` mentions."""
    groups = _Groups()
    operations = list(function.operations())
    for operation in operations:
        for group in _alike(operation):
            groups.join(group)
    for value in _tiles(function.body.params):
        groups.find(value)
    for operation in operations:
        for value in operation.results:
            if value.type.shape:
                groups.find(value)
        for region in operation.regions:
            for value in _tiles(region.params):
                groups.find(value)
    widest: dict[Value, int] = {}
    for value in groups.parent:
        root = groups.find(value)
        widest[root] = max(widest.get(root, 8), _bits(value))
    return {value: target.lanes(widest[groups.find(value)]) for value in groups.parent}


def _bits(value: Value) -> int:
    """Bits of one element in a register; masks fit any width."""
    dtype = value.type.dtype
    return 8 if dtype.kind == "bool" else BITS[register_elem(dtype)]


def _alike(operation: Operation) -> list[Sequence[Value]]:
    """Groups of values that should have the same chunk size because of this operation."""
    op, operands, results = operation.op, operation.operands, operation.results
    if results and not results[0].type.shape and not operation.regions:
        return []  # scalars only, or a whole row folded to one
    match op:
        case Compare():
            return [operands]
        case Unary(kind="is_nan" | "is_inf"):
            return []
        case For() | While() | If():
            return _carried(operation)
        case Load() | Gather():
            return [[*_tiles(operands[2:]), *results]]
        case Store() | Scatter():
            return [_tiles(operands[2:])]
        case Dot4() | DotPair():
            return [[operands[0], *results]]
        case Reduce(axis=axis):
            last = axis == len(operands[0].type.shape) - 1
            return [] if last else [[*operands, *results]]
        case Broadcast() | ExtractSlice() | Concat():
            return [[*operands, *results]]
        case _ if isinstance(op, _ELEMENTWISE):
            return [[*operands, *results]]
    return []


def _tiles(values: Sequence[Value]) -> list[Value]:
    return [value for value in values if value.type.shape]


def _carried(operation: Operation) -> list[Sequence[Value]]:
    """Loop-carried and merged values: what flows into each other through control flow."""
    results = operation.results
    columns: list[Sequence[Value]] = [results]
    match operation.op:
        case For():
            (body,) = operation.regions
            columns += [operation.operands[3:], body.params[1:], body.yields]
        case While():
            condition, body = operation.regions
            columns += [operation.operands, condition.params, body.params, body.yields]
        case _:
            columns += [region.yields for region in operation.regions]
    return list(zip(*columns, strict=True))


class _Groups:
    """Union-find over the tiles of a function; scalars are left out."""

    def __init__(self) -> None:
        self.parent: dict[Value, Value] = {}

    def find(self, value: Value) -> Value:
        parent = self.parent
        root = parent.setdefault(value, value)
        while root is not parent[root]:
            root = parent[root]
        while parent[value] is not root:
            parent[value], value = root, parent[value]
        return root

    def join(self, values: Sequence[Value]) -> None:
        tiles = _tiles(values)
        for value in tiles[1:]:
            self.parent[self.find(value)] = self.find(tiles[0])
