"""Where the elements of a block are: addresses of the form pointer + constant, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from luban.codegen.elementwise import affine
from luban.codegen.emitter import Emitter
from luban.codegen.registers import RegisterTile, chunks, lanes_of
from luban.codegen.writer import Value
from luban.tile.function import Operation
from luban.tile.memory_ops import Load, Store

__all__ = ["Address", "Chunk", "Run", "block_rows", "chunked", "gather_addresses", "gather_rows"]


class Address(NamedTuple):
    """Where one element is."""

    pointer: Value
    offset_bytes: int


class Run(NamedTuple):
    """Elements of a row: `step_bytes` apart from `first` on, or each listed when that is None."""

    first: Address
    step_bytes: int | None
    size: int
    listed: Sequence[Address] = ()

    def cut(self, start: int, size: int) -> Run:
        """`size` elements from `start` on."""
        if self.step_bytes is None:
            return _listed(self.listed[start : start + size])
        pointer, offset = self.first
        return Run(Address(pointer, offset + start * self.step_bytes), self.step_bytes, size)

    def addresses(self) -> Sequence[Address]:
        """Every element's address."""
        if self.step_bytes is None:
            return self.listed
        pointer, offset = self.first
        return [Address(pointer, offset + i * self.step_bytes) for i in range(self.size)]


def _listed(addresses: Sequence[Address]) -> Run:
    """Elements at these addresses, as a run of equal steps where they are one."""
    first, *rest = addresses
    if not rest:
        return Run(first, 0, 1)
    step = rest[0].offset_bytes - first.offset_bytes
    for number, address in enumerate(rest, start=1):
        if address != (first.pointer, first.offset_bytes + number * step):
            return Run(first, None, len(addresses), addresses)
    return Run(first, step, len(addresses))


class Chunk(NamedTuple):
    """The elements of one part: addresses, mask (None: all), alignment of the first in bytes."""

    run: Run
    mask: Value | None
    align: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.run.size

    def is_vector(self, elem_bytes: int) -> bool:
        """Whether one vector access covers it."""
        return self.run.size == 1 or self.run.step_bytes == elem_bytes


_ZERO = Value("0", "i64")

# Where an index of some axes is: what dynamic strides move it by, and static elements.
_Place = tuple[tuple[Value, ...], int]


def block_rows(
    f: Emitter,
    op: Load | Store,
    pointer: Value,
    index: Value,
    strides: Sequence[Value],
    size_bytes: int,
) -> list[Run]:
    """The rows of a strided block: runs along the last axis, in row-major order."""
    dynamic = iter(strides)
    axes: list[list[_Place]] = []
    for axis, (extent, stride) in enumerate(zip(op.shape, op.strides, strict=True)):
        offsets = op.row_offsets[axis] if op.row_offsets else None
        if offsets is not None:
            axes.append([((), offset) for offset in offsets])
        elif stride is not None:
            axes.append([((), i * stride) for i in range(extent)])
        else:
            step = next(dynamic)
            steps = (f.addresses.multiply(step, Value(str(i), "i64")) for i in range(extent))
            axes.append([(() if moved == _ZERO else (moved,), 0) for moved in steps])
    bases: dict[tuple[Value, ...], Address] = {}

    def address(place: _Place) -> Address:
        moved, elements = place
        if moved not in bases:
            bases[moved] = _base(f, pointer, index, moved, size_bytes)
        base, offset = bases[moved]
        return Address(base, offset + elements * size_bytes)

    places: list[_Place] = [((), 0)]
    for axis_places in axes[:-1]:
        places = [_further(place, other) for place in places for other in axis_places]
    if not op.shape:
        return [Run(address(places[0]), 0, 1)]
    stride = op.strides[-1]
    if stride is not None and not (op.row_offsets and op.row_offsets[-1]):
        return [Run(address(place), stride * size_bytes, op.shape[-1]) for place in places]
    return [_listed([address(_further(place, other)) for other in axes[-1]]) for place in places]


def _further(place: _Place, other: _Place) -> _Place:
    return place[0] + other[0], place[1] + other[1]


def _base(
    f: Emitter, pointer: Value, index: Value, moved: Sequence[Value], size_bytes: int
) -> Address:
    """pointer + moved + index; `moved` first, as a loop over the index rarely changes it."""
    total = _ZERO
    for step in moved:
        total = f.addresses.add(total, step)
    first, offset = f.addresses.advance(pointer, total, size_bytes)
    second, more = f.addresses.advance(first, index, size_bytes)
    return Address(second, offset + more)


def gather_addresses(f: Emitter, operation: Operation) -> list[Address]:
    """The address of every element of pointer[offsets], the first two operands."""
    pointer, offsets = f.scalar(operation.operands[0]), f.tile(operation.operands[1])
    size_bytes = operation.operands[0].type.pointee.size_bytes
    form = affine(offsets)
    if form is not None:
        base, constant = f.addresses.advance(pointer, form[0], size_bytes)
        numbers = form[1].reshape(-1).tolist()
        return [Address(base, constant + number * size_bytes) for number in numbers]
    result = []
    for part, lane in lanes_of(offsets):
        index = f.w.extract(part, lane) if part.lanes else part
        result.append(Address(*f.addresses.advance(pointer, index, size_bytes)))
    return result


def gather_rows(f: Emitter, operation: Operation) -> list[Run]:
    """The same, row by row of the offsets."""
    addresses = gather_addresses(f, operation)
    shape = operation.operands[1].type.shape
    extent = shape[-1] if shape else 1
    return [_listed(addresses[i : i + extent]) for i in range(0, len(addresses), extent)]


def chunked(
    rows: Sequence[Run], lanes: int, mask: RegisterTile | None, align: int, elem_bytes: int
) -> list[Chunk]:
    """Cut the rows of a block into the parts of its register tile."""
    pieces = []
    for start, size in chunks(rows[0].size, lanes):
        skipped = start * elem_bytes
        known = min(align, skipped & -skipped) if skipped else align
        pieces.append((start, size, max(known, elem_bytes)))
    result: list[Chunk] = []
    for row in rows:
        for start, size, known in pieces:
            masked = None if mask is None else mask.parts[len(result)]
            if masked is not None and masked.text in ("true", "splat (i1 true)"):
                masked = None
            result.append(Chunk(row.cut(start, size), masked, known))
    return result
