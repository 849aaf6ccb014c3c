"""The arena: one range of addresses for life, pages only behind what is used."""

import os
import sys

import numpy as np
import pytest

from luban.core.errors import LubanError
from luban.runtime.arena import Arena


def test_growing_keeps_addresses_and_contents() -> None:
    arena = Arena(1 << 30)
    address = arena.address
    arena.require(64)
    arena.view(0, np.dtype(np.int64), (8,))[...] = 7
    arena.require(1 << 20)
    assert arena.address == address
    assert arena.view(0, np.dtype(np.int64), (8,)).tolist() == [7] * 8


def test_more_than_the_range_is_refused() -> None:
    arena = Arena(1 << 26)
    with pytest.raises(LubanError, match="intermediates need 1024 MiB, the arena has 64 MiB"):
        arena.require(1 << 30)


def test_trimmed_pages_come_back_empty() -> None:
    arena = Arena(1 << 26)
    arena.require(1 << 20)
    arena.view(1 << 19, np.dtype(np.uint8), (100,))[...] = 9
    arena.trim(4096)
    assert arena.used_bytes == 4096
    assert not arena.view(1 << 19, np.dtype(np.uint8), (100,)).any()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="a fork beside threads warns from 3.12 on")
def test_a_process_with_many_arenas_can_fork() -> None:
    arenas = [Arena() for _ in range(20)]
    child = os.fork()
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len({arena.address for arena in arenas}) == 20
