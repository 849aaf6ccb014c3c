"""Arrays that are views of mapped files: giving pages back once they have been read.

Pages of a file that were read through a mapping count as this process's memory until they are given
back; reading them again costs a look into the system's own cache of the file.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["mapped_files", "release_pages"]

Array = np.ndarray[Any, Any]


def mapped_files(arrays: Iterable[Array]) -> list[mmap.mmap]:
    """The maps that some of the arrays are views of, each once; not those with private changes."""
    found: dict[int, mmap.mmap] = {}
    for array in arrays:
        whole: Any = array
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        if isinstance(whole, np.memmap) and whole.mode == "r" and isinstance(whole.base, mmap.mmap):
            found[id(whole.base)] = whole.base
    return list(found.values())


def release_pages(maps: Iterable[mmap.mmap]) -> None:
    """Give the pages of the maps back, where the system can; what they hold stays readable."""
    for each in maps:
        if hasattr(each, "madvise"):
            each.madvise(mmap.MADV_DONTNEED)
