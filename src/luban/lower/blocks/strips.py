"""Elements of block values at coordinates: the recipe of each op, on one strip of lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from luban.core.errors import InternalError
from luban.lower.blocks.places import Coordinates, Frame, Moved, Position, Slot, row_major
from luban.lower.blocks.recipes import ELEMENTWISE, same_elements
from luban.tile.block_ops import Take
from luban.tile.expr import Expr
from luban.tile.function import Operation, Region, Value
from luban.tile.memory_ops import Gather
from luban.tile.op import TileOp
from luban.tile.ops import (
    Arange,
    Binary,
    Broadcast,
    Cast,
    Constant,
    ExtractSlice,
    Reshape,
    Transpose,
)

__all__ = [
    "address",
    "all_positions",
    "at",
    "first",
    "hoist",
    "lanes_of",
    "operand_coordinates",
    "read_slot",
    "run_lanes",
    "slope",
    "write",
    "write_slot",
]

Slope = Expr | int


def lanes_of(coordinates: Coordinates) -> int:
    """Lanes that the coordinates span."""
    return max((position.width for position in coordinates), default=1)


def _key(coordinates: Sequence[Position | None]) -> tuple[object, ...]:
    return tuple(None if p is None else (p.index.value, p.width, p.step) for p in coordinates)


def at(f: Frame, value: Value, coordinates: Coordinates) -> Expr:
    """The elements of a value at these coordinates: a tile, or one number if all are equal."""
    place = f.places.get(value)
    if isinstance(place, Expr):
        return place
    key = (value, _key(coordinates))
    found = f.remembered(key)
    if found is not None:
        return found
    match place:
        case Slot():
            result = read_slot(f, place, coordinates)
        case Moved(start=start, distance=distance):
            result = _together(f, Binary("add"), [at(f, start, coordinates), distance])
        case Operation():
            result = _RECIPES.get(type(place.op), _elementwise)(f, place, coordinates)
        case _:
            raise InternalError(f"{value!r} is asked for before it is there: {place!r}")
    return f.remember(key, result)


def _together(f: Frame, op: TileOp, operands: Sequence[Expr]) -> Expr:
    """An elementwise op on numbers and tiles of lanes."""
    shape = max((x.shape for x in operands), key=len, default=())
    return f.b.emit(op, *[f.b.broadcast(x, shape).value for x in operands])[0]


def run_lanes(f: Frame, region: Region, arguments: Sequence[Expr]) -> list[Expr]:
    """A region of scalars, run on lanes."""
    known = dict(zip(region.params, arguments, strict=True))
    for operation in region.body:
        if not isinstance(operation.op, (*ELEMENTWISE, Constant)):
            raise InternalError(f"{operation.op.mnemonic} in the region of a fold or scan")
        operands = [known[v] if v in known else at(f, v, ()) for v in operation.operands]
        known[operation.result] = _together(f, operation.op, operands)
    return [known[v] if v in known else at(f, v, ()) for v in region.yields]


def all_positions(coordinates: Sequence[Position | None]) -> Coordinates:
    """The known positions."""
    return tuple(position for position in coordinates if position is not None)


# The recipes


Recipe = Callable[[Frame, Operation, Coordinates], Expr]


def _elementwise(f: Frame, operation: Operation, coordinates: Coordinates) -> Expr:
    if not isinstance(operation.op, ELEMENTWISE):
        raise InternalError(f"{operation.op.mnemonic} has no recipe in lower/blocks/strips.py")
    return _together(f, operation.op, [at(f, x, coordinates) for x in operation.operands])


def _arange(f: Frame, operation: Operation, coordinates: Coordinates) -> Expr:
    op = operation.op
    assert isinstance(op, Arange)
    (position,) = coordinates
    first = f.b.cast(position.index, op.dtype)
    if position.width == 1:
        return first
    lanes = f.b.arange(position.width, op.dtype)
    return first + (lanes if position.step == 1 else lanes * position.step)


def operand_coordinates(
    f: Frame, operation: Operation, coordinates: Sequence[Position | None]
) -> list[Position | None] | None:
    """Where the elements of a view lie in its operand; None if that is not one position an axis."""
    given = operation.operands[0].type.shape
    match operation.op:
        case Broadcast():
            inner = coordinates[len(coordinates) - len(given) :]
            return [
                Position(f.b.constant(0)) if extent == 1 else position
                for extent, position in zip(given, inner, strict=True)
            ]
        case Transpose(permutation=permutation):
            found: list[Position | None] = [None] * len(given)
            for place, axis in enumerate(permutation):
                found[axis] = coordinates[place]
            return found
        case ExtractSlice(offsets=offsets):
            return [
                None if position is None else replace(position, index=position.index + offset)
                for offset, position in zip(offsets, coordinates, strict=True)
            ]
        case Reshape(shape=shape) if same_elements(given, shape):
            wide = iter([p for n, p in zip(shape, coordinates, strict=True) if n != 1])
            return [Position(f.b.constant(0)) if n == 1 else next(wide) for n in given]
        case Reshape(shape=shape) if sum(n != 1 for n in given) == 1 and None not in coordinates:
            line = _line(f, [p for p in coordinates if p is not None], row_major(shape))
            return [Position(f.b.constant(0)) if n == 1 else line for n in given]
    return None


def _line(f: Frame, coordinates: Sequence[Position], strides: Sequence[int]) -> Position:
    """Coordinates as a position in the elements, counted in row-major order."""
    index: Expr = f.b.constant(0)
    width, step = 1, 1
    for position, stride in zip(coordinates, strides, strict=True):
        index = index + position.index * stride
        if position.width > 1:
            width, step = position.width, position.step * stride
    return Position(index, width, step)


def _view(f: Frame, operation: Operation, coordinates: Coordinates) -> Expr:
    (source,) = operation.operands
    inner = operand_coordinates(f, operation, coordinates)
    if inner is not None:
        return at(f, source, all_positions(inner))
    slot = f.places[source]
    assert isinstance(slot, Slot), "a reshape of what is not in memory"
    flat = Slot(slot.pointer, row_major(operation.result.type.shape), slot.offset)
    return read_slot(f, flat, coordinates)


def _take(f: Frame, operation: Operation, coordinates: Coordinates) -> Expr:
    op = operation.op
    assert isinstance(op, Take)
    source, index = operation.operands
    slot = f.places[source]
    assert isinstance(slot, Slot), "a look-up in what is not in memory"
    last = source.type.shape[op.axis] - 1
    where = f.b.max(f.b.min(f.b.cast(at(f, index, coordinates), "i64"), last), 0)
    total = where * slot.strides[op.axis] + slot.offset
    for axis, (position, stride) in enumerate(zip(coordinates, slot.strides, strict=True)):
        if axis != op.axis:
            total = total + _spread(f, position) * stride
    return f.b.gather(slot.pointer, total)


def _spread(f: Frame, position: Position) -> Expr:
    """The indices of a position, as lanes."""
    if position.width == 1:
        return position.index
    return position.index + f.b.arange(position.width) * position.step


# Scratch memory


def _slot_address(f: Frame, slot: Slot, coordinates: Coordinates) -> tuple[Expr, int]:
    """Index of the first lane, and elements from lane to lane."""
    line = _line(f, coordinates, slot.strides)
    return line.index + slot.offset, line.step if line.width > 1 else 0


def read_slot(f: Frame, slot: Slot, coordinates: Coordinates) -> Expr:
    """Elements from scratch memory."""
    index, step = _slot_address(f, slot, coordinates)
    lanes = lanes_of(coordinates)
    if lanes == 1:
        return f.b.load(slot.pointer, index)
    return f.b.load(slot.pointer, index, (lanes,), (step,))


def write_slot(f: Frame, slot: Slot, coordinates: Coordinates, value: Expr) -> None:
    """Elements to scratch memory."""
    index, step = _slot_address(f, slot, coordinates)
    lanes = lanes_of(coordinates)
    if lanes == 1:
        f.b.store(slot.pointer, index, value)
    else:
        f.b.store(slot.pointer, index, value, (step,), shape=(lanes,))


# Memory of the caller: is an address the same step from lane to lane?


def first(coordinates: Coordinates) -> Coordinates:
    """The first lane."""
    return tuple(Position(p.index) for p in coordinates)


def slope(
    f: Frame, value: Value, coordinates: Coordinates, guards: list[Expr] | None
) -> Slope | None:
    """How much an integer value grows from lane to lane; None when it is not by the same amount.

    guards   conditions that have to hold for it are added here; None to do without such
    """
    if lanes_of(coordinates) == 1:
        return 0
    place = f.places.get(value)
    match place:
        case Expr():
            return 0
        case Moved(start=start):
            return slope(f, start, coordinates, guards)
        case Operation(op=Arange()):
            return coordinates[0].step
        case Operation(op=Cast()) if place.operands[0].type.dtype.is_integer:
            return slope(f, place.operands[0], coordinates, guards)
        case Operation(op=Broadcast() | Transpose() | ExtractSlice() | Reshape()):
            inner = operand_coordinates(f, place, coordinates)
            return (
                None if inner is None else slope(f, place.operands[0], all_positions(inner), guards)
            )
        case Operation(op=Binary(kind="add" | "sub" | "mul" | "rem" | "div" as kind)):
            left, right = (slope(f, operand, coordinates, guards) for operand in place.operands)
            if left is None or right is None:
                return None
            return _slope_of(f, place, kind, (left, right), coordinates, guards)
    if isinstance(place, Operation) and isinstance(place.op, ELEMENTWISE):
        parts = [slope(f, x, coordinates, None) for x in place.operands]
        return 0 if all(_is_zero(part) for part in parts) else None
    return None


def _is_zero(step: Slope | None) -> bool:
    return isinstance(step, int) and step == 0


def _slope_of(
    f: Frame,
    operation: Operation,
    kind: str,
    steps: tuple[Slope, Slope],
    coordinates: Coordinates,
    guards: list[Expr] | None,
) -> Slope | None:
    """The slope of a sum, product, quotient or remainder."""
    x, y = steps
    if _is_zero(x) and _is_zero(y):
        return 0
    left, right = operation.operands
    match kind:
        case "add":
            return y if _is_zero(x) else x if _is_zero(y) else x + y
        case "sub":
            return x if _is_zero(y) else x - y
        case "mul":
            if not _is_zero(x) and not _is_zero(y):
                return None
            factor, varying = (right, x) if _is_zero(y) else (left, y)
            number = f.b.cast(at(f, factor, first(coordinates)), "i64")
            known = number.known
            return number * varying if known is None else int(known) * varying
    if guards is None or not _is_zero(y) or not (isinstance(x, int) and x == 1):
        return None
    return _wrapped(f, operation, kind, coordinates, guards)


def _wrapped(
    f: Frame, operation: Operation, kind: str, coordinates: Coordinates, guards: list[Expr]
) -> int:
    """x % m and x // m of lanes that grow by 1: they do not cross a multiple of m, if so."""
    x, y = (at(f, operand, first(coordinates)) for operand in operation.operands)
    inside = f.b.binary("rem", x, y)
    last = f.b.cast(inside, "i64") + (lanes_of(coordinates) - 1)
    guards.append((last < f.b.cast(y, "i64")) & (inside >= 0))
    return 1 if kind == "rem" else 0


