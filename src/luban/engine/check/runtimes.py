"""Other runtimes, layer by layer: intermediate values exposed in batches, next to float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import onnx

from luban.core.errors import OptionError
from luban.core.progress import report
from luban.core.types import TensorType
from luban.engine.check.bound import Verdict, judge
from luban.engine.check.report import Finding, Layer
from luban.frontend.onnx import Imported
from luban.graph.evaluate import evaluate
from luban.ir.node import Graph, Node

__all__ = ["RUNTIMES", "check_runtime"]

Inputs = Mapping[str, Any]
Runner = Callable[[bytes, Sequence[str], Inputs], list[Any]]
_BATCH_BYTES = 1 << 28  # intermediate values held at a time


def _onnxruntime(model: bytes, names: Sequence[str], inputs: Inputs) -> list[Any]:
    runtime = _imported("onnxruntime")
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return list(session.run(list(names), dict(inputs)))


def _openvino(model: bytes, names: Sequence[str], inputs: Inputs) -> list[Any]:
    runtime = _imported("openvino")
    core = runtime.Core()
    config = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(model, b""), "CPU", config)
    results = compiled(dict(inputs))
    found = {name: results[port] for port in compiled.outputs for name in port.names}
    return [found[name] for name in names]


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise OptionError(
            f"runtime {name} is not installed: {error}", hint=f"pip install {name}"
        ) from error


RUNTIMES: dict[str, Runner] = {"onnxruntime": _onnxruntime, "openvino": _openvino}


def check_runtime(
    name: str,
    imported: Imported,
    model: onnx.ModelProto,
    inputs: Inputs,
    runner: Runner | None = None,
) -> tuple[list[Layer], list[Layer], Finding | None, list[str]]:
    """(layers, outputs, finding, notes) of another runtime on a model.

    runner  runs model bytes for the named values; by default that of the runtime's name

    Raises OptionError for an unknown or missing runtime.
    """
    if runner is None and name not in RUNTIMES:
        raise OptionError(f"unknown runtime {name!r}", hint="one of luban, " + ", ".join(RUNTIMES))
    run = runner or RUNTIMES[name]
    graph = imported.graph
    wanted = _checkable(imported, model)
    nodes = {producer: node for node in model.graph.node for producer in node.output}
    layers: list[Layer] = []
    finding: Finding | None = None
    done = 0
    for batch in _batches(wanted, imported.values):
        report(f"checking {name}", done, len(wanted))
        done += len(batch)
        exact, plain = _oracle(graph, imported.values, batch, inputs)
        got = run(_exposed(model, batch, imported.values), batch, inputs)
        for value, result in zip(batch, got, strict=True):
            verdict = judge(result, exact[value], plain[value], rounded=True)
            producer = nodes.get(value)
            op = producer.op_type if producer is not None else "input"
            layers.append(Layer(value, op, verdict))
            if not verdict.ok and finding is None:
                finding = _finding(value, producer, verdict)
        if finding is not None:
            break
    names = list(graph.result_names)
    results = run(model.SerializeToString(), names, inputs)
    outputs, notes = _outputs(graph, names, results, inputs)
    bad = next((layer for layer in outputs if not layer.verdict.ok), None)
    if bad is not None and finding is None:
        notes.append(
            "every exposed value is inside the bound: the error needs the runtime's own "
            "optimisation of the untouched model (a fusion or a layout)"
        )
        finding = Finding("runtime", f"output {bad.name}", (bad.name,), str(bad.verdict))
    return layers, outputs, finding, notes


def _finding(value: str, producer: onnx.NodeProto | None, verdict: Verdict) -> Finding:
    if producer is None:
        return Finding("runtime", value, (value,), str(verdict))
    label = producer.name or producer.op_type
    detail = f"its output {value!r}: {verdict}; inputs {', '.join(producer.input)}"
    return Finding("runtime", f"{producer.op_type} {label}", (label,), detail)


def _checkable(imported: Imported, model: onnx.ModelProto) -> list[str]:
    """Names of tensors that nodes of the main graph produce, in order."""
    found: list[str] = []
    for node in model.graph.node:
        for name in node.output:
            known = imported.values.get(name)
            if known is not None and isinstance(known.type, TensorType) and known.operands:
                found.append(name)
    return found


def _batches(names: Sequence[str], values: Mapping[str, Node]) -> Iterator[list[str]]:
    batch: list[str] = []
    held = 0
    for name in names:
        count = values[name].tensor.num_elements
        size = 8 * (count if isinstance(count, int) else 1 << 16)
        if batch and held + size > _BATCH_BYTES:
            yield batch
            batch, held = [], 0
        batch.append(name)
        held += size
    if batch:
        yield batch


def _oracle(
    graph: Graph, values: Mapping[str, Node], names: Sequence[str], inputs: Inputs
) -> tuple[dict[str, Any], dict[str, Any]]:
    part = Graph(graph.name, graph.parameters, tuple(values[name] for name in names))
    exact = evaluate(part, inputs, precision="float64")
    plain = evaluate(part, inputs, precision="model")
    return dict(zip(names, exact, strict=True)), dict(zip(names, plain, strict=True))


def _exposed(model: onnx.ModelProto, names: Sequence[str], values: Mapping[str, Node]) -> bytes:
    """The model with these values as outputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    for name in names:
        tensor = values[name].tensor
        element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype.numpy))
        shape = [s if isinstance(s, int) else None for s in tensor.shape]
        copy.graph.output.append(onnx.helper.make_tensor_value_info(name, element, shape))
    content: bytes = copy.SerializeToString()
    return content


def _outputs(
    graph: Graph, names: Sequence[str], results: Sequence[Any], inputs: Inputs
) -> tuple[list[Layer], list[str]]:
    exact = evaluate(graph, inputs, precision="float64")
    plain = evaluate(graph, inputs, precision="model")
    rows = zip(names, results, exact, plain, strict=True)
    return [Layer(n, "output", judge(r, e, p, rounded=True)) for n, r, e, p in rows], []
