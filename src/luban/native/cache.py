"""The cache on disk: compiled objects, packed weights and small records, by their input's hash.

An entry is one file, written aside and moved into place, with a checksum in its header. So a reader
sees a whole entry or none, whoever else writes and whenever a process is killed; what is damaged is
dropped and made again. The cache never fails a compile: where it cannot write, it says so once and
the work goes on without it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from luban.core import settings
from luban.core.errors import InternalError, LubanWarning
from luban.native.entry import (
    HEADER_BYTES,
    TEMPORARY_PREFIX,
    checked_payload,
    header,
    new_temporary,
    paced,
)

__all__ = ["Cache", "CacheStats", "cache_directory", "default_cache"]

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_KEEP_AFTER_EVICTION = 0.9
_STALE_TEMPORARY_S = 3600.0
_SCAN_EVERY_WRITES = 256


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What is on disk now, and what this process did with it."""

    directory: str
    num_entries: int
    size_bytes: int
    limit_bytes: int
    hits: int
    misses: int
    dropped: int


def cache_directory() -> Path:
    """LUBAN_CACHE_DIR, or the platform's folder for caches: XDG, Library/Caches or LocalAppData."""
    if chosen := settings.CACHE_DIR.get():
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        local = settings.environment("LOCALAPPDATA")
        return Path(local or Path.home() / "AppData" / "Local") / "luban" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "luban"
    xdg = settings.environment("XDG_CACHE_HOME")
    # The specification says that a relative path is to be ignored.
    return Path(xdg if xdg and os.path.isabs(xdg) else Path.home() / ".cache") / "luban"


