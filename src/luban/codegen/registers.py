"""A register tile: a tile as LLVM vectors, and how lanes move between them.

The last axis is cut into chunks of at most `lanes` elements, with power-of-two chunks for what
remains; leading axes are unrolled. A chunk of one element is a scalar. Parts are in row-major order
of (leading axes, chunk).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from luban.codegen.writer import BITS, Value, Writer, float_bits, float_text
from luban.core.dtypes import DType

__all__ = ["RegisterTile", "chunks", "memory_elem", "register_elem"]

_MEMORY = {"bool": "i8", "f16": "half", "bf16": "i16", "f32": "float", "f64": "double"}


@functools.cache
def memory_elem(dtype: DType) -> str:
    """LLVM's element type of `dtype` in memory; bf16 is its 16 bits."""
    return _MEMORY.get(dtype.name) or f"i{8 * dtype.size_bytes}"


@functools.cache
def register_elem(dtype: DType) -> str:
    """LLVM's element type of `dtype` in registers.

    f16 and bf16 travel as f32 that hold only values of the narrow type. fp8, f4, i4 and the like,
    which only move and convert, travel as their byte.
    """
    if dtype.name in ("f16", "bf16"):
        return "float"
    return "i1" if dtype.kind == "bool" else memory_elem(dtype)


@functools.cache
def chunks(extent: int, lanes: int) -> tuple[tuple[int, int], ...]:
    """(start, size) of the chunks of a last axis of `extent` elements.

    >>> chunks(22, 8)
    ((0, 8), (8, 8), (16, 4), (20, 2))
    """
    result: list[tuple[int, int]] = []
    start = 0
    size = max(lanes, 1)
    while start < extent:
        while size > extent - start:
            size //= 2
        result.append((start, size))
        start += size
    return tuple(result)


class RegisterTile(NamedTuple):
    """The parts of one tile, with what is known about them.

    constant  its numbers, when they are known at compile time
    uniform   the scalar that every element equals, when there is one
    affine    (scalar, numbers) when it is an i64 tile of scalar + numbers, as offsets and masks are
    """

    elem: str
    shape: tuple[int, ...]
    lanes: int
    parts: Sequence[Value]
    constant: NDArray[Any] | None = None
    uniform: Value | None = None
    affine: tuple[Value, NDArray[Any]] | None = None

    @property
    def extent(self) -> int:
        """Elements of the last axis; 1 for a scalar."""
        return self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> int:
        """Product of the leading axes."""
        return prod(self.shape[:-1])

    @property
    def chunks(self) -> tuple[tuple[int, int], ...]:
        """(start, size) of the chunks of each row."""
        return chunks(self.extent, self.lanes)

    @property
    def scalar(self) -> Value:
        """The only part of a scalar."""
        (only,) = self.parts
        return only

    def row(self, row: int) -> Sequence[Value]:
        """The parts of one row."""
        count = len(self.chunks)
        return self.parts[row * count : (row + 1) * count]


class DeferredParts(Sequence[Value]):
    """Parts whose instructions are written when they are first asked for.

    A column of numbers that meets a block row by row (as in a matrix product) then needs one
    register at a time. The writer asks for what is left before memory changes or the block ends.
    """

    def __init__(self, w: Writer, count: int, compute: Callable[[int], Value]) -> None:
        self._parts: list[Value | None] = [None] * count
        self._compute = compute
        w.deferred.append(self.force)

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Value]: ...
    def __getitem__(self, index: int | slice) -> Value | Sequence[Value]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        found = self._parts[index]
        if found is None:
            found = self._parts[index] = self._compute(index)
        return found

    def force(self) -> None:
        """Write every instruction that is still missing."""
        for i in range(len(self)):
            self[i]


def scalar_tile(value: Value) -> RegisterTile:
    """A scalar as a tile of shape ()."""
    return RegisterTile(value.elem, (), 1, (value,), None, value)


def constant_tile(w: Writer, elem: str, lanes: int, numbers: NDArray[Any]) -> RegisterTile:
    """A tile of known numbers; needs no instruction."""
    shape = numbers.shape
    pieces = chunks(shape[-1] if shape else 1, lanes)
    parts = []
    for row in numbers.reshape(-1, shape[-1] if shape else 1):
        texts = [number_text(elem, number) for number in row.tolist()]
        for start, size in pieces:
            piece = texts[start : start + size]
            parts.append(w.vector(piece, elem) if size > 1 else Value(piece[0], elem))
    first = parts[0] if prod(shape) == 1 else None
    return RegisterTile(elem, shape, lanes, tuple(parts), numbers, first)


def number_text(elem: str, number: bool | int | float) -> str:
    """A scalar constant as LLVM writes it."""
    if elem == "i1":
        return "true" if number else "false"
    if elem in ("float", "double"):
        return float_text(elem, float_bits(elem, number))
    value, bits = int(number), BITS[elem]
    return str(value - (1 << bits) if value >= 1 << (bits - 1) else value)


