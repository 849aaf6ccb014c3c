"""Memory for results, used again once the caller has let go of it.

Fresh memory costs a page fault for every 4 KiB that a kernel writes, which for large results (key
and value caches, images) takes longer than the kernel. A block belongs to the results that lie in
it: nobody but this list refers to a block whose arrays and views are all gone.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from sys import getrefcount
from typing import Any

import numpy as np

__all__ = ["OutputMemory"]

Array = np.ndarray[Any, Any]
_SMALL = 64 * 1024  # bytes: below, the C library keeps the memory by itself
_ALIGNMENT = 64


def _references(blocks: Sequence[Array], number: int) -> int:
    return getrefcount(blocks[number])


_UNUSED = _references([np.empty(1)], 0)  # to a block that only the list knows


class OutputMemory:
    """Blocks that results lie in. Safe to use from several threads.

    >>> memory = OutputMemory()
    >>> first = memory.empty((1000, 100), np.dtype("f4"))
    >>> place = first.ctypes.data
    >>> del first
    >>> memory.empty((1000, 99), np.dtype("f4")).ctypes.data == place
    True
    """

    def __init__(self) -> None:
        self._blocks: list[Array] = []  # the most recently used last
        self._lock = threading.Lock()

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """An array as `numpy.empty` gives it, in memory of an earlier result where that is free."""
        size = dtype.itemsize
        for extent in shape:
            size *= extent
        if size < _SMALL or dtype.hasobject:
            return np.empty(shape, dtype)
        with self._lock:
            block = self._free_block(size)
            start = -block.ctypes.data % _ALIGNMENT
            return np.ndarray(shape, dtype, block, start)

    def _free_block(self, size: int) -> Array:
        """An unused block of a fitting size, or a new one; what lies idle beside it goes."""
        wanted = _capacity(size)
        idle: list[int] = []
        for number in range(len(self._blocks)):
            if _references(self._blocks, number) > _UNUSED:
                continue
            if self._blocks[number].nbytes == wanted:
                self._blocks.append(self._blocks.pop(number))
                return self._blocks[-1]
            idle.append(number)
        for number in reversed(idle[: len(idle) // 2 + 1]):  # the least recently used half
            del self._blocks[number]
        self._blocks.append(np.empty(wanted, np.uint8))
        return self._blocks[-1]


def _capacity(size: int) -> int:
    """Bytes of a block: some more than asked for, so that a cache that grows step by step fits."""
    step = 1 << max(size.bit_length() - 4, 12)
    return -(-(size + _ALIGNMENT) // step) * step
