"""The fast call path: right data, every refusal, the same from builtin and ctypes."""

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from luban.native import call, call_code, pool_code
from luban.native.call import DECLINED, ArrayParameter, bind_arrays, bind_replay, why_no_builtins
from luban.native.pool import default_pool
from luban.runtime.program import Arguments, Step, StepTable
from tests.runtime.kernels import kernel

I64 = np.dtype(np.int64)
SHAPE = (2, 3)


@pytest.fixture(params=["builtin", "ctypes"], autouse=True)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "ctypes":
        monkeypatch.setattr(call, "_builtins", lambda futex: None)
    return str(request.param)


class Adder:
    """destination = source + source[0], for i64[2,3]; slots and table of its own."""

    def __init__(self, num_threads: int = 1, programs: int = 6) -> None:
        self.arguments = Arguments(2)
        self.table = StepTable(
            [Step(kernel("spread"), self.arguments.address(), programs)], num_threads
        )
        self.parameters = [
            ArrayParameter(I64, SHAPE, ((self.arguments.address(0), 0),)),
            ArrayParameter(I64, SHAPE, ((self.arguments.address(1), 0),), writeable=True),
        ]
        self.call: Callable[..., int] = bind_arrays(
            default_pool(), self.table.address, self.parameters
        )


def source() -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.arange(6, dtype=np.int64).reshape(SHAPE) + 1


@pytest.mark.parametrize("num_threads", [1, 2])
def test_data_goes_in_and_out(num_threads: int) -> None:
    adder = Adder(num_threads)
    for _ in range(3):
        destination = np.zeros(SHAPE, np.int64)
        assert adder.call(source(), destination) == pool_code.RAN
        np.testing.assert_array_equal(destination, source() + 1)


def test_builtins_are_used_here(path: str) -> None:
    assert why_no_builtins() is None
    is_builtin = type(Adder().call) is type(len)
    assert is_builtin == (path == "builtin")


def test_an_array_may_go_to_several_slots_with_offsets() -> None:
    arguments = Arguments(4)
    steps = [Step(kernel("spread"), arguments.address(slot), 3) for slot in (0, 2)]
    table = StepTable(steps, 1)
    rows = ((arguments.address(0), 0), (arguments.address(2), 24))
    out = ((arguments.address(1), 0), (arguments.address(3), 24))
    bound = bind_arrays(
        default_pool(),
        table.address,
        [ArrayParameter(I64, SHAPE, rows), ArrayParameter(I64, SHAPE, out, writeable=True)],
    )
    destination = np.zeros(SHAPE, np.int64)
    assert bound(source(), destination) == pool_code.RAN
    np.testing.assert_array_equal(destination, source() + source()[:, :1])


def read_only() -> object:
    array = np.zeros(SHAPE, np.int64)
    array.flags.writeable = False
    return array


class Subclass(np.ndarray[tuple[int, ...], np.dtype[np.int64]]):
    """Arrays that may mean something else by their data."""


def unaligned() -> object:
    return np.zeros(49, np.uint8)[1:].view(np.int64).reshape(SHAPE)


WRONG: dict[str, Callable[[], Any]] = {
    "dtype": lambda: np.zeros(SHAPE, np.uint64),
    "byte order": lambda: np.zeros(SHAPE, np.dtype(">i8")),
    "shape": lambda: np.zeros((3, 2), np.int64),
    "rank": lambda: np.zeros(6, np.int64),
    "strides": lambda: np.zeros((3, 2), np.int64).T,
    "alignment": unaligned,
    "subclass": lambda: np.zeros(SHAPE, np.int64).view(Subclass),
    "type": lambda: [[0, 0, 0], [0, 0, 0]],
    "none": lambda: None,
    "number": lambda: 5,
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("position", [0, 1])
def test_what_does_not_fit_is_declined_before_anything_happens(what: str, position: int) -> None:
    adder = Adder()
    good = np.zeros(SHAPE, np.int64)
    arrays: list[Any] = [source(), good]
    arrays[position] = WRONG[what]()
    assert adder.call(*arrays) == DECLINED
    assert adder.arguments.slots.tolist() == [0, 0]
    assert not good.any()


def test_outputs_must_be_writeable_and_inputs_need_not() -> None:
    adder = Adder()
    frozen = source()
    frozen.flags.writeable = False
    assert adder.call(frozen, np.zeros(SHAPE, np.int64)) == pool_code.RAN
    assert adder.call(source(), read_only()) == DECLINED


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_wrong_number_of_arrays_is_declined(count: int) -> None:
    assert Adder().call(*[source()] * count) == DECLINED


def test_dtypes_that_numpy_does_not_know_and_rank_zero_work() -> None:
    brain_float = np.dtype(ml_dtypes.bfloat16)
    table = StepTable([], 1)
    bound = bind_arrays(default_pool(), table.address, [ArrayParameter(brain_float, (), ())])
    assert bound(np.zeros((), brain_float)) == pool_code.RAN
    assert bound(np.zeros((), np.float16)) == DECLINED


def test_no_reference_is_lost_or_leaked() -> None:
    adder = Adder()
    array, destination = source(), np.zeros(SHAPE, np.int64)
    before = [sys.getrefcount(thing) for thing in (array, destination, I64)]
    for _ in range(1000):
        adder.call(array, destination)
        adder.call(array, None)
    assert [sys.getrefcount(thing) for thing in (array, destination, I64)] == before


def test_a_busy_table_is_left_alone() -> None:
    adder = Adder()
    busy = ctypes.c_int32.from_address(adder.table.address + 8)
    busy.value = 1
    assert adder.call(source(), np.zeros(SHAPE, np.int64)) == pool_code.REFUSED_BUSY
    assert adder.arguments.slots.tolist() == [0, 0]
    busy.value = 0


def test_threads_get_their_own_answers_or_are_told_that_it_is_busy() -> None:
    adder = Adder()
    wrong: list[int] = []
    ran: list[int] = []

    def run(number: int) -> None:
        array = source() * number
        while ran.count(number) < 200:
            destination = np.zeros(SHAPE, np.int64)
            result = adder.call(array, destination)
            if result == pool_code.RAN:
                ran.append(number)
                if not (destination == array + array[0, 0]).all():
                    wrong.append(number)
            elif result == pool_code.REFUSED_BUSY:
                time.sleep(0)
            else:
                wrong.append(result)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_bound_replay() -> None:
    array = np.zeros(4, np.int64)
    arguments = Arguments(1)
    arguments.slots[0] = array.ctypes.data
    table = StepTable([Step(kernel("count"), arguments.address(), 4)], 1)
    replay = bind_replay(default_pool(), table.address)
    assert [replay(), replay()] == [pool_code.RAN] * 2
    assert array.tolist() == [2] * 4
    ctypes.c_int32.from_address(table.address + 8).value = 1
    assert replay() == pool_code.REFUSED_BUSY


def test_reasons_not_to_use_builtins(monkeypatch: pytest.MonkeyPatch) -> None:
    why_no_builtins.cache_clear()
    try:
        monkeypatch.setattr(sys.implementation, "name", "pypy")
        assert why_no_builtins() == "the builtins are made for CPython, this is pypy"
        monkeypatch.undo()
        why_no_builtins.cache_clear()
        monkeypatch.setattr(sys, "abiflags", "t")
        assert "rely on the GIL" in (why_no_builtins() or "")
        monkeypatch.undo()
        why_no_builtins.cache_clear()
        monkeypatch.setattr(call_code, "ARRAY_FLAGS", 72)
        assert "lays out its arrays in another way" in (why_no_builtins() or "")
    finally:
        why_no_builtins.cache_clear()
