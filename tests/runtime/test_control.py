"""Instructions between step tables: each does what it says, alone, shared, nested and timed."""

from __future__ import annotations

import numpy as np
import pytest

from luban.core.errors import InternalError, LubanError
from luban.native import control_code as code
from luban.native import table as layout
from luban.native.pool import default_pool
from luban.native.pool_code import PAUSED
from luban.runtime.control import ControlTable, Instruction, Label
from luban.runtime.program import Arguments, Step, StepTable
from tests.runtime.kernels import kernel


class Machine:
    """An array that a kernel counts up, cells for the instructions, slots that point to them."""

    def __init__(self, programs: int = 10) -> None:
        self.array = np.zeros(programs, np.int64)
        self.cells = np.zeros(8, np.int64)
        self.arguments = Arguments(4)
        self.arguments.slots[0] = self.array.ctypes.data
        self.arguments.slots[1] = self.cell(1)

    def cell(self, number: int) -> int:
        return self.cells.ctypes.data + 8 * number

    def slot(self, number: int) -> int:
        return self.arguments.address(number)

    def count(self, threads: int = 1) -> StepTable:
        step = Step(kernel("count"), self.slot(0), len(self.array), 1)
        return StepTable([step], threads)


def counted(machine: Machine, turns: int, threads: int = 1) -> ControlTable:
    """The array counted up `turns` times."""
    again, end = Label(), Label()
    return ControlTable(
        [
            Instruction(code.SET, machine.cell(0), 0),
            again,
            Instruction(code.BEYOND, machine.cell(0), turns, end),
            machine.count(threads),
            Instruction(code.ADD, machine.cell(0), 1),
            Instruction(code.JUMP, c=again),
            end,
        ],
        threads,
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("turns", [0, 1, 1000])
def test_a_segment_runs_as_often_as_the_counter_says(turns: int, threads: int) -> None:
    machine = Machine()
    table = counted(machine, turns, threads)
    for run in (1, 2):
        table.replay()
        assert machine.array.tolist() == [run * turns] * 10
    assert len(table) == 1


def test_a_limit_in_memory_ends_a_loop_and_a_negative_one_does_not() -> None:
    machine = Machine()
    again, end = Label(), Label()
    table = ControlTable(
        [
            Instruction(code.SET, machine.cell(0), 0),
            again,
            Instruction(code.REACHED, machine.cell(0), machine.slot(1), end),
            Instruction(code.BEYOND, machine.cell(0), 7, end),
            Instruction(code.ADD, machine.cell(0), 1),
            Instruction(code.JUMP, c=again),
            end,
        ],
        1,
    )
    for limit, expected in ((3, 3), (0, 0), (-1, 7)):
        machine.cells[1] = limit
        table.replay()
        assert machine.cells[0] == expected


@pytest.mark.parametrize("flag", [0, 1, 255])
def test_one_byte_decides_a_branch(flag: int) -> None:
    machine = Machine()
    otherwise, end = Label(), Label()
    table = ControlTable(
        [
            Instruction(code.UNLESS, machine.slot(1), c=otherwise),
            Instruction(code.SET, machine.cell(2), 5),
            Instruction(code.JUMP, c=end),
            otherwise,
            Instruction(code.SET, machine.cell(2), 6),
            end,
        ],
        1,
    )
    machine.cells[1] = flag | 0xFF00  # the bytes beside it do not count
    table.replay()
    assert machine.cells[2] == (5 if flag else 6)


def test_slots_are_copied_and_alternate_and_bytes_move() -> None:
    machine = Machine()
    one, other = machine.cell(4), machine.cell(5)
    machine.cells[4:6] = [40, 50]
    table = ControlTable(
        [
            Instruction(code.COPY, machine.slot(2), machine.slot(1)),
            Instruction(code.SET, machine.slot(3), one),
            Instruction(code.MOVE, machine.slot(2), machine.slot(3), 8),
            Instruction(code.FLIP, machine.slot(3), one + other),
        ],
        1,
    )
    table.replay()
    assert machine.cells[1] == 40
    assert machine.arguments.slots[3] == other
    table.replay()
    assert machine.arguments.slots[3] == other


def test_a_stop_ends_the_replay_and_leaves_its_number() -> None:
    machine = Machine()
    table = ControlTable(
        [machine.count(), Instruction(code.STOP, machine.cell(3), 9), machine.count()], 1
    )
    table.set_stop_cell(machine.cell(3))
    table.replay()
    assert machine.cells[3] == 9
    assert machine.array.tolist() == [1] * 10
    assert default_pool().replay_native(table.address, None) == 4


def test_the_stop_cell_is_cleared_first() -> None:
    machine = Machine()
    table = counted(machine, 1)
    table.set_stop_cell(machine.cell(3))
    machine.cells[3] = 9
    table.replay()
    assert machine.cells[3] == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_nested_tables_are_programs_of_a_step(threads: int) -> None:
    machines = [Machine() for _ in range(6)]
    tables = [counted(m, 100 + i, 2) for i, m in enumerate(machines[:5])]
    plain = machines[5].count(2)
    arguments = Arguments(6)
    arguments.slots[:] = [*(t.address for t in tables), plain.address]
    step = Step(default_pool().nested_address, arguments.address(), 6, 1)
    outer = StepTable([step], threads)
    outer.keep((tables, plain))
    for run in range(1, 20):
        outer.replay()
        expected = [run * (100 + i) for i in range(5)] + [run]
        assert [m.array[0] for m in machines] == expected


def test_times_add_up_over_the_turns() -> None:
    machine = Machine(1000)
    few, many = (counted(machine, turns).replay_timed().sum() for turns in (10, 1000))
    assert 0 < few < many


def test_a_table_is_run_by_one_thread_at_a_time() -> None:
    table = counted(Machine(), 1)
    pool = default_pool()
    assert pool.enter(table.address)
    with pytest.raises(LubanError, match="is being run by another thread"):
        table.replay()
    pool.replay_entered(table.address, None)
    table.replay()


def test_a_label_that_is_nowhere_is_refused() -> None:
    with pytest.raises(InternalError, match="a label that is nowhere"):
        ControlTable([Instruction(code.JUMP, c=Label())], 1)


def working(machine: Machine, turns: int, *, nested: bool) -> ControlTable:
    """A loop of some 0.1 ms a turn: `turns` in all."""
    machine.arguments.slots[2] = 100_000
    again, end = Label(), Label()
    work = StepTable([Step(kernel("work"), machine.slot(2), 1)], 1)
    return ControlTable(
        [
            Instruction(code.SET, machine.cell(0), 0),
            again,
            Instruction(code.BEYOND, machine.cell(0), turns, end),
            work,
            machine.count(),
            Instruction(code.TURN, machine.cell(0), c=again),
            end,
        ],
        1,
        ends_for_good=nested,
    )


def test_a_long_loop_is_paused_and_resumed() -> None:
    machine = Machine()
    table = working(machine, 5000, nested=False)
    pool = default_pool()
    assert pool.replay_native(table.address, None) == PAUSED
    assert 0 < machine.array[0] < 5000
    assert pool.resume(table.address) == 0
    assert machine.array.tolist() == [5000] * 10
    assert pool.replay_native(table.address, None) == PAUSED
    machine.array[:] = 0
    table.replay()  # from the start, not from where the other one was
    assert machine.array.tolist() == [5000] * 10


@pytest.mark.parametrize("threads", [1, 2])
def test_nested_loops_are_resumed_until_all_have_ended(threads: int) -> None:
    machines = [Machine() for _ in range(3)]
    tables = [
        working(m, turns, nested=True) for m, turns in zip(machines, (1, 3000, 4000), strict=True)
    ]
    arguments = Arguments(3)
    arguments.slots[:] = [table.address for table in tables]
    step = Step(default_pool().nested_address, arguments.address(), 3, 1)
    again = Label()
    places = [table.address + layout.PLACE for table in tables]
    outer = ControlTable(
        [
            *(Instruction(code.SET, place, 0) for place in places),
            again,
            StepTable([step], threads),
            *(Instruction(code.UNFINISHED, place, c=again) for place in places),
        ],
        threads,
    )
    assert default_pool().replay_native(outer.address, None) & PAUSED
    for machine in machines:
        machine.array[:] = 0
    outer.replay()
    assert [m.array[0] for m in machines] == [1, 3000, 4000]
