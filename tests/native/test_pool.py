"""The pool: concurrent callers, sleeping workers, fork, exit, the fallback without futex."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from luban.core.errors import LubanError, LubanWarning
from luban.native.compile import assembly, count_spills
from luban.native.pool import Pool, default_pool
from luban.native.pool_code import pool_text
from luban.native.target import TARGET_NAMES, named_target
from luban.runtime.program import Arguments, Step, StepTable
from tests.runtime.kernels import kernel


@pytest.fixture(params=[None, False], ids=["native wait", "polling"])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    pool = Pool(spin_looks=200, futex=request.param)
    yield pool
    pool.stop()


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.001)


Check = Callable[[int], None]


def counting_table(pool: Pool, num_threads: int, steps: int = 6) -> tuple[StepTable, Check]:
    array = np.zeros(100, np.int64)
    arguments = Arguments(1)
    arguments.slots[0] = array.ctypes.data
    step = Step(kernel("count"), arguments.address(), 100, 5)
    table = StepTable([step] * steps, num_threads, pool)

    def check(runs: int) -> None:
        assert arguments.slots[0] == array.ctypes.data
        assert array.tolist() == [runs * steps] * 100

    return table, check


def test_workers_take_part(pool: Pool) -> None:
    array = np.zeros(64, np.int64)
    arguments = Arguments(2)
    arguments.slots[:] = [array.ctypes.data, 300_000]
    steps = [
        Step(kernel("work"), arguments.address(1), 8, 1),
        Step(kernel("who"), arguments.address(0), 64, 1),
    ]
    table = StepTable(steps, 3, pool)
    seen: set[int] = set()

    def several_took_part() -> bool:
        table.replay()
        seen.update(array.tolist())
        return len(seen) > 1

    wait_until(several_took_part)
    assert pool.num_workers == 2
    assert seen <= {1, 2, 3}


def test_one_thread_starts_no_worker(pool: Pool) -> None:
    table, check = counting_table(pool, 1)
    table.replay()
    check(1)
    assert pool.num_workers == 0


def test_runs_after_sleep(pool: Pool) -> None:
    table, check = counting_table(pool, 4)
    for run in range(20):
        table.replay()
        check(run + 1)
        time.sleep(0.003)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only the futex sleeps in place")
def test_idle_workers_sleep_and_use_no_cpu() -> None:
    pool = Pool()
    table, _ = counting_table(pool, 4)
    table.replay()
    wait_until(lambda: pool.num_sleeping == 3)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.02
    pool.stop()
    assert pool.num_sleeping == 0


def test_different_tables_from_different_threads(pool: Pool) -> None:
    tables = [counting_table(pool, num_threads) for num_threads in (1, 2, 3, 4)]
    runs = 300

    def replay(table: StepTable) -> None:
        for _ in range(runs):
            table.replay()

    callers = [threading.Thread(target=replay, args=(table,)) for table, _ in tables]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for _, check in tables:
        check(runs)


def test_one_table_from_two_threads_is_refused_not_corrupted(pool: Pool) -> None:
    array = np.zeros(1, np.int64)
    arguments = Arguments(2)
    arguments.slots[:] = [array.ctypes.data, 3_000_000]
    steps = [
        Step(kernel("work"), arguments.address(1), 4),
        Step(kernel("count"), arguments.address(0), 1),
    ]
    table = StepTable(steps, 2, pool)
    outcomes: list[str] = []

    def replay() -> None:
        for _ in range(20):
            try:
                table.replay()
                outcomes.append("ran")
            except LubanError as error:
                outcomes.append("refused" if "give each thread its own copy" in str(error) else "?")

    callers = [threading.Thread(target=replay) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert set(outcomes) == {"ran", "refused"}
    assert array[0] == outcomes.count("ran")


def test_tables_come_and_go_while_others_run(pool: Pool) -> None:
    """Late workers meet memory that another table has by now: no program is lost or doubled."""
    for size in range(1, 300):
        table, check = counting_table(pool, 3, steps=1 + size % 9)
        table.replay()
        table.replay()
        check(2)


def test_stop_and_start_again(pool: Pool) -> None:
    table, check = counting_table(pool, 3)
    table.replay()
    pool.stop()
    assert pool.num_workers == 0
    table.replay()  # alone, and it asks for workers again
    check(2)
    assert pool.num_workers == 2


def test_threads_that_cannot_start_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = Pool()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.warns(LubanWarning, match="running on 1 threads instead of 3: can't start new"):
        pool.ensure_threads(3)
    monkeypatch.undo()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_runs_and_starts_its_own_workers() -> None:
    pool = default_pool()
    table, check = counting_table(pool, 3)
    table.replay()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert pool.num_workers == 0
            table.replay()
            check(2)
            assert pool.num_workers == 2
            table.replay()
            check(3)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    table.replay()
    check(2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_in_the_middle_of_a_run_leaves_the_child_usable() -> None:
    pool = default_pool()
    arguments = Arguments(1)
    arguments.slots[0] = 100_000_000
    table = StepTable([Step(kernel("work"), arguments.address(), 4, 1)], 2)
    caller = threading.Thread(target=table.replay)
    caller.start()
    wait_until(lambda: table._header_words[2] != 0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            arguments.slots[0] = 1
            table.replay()
            table.replay()
            assert pool.num_workers == 1
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    caller.join()


@pytest.mark.parametrize("name", TARGET_NAMES)
@pytest.mark.parametrize("futex", [True, False])
def test_the_runner_compiles_for_every_target(name: str, futex: bool) -> None:
    target = named_target(name)
    text = assembly(pool_text(target, futex), target)
    assert ("syscall" in text) == futex
    assert ("rdtsc" if target.architecture == "x86_64" else "CNTVCT_EL0") in text
    assert count_spills(text) == 0


def test_ctrl_c_arrives_when_a_replay_ends_and_the_table_stays_usable() -> None:
    array = np.zeros(1, np.int64)
    arguments = Arguments(2)
    arguments.slots[:] = [array.ctypes.data, 50_000_000]
    steps = [
        Step(kernel("work"), arguments.address(1), 4),
        Step(kernel("count"), arguments.address(0), 1),
    ]
    table = StepTable(steps, 2)
    killer = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT))
    killer.start()

    def replay_for_ever() -> None:
        while True:
            table.replay()

    with pytest.raises(KeyboardInterrupt):
        replay_for_ever()
    killer.join()
    before = int(array[0])
    table.replay()
    assert array[0] == before + 1


@pytest.mark.parametrize("ending", ["", "import os; os._exit(3)", "raise SystemExit(3)"])
def test_the_process_ends_cleanly_with_workers(ending: str) -> None:
    program = (
        "from luban.runtime.program import StepTable\n"
        "table = StepTable([], 4)\n"
        "table.replay()\n" + ending
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == (3 if ending else 0)
    assert done.stderr == ""
