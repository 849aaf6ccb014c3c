"""Each layer of a quantised model next to the same layer in float32: time and error.

`luban bench MODEL --layers`. The float32 model is the twin that `unquantised` makes; both are timed
kernel by kernel in this process, one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnx

from luban.core import dims
from luban.core.errors import LubanError, OptionError, UnsupportedError
from luban.engine.check.kernels import ops_of, places_of
from luban.engine.compile import Compiled, compile_graph
from luban.engine.hardware import known_hardware
from luban.engine.steps import Launch
from luban.engine.timed_calls import Calls, timed_calls
from luban.frontend.onnx import import_model
from luban.frontend.onnx.load import load_model
from luban.profiler.roofline import judged
from luban.profiler.unquantised import Layer, unquantised

__all__ = ["LayerLine", "LayerReport", "measure_layers"]

Array = np.ndarray[Any, Any]
_SLOWER = 1.05  # what noise may make of equal times
_TIMING_S = 1.5


@dataclass(frozen=True, slots=True)
class LayerLine:
    """One product of the model.

    quantised_s, float_s   time of the kernels that it is in; layers that share a kernel share its
                           time by their work
    error   root mean square of what differs, relative to the float32 layer's values; None where
            both models have no value to compare
    """

    name: str
    computes: str
    quantised_s: float
    float_s: float
    error: float | None

    @property
    def speedup(self) -> float:
        """How many times faster the quantised layer is."""
        return self.float_s / self.quantised_s if self.quantised_s else 0.0

    @property
    def loses(self) -> bool:
        """True if quantising it costs time."""
        return self.quantised_s > _SLOWER * self.float_s


@dataclass(frozen=True, slots=True)
class LayerReport:
    """A quantised model next to its float32 twin.

    between_quantised_s, between_float_s   kernels that hold no such layer
    error   of the outputs, the largest, relative to float32
    """

    model: str
    threads: int
    lines: tuple[LayerLine, ...]
    call_quantised_s: float
    call_float_s: float
    between_quantised_s: float
    between_float_s: float
    error: float

    @property
    def speedup(self) -> float:
        """How many times faster a whole call of the quantised model is."""
        return self.call_float_s / self.call_quantised_s

    @property
    def losing(self) -> list[LayerLine]:
        """Layers that quantising makes slower, the costliest first."""
        found = [line for line in self.lines if line.loses]
        return sorted(found, key=lambda line: line.float_s - line.quantised_s)

    @property
    def verdict(self) -> str:
        """What to do, in a sentence."""
        if self.call_quantised_s > _SLOWER * self.call_float_s:
            return (
                f"refused: quantised, the model takes {1 / self.speedup:.2f} times as long as in "
                "float32; keep float32, or leave the layers below in it"
            )
        if self.losing:
            names = ", ".join(line.name for line in self.losing[:3])
            return f"faster as a whole; in float32 these layers would be faster: {names}"
        return "every layer is as fast as in float32, or faster"

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data, and what follows from them."""
        lines = [{**asdict(x), "speedup": x.speedup, "loses": x.loses} for x in self.lines]
        return {**asdict(self), "lines": lines, "speedup": self.speedup, "verdict": self.verdict}


