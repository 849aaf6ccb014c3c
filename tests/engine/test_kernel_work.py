"""What kernels have to do: by hand for a small net, in loops, with sizes that are missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from luban.engine.compile import Compiled, compile_graph
from luban.engine.kernel_work import KernelWork, kernel_works
from luban.engine.steps import Launch, Recurrence, bodies_of
from luban.graph import build as g
from luban.ir.node import Graph
from tests.engine.test_timed import both_ways
from tests.programs import p

WEIGHTS = np.ones((64, 32), np.float32)


def dense(*, twice: bool = False) -> Compiled:
    x = p("x", "n", 64)
    y = g.exp(g.matmul(x, g.constant(WEIGHTS, "f32")))
    if twice:
        y = g.matmul(y, g.constant(np.ones((32, 64), np.float32), "f32"))
    return compile_graph(Graph("dense", (x,), (y,)), num_threads=1)


def only(works: dict[Any, KernelWork]) -> KernelWork:
    (work,) = works.values()
    return work


def test_a_product_counts_by_hand() -> None:
    found = only(kernel_works(dense(), {"n": 7}))
    assert found.work.operations == {"f32": 7 * 32 * (2 * 64 + 12)}
    assert found.definition == found.work.num_operations
    weights, moving = found.work.traffic
    assert weights.size_bytes == weights.resident_bytes == WEIGHTS.nbytes
    assert moving.size_bytes == moving.resident_bytes == 4 * 7 * (64 + 32)


def test_weights_share_the_caches() -> None:
    works = kernel_works(dense(twice=True), {"n": 7}).values()
    assert [w.work.traffic[0].size_bytes for w in works] == [WEIGHTS.nbytes] * 2
    assert [w.work.traffic[0].resident_bytes for w in works] == [2 * WEIGHTS.nbytes] * 2


def test_kernels_inside_loops_count_one_run() -> None:
    compiled = compile_graph(both_ways(), num_threads=1)
    scans = [s for s in compiled.executor.program.steps if isinstance(s, Recurrence)]
    inside = {s.kernel for scan in scans for body in bodies_of(scan) for s in body.steps
              if isinstance(s, Launch)}  # fmt: skip
    works = kernel_works(compiled, {"n": 9})
    products = [works[kernel].work.num_operations for kernel in inside]
    assert sum(products) >= 2 * 8 * 8
    assert all(count <= 2 * 8 * 8 + 8 * 21 for count in products)


def test_a_kernel_whose_sizes_are_not_known_is_left_out() -> None:
    assert kernel_works(dense(), {}) == {}