def address(
    f: Frame, offsets: Value, coordinates: Coordinates
) -> tuple[Expr, Slope | None, Expr | None]:
    """(offset of the first lane, slope, condition for the slope) of an access."""
    for axis, position in enumerate(coordinates):
        if position.width > 1:
            row = (*coordinates[:axis], None, *coordinates[axis + 1 :])
            found = f.rows.get((offsets, _key(row)))
            if found is not None:
                start, along = found
                return start + position.index * along, along * position.step, None
    guards: list[Expr] = []
    step = slope(f, offsets, coordinates, guards)
    guard: Expr | None = None
    for condition in guards if step is not None else ():
        guard = condition if guard is None else guard & condition
    return at(f, offsets, first(coordinates)), step, guard


def _gather(f: Frame, operation: Operation, coordinates: Coordinates) -> Expr:
    pointer_value, offsets, *rest = operation.operands
    pointer = f.places[pointer_value]
    assert isinstance(pointer, Expr)
    lanes = lanes_of(coordinates)
    mask = None
    if rest and rest[0] not in f.true_masks:
        mask = at(f, rest[0], coordinates)
    other = at(f, rest[1], coordinates) if len(rest) > 1 and mask is not None else None
    start, step, guard = address(f, offsets, coordinates)
    uniform = lanes == 1 or (_is_zero(step) and (mask is None or not mask.shape) and guard is None)
    if uniform and (other is None or not other.shape):
        return f.b.load(pointer, start, mask=mask, other=other)

    def strided() -> Expr:
        assert step is not None
        return f.b.load(pointer, start, (lanes,), (step,), mask=mask, other=other)

    def scattered() -> Expr:
        where = f.b.broadcast(at(f, offsets, coordinates), (lanes,))
        return f.b.gather(pointer, where, mask=mask, other=other)

    if step is None:
        return scattered()
    if guard is None:
        return strided()
    with f.b.if_(guard) as branch:
        with branch.then(), f.scope():
            branch.yield_(strided())
        with branch.otherwise(), f.scope():
            branch.yield_(scattered())
    return branch.results[0]


