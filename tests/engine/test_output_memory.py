"""Results in memory of earlier results: only of those that nobody can see any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from luban.engine.compile import compile_graph
from luban.engine.output_memory import OutputMemory
from luban.graph import build as g
from luban.ir.node import Graph
from tests.programs import p

F32 = np.dtype("f4")
LARGE = (64, 1024)


def test_memory_of_a_result_that_is_gone_serves_again() -> None:
    memory = OutputMemory()
    place = memory.empty(LARGE, F32).ctypes.data
    assert memory.empty(LARGE, F32).ctypes.data == place


def test_a_result_in_use_keeps_its_memory() -> None:
    memory = OutputMemory()
    held = memory.empty(LARGE, F32)
    assert not np.may_share_memory(held, memory.empty(LARGE, F32))


def test_a_view_a_buffer_and_a_slice_keep_the_memory() -> None:
    memory = OutputMemory()
    looks: list[Callable[[Any], Any]] = [
        lambda a: a[3:],
        lambda a: a.T.reshape(-1)[:1],
        lambda a: a.ravel(),
        lambda a: a.view("i4"),
    ]
    for look in looks:
        held = look(memory.empty((LARGE[0], 1, LARGE[1]), F32)[:, 0])
        other = memory.empty(LARGE, F32)
        assert not np.may_share_memory(np.asarray(held), other)


def test_a_cache_that_grows_by_a_little_stays_where_it_is() -> None:
    memory = OutputMemory()
    places = {memory.empty((12, 1000 + i, 64), F32).ctypes.data for i in range(5)}
    assert len(places) == 1


def test_idle_blocks_of_other_sizes_go() -> None:
    memory = OutputMemory()
    for size in range(1, 40):
        memory.empty((size, 1 << 17), F32)
    assert len(memory._blocks) <= 2


def test_small_results_and_objects_are_plain_arrays() -> None:
    memory = OutputMemory()
    assert memory.empty((10,), F32).base is None
    assert memory.empty(LARGE, np.dtype(object)).base is None


def test_results_are_aligned_and_writeable() -> None:
    made = OutputMemory().empty(LARGE, F32)
    assert made.ctypes.data % 64 == 0
    assert made.flags.writeable
    assert made.flags.c_contiguous


def test_calls_never_overwrite_a_result_that_is_held() -> None:
    x = p("x", 300, 300)
    run = compile_graph(Graph("plus", (x,), (g.add(x, 1.0),))).executor
    given = [np.full((300, 300), number, np.float32) for number in range(4)]
    results = [(run.replay([array]) or run.run([array]))[0] for array in given]
    for number, result in enumerate(results):
        np.testing.assert_array_equal(result, number + 1)
