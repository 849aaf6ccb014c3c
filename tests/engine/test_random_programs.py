"""Random programs over most primitives and dtypes, compiled: equal to their meaning."""

import numpy as np
from hypothesis import HealthCheck, given, settings

from luban.engine.compile import compile_graph
from luban.graph.evaluate import evaluate
from luban.graph.text import print_graph
from luban.ir.node import Graph
from tests.graph.programs import inputs_for, programs

# A few roundings of the dtype: functions are within 4 units, sums have at most 24 terms.
TOLERANCE = {"f64": 1e-12, "f32": 3e-6, "f16": 4e-3, "bf16": 3e-2, "f8e4m3fn": 0.15}


@given(programs())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_compiled_programs_keep_the_meaning(graph: Graph) -> None:
    executor = compile_graph(graph, num_threads=2).executor
    for n in (1, 3):
        inputs = inputs_for(graph, n)
        rows = zip(graph.results, executor.run(inputs), evaluate(graph, inputs), strict=True)
        for result, got, expected in rows:
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
            a, b = got.astype(np.float64), expected.astype(np.float64)
            tolerance = TOLERANCE.get(result.tensor.dtype.name, 0)
            np.testing.assert_allclose(
                a, b, rtol=tolerance, atol=tolerance * 1e-6, err_msg=print_graph(graph).text
            )