def write(
    f: Frame,
    pointer: Expr,
    offsets: Value,
    value: Expr,
    mask: Expr | None,
    coordinates: Coordinates,
) -> None:
    """Store lanes to the caller's memory."""
    lanes = lanes_of(coordinates)
    start, step, guard = address(f, offsets, coordinates)
    if lanes == 1:
        f.b.store(pointer, start, value, mask=mask)
        return
    value = f.b.broadcast(value, (lanes,))

    def scattered() -> None:
        where = f.b.broadcast(at(f, offsets, coordinates), (lanes,))
        f.b.scatter(pointer, where, value, mask=mask)

    if step is None:
        scattered()
    elif guard is None:
        f.b.store(pointer, start, value, (step,), mask=mask)
    else:
        with f.b.if_(guard) as branch:
            with branch.then(), f.scope():
                f.b.store(pointer, start, value, (step,), mask=mask)
            with branch.otherwise(), f.scope():
                scattered()


_RECIPES: dict[type[TileOp], Recipe] = {
    Arange: _arange,
    Broadcast: _view,
    Transpose: _view,
    ExtractSlice: _view,
    Reshape: _view,
    Take: _take,
    Gather: _gather,
}


# What does not change from strip to strip


def hoist(f: Frame, value: Value, coordinates: Sequence[Position | None], lanes: int) -> None:
    """Compute now what a value needs that the unknown position (None) does not change.

    lanes   how many of them a strip will have along the unknown axis
    """
    place = f.places.get(value)
    if not isinstance(place, Operation) or isinstance(place.op, (Arange, Constant)):
        return
    known = all_positions(coordinates)
    if len(known) == len(coordinates):
        at(f, value, known)
        return
    if isinstance(place.op, Gather):
        hoist_row(f, place.operands[1], coordinates, lanes)
        for operand in place.operands[2:]:
            hoist(f, operand, coordinates, lanes)
        return
    if isinstance(place.op, ELEMENTWISE):
        for operand in place.operands:
            hoist(f, operand, coordinates, lanes)
        return
    inner = operand_coordinates(f, place, coordinates)
    if inner is not None:
        hoist(f, place.operands[0], inner, lanes)


def hoist_row(f: Frame, offsets: Value, coordinates: Sequence[Position | None], lanes: int) -> None:
    """Remember where a row starts and its step, if the whole row has one step."""
    zero = f.b.constant(0)
    row = tuple(Position(zero, lanes) if p is None else p for p in coordinates)
    if lanes == 1 or not offsets.type.shape:
        return
    step = slope(f, offsets, row, None)
    if step is not None:
        key = (offsets, _key(coordinates))
        f.rows[key] = at(f, offsets, first(row)), step
