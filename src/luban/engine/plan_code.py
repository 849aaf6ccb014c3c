"""From kernels, addresses and loops to the table that is replayed.

Kernels take their arguments from slots. A slot's address is a number, comes with each call, or
changes from turn to turn: then the loop's instructions change the slot between two turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from luban.core import dims
from luban.engine.steps import LinkedKernel, Value
from luban.lower.kernel import Operand, Result, Workspace
from luban.native import control_code
from luban.native import table as table_layout
from luban.native.pool import default_pool
from luban.passes.memory import aligned
from luban.runtime.control import ControlTable, Instruction, Label
from luban.runtime.program import Arguments, StepTable
from luban.runtime.program import Step as TableStep

__all__ = ["Change", "Item", "Op", "Place", "Room", "Slot", "Slots", "Timing", "Turns", "Writer"]


@dataclass(frozen=True, slots=True)
class Place:
    """An address: a number, or an offset to what a call gives, or to what a loop changes."""

    offset: int
    outside: Value | None = None
    change: Change | None = None

    def __add__(self, by: int) -> Place:
        return Place(self.offset + by, self.outside, self.change)


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """An address that starts at `first` and changes after each turn of a loop.

    by        what is added to it, or
    between   the sum of the two addresses that it alternates between
    """

    first: Place
    turns: Turns
    by: int = 0
    between: int | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """The address of an argument slot, by number."""

    number: int


@dataclass(frozen=True, slots=True)
class Op:
    """An instruction of control_code whose addresses may be those of slots."""

    code: int
    a: int | Slot = 0
    b: int | Slot = 0
    c: int | Label = 0


@dataclass(slots=True, eq=False)
class Turns:
    """The instructions of one loop that keep its slots right: before the first turn, after each."""

    enter: list[Op] = field(default_factory=list)
    after: list[Op] = field(default_factory=list)


@dataclass(slots=True)
class Slots:
    """Argument slots, and which of them take an address that comes with each call."""

    values: list[int] = field(default_factory=list)
    outside: dict[Value, list[tuple[int, int]]] = field(default_factory=dict)
    _known: dict[Place, Slot] = field(default_factory=dict)

    def number(self, value: int) -> Slot:
        """A slot that holds a number."""
        self.values.append(value)
        return Slot(len(self.values) - 1)

    def place(self, place: Place) -> Slot:
        """A slot that holds an address; one for each place."""
        found = self._known.get(place)
        if found is None:
            found = self._known[place] = self.number(0)
            self._fill(found.number, place)
        return found

    def arguments(self, rows: Sequence[int | Place]) -> int:
        """Slots in a row for one kernel; the first one's number."""
        first = len(self.values)
        self.values += [row if isinstance(row, int) else 0 for row in rows]
        for number, row in enumerate(rows, first):
            if isinstance(row, Place):
                self._fill(number, row)
        return first

    def _fill(self, number: int, place: Place) -> None:
        change = place.change
        if change is None:
            self.values[number] = place.offset
            if place.outside is not None:
                self.outside.setdefault(place.outside, []).append((number, place.offset))
            return
        start = self.place(change.first + place.offset)
        change.turns.enter.append(Op(control_code.COPY, Slot(number), start))
        if change.between is None:
            change.turns.after.append(Op(control_code.ADD, Slot(number), change.by))
        else:
            both = change.between + 2 * place.offset
            change.turns.after.append(Op(control_code.FLIP, Slot(number), both))


@dataclass(frozen=True, slots=True)
class Room:
    """Memory that kernels have for themselves while they run: scratch and workspaces by thread.

    Kernels that run one after the other share it.
    """

    scratch: int
    workspace: int
    threads: int
    size_bytes: int

    @classmethod
    def of(
        cls, kernels: Iterable[LinkedKernel], sizes: dict[str, int], threads: int, start: int
    ) -> Room:
        """Enough for any of these kernels, from an address on."""
        scratch = work = 0
        for kernel in kernels:
            given = (a for a in kernel.arguments if isinstance(a, Workspace))
            work = max(work, sum(_workspace_bytes(a, sizes, threads) for a in given))
            scratch = max(scratch, aligned(kernel.scratch_bytes * threads))
        return cls(start, start + scratch, threads, scratch + work)

    def beside(self, number: int) -> Room:
        """Room number `number` of those in a row."""
        by = number * self.size_bytes
        return replace(self, scratch=self.scratch + by, workspace=self.workspace + by)


def _workspace_bytes(argument: Workspace, sizes: dict[str, int], threads: int) -> int:
    size_bytes = dims.evaluate(argument.count, sizes) * argument.dtype.size_bytes
    return aligned(size_bytes * threads)


@dataclass(frozen=True, slots=True)
class _Call:
    """One kernel launch, or the tables that its programs run.

    counter   the slot that counts its runs in a table that is timed
    alone     run by the calling thread only
    """

    kernel: LinkedKernel | None
    first_slot: int
    num_programs: int
    nested: tuple[Writer, ...] = ()
    counter: Slot | None = None
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the time of a launch among control flow is found: instruction, slot of its runs."""

    kernel: LinkedKernel
    instruction: int
    runs: Slot
    alone: bool


@dataclass(frozen=True, slots=True)
class _Ask:
    """An instruction on a nested table's place: set it to the start, or see if it has ended."""

    code: int
    table: Writer
    again: Label | int = 0


