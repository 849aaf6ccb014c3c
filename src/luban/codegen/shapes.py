"""Broadcast, Reshape, Transpose, ExtractSlice, Concat, Reduce: moving and folding lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from luban.codegen import integers
from luban.codegen.elementwise import float_binary
from luban.codegen.emitter import Emitter
from luban.codegen.registers import (
    DeferredParts,
    Lane,
    RegisterTile,
    assemble,
    chunks,
    constant_tile,
    lanes_of,
    rechunk,
    scalar_tile,
    select_elements,
    uniform_tile,
)
from luban.codegen.table import emits
from luban.codegen.transpose import transpose_square
from luban.codegen.writer import Value
from luban.core.dtypes import DType
from luban.tile.function import Operation
from luban.tile.ops import Broadcast, Concat, ExtractSlice, Reduce, Reshape, Transpose

__all__: list[str] = []


@emits(Broadcast)
def emit_broadcast(op: Broadcast, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """Rows are shared, scalars splatted once."""
    source = f.tile(operation.operands[0])
    shape = op.shape
    lanes = f.lanes(operation.result)
    w = f.w
    numbers = None if source.constant is None else np.broadcast_to(source.constant, shape)
    if source.uniform is not None:
        found = uniform_tile(w, source.uniform, shape, lanes)
        return [found._replace(constant=numbers)]
    if numbers is not None:
        return [constant_tile(w, source.elem, lanes, numbers)]
    aligned = (1,) * (len(shape) - len(source.shape)) + source.shape
    rows = np.arange(prod(aligned[:-1])).reshape(aligned[:-1])
    rows = np.broadcast_to(rows, shape[:-1]).reshape(-1)
    if aligned[-1] == shape[-1]:
        kept = rechunk(w, source, lanes)
        parts = [part for row in rows.tolist() for part in kept.row(row)]
        affine = None
        if source.affine is not None:
            affine = source.affine[0], np.broadcast_to(source.affine[1], shape)
        return [RegisterTile(source.elem, shape, lanes, tuple(parts), None, None, affine)]
    return [_broadcast_column(f, source, shape, lanes, rows.tolist())]


def _broadcast_column(
    f: Emitter, source: RegisterTile, shape: tuple[int, ...], lanes: int, rows: Sequence[int]
) -> RegisterTile:
    """Every row full of one element of `source`, splatted when it is first used."""
    sizes = [size if size > 1 else 0 for _, size in chunks(shape[-1], lanes)]
    splats: dict[tuple[int, int], Value] = {}

    def part(index: int) -> Value:
        row, size = rows[index // len(sizes)], sizes[index % len(sizes)]
        if (row, size) not in splats:
            splats[row, size] = f.w.splat(source.parts[row], size)
        return splats[row, size]

    parts = DeferredParts(f.w, len(rows) * len(sizes), part)
    return RegisterTile(source.elem, shape, lanes, parts)


def _lane(f: Emitter, lane: tuple[Value, int]) -> Value:
    part, position = lane
    return f.w.extract(part, position) if part.lanes else part


def _select(
    f: Emitter, operation: Operation, source: RegisterTile, indices: NDArray[np.int64]
) -> RegisterTile:
    """Elements of `source` in another order."""
    if not operation.result.type.shape:
        part = _lane(f, lanes_of(source)[int(indices)])
        return scalar_tile(part)._replace(constant=_constant(source, indices))
    return select_elements(f.w, source, indices, f.lanes(operation.result))


def _constant(source: RegisterTile, indices: NDArray[np.int64]) -> NDArray[np.generic] | None:
    return None if source.constant is None else source.constant.reshape(-1)[indices]


def _positions(source: RegisterTile) -> NDArray[np.int64]:
    return np.arange(prod(source.shape), dtype=np.int64).reshape(source.shape)


@emits(Reshape)
def emit_reshape(op: Reshape, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """No instruction when the chunks stay whole."""
    source = f.tile(operation.operands[0])
    return [_select(f, operation, source, _positions(source).reshape(op.shape))]


@emits(Transpose)
def emit_transpose(op: Transpose, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """Leading axes are renaming; whole squares of the last two go through butterflies."""
    source = f.tile(operation.operands[0])
    if (
        found := transpose_square(f.w, source, op.permutation, f.lanes(operation.result))
    ) is not None:
        return [found]
    return [_select(f, operation, source, _positions(source).transpose(op.permutation))]


@emits(ExtractSlice)
def emit_extract_slice(
    op: ExtractSlice, f: Emitter, operation: Operation
) -> Sequence[RegisterTile]:
    """No instruction when the chunks stay whole."""
    source = f.tile(operation.operands[0])
    block = tuple(slice(at, at + n) for at, n in zip(op.offsets, op.shape, strict=True))
    return [_select(f, operation, source, _positions(source)[block])]


@emits(Concat)
def emit_concat(op: Concat, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """No instruction when the chunks stay whole."""
    tiles = [f.tile(value) for value in operation.operands]
    positions = []
    elements: list[Lane] = []
    for source in tiles:
        positions.append(_positions(source) + len(elements))
        elements += lanes_of(source)
    order = np.concatenate(positions, axis=op.axis)
    wanted = [elements[i] for i in order.reshape(-1).tolist()]
    lanes = f.lanes(operation.result)
    return [assemble(f.w, tiles[0].elem, order.shape, lanes, wanted)]


_AS_BINARY = {"sum": "add", "prod": "mul"}
Fold = Callable[[Value, Value], Value]


@emits(Reduce)
def emit_reduce(op: Reduce, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """In the order that `Reduce` states: halves of the axis meet, lane by lane."""
    source = f.tile(operation.operands[0])
    dtype = operation.operands[0].type.dtype
    kind = _AS_BINARY.get(op.kind, op.kind)
    fold = _fold(f, kind, dtype)
    rank = len(source.shape)
    rows = prod(source.shape[: op.axis])
    extent = source.shape[op.axis]
    inner = prod(source.shape[op.axis + 1 :])
    if op.axis == rank - 1:
        scalars = [_fold_lanes(f, source, row, fold) for row in range(rows)]
        shape = operation.result.type.shape
        if not shape:
            return [scalar_tile(scalars[0])]
        return [RegisterTile(source.elem, shape, 1, tuple(scalars))]
    kept = rechunk(f.w, source, f.lanes(operation.result))
    per_row = len(kept.chunks)
    width = inner // kept.extent * per_row  # parts from one index of the axis to the next
    parts: list[Value] = []
    for row in range(rows):
        begin = row * extent * width
        columns = [
            list(kept.parts[begin + i * width : begin + (i + 1) * width]) for i in range(extent)
        ]
        parts += _fold_columns(columns, fold)
    return f.result(operation, parts)


def _fold(f: Emitter, kind: str, dtype: DType) -> Fold:
    if dtype.is_float:
        return float_binary(kind, f, dtype)
    return lambda a, b: integers.binary(f.w, kind, dtype, a, b)


def _fold_columns(columns: list[list[Value]], fold: Fold) -> list[Value]:
    """Fold equal-shaped lists of parts into one."""
    half = 1 << (len(columns).bit_length() - 1)
    while len(columns) > 1:
        if half == len(columns):
            half //= 2
        for i in range(len(columns) - half):
            columns[i] = [fold(a, b) for a, b in zip(columns[i], columns[i + half], strict=True)]
        del columns[half:]
    return columns[0]


def _fold_lanes(f: Emitter, source: RegisterTile, row: int, fold: Fold) -> Value:
    """Fold one row to a scalar."""
    w = f.w
    current = RegisterTile(source.elem, source.shape[-1:], source.lanes, source.row(row))
    count = current.extent
    half = 1 << (count.bit_length() - 1)
    while count > 1:
        if half == count:
            half //= 2
        taken = count - half
        lanes = lanes_of(current)
        left = assemble(w, current.elem, (taken,), current.lanes, lanes[:taken])
        right = assemble(w, current.elem, (taken,), current.lanes, lanes[half:])
        folded = [fold(a, b) for a, b in zip(left.parts, right.parts, strict=True)]
        total = RegisterTile(current.elem, (taken,), current.lanes, tuple(folded))
        if taken < half:  # the first time only, for extents that are no power of two
            wanted = [*lanes_of(total), *lanes[taken:half]]
            total = assemble(w, current.elem, (half,), current.lanes, wanted)
        current, count = total, half
    return _lane(f, lanes_of(current)[0])