class Cache:
    """Entries named by (kind, key) under one folder, least recently used first out.

    directory     made when first needed, for this user only
    limit_bytes   upper bound of all entries together, over all processes to within a few hundred
                  entries; 0 turns the cache off

    Safe for any number of threads and processes.
    """

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self.directory = directory
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._warned = False
        self._size_bytes = 0
        self._writes_until_scan = 0
        self._hits = self._misses = self._dropped = 0

    def get(self, kind: str, key: str) -> bytes | None:
        """The entry's bytes, checked, or None. A damaged entry is removed."""
        found = self._find(kind, key, trust_durable=False)
        return None if found is None else bytes(found)

    def map(self, kind: str, key: str) -> memoryview | None:
        """The entry mapped into memory, read-only, on a page boundary; or None.

        An entry put with `durable` is trusted after a look at its header, so that gigabytes of
        weights open in no time; another is checked in full.
        """
        return self._find(kind, key, trust_durable=True)

    def put(
        self,
        kind: str,
        key: str,
        *parts: bytes | memoryview,
        durable: bool = False,
        after: Callable[[], None] = lambda: None,
        counted: bool = True,
    ) -> bool:
        """Store an entry; returns whether it is on disk now. It never raises for the disk's sake.

        parts     the bytes, one after the other
        durable   wait until the bytes are on the device (see `map`)
        after     called now and then while the bytes are read, for instance to give pages back
        counted   look after the cache's bound, which may take a look at every entry: not for a few
                  bytes in the middle of a call
        """
        views = [memoryview(part).cast("B") for part in parts]
        size = sum(view.nbytes for view in views)
        if self.limit_bytes == 0 or size + HEADER_BYTES > self.limit_bytes:
            return False
        first = memoryview(header(paced(views, after), durable=durable))
        try:
            self._write(self.path_of(kind, key), paced([first, *views], after), durable)
            if counted:
                self.account(HEADER_BYTES + size)
        except OSError as error:
            self.warn(error)
            return False
        return True

    def can_write(self) -> bool:
        """Whether entries can be made now. Says so once if the disk refuses."""
        if self.limit_bytes == 0:
            return False
        try:
            handle, name = new_temporary(self.path_of("probe", "probe"))
            try:
                os.close(handle)
            finally:  # also after Ctrl-C
                name.unlink()
        except OSError as error:
            self.warn(error)
            return False
        return True

    def stats(self) -> CacheStats:
        """Count the entries on disk."""
        entries = list(self._entries())
        with self._lock:
            return CacheStats(
                str(self.directory),
                len(entries),
                sum(size for _, size, _ in entries),
                self.limit_bytes,
                self._hits,
                self._misses,
                self._dropped,
            )

    def clear(self) -> int:
        """Remove all entries, also other processes' half-written ones; returns the bytes freed."""
        freed = 0
        for path, size, _ in self._entries(temporary=True):
            with contextlib.suppress(OSError):
                path.unlink()
                freed += size
        return freed

    def path_of(self, kind: str, key: str) -> Path:
        """Where an entry lies. Raises InternalError for names that are none."""
        if not _NAME.fullmatch(kind) or not _NAME.fullmatch(key) or len(key) < 3:
            raise InternalError(
                f"cache entry {kind!r}, {key!r}: expected names of letters, digits, - and _"
            )
        return self.directory / kind / key[:2] / key[2:]

    def _find(self, kind: str, key: str, *, trust_durable: bool) -> memoryview | None:
        path = self.path_of(kind, key)
        found = self._read(path, trust_durable) if self.limit_bytes else None
        with self._lock:
            self._hits += found is not None
            self._misses += found is None
        if found is not None:
            with contextlib.suppress(OSError):
                os.utime(path)  # recently used
        return found

    def _read(self, path: Path, trust_durable: bool) -> memoryview | None:
        try:
            with path.open("rb") as file:
                mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except FileNotFoundError:
            return None
        except ValueError:  # an empty file cannot be mapped
            mapped = memoryview(b"")
        except OSError as error:
            self.warn(error)
            return None
        payload = checked_payload(mapped, trust_durable)
        if payload is None:
            mapped.release()
            self._drop(path)
        return payload

    def _drop(self, path: Path) -> None:
        """Remove a damaged entry; it will be made again."""
        with self._lock:
            self._dropped += 1
        with contextlib.suppress(OSError):
            path.unlink()

    def _write(self, path: Path, parts: Iterable[memoryview], durable: bool) -> None:
        handle, name = new_temporary(path)
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(parts)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:  # also Ctrl-C: nothing half-written stays
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def account(self, size_bytes: int) -> None:
        """Keep the bound. The folder is scanned now and then only: others write there too."""
        with self._lock:
            self._size_bytes += size_bytes
            self._writes_until_scan -= 1
            if self._writes_until_scan >= 0 and self._size_bytes <= self.limit_bytes:
                return
            self._writes_until_scan = _SCAN_EVERY_WRITES
            entries = sorted(self._entries(temporary=True), key=lambda entry: entry[2])
            self._size_bytes = sum(size for _, size, _ in entries)
            goal = self.limit_bytes
            if self._size_bytes > goal:
                goal = int(goal * _KEEP_AFTER_EVICTION)
            now = time.time()
            for path, size, used in entries:
                temporary = path.name.startswith(TEMPORARY_PREFIX)
                stale = temporary and now - used > _STALE_TEMPORARY_S
                if stale or (self._size_bytes > goal and not temporary):
                    with contextlib.suppress(OSError):
                        path.unlink()
                        self._size_bytes -= size

    def _entries(self, temporary: bool = False) -> Iterator[tuple[Path, int, float]]:
        """Every entry's path, size and time of last use; with half-written ones if `temporary`."""
        for path in self.directory.glob("*/??/*"):
            if temporary or not path.name.startswith(TEMPORARY_PREFIX):
                with contextlib.suppress(OSError):
                    status = path.stat()
                    yield path, status.st_size, status.st_mtime

    def warn(self, error: OSError) -> None:
        """Say once that the disk refuses."""
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            warnings.warn(
                f"the cache in {self.directory} cannot be used ({error.strerror or error}): "
                "going on without it, so the next start compiles again\n"
                "hint: set LUBAN_CACHE_DIR to a folder you may write to, or LUBAN_CACHE_SIZE=0",
                LubanWarning,
                stacklevel=3,
            )


_opened: dict[tuple[Path, int], Cache] = {}


def default_cache() -> Cache:
    """The cache that the settings LUBAN_CACHE_DIR and LUBAN_CACHE_SIZE name, one per process."""
    place = (cache_directory(), settings.CACHE_SIZE.get())
    return _opened.setdefault(place, Cache(*place))


if hasattr(os, "register_at_fork"):
    # Another thread may have held a cache's lock at the moment of the fork.
    os.register_at_fork(after_in_child=_opened.clear)
