"""Large pages are asked for where they fit wholly, and nowhere else."""

from __future__ import annotations

import mmap
import resource
import sys
from typing import Any

import numpy as np
import pytest

from luban.native.pages import LARGE_PAGE, populate, prefer_large_pages
from luban.runtime.arena import Arena


class Asked:
    """A map that writes down what it is asked."""

    def __init__(self, refuse: bool = False) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.refuse = refuse

    def madvise(self, _option: int, start: int, length: int) -> None:
        if self.refuse:
            raise OSError("no such advice")
        self.ranges.append((start, start + length))


def ask(address: int, start: int, stop: int, refuse: bool = False) -> tuple[int, Any]:
    asked: Any = Asked(refuse)
    return prefer_large_pages(asked, address, start, stop), asked.ranges


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="no large pages on this system")
def test_only_whole_pages_are_asked_for() -> None:
    page = LARGE_PAGE
    assert ask(0, 0, page - 1) == (0, [])
    assert ask(0, 0, 2 * page + 5) == (2 * page, [(0, 2 * page)])
    assert ask(4096, 0, 2 * page) == (2 * page - 4096, [(page - 4096, 2 * page - 4096)])
    assert ask(0, 4096, page + 4096) == (4096, [])


def test_a_system_without_them_is_no_error() -> None:
    assert ask(0, 0, LARGE_PAGE, refuse=True) == (LARGE_PAGE, [])


def test_an_arena_in_large_pages_holds_what_is_written() -> None:
    arena = Arena(1 << 26)
    for size in (1 << 20, 5 << 20, 17 << 20):
        arena.require(size)
        view = arena.view(0, np.dtype("u1"), (size,))
        view[:] = 7
        assert view.min() == 7
    arena.trim(4096)
    assert arena.view(1 << 20, np.dtype("u1"), (10,)).max() == 0


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


@pytest.mark.skipif(sys.platform != "linux", reason="an advice of Linux")
def test_populated_pages_are_there_and_those_behind_are_not() -> None:
    memory = mmap.mmap(-1, 512 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if not populate(memory, 0, 256 * mmap.PAGESIZE, write=True):
        pytest.skip("a system older than this advice")
    places = np.frombuffer(memory, np.uint8)
    before = faults()
    places[: 256 * mmap.PAGESIZE : mmap.PAGESIZE] = 1
    between = faults()
    places[256 * mmap.PAGESIZE :: mmap.PAGESIZE] = 1
    assert between - before < 8
    assert faults() > between


def test_no_populating_where_the_system_does_not_know_it() -> None:
    refusing: Any = Refusing()
    assert not populate(refusing, 0, 4096, write=True)
    assert not populate(refusing, 4096, 4096, write=False)


class Refusing:
    """A map of an older system."""

    def madvise(self, *_: int) -> None:
        raise OSError("no such advice")

    def __len__(self) -> int:
        return 4096
