"""The memory of a step table: its layout, shared with the generated runner, and its recycling.

A worker that the operating system put aside may look at a table long after its run has ended. It
only reads the claim and done words, sees that their run number is not its own, and leaves; but the
words must still be there. So blocks are never given back to the system, only used again as tables.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from luban.core.errors import InternalError

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Block", "allocate", "recycle"]

# The header: one cache line. Offsets in bytes.
NUM_STEPS: Final = 0  # i64
BUSY: Final = 8  # i32: the pool generation of the replay that is under way, or another value
NUM_THREADS: Final = 12  # i32: threads wanted for a replay
CONTEXT: Final = 16  # ptr: the pool's context
CONTROL: Final = 24  # ptr: instructions of control_code that are run instead of the steps; or null
STOP_CELL: Final = 32  # ptr to i64: not 0 after a run that an instruction has stopped; or null
PLACE: Final = 40  # i64: the instruction to go on with
HEADER_BYTES: Final = 64

# One step: what to run (read only during a replay), then two words on cache lines of their own.
KERNEL: Final = 0  # address of void kernel(ptr arguments, i64 program, i64 thread)
ARGUMENTS: Final = 8  # address handed to the kernel
NUM_PROGRAMS: Final = 16  # i64
GRAIN: Final = 24  # i64: consecutive programs claimed at a time
NUM_CHUNKS: Final = 32  # i64: ceil(num_programs / grain)
CLAIM: Final = 64  # run number << 32 | chunks not yet claimed
DONE: Final = 128  # run number << 32 | chunks not yet done
STEP_BYTES: Final = 192

MAX_CHUNKS: Final = (1 << 32) - 1

_ALIGNMENT = 128
_free: dict[int, list[Block]] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Memory for up to `capacity` steps.

    header   i64[8]
    steps    i64[capacity, 24]   column = offset in bytes // 8
    """

    capacity: int
    address: int
    header: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]


def allocate(num_steps: int) -> Block:
    """A block for `num_steps` steps; its contents are undefined but for earlier run numbers."""
    if num_steps < 0:
        raise InternalError(f"a step table of {num_steps} steps was asked for")
    capacity = 1 << max(0, num_steps - 1).bit_length()
    with _lock:
        if _free.get(capacity):
            return _free[capacity].pop()
    size_bytes = HEADER_BYTES + capacity * STEP_BYTES
    memory = np.zeros(size_bytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    memory = memory[start : start + size_bytes]
    header = memory[:HEADER_BYTES].view(np.int64)
    steps = memory[HEADER_BYTES:].view(np.int64).reshape(capacity, STEP_BYTES // 8)
    return Block(capacity, memory.ctypes.data, header, steps)


def recycle(block: Block) -> None:
    """Let another table have `block`. No replay of it may be under way."""
    with _lock:
        _free.setdefault(block.capacity, []).append(block)
