"""Control flow as instructions: bodies, turns, states, stacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

from luban.core.errors import LubanError
from luban.core.types import TensorType
from luban.engine.plan_buffers import Level, bytes_of, carried_bytes
from luban.engine.plan_code import Change, Item, Op, Place, Slot, Turns, Writer
from luban.engine.steps import (
    Branch,
    Control,
    Launch,
    Program,
    Recurrence,
    Repeat,
    Step,
    Value,
    bodies_of,
)
from luban.native import control_code
from luban.runtime.arena import Arena
from luban.runtime.control import Label

__all__ = ["ControlPlanner", "OpenTrips"]

Places = dict[object, Place]


@dataclass(frozen=True, slots=True)
class OpenTrips:
    """A loop whose number of turns the run settles.

    symbol   the size that it is
    cell     the address of the i64 that holds it after the run
    stacks   each stacked result, where it grew, and the shape of one turn's part
    """

    symbol: str
    cell: int
    stacks: list[tuple[Value, Arena, tuple[int, ...]]]


@dataclass(slots=True)
class ControlPlanner:
    """Writes the steps of levels.

    stop_cell  the slot in which an instruction leaves why it stopped
    stops      why it may have, by that number minus 1
    """

    sizes: dict[str, int]
    stop_cell: Slot
    stack_of: Callable[[Value], Arena]
    trips: list[OpenTrips] = field(default_factory=list)
    stops: list[LubanError] = field(default_factory=list)

    def write(self, level: Level, at: Places, writer: Writer) -> None:
        """All steps of a level, whose values lie where `at` says."""
        for group in level.groups:
            (first, *others) = group
            if isinstance(first, Launch):
                operands = [_place(value, at) for value in first.operands]
                results = [_place(value, at) for value in first.results]
                writer.launch(first.kernel, operands, results)
            elif writer.timed:
                before = writer.solo
                writer.solo = before or level.alone(group)
                for step in group:
                    self._control(step, level, at, writer)
                writer.solo = before
            elif writer.alone or not level.alone(group):
                assert writer.alone or not others
                for step in group:
                    self._control(step, level, at, writer)
            else:
                pauses = any(map(_may_take_for_ever, group))
                rooms = (writer.room.beside(number) for number in range(len(group)))
                tables = [Writer(writer.slots, self.sizes, r, True, pauses) for r in rooms]
                for step, table in zip(group, tables, strict=True):
                    self._control(step, level, at, table)
                writer.side_by_side(tables)

    def _control(self, step: object, level: Level, at: Places, writer: Writer) -> None:
        match step:
            case Recurrence():
                self._recurrence(step, level, at, writer)
            case Repeat():
                self._repeat(step, level, at, writer)
            case Branch():
                self._branch(step, level, at, writer)

    def _branch(self, step: Branch, level: Level, at: Places, writer: Writer) -> None:
        otherwise, end = Label(), Label()
        predicate, *operands = step.operands
        writer.op(control_code.UNLESS, writer.slots.place(_place(predicate, at)), c=otherwise)
        self._body(step, 0, level, at, _bound(step.then, operands, step.results, at), writer)
        writer.op(control_code.JUMP, c=end)
        writer.items.append(otherwise)
        self._body(step, 1, level, at, _bound(step.otherwise, operands, step.results, at), writer)
        writer.items.append(end)

    def _recurrence(self, step: Recurrence, level: Level, at: Places, writer: Writer) -> None:
        carried, num_scanned = step.num_carried, len(step.scan_reverse)
        captured = carried + num_scanned
        scanned = step.operands[carried]
        assert isinstance(scanned.type, TensorType)
        count = scanned.type.resolve(self.sizes)[0]
        loop = _Loop(step, at, self.sizes)
        places = loop.states(step.body.inputs, step.body.outputs)
        for number, reverse in enumerate(step.scan_reverse, carried):
            first = _place(step.operands[number], at)
            places |= loop.rows(step.body.inputs[number], first, count if reverse else 0)
        for number, reverse in enumerate(step.stack_reverse, carried):
            first = _place(step.results[number], at)
            places |= loop.rows(step.body.outputs[number], first, count if reverse else 0)
        places |= _captured(step.body.inputs[captured:], step.operands[captured:], at)
        end = Label()
        checks = [Op(control_code.BEYOND, loop.turn, count, end)]
        starts = [_place(value, at) for value in step.operands[:carried]]
        self._turns(loop, starts, checks, end, level, places, writer)

    def _repeat(self, step: Repeat, level: Level, at: Places, writer: Writer) -> None:
        limit, condition, *operands = step.operands
        carried, body = step.num_carried, step.body
        stacks = step.results[carried:]
        loop = _Loop(step, at, self.sizes)
        places = loop.states(body.inputs[1:], body.outputs)
        places[body.inputs[0].root] = at[step, "turn"]
        for inside, outside in zip(body.outputs[1 + carried :], stacks, strict=True):
            open_ended = step.trips is not None
            first = Place(self.stack_of(outside).address) if open_ended else _place(outside, at)
            places |= loop.rows(inside, first)
        places |= _captured(body.inputs[2 + carried :], operands[carried:], at)
        slots, end, full = writer.slots, Label(), Label()
        checks = [
            Op(control_code.REACHED, loop.turn, slots.place(_place(limit, at)), end),
            Op(control_code.UNLESS, slots.place(places[body.inputs[1].root]), c=end),
        ]
        room = self._room(step)
        if room is not None:
            checks.append(Op(control_code.BEYOND, loop.turn, room, full))
        starts = [_place(value, at) for value in (condition, *operands[:carried])]
        self._turns(loop, starts, checks, end, level, places, writer)
        if room is not None:
            past = Label()
            writer.op(control_code.JUMP, c=past)
            writer.items.append(full)
            self._stop(_too_many(step, room), writer)
            writer.items.append(past)
        if step.trips is not None:
            grown = [
                (value, self.stack_of(value), _row_shape(value, self.sizes)) for value in stacks
            ]
            self.trips.append(OpenTrips(step.trips, loop.turn, grown))

    def _turns(
        self,
        loop: _Loop,
        starts: Sequence[Place],
        checks: Sequence[Op],
        end: Label,
        level: Level,
        places: Places,
        writer: Writer,
    ) -> None:
        """The states set up, the body for as long as no check goes elsewhere, the states handed on.

        What the body and the tail need from slots is known only once they are written: so they are
        written first and put in order then.
        """
        before = writer.items
        inside: list[Item] = []
        writer.items = inside
        self._body(loop.step, 0, level, loop.at, places, writer)
        tail: list[Item] = []
        writer.items = tail
        for state, final, size in zip(loop.states_at_end(), loop.finals(), loop.bytes, strict=True):
            if final is not None:
                writer.move(final, state, size)
        writer.items = before
        for (old, _), start, size in zip(loop.buffers, starts, loop.bytes, strict=True):
            writer.move(old, start, size)
        writer.op(control_code.SET, loop.turn, 0)
        again, turns = Label(), loop.turns
        one_more = [Op(control_code.TURN, loop.turn, c=again)]
        if not writer.pauses:
            one_more = [Op(control_code.ADD, loop.turn, 1), Op(control_code.JUMP, c=again)]
        writer.items += [*turns.enter, again, *checks, *inside, *turns.after, *one_more, end, *tail]

    def _body(
        self, step: Control, number: int, level: Level, at: Places, given: Places, writer: Writer
    ) -> None:
        """A body whose inputs and outputs lie where `given` says."""
        inner = level.inner[step, number]
        if isinstance(inner, LubanError):
            self._stop(inner, writer)
        else:
            self.write(inner, {**inner.places(at[step, "bodies"]), **given}, writer)

    def _stop(self, why: LubanError, writer: Writer) -> None:
        self.stops.append(why)
        writer.op(control_code.STOP, self.stop_cell, len(self.stops))

    def _room(self, step: Repeat) -> int | None:
        """How many turns the stacks have room for; None without stacks."""
        found: list[int] = []
        for value in step.results[step.num_carried :]:
            assert isinstance(value.type, TensorType)
            if step.trips is None:
                found.append(value.type.resolve(self.sizes)[0])
            else:
                size = prod(_row_shape(value, self.sizes)) * value.type.dtype.size_bytes
                found.append(self.stack_of(value).capacity_bytes // max(size, 1))
        return min(found, default=None)


class _Loop:
    """Where a loop's states, slices and stacks lie, and the instructions that move them on.

    A state alternates between two buffers: what a turn writes, the next one reads.
    """

    def __init__(self, step: Recurrence | Repeat, at: Places, sizes: dict[str, int]) -> None:
        self.step, self.at, self.sizes = step, at, sizes
        self.turns = Turns()
        self.turn = at[step, "turn"].offset
        self.bytes = carried_bytes(step, sizes)
        numbers = range(len(self.bytes))
        self.buffers = [(at[step, "old", n], at[step, "new", n]) for n in numbers]

    def states(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> Places:
        """Where the body finds the states and where it leaves them."""
        found: Places = {}
        for number, (old, new) in enumerate(self.buffers):
            both = old.offset + new.offset
            found[inputs[number].root] = Place(0, change=Change(old, self.turns, between=both))
            found[outputs[number].root] = Place(0, change=Change(new, self.turns, between=both))
        return found

    def states_at_end(self) -> list[Place]:
        """Where the newest states lie after the last turn."""
        return [
            Place(0, change=Change(old, self.turns, between=old.offset + new.offset))
            for old, new in self.buffers
        ]

    def finals(self) -> list[Place | None]:
        """Where the states go in the end; nowhere, for a loop's condition."""
        found = [_place(value, self.at) for value in self.step.results[: self.step.num_carried]]
        return [None, *found] if isinstance(self.step, Repeat) else [*found]

    def rows(self, inside: Value, first: Place, backwards_from: int = 0) -> Places:
        """One part of a tensor in each turn; backwards if the number of parts is given."""
        size = bytes_of(inside, self.sizes)
        if backwards_from:
            first, size = first + (backwards_from - 1) * size, -size
        return {inside.root: Place(0, change=Change(first, self.turns, by=size))}