Item = _Call | Op | Label | _Ask


@dataclass(slots=True, eq=False)
class Writer:
    """Kernel launches and instructions in order: what becomes one table.

    alone   the table is run by one thread, as a program of a step of another table
    pauses  a long run is paused between turns, so that Python sees Ctrl-C
    timed   each launch is timed and counted: where there is control flow, it is a segment by itself
    solo    launches that follow are run by the calling thread only; in tables that are timed
    """

    slots: Slots
    sizes: dict[str, int]
    room: Room
    alone: bool = False
    pauses: bool = True
    timed: bool = False
    solo: bool = False
    items: list[Item] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    _built: StepTable | ControlTable | None = None

    def launch(
        self,
        kernel: LinkedKernel,
        operands: Sequence[Place],
        results: Sequence[Place],
    ) -> None:
        """Run a kernel on what lies at these places."""
        rows: list[int | Place] = []
        workspace = self.room.workspace
        for argument in kernel.arguments:
            match argument:
                case Operand():
                    rows.append(operands[argument.index])
                case Result():
                    rows.append(results[argument.index])
                case Workspace():
                    rows.append(workspace)
                    workspace += _workspace_bytes(argument, self.sizes, self.room.threads)
                case _:
                    rows.append(dims.evaluate(argument, self.sizes))
        if kernel.scratch_bytes:
            rows.append(self.room.scratch)
        programs = max(dims.evaluate(kernel.num_programs, self.sizes), 0)
        counter = self.slots.number(0) if self.timed else None
        first = self.slots.arguments(rows)
        self.items.append(_Call(kernel, first, programs, (), counter, self.solo))

    def side_by_side(self, tables: Sequence[Writer]) -> None:
        """Run tables at the same time, each on one thread."""
        first = self.slots.arguments([0] * len(tables))
        call = _Call(None, first, len(tables), tuple(tables))
        if not tables[0].pauses:
            self.items.append(call)
            return
        again = Label()
        for table in tables:
            self.items.append(_Ask(control_code.SET, table))
        self.items += [again, call]
        for table in tables:
            self.items.append(_Ask(control_code.UNFINISHED, table, again))

    def op(self, code: int, a: int | Slot = 0, b: int | Slot = 0, c: int | Label = 0) -> None:
        """Add an instruction."""
        self.items.append(Op(code, a, b, c))

    def move(self, to: Place, source: Place, size_bytes: int) -> None:
        """Copy bytes from one place to another."""
        slots = self.slots
        self.op(control_code.MOVE, slots.place(to), slots.place(source), size_bytes)

    def kernels(self) -> list[LinkedKernel | None]:
        """What each launch runs; None for one that runs tables."""
        return [item.kernel for item in self.items if isinstance(item, _Call)]

    def build(self, arguments: Arguments, threads: int) -> StepTable | ControlTable:
        """The table; its nested tables' addresses go into their slots. Slots must be complete."""
        if self._built is None:
            self._built = self._table(arguments, 1 if self.alone else threads)
        return self._built

    def _table(self, arguments: Arguments, threads: int) -> StepTable | ControlTable:
        code: list[Instruction | Label | StepTable] = []
        calls: list[_Call] = []
        for item in [*self.items, Label()]:
            if isinstance(item, _Call):
                calls.append(item)
                continue
            if len(calls) == len(self.items):
                return self._segment(calls, arguments, threads)
            if self.timed:
                for call in calls:
                    self._add_timed(call, code, arguments, threads)
            elif calls:
                code.append(self._segment(calls, arguments, threads))
            calls = []
            match item:
                case Label():
                    code.append(item)
                case Op():
                    code.append(_placed(item, arguments))
                case _Ask():
                    place = item.table.build(arguments, threads).address + table_layout.PLACE
                    code.append(Instruction(item.code, place, 0, item.again))
        return ControlTable(code, threads, ends_for_good=self.alone and self.pauses)

    def _add_timed(
        self,
        call: _Call,
        code: list[Instruction | Label | StepTable],
        arguments: Arguments,
        threads: int,
    ) -> None:
        """A segment for one launch, and an instruction that counts its runs."""
        assert call.kernel is not None
        assert call.counter is not None
        number = sum(not isinstance(item, Label) for item in code)
        self.timings.append(Timing(call.kernel, number, call.counter, call.alone))
        code.append(self._segment([call], arguments, 1 if call.alone else threads))
        code.append(Instruction(control_code.ADD, arguments.address(call.counter.number), 1))

    def _segment(self, calls: Sequence[_Call], arguments: Arguments, threads: int) -> StepTable:
        steps: list[TableStep] = []
        inner: list[StepTable | ControlTable] = []
        for call in calls:
            start = arguments.address(call.first_slot)
            if call.kernel is not None:
                steps.append(TableStep(call.kernel.address, start, call.num_programs))
                continue
            tables = [nested.build(arguments, threads) for nested in call.nested]
            arguments.slots[call.first_slot : call.first_slot + len(tables)] = [
                table.address for table in tables
            ]
            inner += tables
            steps.append(TableStep(default_pool().nested_address, start, len(tables), grain=1))
        table = StepTable(steps, threads)
        table.keep(inner)
        return table


def _placed(op: Op, arguments: Arguments) -> Instruction:
    a, b = (arguments.address(x.number) if isinstance(x, Slot) else x for x in (op.a, op.b))
    return Instruction(op.code, a, b, op.c)
