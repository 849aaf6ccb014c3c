"""Where the values of a block program are while it is being lowered, and how they are addressed.

A block value is a *recipe* (to be computed where it is needed), a *slot* (it lies in scratch
memory) or, as a scalar, an expression of the register program. Elements are addressed by
*coordinates*: one position for each axis, of which one at most spans several lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from luban.core.dtypes import DType
from luban.core.registers import Registers
from luban.lower.blocks.recipes import Plan
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr
from luban.tile.function import Operation, Param, Value
from luban.tile.memory_ops import Scratch
from luban.tile.types import pointer_type

__all__ = [
    "PENDING",
    "Coordinates",
    "Frame",
    "Moved",
    "Pending",
    "Place",
    "Position",
    "Slot",
    "row_major",
]


@dataclass(frozen=True, slots=True)
class Position:
    """Elements `index`, `index + step`, ... of one axis, `width` of them as lanes."""

    index: Expr
    width: int = 1
    step: int = 1


Coordinates = tuple[Position, ...]


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements from one index to the next, for each axis.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


@dataclass(frozen=True, slots=True)
class Slot:
    """A block in scratch memory: element [i, j] is at pointer[offset + i * s0 + j * s1]."""

    pointer: Expr
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """A block that a loop moves on: `start` plus one number, as with pointers that advance."""

    start: Value
    distance: Expr


class Pending:
    """A result of the cluster that is being collected: there after the next flush."""


PENDING = Pending()

Place = Expr | Operation | Slot | Moved | Pending


class Frame:
    """The register program being built, and what is known about the block program's values."""

    def __init__(self, name: str, registers: Registers, plan: Plan) -> None:
        self.b = FunctionBuilder(name)
        self.registers = registers
        self.plan = plan
        self.places: dict[Value, Place] = {}
        self.params: dict[Value, Param] = {}  # block pointer -> its parameter
        self.true_masks: set[Value] = set()  # known to be true in what is being emitted
        # (offsets, coordinates without the strip's) -> where the row starts, and its step
        self.rows: dict[object, tuple[Expr, Expr | int]] = {}
        self._memo: list[dict[object, Expr]] = [{}]
        self._scratch: list[Operation] = []

    # Computed once in each scope

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is computed inside is forgotten afterwards; what was before is seen."""
        rows = dict(self.rows)
        self._memo.append({})
        yield
        self._memo.pop()
        self.rows = rows

    def remembered(self, key: object) -> Expr | None:
        """What was computed for this key in an open scope."""
        for known in reversed(self._memo):
            found = known.get(key)
            if found is not None:
                return found
        return None

    def remember(self, key: object, result: Expr) -> Expr:
        """Keep a result up to the end of the scope."""
        self._memo[-1][key] = result
        return result

    def reach(self, values: Iterable[Value]) -> Iterator[Value]:
        """The values that still have to be computed for these, those first that others need."""
        return self.plan.reach(values, lambda v: not isinstance(self.places.get(v), Operation))

    # Scratch

    def slot(self, dtype: DType, shape: Sequence[int]) -> Slot:
        """New scratch memory for a block."""
        value = Value(pointer_type(dtype))
        self._scratch.append(Operation(Scratch(dtype, prod(shape)), (), (value,)))
        return Slot(Expr(self.b, value), row_major(shape))

    def place_scratch(self) -> None:
        """Put the allocations where they belong: at the top of the function."""
        self.b.blocks[0].body[:0] = self._scratch

    # Memory

    def may_alias(self, one: Value, other: Value) -> bool:
        """Whether two pointers may reach the same memory."""
        if one is other:
            return True
        first, second = self.params[one].noalias, self.params[other].noalias
        return first is None or second is None or first == second
