"""Models of one node, and an independent runtime to compare with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from luban.frontend.onnx import import_model
from luban.frontend.onnx.load import ELEMENT_TYPES
from luban.graph.evaluate import evaluate
from luban.graph.verify import verify

Array = np.ndarray[Any, np.dtype[Any]]
_CODES = {element.numpy: code for code, element in ELEMENT_TYPES.items()}


def model(
    op: str,
    inputs: Sequence[Array | None],
    num_outputs: int = 1,
    *,
    domain: str = "com.microsoft",
    version: int = 20,
    constants: Sequence[int] = (),
    **attributes: Any,
) -> onnx.ModelProto:
    """One node; the inputs at `constants` become initializers, None is left out."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    outputs = [f"y{i}" for i in range(num_outputs)]
    node = helper.make_node(op, names, outputs, name="node", domain=domain, **attributes)
    given = [(i, names[i], x) for i, x in enumerate(inputs) if x is not None]
    graph = helper.make_graph(
        [node],
        "one_node",
        [
            helper.make_tensor_value_info(name, _CODES[x.dtype], x.shape)
            for i, name, x in given
            if i not in constants
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(x, name) for i, name, x in given if i in constants],
    )
    imports = [helper.make_opsetid("", version)]
    if domain:
        imports.append(helper.make_opsetid(domain, 1))
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def feeds(given: onnx.ModelProto, inputs: Sequence[Array | None]) -> dict[str, Array]:
    """The inputs by name, without those that are initializers."""
    wanted = {v.name for v in given.graph.input}
    named = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    return {name: x for name, x in named.items() if name in wanted}


def ours(given: onnx.ModelProto, inputs: Mapping[str, Array]) -> tuple[Any, ...]:
    """What we give."""
    graph = import_model(given).graph
    verify(graph)
    return evaluate(graph, inputs)


def theirs(given: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Any]:
    """What ONNX Runtime gives without optimisation."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        given.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found: list[Any] = session.run(None, dict(inputs))
    return found


def assert_agree(
    op: str,
    inputs: Sequence[Array | None],
    num_outputs: int = 1,
    *,
    bound: float = 2e-5,
    steps: int = 0,
    **options: Any,
) -> None:
    """Equal dtypes and shapes; floats within `bound` of the largest, integers within `steps`."""
    given = model(op, inputs, num_outputs, **options)
    named = feeds(given, inputs)
    for got, want in zip(ours(given, named), theirs(given, named), strict=True):
        got, want = np.asarray(got), np.asarray(want)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if want.dtype.kind == "f":
            wide = want.astype(np.float64)
            limit = bound * max(float(np.abs(wide).max(initial=0)), 1e-6)
            np.testing.assert_allclose(got.astype(np.float64), wide, rtol=0, atol=limit)
        else:
            apart = np.abs(got.astype(np.int64) - want.astype(np.int64)).max(initial=0)
            assert apart <= steps, f"{apart} steps apart"