def measure_layers(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    inputs: Mapping[str, Any],
    threads: int | None = None,
) -> LayerReport:
    """Time both models on the same inputs, kernel by kernel, and compare the values of layers.

    Raises OptionError if the model has no quantised layers, UnsupportedError for a form of
    quantisation that has no float32 twin here.
    """
    loaded = load_model(model)
    proto = loaded.whole()
    for number, node in enumerate(proto.graph.node):  # the names that the twin has
        node.name = node.name or f"{node.op_type}_{number}"
    twin = unquantised(proto)
    if not twin.layers:
        raise OptionError(
            f"{loaded.name} has no quantised layers",
            hint="--layers compares quantised layers with float32; use --roofline",
        )
    quantised = _Side.measured(proto, inputs, threads, twin.layers)
    try:
        plain = _Side.measured(twin.model, inputs, threads, twin.layers)
    except LubanError as error:
        raise UnsupportedError(
            f"{loaded.name}: no float32 form of its quantised layers: {error}",
            hint="QuantizeLinear and DequantizeLinear, QLinear products, and DynamicQuantizeLinear "
            "with integer products are read",
        ) from error
    values = [_values(p, inputs, threads, twin.layers) for p in (proto, twin.model)]
    lines = [
        LayerLine(
            layer.name,
            quantised.computes.get(layer.name, layer.op),
            quantised.times.get(layer.name, 0.0),
            plain.times.get(layer.name, 0.0),
            _error(layer, *(found.get(layer.result) for found in values)),
        )
        for layer in twin.layers
    ]
    outputs = [o.name for o in proto.graph.output]
    errors = [_relative(values[0][name], values[1][name]) for name in outputs]
    return LayerReport(
        loaded.name,
        quantised.threads,
        tuple(lines),
        quantised.call_s,
        plain.call_s,
        quantised.between_s,
        plain.between_s,
        max((e for e in errors if e is not None), default=0.0),
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the models: time of each layer, of what lies between, and of a whole call."""

    times: dict[str, float]
    computes: dict[str, str]
    between_s: float
    call_s: float
    threads: int

    @classmethod
    def measured(
        cls,
        proto: onnx.ModelProto,
        inputs: Mapping[str, Any],
        threads: int | None,
        layers: Sequence[Layer],
    ) -> _Side:
        compiled = compile_graph(import_model(proto).graph, num_threads=threads)
        given = [inputs[name] for name in compiled.source.parameter_names]
        calls = timed_calls(compiled, given, seconds=_TIMING_S)
        names = {layer.name for layer in layers}
        times: dict[str, float] = {}
        computes: dict[str, str] = {}
        between = 0.0
        for step, seconds in _step_times(compiled, calls):
            assert step.node is not None
            inside = [place for place in dict.fromkeys(places_of(step.node)) if place in names]
            for name in inside:
                times[name] = times.get(name, 0.0) + seconds / len(inside)
                computes.setdefault(name, ops_of(step.node))
            if not inside:
                between += seconds
        return cls(times, computes, between, min(calls.whole_s), compiled.executor.num_threads)


def _step_times(compiled: Compiled, calls: Calls) -> Iterator[tuple[Launch, float]]:
    """Each launch with its time; launches of one kernel share its time by their work."""
    steps: dict[str, list[Launch]] = {}
    for program in compiled.programs.values():
        for step in program.steps:
            if isinstance(step, Launch) and step.node is not None:
                steps.setdefault(step.kernel.name, []).append(step)
    found = judged(compiled, calls, known_hardware(compiled.target))
    for line in found.lines:
        launches = steps.get(line.name, [])
        works = [max(float(dims.evaluate(step.work, found.sizes)), 1.0) for step in launches]
        for step, work in zip(launches, works, strict=True):
            yield step, line.time_s * work / sum(works)


def _values(
    proto: onnx.ModelProto,
    inputs: Mapping[str, Any],
    threads: int | None,
    layers: Sequence[Layer],
) -> dict[str, Array]:
    """The outputs, and the values of layers that both models have."""
    names = dict.fromkeys([*(o.name for o in proto.graph.output), *(x.result for x in layers)])
    graph = import_model(proto, outputs=[name for name in names if name]).graph
    executor = compile_graph(graph, num_threads=threads).executor
    found = executor.run([inputs[name] for name in graph.parameter_names])
    return dict(zip(graph.result_names, found, strict=True))


def _error(layer: Layer, codes: Array | None, plain: Array | None) -> float | None:
    if codes is None or plain is None:
        return None
    value = codes.astype(np.float64)
    if layer.scale is not None:
        zero = 0.0 if layer.zero_point is None else layer.zero_point.astype(np.float64)
        value = (value - zero) * layer.scale
    return _relative(value, plain)


def _relative(got: Array, wanted: Array) -> float | None:
    if got.shape != wanted.shape or wanted.dtype.kind not in "fiu" or not wanted.size:
        return None
    want = wanted.astype(np.float64)
    size = float(np.sqrt(np.mean(want**2)))
    return float(np.sqrt(np.mean((got.astype(np.float64) - want) ** 2))) / (size or 1.0)
