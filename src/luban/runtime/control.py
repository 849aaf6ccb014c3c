"""Tables with control flow: instructions that run segments, each a step table of its own.

The instructions are those of `luban.native.control_code`. A segment may run any number of times in
one replay; between two runs the instructions change argument slots and move states.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from luban.core.errors import InternalError
from luban.native import control_code
from luban.native import table as layout
from luban.native.call import bind_replay
from luban.native.pool import Pool, default_pool
from luban.runtime.program import StepTable, nanoseconds_per_tick

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["ControlTable", "Instruction", "Label"]


@dataclass(frozen=True, slots=True, eq=False)
class Label:
    """A place between instructions, to go to."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of control_code: its number and what it works on (addresses, a size)."""

    op: int
    a: int = 0
    b: int = 0
    c: int | Label = 0


class ControlTable:
    """Segments and the instructions between them, replayed like a StepTable.

    ends_for_good   as a nested table it runs again only once its place is set to 0

    Whoever builds it keeps what the addresses name alive; the segments are kept by the table.
    """

    def __init__(
        self,
        code: Sequence[Instruction | Label | StepTable],
        num_threads: int,
        pool: Pool | None = None,
        *,
        ends_for_good: bool = False,
    ) -> None:
        self._pool = default_pool() if pool is None else pool
        self._segments = [item for item in code if isinstance(item, StepTable)]
        self._code = _encoded(code, control_code.ENDED if ends_for_good else 0)
        block = layout.allocate(0)
        weakref.finalize(self, layout.recycle, block).atexit = False
        self._header = block.header
        self._header[:] = 0
        self._header[layout.CONTEXT // 8] = self._pool.context_address
        self._header[layout.CONTROL // 8] = self._code.ctypes.data
        block.header.view(np.int32)[layout.NUM_THREADS // 4] = num_threads
        self.address: int = block.address
        self.num_threads = num_threads
        self._replay = bind_replay(self._pool, block.address)

    def __len__(self) -> int:
        return sum(map(len, self._segments))

    def set_stop_cell(self, address: int) -> None:
        """Name the i64 that is 0 after a replay unless an instruction has stopped it."""
        self._header[layout.STOP_CELL // 8] = address

    def replay(self) -> None:
        """Follow the instructions once. Raises LubanError if another thread is doing so."""
        if result := self._replay():
            self._pool.attend(result, self.address)

    def replay_timed(self) -> npt.NDArray[np.float64]:
        """The same, and the time of each instruction in all its runs: f64, nanoseconds."""
        ticks = np.zeros(len(self._code), np.int64)
        self._pool.replay(self.address, ticks.ctypes.data)
        times: npt.NDArray[np.float64] = ticks.astype(np.float64) * nanoseconds_per_tick()
        return times


def _encoded(code: Sequence[Instruction | Label | StepTable], place: int) -> npt.NDArray[np.int64]:
    """i64[instructions, 4], with the end behind the last one, which leaves `place`."""
    places: dict[Label, int] = {}
    number = 0
    for item in code:
        if isinstance(item, Label):
            places[item] = number
        else:
            number += 1
    rows: list[tuple[int, int, int, int]] = []
    for item in code:
        match item:
            case StepTable():
                rows.append((control_code.RUN, item.address, 0, 0))
            case Instruction():
                target = number if item.op == control_code.STOP else item.c
                if isinstance(target, Label):
                    if target not in places:
                        raise InternalError("an instruction goes to a label that is nowhere")
                    target = places[target]
                rows.append((item.op, item.a, item.b, target))
    rows.append((control_code.END, 0, place, 0))
    return np.array(rows, np.int64)
