"""Packed weights lie one behind the other and live as long as somebody reads them."""

from __future__ import annotations

import gc

import numpy as np

from luban.engine.compile import compile_graph
from luban.engine.weight_memory import WeightMemory
from luban.graph import build as g
from luban.graph.evaluate import evaluate
from luban.ir.node import Graph
from tests.programs import inputs_for, p

F32 = np.dtype("f4")


def test_arrays_do_not_overlap_and_are_aligned() -> None:
    memory = WeightMemory()
    made = [memory.empty((rows, 1001), F32) for rows in (100, 700, 33, 2000)]
    for number, array in enumerate(made):
        array[:] = number
    for number, array in enumerate(made):
        assert array.ctypes.data % 64 == 0
        assert array.flags.c_contiguous
        np.testing.assert_array_equal(array, number)


def test_small_arrays_and_objects_are_plain_ones() -> None:
    memory = WeightMemory()
    assert memory.empty((100,), F32).base is None
    assert memory.empty((100_000,), np.dtype(object)).base is None


def test_more_than_a_range_holds_starts_another() -> None:
    memory = WeightMemory()
    first = memory.empty((1 << 26,), F32)
    second = memory.empty((1 << 26,), F32)
    assert not np.may_share_memory(first, second)


def test_arrays_outlive_the_list_of_them() -> None:
    memory = WeightMemory()
    array = memory.empty((1 << 18,), F32)
    array[:] = 3
    del memory
    gc.collect()
    assert array.min() == 3


def test_packed_weights_lie_there() -> None:
    x = p("x", "n", 256)
    weights = np.random.default_rng(0).standard_normal((256, 512)).astype(np.float32)
    graph = Graph("dense", (x,), (g.matmul(x, g.constant(weights)),))
    compiled = compile_graph(graph)
    program = compiled.executor.program
    packed = [v.constant for v in program.once.values() if v.constant is not None]
    assert [array.nbytes for array in packed] == [weights.nbytes]
    assert packed[0].base is not None
    inputs = inputs_for(graph, {"n": 3})
    (want,) = evaluate(graph, inputs)
    np.testing.assert_allclose(compiled.executor.run(inputs)[0], want, rtol=1e-4, atol=1e-4)