def uniform_tile(w: Writer, value: Value, shape: tuple[int, ...], lanes: int) -> RegisterTile:
    """A scalar repeated; one splat for each size of chunk."""
    pieces = chunks(shape[-1] if shape else 1, lanes)
    sizes = dict.fromkeys(size for _, size in pieces)
    splats = {size: w.splat(value, size if size > 1 else 0) for size in sizes}
    row = tuple(splats[size] for _, size in pieces)
    return RegisterTile(value.elem, shape, lanes, row * prod(shape[:-1]), None, value)


# Lanes: an element of a tile is addressed as (part, lane).

Lane = tuple[Value, int]


def lanes_of(tile: RegisterTile) -> list[Lane]:
    """Every element in row-major order as the part and lane that hold it."""
    sizes = [size for _, size in tile.chunks]
    return [
        (part, lane)
        for part, size in zip(tile.parts, itertools.cycle(sizes))
        for lane in range(size)
    ]


def gather_lanes(w: Writer, wanted: Sequence[Lane]) -> Value:
    """One scalar or vector made of these lanes, with as few shuffles as a short search finds."""
    if len(wanted) == 1:
        part, lane = wanted[0]
        return w.extract(part, lane) if part.lanes else part
    sources = list(dict.fromkeys(part for part, _ in wanted))
    if all(not part.lanes for part in sources):
        return _from_scalars(w, [part for part, _ in wanted])
    if len(sources) > 2 or not all(part.lanes for part in sources):
        half = len(wanted) // 2
        return concat(w, gather_lanes(w, wanted[:half]), gather_lanes(w, wanted[half:]))
    first = sources[0]
    lanes = [lane for _, lane in wanted]
    if len(sources) == 1:
        if lanes == list(range(first.lanes)):
            return first
        return w.shuffle(first, None, lanes)
    second = sources[1]
    size = max(first.lanes, second.lanes)
    a, b = (widen(w, part, size) for part in (first, second))
    return w.shuffle(a, b, [lane if part is first else lane + size for part, lane in wanted])


def _from_scalars(w: Writer, scalars: Sequence[Value]) -> Value:
    if len(set(scalars)) == 1:
        return w.splat(scalars[0], len(scalars))
    result = Value("poison", scalars[0].elem, len(scalars))
    for lane, scalar in enumerate(scalars):
        result = w.insert(result, scalar, lane)
    return result


def widen(w: Writer, a: Value, lanes: int) -> Value:
    """`a` with lanes of any value added behind."""
    if a.lanes == lanes:
        return a
    return w.shuffle(a, None, [*range(a.lanes), *[-1] * (lanes - a.lanes)])


def at_least(w: Writer, a: Value, lanes: int) -> Value:
    """A scalar or vector as a vector of at least `lanes` lanes; new lanes hold any value."""
    if a.lanes >= lanes:
        return a
    return w.splat(a, lanes) if not a.lanes else widen(w, a, lanes)


def first_lanes(w: Writer, a: Value, lanes: int) -> Value:
    """The first `lanes` lanes, a scalar for 0."""
    if a.lanes == lanes:
        return a
    return gather_lanes(w, [(a, lane) for lane in range(max(lanes, 1))])


def concat(w: Writer, a: Value, b: Value) -> Value:
    """The lanes of two parts of equal size, one after the other."""
    if not a.lanes:
        return _from_scalars(w, [a, b])
    return w.shuffle(a, b, range(a.lanes + b.lanes))


def assemble(
    w: Writer, elem: str, shape: tuple[int, ...], lanes: int, wanted: Sequence[Lane]
) -> RegisterTile:
    """A tile made of these elements, in row-major order."""
    extent = shape[-1] if shape else 1
    known: dict[tuple[Lane, ...], Value] = {}
    parts = []
    for row in range(prod(shape[:-1])):
        for start, size in chunks(extent, lanes):
            begin = row * extent + start
            piece = tuple(wanted[begin : begin + size])
            if piece not in known:
                known[piece] = gather_lanes(w, piece)
            parts.append(known[piece])
    return RegisterTile(elem, shape, lanes, tuple(parts))


def rechunk(w: Writer, tile: RegisterTile, lanes: int) -> RegisterTile:
    """The same tile in chunks of `lanes`."""
    if tile.lanes == lanes or tile.chunks == chunks(tile.extent, lanes):
        return tile
    if tile.constant is not None:
        return constant_tile(w, tile.elem, lanes, tile.constant)
    if tile.uniform is not None:
        return uniform_tile(w, tile.uniform, tile.shape, lanes)
    return assemble(w, tile.elem, tile.shape, lanes, lanes_of(tile))


def select_elements(
    w: Writer, tile: RegisterTile, indices: NDArray[np.int64], lanes: int
) -> RegisterTile:
    """A tile whose element i is element indices[i] of `tile`, counted in row-major order."""
    if tile.constant is not None:
        return constant_tile(w, tile.elem, lanes, tile.constant.reshape(-1)[indices])
    if tile.uniform is not None:
        return uniform_tile(w, tile.uniform, indices.shape, lanes)
    elements = lanes_of(tile)
    wanted = [elements[i] for i in indices.reshape(-1).tolist()]
    return assemble(w, tile.elem, indices.shape, lanes, wanted)
