"""A compiled model as a table of kernel launches, replayed by one native call."""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from luban.core.errors import InternalError
from luban.native import table as layout
from luban.native.call import bind_replay
from luban.native.pool import Pool, default_pool
from luban.native.threads import available_threads

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Arguments", "Step", "StepTable", "nanoseconds_per_tick"]

# With an automatic grain: enough chunks that a slow thread does not hold up the step.
_CHUNKS_PER_THREAD = 8


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel launch: programs 0 .. num_programs - 1, independent of one another.

    kernel         address of void kernel(ptr arguments, i64 program_id, i64 thread_id)
    arguments      address of the kernel's 8-byte slots (see Arguments); may be 0
    num_programs   >= 0; a step without programs is skipped
    grain          consecutive programs a thread claims at a time; None: about 8 claims a thread

    thread_id is less than the table's num_threads. Steps run one after another: what a step
    writes, all programs of the later ones see.
    """

    kernel: int
    arguments: int
    num_programs: int
    grain: int | None = None


class Arguments:
    """The argument slots of kernels, 8 bytes each: addresses, i64, or the bits of a float.

    The bulk of an update goes through `slots`: `arguments.slots[pointer_slots] = addresses`.

    >>> arguments = Arguments(3)
    >>> arguments.slots[0] = 7
    >>> arguments.set_float32(1, 1.0)
    >>> arguments.set_float64(2, 1.0)
    >>> [hex(slot) for slot in arguments.slots]
    ['0x7', '0x3f800000', '0x3ff0000000000000']
    """

    def __init__(self, num_slots: int) -> None:
        self.slots: npt.NDArray[np.int64] = np.zeros(num_slots, np.int64)
        self._start: int = self.slots.ctypes.data

    def address(self, slot: int = 0) -> int:
        """Where `slot` is in memory: what a Step whose first slot this is takes as `arguments`."""
        return self._start + 8 * slot

    def set_float32(self, slot: int, value: float) -> None:
        """Put the bits of a float32 into the low half of `slot`."""
        self.slots[slot] = np.float32(value).view(np.uint32)

    def set_float64(self, slot: int, value: float) -> None:
        """Put the bits of a float64 into `slot`."""
        self.slots[slot] = np.float64(value).view(np.int64)


class StepTable:
    """Steps in native memory. `replay` runs them all, in order, with one native call.

    The table holds addresses only: whoever builds it keeps kernels, arguments and buffers alive.
    Different tables may be replayed at the same time from different threads. One table may not: a
    second `replay` raises LubanError, and changing a table during its replay is undefined, so hold
    a lock round "change, then replay".
    """

    def __init__(
        self, steps: Sequence[Step], num_threads: int | None = None, pool: Pool | None = None
    ) -> None:
        self._num_steps = len(steps)
        self._kept: object = None
        self._pool = default_pool() if pool is None else pool
        block = layout.allocate(len(steps))
        weakref.finalize(self, layout.recycle, block).atexit = False
        self._header = block.header
        self._fields = block.steps[: len(steps)]
        self._header[:] = 0
        self._header[layout.NUM_STEPS // 8] = len(steps)
        self._header[layout.CONTEXT // 8] = self._pool.context_address
        self._header_words = block.header.view(np.int32)
        self.address: int = block.address
        self._replay = bind_replay(self._pool, block.address)
        self._fixed_grain = np.array([step.grain or 0 for step in steps], np.int64)
        self._fields[:, layout.KERNEL // 8] = [step.kernel for step in steps]
        self._fields[:, layout.ARGUMENTS // 8] = [step.arguments for step in steps]
        self._fields[:, layout.NUM_PROGRAMS // 8] = [step.num_programs for step in steps]
        if any(step.grain is not None and step.grain < 1 for step in steps):
            raise InternalError("a step's grain is less than 1")
        self.set_num_threads(available_threads() if num_threads is None else num_threads)

    def __len__(self) -> int:
        return self._num_steps

    @property
    def num_threads(self) -> int:
        """Threads a replay uses at most, the calling one included."""
        return int(self._header_words[layout.NUM_THREADS // 4])

    def set_num_threads(self, num_threads: int) -> None:
        """Use at most `num_threads` threads; 1 never touches the pool's workers.

        Raises OptionError if the number is out of range.
        """
        self._pool.ensure_threads(num_threads)
        self._header_words[layout.NUM_THREADS // 4] = num_threads
        self.set_num_programs(self._fields[:, layout.NUM_PROGRAMS // 8])

    def set_num_programs(self, num_programs: npt.ArrayLike) -> None:
        """Set the program counts of all steps, as after a change of shapes.

        num_programs   i64[len(self)], each >= 0
        """
        counts = np.asarray(num_programs, np.int64)
        if counts.shape != (self._num_steps,):
            raise InternalError(
                f"program counts of shape {counts.shape} were given for {self._num_steps} steps"
            )
        if counts.size and int(counts.min()) < 0:
            raise InternalError(f"step {int(counts.argmin())} got {int(counts.min())} programs")
        automatic = np.maximum(1, counts // (self.num_threads * _CHUNKS_PER_THREAD))
        grain = np.where(self._fixed_grain > 0, self._fixed_grain, automatic)
        chunks = -(-counts // grain)
        if chunks.size and int(chunks.max()) > layout.MAX_CHUNKS:
            raise InternalError(f"step {int(chunks.argmax())} has more than 2**32 - 1 chunks")
        self._fields[:, layout.NUM_PROGRAMS // 8] = counts
        self._fields[:, layout.GRAIN // 8] = grain
        self._fields[:, layout.NUM_CHUNKS // 8] = chunks

    def keep(self, needed: object) -> None:
        """Hold on to what the steps name by address, such as nested tables."""
        self._kept = needed

    def set_stop_cell(self, address: int) -> None:
        """Name the i64 that is 0 after a replay unless a nested table has stopped it."""
        self._header[layout.STOP_CELL // 8] = address

    def set_arguments(self, step: int, address: int) -> None:
        """Point one step to other argument slots."""
        self._fields[step, layout.ARGUMENTS // 8] = address

    def replay(self) -> None:
        """Run all steps once. Raises LubanError if another thread is running this table."""
        if result := self._replay():
            self._pool.attend(result, self.address)

    def replay_timed(self) -> npt.NDArray[np.float64]:
        """Run all steps once and time each: f64[len(self)], nanoseconds as the caller saw them."""
        ticks = np.zeros(self._num_steps + 1, np.int64)
        self._pool.replay(self.address, ticks.ctypes.data)
        return np.diff(ticks) * nanoseconds_per_tick()


class _Ticker:
    """An empty table, to read the tick counter by itself."""

    def __init__(self) -> None:
        self._table = StepTable([], num_threads=1)
        self._ticks = np.zeros(1, np.int64)

    def read(self) -> tuple[int, int]:
        """The tick counter and the clock in nanoseconds, at one moment."""
        self._table._pool.replay(self._table.address, self._ticks.ctypes.data)
        return int(self._ticks[0]), time.perf_counter_ns()


@functools.cache
def nanoseconds_per_tick() -> float:
    """Measured once, for 20 ms: the counter's rate is constant, but no interface tells it."""
    ticker = _Ticker()
    ticker.read()
    ticks, clock_ns = ticker.read()
    time.sleep(0.02)
    later_ticks, later_clock_ns = ticker.read()
    return (later_clock_ns - clock_ns) / (later_ticks - ticks)
