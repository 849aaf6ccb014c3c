"""Memory in large pages, where the system has them.

With pages of 4 KiB a core that streams through memory spends a good part of its time on looking up
where each one is; several cores then reach little more than half of the memory's speed.
"""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from typing import Final

__all__ = ["LARGE_PAGE", "NORESERVE", "populate", "prefer_large_pages"]

LARGE_PAGE: Final = 1 << 21
# Without it a range counts as promised memory, and a fork, which promises it again, fails.
# Python's mmap module names it from 3.12 on; this is Linux' value on x86-64 and 64-bit Arm.
NORESERVE: Final[int] = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
_ADVICE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)


def prefer_large_pages(memory: mmap.mmap, address: int, start: int, stop: int) -> int:
    """Ask for large pages in bytes start .. stop of a map that begins at `address`.

    Only for pages that lie wholly inside, so that no memory is used that nobody asked for. A hint:
    the system may have none. The byte behind the last such page, or `start` if there is none.
    """
    first = -(-(address + start) // LARGE_PAGE) * LARGE_PAGE - address
    last = (address + stop) // LARGE_PAGE * LARGE_PAGE - address
    if last <= first:
        return start
    if _ADVICE is not None:
        with suppress(OSError, ValueError):  # a kernel without them
            memory.madvise(_ADVICE, first, last - first)
    return last


def populate(memory: mmap.mmap, start: int, stop: int, *, write: bool) -> bool:
    """Have the pages of bytes start .. stop resident now; whether the system can (Linux 5.14).

    write   also have pages of their own for private memory, as a first write to each would give
    """
    advice = {True: 23, False: 22}[write]  # MADV_POPULATE_WRITE and _READ, which Python lacks
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    stop = min(stop, len(memory))
    if not sys.platform.startswith("linux") or stop <= first:
        return False
    try:
        memory.madvise(advice, first, stop - first)
    except (OSError, ValueError):  # an older system
        return False
    return True
