"""An entry of the cache that is filled in place: memory of a file that becomes the entry when kept.

What is computed for the cache and used at once is then held by neither the process nor the system
twice: it is written to the file's own pages, and pages that are full can be given back.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from luban.native.cache import Cache
from luban.native.entry import (
    HEADER_BYTES,
    TEMPORARY_PREFIX,
    header,
    new_temporary,
    paced,
)
from luban.native.image import make_read_only
from luban.native.pages import prefer_large_pages

__all__ = ["Draft", "map_draft", "remove_drafts", "start_draft"]


class Draft:
    """A file that is not yet an entry, mapped.

    memory   u8[size_bytes], writeable, on a page boundary; valid as long as any view of it lives
    """

    def __init__(self, cache: Cache, place: Path, size_bytes: int) -> None:
        self._cache = cache
        self._place = place
        self._handle, self._name = new_temporary(place)
        try:
            # A full disk is an error here, not a signal at the first write to a page.
            os.posix_fallocate(self._handle, 0, HEADER_BYTES + size_bytes)
            self._map = mmap.mmap(self._handle, HEADER_BYTES + size_bytes)
        except BaseException:
            self.discard()
            raise
        self.memory: np.ndarray[Any, np.dtype[np.uint8]] = np.frombuffer(self._map, np.uint8)
        prefer_large_pages(self._map, self.memory.ctypes.data, 0, self.memory.nbytes)
        self.memory = self.memory[HEADER_BYTES:]

    @property
    def names(self) -> tuple[str, str]:
        """The file's path now, and that of the entry it becomes: see `map_draft`."""
        return str(self._name), str(self._place)

    def release(self) -> None:
        """Give the pages back to the system; what they hold stays readable."""
        self._map.madvise(mmap.MADV_DONTNEED)

    def seal(self) -> None:
        """All is written: from now on nothing can change it, by mistake either."""
        self.memory.flags.writeable = False
        make_read_only(self.memory.ctypes.data, self.memory.nbytes)

    def keep(self) -> bool:
        """Make it the entry; whether that went well.

        The bytes are read once more, for their checksum, and waited for until they are on the
        device.
        """
        whole = memoryview(self._map)
        first = header(paced([whole[HEADER_BYTES:]], self.release), durable=True)
        whole[:HEADER_BYTES] = first
        try:
            os.fsync(self._handle)
            os.replace(self._name, self._place)
        except OSError as error:
            self._cache.warn(error)
            self.discard()
            return False
        os.close(self._handle)
        self._cache.account(len(whole))
        return True

    def discard(self) -> None:
        """Remove the file; its memory lives on."""
        with contextlib.suppress(OSError):
            self._name.unlink()
        os.close(self._handle)


def start_draft(cache: Cache, kind: str, key: str, size_bytes: int) -> Draft | None:
    """A draft of the entry, or None where there can be none: no room, no such files, no cache."""
    fits = cache.limit_bytes and size_bytes + HEADER_BYTES <= cache.limit_bytes
    if not fits or not size_bytes or not hasattr(os, "posix_fallocate"):
        return None
    try:
        return Draft(cache, cache.path_of(kind, key), size_bytes)
    except OSError as error:
        cache.warn(error)
        return None


def map_draft(names: tuple[str, str]) -> memoryview | None:
    """The memory of another process's sealed draft, read-only; None if it was discarded.

    names   as that process has them: the draft may be an entry by now
    """
    for name in names:  # it is moved from the first to the second, so never missed
        try:
            with open(name, "rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            continue
        address = np.frombuffer(mapped, np.uint8).ctypes.data
        prefer_large_pages(mapped, address, 0, len(mapped))
        return memoryview(mapped)[HEADER_BYTES:]
    return None


def remove_drafts(cache: Cache, pid: int) -> None:
    """Remove what a process that was ended left half-written."""
    for path in cache.directory.glob(f"*/??/{TEMPORARY_PREFIX}{pid}-*"):
        with contextlib.suppress(OSError):
            path.unlink()
