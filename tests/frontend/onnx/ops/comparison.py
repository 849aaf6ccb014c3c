"""Models of one ONNX node, run by our evaluator and by ONNX Runtime without optimisation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from luban.frontend.onnx import import_model
from luban.graph.evaluate import evaluate
from luban.graph.verify import verify
from luban.ir.node import Graph

Array = np.ndarray[Any, Any]

SYMBOLIC = "symbolic"
"""Every size of every input is a symbol, but for vectors of i64: they state axes and sizes."""


def model(
    op: str,
    inputs: Sequence[Any],
    *,
    opset: int = 22,
    domain: str = "",
    versions: int = 1,
    results: int = 1,
    known: Collection[int] = (),
    sizes: str = "static",
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node. `known` inputs are initializers, None ones are left out.

    `versions` is the operator set version of a `domain` of its own.
    """
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(inputs)]
    outputs = [f"y{i}" for i in range(results)]
    node = helper.make_node(op, names, outputs, name="the_node", domain=domain, **attributes)
    graph = onnx.GraphProto(name="one_node", node=[node])
    for i, value in enumerate(inputs):
        if value is None:
            continue
        array = np.asarray(value)
        if i in known:
            graph.initializer.append(_tensor(array, names[i]))
        else:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            shape: Sequence[int | str] = array.shape
            if sizes == SYMBOLIC and (array.dtype != np.int64 or array.ndim != 1):
                shape = [f"x{i}_{axis}" for axis in range(array.ndim)]
            graph.input.append(helper.make_tensor_value_info(names[i], kind, shape))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, versions))
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _tensor(array: Array, name: str) -> onnx.TensorProto:
    if array.dtype.kind == "O":
        texts = [text.encode() for text in array.ravel()]
        return helper.make_tensor(name, onnx.TensorProto.STRING, array.shape, texts)
    return numpy_helper.from_array(array, name)


def graph_of(proto: onnx.ModelProto) -> Graph:
    """The model as a verified graph."""
    graph = import_model(proto).graph
    verify(graph)
    return graph


def run(op: str, inputs: Sequence[Any], **options: Any) -> tuple[Array, ...]:
    """The results of one node by our evaluator."""
    known = options.get("known", ())
    given = [np.asarray(v) for i, v in enumerate(inputs) if v is not None and i not in known]
    return tuple(evaluate(graph_of(model(op, inputs, **options)), given))


def run_elsewhere(op: str, inputs: Sequence[Any], **options: Any) -> tuple[Array, ...]:
    """The results of the same node by ONNX Runtime."""
    proto = model(op, inputs, **options)
    for output in proto.graph.output:  # ONNX Runtime infers the types itself
        assert not output.HasField("type")
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), settings)
    known = options.get("known", ())
    feeds = {
        f"x{i}": np.asarray(v) for i, v in enumerate(inputs) if v is not None and i not in known
    }
    return tuple(session.run(None, feeds))


def compare(
    op: str, inputs: Sequence[Any], *, rtol: float = 1e-5, atol: float = 1e-6, **options: Any
) -> None:
    """Assert that both agree, with constant sizes and with symbolic ones."""
    wanted = run_elsewhere(op, inputs, **options)
    for sizes in ("static", SYMBOLIC):
        got = run(op, inputs, sizes=sizes, **options)
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            assert a.dtype == b.dtype, f"dtype {a.dtype}, expected {b.dtype}"
            assert a.shape == b.shape, f"shape {a.shape}, expected {b.shape} ({sizes} sizes)"
            if b.dtype.kind in "fc":
                np.testing.assert_allclose(a, b, rtol, atol)
            else:
                np.testing.assert_array_equal(a, b)
