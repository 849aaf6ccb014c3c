"""A growing block of memory whose start never moves: a range of addresses, pages where used."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from luban.core.errors import LubanError
from luban.native.pages import NORESERVE, populate, prefer_large_pages

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Arena"]

# Address space is free on 64-bit systems; pages come with the first touch.
_RESERVED_BYTES: Final = 1 << 36
_PAGE: Final = mmap.PAGESIZE


class Arena:
    """Memory for the intermediates of one program run. Its address is fixed for life.

    Growing needs no copy and no new address, so tables that hold addresses stay right. What a
    larger shape needed goes back to the system with `trim`.
    """

    def __init__(self, reserved_bytes: int = _RESERVED_BYTES) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
        while True:
            try:
                self._map = mmap.mmap(-1, reserved_bytes, flags=flags)
                break
            except (OSError, ValueError) as error:
                if reserved_bytes <= 1 << 26:
                    raise LubanError(
                        f"no {reserved_bytes >> 20} MiB of addresses for intermediates: {error}",
                        hint="raise the process' limit on virtual memory (ulimit -v)",
                    ) from error
                reserved_bytes >>= 1
        self._bytes: npt.NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        self.address: int = self._bytes.ctypes.data
        self.capacity_bytes = reserved_bytes
        self.used_bytes = 0
        self._large = 0  # up to here large pages are asked for

    def require(self, size_bytes: int) -> None:
        """State that `size_bytes` will be used. Raises LubanError beyond the reserved range."""
        if size_bytes > self.capacity_bytes:
            raise LubanError(
                f"intermediates need {size_bytes >> 20} MiB, "
                f"the arena has {self.capacity_bytes >> 20} MiB",
                hint="use a smaller batch or smaller inputs",
            )
        if size_bytes > self.used_bytes:
            self.used_bytes = size_bytes
            self._large = prefer_large_pages(self._map, self.address, self._large, size_bytes)

    def populate(self, most_bytes: int) -> None:
        """Have the pages that will be used resident, up to a bound: a first run waits for none."""
        populate(self._map, 0, min(self.used_bytes, most_bytes), write=True)

    def view(self, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        """The bytes at `offset` as an array; it shares memory with the arena."""
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return self._bytes[offset : offset + count].view(dtype).reshape(shape)

    def trim(self, keep_bytes: int) -> None:
        """Give the pages past `keep_bytes` back to the system; what they hold is lost."""
        start = -(-keep_bytes // _PAGE) * _PAGE
        stop = -(-self.used_bytes // _PAGE) * _PAGE
        if stop > start and hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED, start, stop - start)
        self.used_bytes = min(self.used_bytes, keep_bytes)
