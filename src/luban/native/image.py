"""Images: linked code that runs wherever its bytes are mapped, and bringing one into memory.

Nothing is ever writable and executable at the same time. Code that comes out of a file is executed
from the file's own pages, so several processes share them; where the system does not allow that (a
file system mounted without exec), it is copied.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from luban.core.errors import InternalError

__all__ = ["Image", "Mapped", "images_run_here", "load_image", "make_read_only"]


@dataclass(frozen=True, slots=True)
class Image:
    """Position-independent code and constants.

    content       to be mapped on a page boundary
    symbols       name -> offset into `content`
    imports       names of functions from outside; the address of number i goes into the 8 bytes at
                  table_offset + 8 * i, which come after `content`
    """

    content: bytes | memoryview
    symbols: Mapping[str, int]
    imports: tuple[str, ...]
    table_offset: int


@dataclass(frozen=True, slots=True)
class Mapped:
    """An image in memory, from `address` on, as long as `owner` lives."""

    address: int
    owner: Any


@functools.cache
def _protect() -> Any:
    """The C library's mprotect."""
    found = ctypes.CDLL(None, use_errno=True).mprotect
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return found


def _made_executable(address: int, size_bytes: int) -> bool:
    """Whether the pages may be executed now, and not be written to."""
    return not _protect()(address, size_bytes, mmap.PROT_READ | mmap.PROT_EXEC)


def make_read_only(address: int, size_bytes: int) -> None:
    """Have every write to these pages end in a signal, if they are whole pages."""
    if address % mmap.PAGESIZE == 0:
        _protect()(address, size_bytes, mmap.PROT_READ)


def load_image(image: Image, imports: Mapping[str, int]) -> Mapped:
    """Map an image for execution and fill in its imports.

    A content that is a view of a mapped file, on a page boundary, is executed in place if there are
    no imports. Raises InternalError if an import is missing, or if the system refuses executable
    memory.
    """
    if missing := [name for name in image.imports if name not in imports]:
        raise InternalError(f"the generated code needs {', '.join(missing)}, which nobody defines")
    if not image.imports and isinstance(image.content, memoryview):
        view = np.frombuffer(image.content, np.uint8)
        address: int = view.ctypes.data
        if address % mmap.PAGESIZE == 0 and _made_executable(address, view.nbytes):
            return Mapped(address, view)
    return _copied(image, imports)


def _copied(image: Image, imports: Mapping[str, int]) -> Mapped:
    """The image in memory of its own: written first, executable after that."""
    table = struct.pack(f"<{len(image.imports)}Q", *(imports[name] for name in image.imports))
    size = max(image.table_offset + len(table), 1)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[: len(image.content)] = image.content
    memory[image.table_offset : image.table_offset + len(table)] = table
    address: int = np.frombuffer(memory, np.uint8).ctypes.data
    if not _made_executable(address, size):
        raise InternalError(
            f"this system refuses executable memory (errno {ctypes.get_errno()}): "
            "generated code cannot run here"
        )
    return Mapped(address, memory)


def images_run_here() -> bool:
    """Whether this system is one whose images `load_image` can map."""
    return sys.platform.startswith("linux")