def _may_take_for_ever(step: Step) -> bool:
    """True if the run alone knows how many turns there are, here or further inside."""
    inside = (inner for body in bodies_of(step) for inner in body.steps)
    return isinstance(step, Repeat) or any(map(_may_take_for_ever, inside))


def _bound(
    body: Program, operands: Sequence[Value], results: Sequence[Value], at: Places
) -> Places:
    """A body's inputs and outputs in the place of the values outside."""
    return _captured((*body.inputs, *body.outputs), (*operands, *results), at)


def _captured(inside: Sequence[Value], outside: Sequence[Value], at: Places) -> Places:
    return {a.root: _place(b, at) for a, b in zip(inside, outside, strict=True)}


def _place(value: Value, at: Places) -> Place:
    root = value.root
    if root.constant is not None:
        return Place(root.constant.ctypes.data)
    return at.get(root) or Place(0, root)


def _row_shape(value: Value, sizes: dict[str, int]) -> tuple[int, ...]:
    assert isinstance(value.type, TensorType)
    return value.type.with_shape(value.type.shape[1:]).resolve(sizes)


def _too_many(step: Repeat, room: int) -> LubanError:
    return LubanError(
        f"{step.body.name}: the loop goes on after {room} turns, which is all that its stacked "
        "results have room for",
        hint="give the loop a limit, or run it in pieces and carry the state",
    )
