"""Casts between all dtypes, compiled: the same bits as their meaning."""

import numpy as np
import pytest

from luban.core.dtypes import dtype
from luban.core.types import type_of_array
from luban.engine.compile import compile_graph
from luban.graph import build
from luban.graph.evaluate import evaluate
from luban.graph.meaning.elementwise import cast_array
from luban.ir.node import Graph

INTEGERS = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "i4", "u4"]
FLOATS = ["f16", "bf16", "f32", "f64", "f8e4m3fn", "f8e5m2"]
WHOLE = np.array([-6, 5, 300, -70_000, 2**31 - 1, -(2**31), 2**40 + 3, -1])
REAL = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 3e9, -1.5, 0.1, 300.7, -1e-8])


@pytest.mark.parametrize("source", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("saturate", [True, False])
def test_compiled_casts_agree_with_their_meaning(source: str, saturate: bool) -> None:
    values = WHOLE if dtype(source).is_integer else REAL
    x = cast_array(values, dtype(source))
    p = build.parameter("x", type_of_array(x))
    targets = [t for t in (*INTEGERS, *FLOATS, "bool") if t != source]
    graph = Graph("casts", (p,), tuple(build.cast(p, t, saturate=saturate) for t in targets))
    got = compile_graph(graph).executor.run([x])
    for target, a, b in zip(targets, got, evaluate(graph, [x]), strict=True):
        assert a.dtype == b.dtype, target
        np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64), target)
