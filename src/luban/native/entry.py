"""What an entry of the cache looks like on disk: a header of one page, then its bytes.

The header has a checksum. A file is written under another name and moved into place, so a reader
sees a whole entry or none.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

__all__ = [
    "FORMAT",
    "HEADER_BYTES",
    "TEMPORARY_PREFIX",
    "checked_payload",
    "header",
    "new_temporary",
    "paced",
]

# Raise it when what the bytes mean changes; old entries are then never found, and age out.
FORMAT: Final = 1

HEADER_BYTES: Final = 4096  # a mapped payload starts on a page
TEMPORARY_PREFIX: Final = ".writing-"

_HEADER = struct.Struct("<8sIIQ32s")  # magic, format, flags, payload bytes, payload's sha256
_MAGIC = b"LUBANCCH"
_DURABLE = 1
_TURN_BYTES = 1 << 24
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def header(views: Iterable[memoryview], *, durable: bool) -> bytes:
    """The header of an entry with these bytes, which are read for it.

    durable   the bytes will be on the device before the entry is in place: `checked_payload` need
              not read them again
    """
    digest, size = hashlib.sha256(), 0
    for view in views:
        digest.update(view)
        size += view.nbytes
    fields = _HEADER.pack(_MAGIC, FORMAT, _DURABLE if durable else 0, size, digest.digest())
    return fields.ljust(HEADER_BYTES, b"\0")


def checked_payload(entry: memoryview, trust_durable: bool) -> memoryview | None:
    """What follows a file's header, or None if the header or the checksum says it is damaged."""
    if entry.nbytes < HEADER_BYTES:
        return None
    magic, version, flags, size, digest = _HEADER.unpack_from(entry)
    payload = entry[HEADER_BYTES:].toreadonly()
    if (magic, version, size) != (_MAGIC, FORMAT, payload.nbytes):
        return None
    trusted = trust_durable and flags & _DURABLE
    if not trusted and hashlib.sha256(payload).digest() != digest:
        return None
    return payload


def new_temporary(place: Path) -> tuple[int, Path]:
    """A new file beside `place`, in its folder, for this user only: (descriptor, name)."""
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = place.parent / f"{TEMPORARY_PREFIX}{os.getpid()}-{os.urandom(6).hex()}"
    return os.open(name, _NEW_FILE, 0o600), name


def paced(views: Iterable[memoryview], after: Callable[[], None]) -> Iterator[memoryview]:
    """The same bytes in pieces; after each few megabytes somebody else has a turn."""
    since = 0
    for view in views:
        for start in range(0, view.nbytes, _TURN_BYTES):
            piece = view[start : start + _TURN_BYTES]
            yield piece
            since += piece.nbytes
            if since >= _TURN_BYTES:
                after()
                since = 0
    after()
