"""Other runtimes, layer by layer: intermediate values exposed in batches, next to float64.

Inside control flow too: see runtime_bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from luban.core.errors import OptionError
from luban.core.progress import report
from luban.core.types import TensorType
from luban.engine.check.bound import Verdict, judge
from luban.engine.check.report import Finding, Layer
from luban.engine.check.runtime_bodies import captured_names, check_bodies, control_graphs
from luban.frontend.onnx import Imported, import_model
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
    done = _RuntimeCheck(name, runner or RUNTIMES[name]).model(imported, model, inputs)
    return done.layers, done.outputs, done.finding, done.notes


@dataclass(slots=True)
class _Checked:
    """What one model gave: results are the runtime's outputs."""

    layers: list[Layer] = field(default_factory=list)
    outputs: list[Layer] = field(default_factory=list)
    finding: Finding | None = None
    notes: list[str] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class _RuntimeCheck:
    """A runtime under check; bodies of control flow are models that it checks as well."""

    name: str
    run: Runner
    notes: list[str] = field(default_factory=list)
    _imported: dict[bytes, Imported] = field(default_factory=dict)

    def model(self, imported: Imported, model: onnx.ModelProto, inputs: Inputs) -> _Checked:
        """Check a model up to the first fault, then its outputs."""
        graph, found = imported.graph, _Checked(notes=self.notes)
        wanted = _checkable(imported, model)
        nodes = {producer: node for node in model.graph.node for producer in node.output}
        seen: set[str] = set()
        for batch in _batches(wanted, imported.values):
            report(f"checking {self.name}", len(found.layers), len(wanted))
            exact, plain = _oracle(graph, imported.values, batch, inputs)
            got = self.run(_exposed(model, batch, imported.values), batch, inputs)
            for value, result in zip(batch, got, strict=True):
                producer = nodes.get(value)
                if found.finding is not None:
                    break
                if producer is not None and producer.output[0] not in seen:
                    seen.add(producer.output[0])
                    found.finding = self._bodies(producer, imported, model, inputs, found.layers)
                    if found.finding is not None:
                        break
                verdict = judge(result, exact[value], plain[value], rounded=True)
                op = producer.op_type if producer is not None else "input"
                found.layers.append(Layer(value, op, verdict))
                if not verdict.ok:
                    found.finding = _finding(value, producer, verdict)
            if found.finding is not None:
                break
        names = [value.name for value in model.graph.output]
        found.results = self.run(model.SerializeToString(), names, inputs)
        found.outputs = _outputs(graph, names, found.results, inputs)
        bad = next((layer for layer in found.outputs if not layer.verdict.ok), None)
        if bad is not None and found.finding is None:
            self.notes.append(
                "every exposed value is inside the bound: the error needs the runtime's own "
                "optimisation of the untouched model (a fusion or a layout)"
            )
            found.finding = Finding("runtime", f"output {bad.name}", (bad.name,), str(bad.verdict))
        return found

    def _bodies(
        self,
        node: onnx.NodeProto,
        imported: Imported,
        model: onnx.ModelProto,
        inputs: Inputs,
        layers: list[Layer],
    ) -> Finding | None:
        """The first fault inside a node of control flow, if it is one."""
        bodies = control_graphs(node)
        if node.op_type not in ("If", "Loop", "Scan") or not bodies:
            return None
        captured = [name for body in bodies.values() for name in captured_names(body)]
        needed = list(dict.fromkeys(n for n in (*node.input, *captured) if n))
        values = {name: inputs[name] for name in needed if name in inputs}
        weights = {t.name: t for t in model.graph.initializer if t.name in needed}
        values |= {name: numpy_helper.to_array(t) for name, t in weights.items()}
        missing = [name for name in needed if name not in values]
        if not all(isinstance(imported.values[n].type, TensorType) for n in missing):
            self.notes.append(f"{node.name or node.op_type}: takes no tensors, checked as one node")
            return None
        if missing:
            given = self.run(_exposed(model, missing, imported.values), missing, inputs)
            values |= dict(zip(missing, given, strict=True))
        found = check_bodies(node, model, values, self._body)
        layers += found.layers.values()
        return found.finding

    def _body(
        self, model: onnx.ModelProto, inputs: Inputs
    ) -> tuple[list[Layer], Finding | None, list[Any]]:
        content = model.SerializeToString()
        if content not in self._imported:
            self._imported[content] = import_model(model)
        found = self.model(self._imported[content], model, inputs)
        return [*found.layers, *found.outputs], found.finding, found.results


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
) -> list[Layer]:
    exact = evaluate(graph, inputs, precision="float64")
    plain = evaluate(graph, inputs, precision="model")
    rows = zip(names, results, exact, plain, strict=True)
    return [Layer(n, "output", judge(r, e, p, rounded=True)) for n, r, e, p in rows]
