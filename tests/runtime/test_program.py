"""Step tables: every program once, steps in order, changes in place, refusals, timing."""

import gc

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from luban.core.errors import InternalError, LubanError, OptionError
from luban.native import table as layout
from luban.runtime.program import Arguments, Step, StepTable
from tests.runtime.kernels import kernel

Counts = npt.NDArray[np.int64]


def counting(size: int) -> tuple[Counts, Arguments]:
    """An array of zeros, with a guard at its end, and arguments that point to it."""
    array = np.zeros(size + 8, np.int64)
    arguments = Arguments(1)
    arguments.slots[0] = array.ctypes.data
    return array, arguments


@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("grain", [None, 1, 3, 100, 1000])
@pytest.mark.parametrize("programs", [0, 1, 2, 99, 100])
def test_every_program_runs_once(programs: int, grain: int | None, num_threads: int) -> None:
    array, arguments = counting(programs)
    table = StepTable([Step(kernel("count"), arguments.address(), programs, grain)], num_threads)
    for _ in range(3):
        table.replay()
    assert array[:programs].tolist() == [3] * programs
    assert array[programs:].tolist() == [0] * 8


@pytest.mark.parametrize("num_threads", [1, 2, 4])
def test_a_step_sees_all_of_the_step_before(num_threads: int) -> None:
    size, num_steps = 64, 40
    buffers = np.zeros((num_steps + 1, size), np.int64)
    buffers[0] = np.arange(size) + 1
    arguments = Arguments(2 * num_steps)
    arguments.slots[0::2] = [buffers[i].ctypes.data for i in range(num_steps)]
    arguments.slots[1::2] = [buffers[i + 1].ctypes.data for i in range(num_steps)]
    steps = [Step(kernel("spread"), arguments.address(2 * i), size, 4) for i in range(num_steps)]
    table = StepTable(steps, num_threads)
    expected = buffers[0].copy()
    for _ in range(num_steps):
        expected = expected + expected[0]
    for _ in range(50):
        buffers[1:] = -1
        table.replay()
        np.testing.assert_array_equal(buffers[-1], expected)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 3), st.data())
def test_changed_program_counts_are_the_ones_that_run(
    counts: list[int], num_threads: int, data: st.DataObject
) -> None:
    arrays = [counting(40) for _ in counts]
    steps = [
        Step(kernel("count"), arguments.address(), count, data.draw(st.sampled_from([None, 1, 7])))
        for count, (_, arguments) in zip(counts, arrays, strict=True)
    ]
    table = StepTable(steps, num_threads)
    table.replay()
    changed = data.draw(st.lists(st.integers(0, 40), min_size=len(counts), max_size=len(counts)))
    table.set_num_programs(changed)
    table.replay()
    for before, after, (array, _) in zip(counts, changed, arrays, strict=True):
        expected = [(i < before) + (i < after) for i in range(48)]
        assert array.tolist() == expected


def test_changed_arguments_are_the_ones_used() -> None:
    (first, first_arguments), (second, second_arguments) = counting(10), counting(10)
    table = StepTable([Step(kernel("count"), first_arguments.address(), 10)], 2)
    table.replay()
    table.set_arguments(0, second_arguments.address())
    table.replay()
    assert (first[:10] == 1).all()
    assert (second[:10] == 1).all()


def test_slots_may_change_between_replays() -> None:
    (first, arguments), (second, _) = counting(10), counting(10)
    table = StepTable([Step(kernel("count"), arguments.address(), 10)], 2)
    arguments.slots[0] = second.ctypes.data
    table.replay()
    assert (first[:10] == 0).all()
    assert (second[:10] == 1).all()


def test_thread_numbers_stay_below_the_thread_count() -> None:
    array, arguments = counting(3000)
    StepTable([], 5)  # the pool has more workers than the table below may use
    table = StepTable([Step(kernel("who"), arguments.address(), 3000, 1)], 2)
    for _ in range(100):
        table.replay()
        assert set(array[:3000]) <= {1, 2}
    table.set_num_threads(1)
    table.replay()
    assert set(array[:3000]) == {1}


def test_an_empty_table_replays() -> None:
    StepTable([], 2).replay()
    assert len(StepTable([])) == 0


def test_tables_use_old_memory_again() -> None:
    first = StepTable([Step(kernel("count"), 0, 0)] * 3, 1)
    address = first.address
    del first
    assert StepTable([Step(kernel("count"), 0, 0)] * 4, 1).address == address


def test_memory_stays_flat_over_many_tables() -> None:
    gc.collect()  # tables of earlier tests give theirs back now
    before = len(layout._free.get(128, []))
    for _ in range(100):
        StepTable([Step(kernel("count"), 0, 0)] * 100, 1)
    assert len(layout._free[128]) <= max(before, 2)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_times_of_steps(num_threads: int) -> None:
    arguments = Arguments(2)
    arguments.slots[:] = [200_000, 2_000]
    steps = [
        Step(kernel("work"), arguments.address(0), 4, 1),
        Step(kernel("work"), arguments.address(1), 4, 1),
        Step(kernel("work"), arguments.address(1), 0),
    ]
    table = StepTable(steps, num_threads)

    def plausible() -> bool:
        # A median, as others use the cores too; and a caller that was put aside sees no time pass.
        times_ns = np.median([table.replay_timed() for _ in range(51)], axis=0)
        assert times_ns.shape == (3,)
        return bool(
            times_ns[0] > 10 * times_ns[1]  # a hundred times the work
            and times_ns[1] > times_ns[2] >= 0
            and 10_000 < times_ns[0] < 10_000_000
        )

    # A machine that is busy throughout a measurement spoils it; one in ten is enough to tell.
    assert any(plausible() for _ in range(10))


def test_wrong_counts_are_refused() -> None:
    table = StepTable([Step(kernel("count"), 0, 0)] * 2, 1)
    with pytest.raises(InternalError, match=r"shape \(3,\) were given for 2 steps"):
        table.set_num_programs([1, 2, 3])
    with pytest.raises(InternalError, match="step 1 got -4 programs"):
        table.set_num_programs([1, -4])
    with pytest.raises(InternalError, match="grain is less than 1"):
        StepTable([Step(kernel("count"), 0, 1, grain=0)])


def test_too_many_chunks_are_refused() -> None:
    with pytest.raises(InternalError, match="step 0 has more than"):
        StepTable([Step(kernel("count"), 0, 1 << 33, grain=1)], 1)


@pytest.mark.parametrize("num_threads", [0, -1, 5000])
def test_wrong_thread_counts_are_refused(num_threads: int) -> None:
    with pytest.raises(OptionError, match=f"{num_threads} threads were asked for, expected 1 to"):
        StepTable([], num_threads)


def test_a_table_that_is_running_refuses_a_second_replay() -> None:
    array, arguments = counting(1)
    table = StepTable([Step(kernel("count"), arguments.address(), 1)], 1)
    busy = table._header_words[layout.BUSY // 4 :]
    busy[0] = 1  # as if another thread were inside: the generation of a process that did not fork
    with pytest.raises(LubanError, match="being run by another thread"):
        table.replay()
    assert array[0] == 0
    busy[0] = 0
    table.replay()
    assert array[0] == 1
