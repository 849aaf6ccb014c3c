"""Memory for what is computed once, at load, and read in every call: packed weights."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from luban.native.pages import LARGE_PAGE, NORESERVE, prefer_large_pages

__all__ = ["WeightMemory"]

Array = np.ndarray[Any, Any]
_SMALL = 64 * 1024  # bytes: below, an array of its own
_RANGE_BYTES = 1 << 28
_ALIGNMENT = 64


class WeightMemory:
    """Arrays one behind the other in large pages; each range of them lives as long as its arrays.

    >>> memory = WeightMemory()
    >>> first, second = (memory.empty((1000, 100), np.dtype("f4")) for _ in range(2))
    >>> second.ctypes.data - first.ctypes.data
    400000
    """

    def __init__(self) -> None:
        self._map: mmap.mmap | None = None
        self._bytes: Array = np.empty(0, np.uint8)
        self._address = 0
        self._used = 0
        self._large = 0  # up to here large pages are asked for

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """An array as `numpy.empty` gives it."""
        size = dtype.itemsize
        for extent in shape:
            size *= extent
        if size < _SMALL or dtype.hasobject:
            return np.empty(shape, dtype)
        if self._map is None or self._used + size > self._bytes.nbytes:
            self._start_range(size)
        assert self._map is not None
        result: Array = np.ndarray(shape, dtype, self._bytes, self._used)
        self._used += -(-size // _ALIGNMENT) * _ALIGNMENT
        self._large = prefer_large_pages(self._map, self._address, self._large, self._used)
        return result

    def _start_range(self, size: int) -> None:
        """A new range of addresses that holds at least `size` bytes; pages come when touched."""
        length = max(_RANGE_BYTES, size) + LARGE_PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
        self._map = mmap.mmap(-1, length, flags=flags)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._address = self._bytes.ctypes.data
        self._used = self._large = -self._address % LARGE_PAGE
