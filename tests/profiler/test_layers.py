"""Quantised layers next to float32: the twin's values, times by layer, errors, verdicts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import luban
from luban.core.errors import OptionError, UnsupportedError
from luban.profiler.layers import LayerLine, LayerReport, measure_layers
from luban.profiler.unquantised import unquantised
from tests.engine.models import Array, model_of, value

RNG = np.random.default_rng(0)
WEIGHTS = [RNG.standard_normal((64, 64)).astype(np.float32) / 8 for _ in range(2)]
STEP = np.float32(1 / 32)


def codes(weights: Array) -> tuple[Array, Array]:
    """i8 codes with a step for each column."""
    steps = np.abs(weights).max(0) / 127
    return np.round(weights / steps).astype(np.int8), steps.astype(np.float32)


def qdq(signed: bool = False) -> onnx.ModelProto:
    """Two layers; a step whose lowest code is 0 stands for the first's relu."""
    zeros = (np.int8(0), np.int8(-128)) if signed else (np.uint8(128), np.uint8(0))
    constants: dict[str, Array] = {"step": np.array(STEP)}
    constants |= {name: np.array(z) for name, z in zip(("zero", "low"), zeros, strict=True)}
    nodes = []
    last = "x"
    for number, weights in enumerate(WEIGHTS):
        constants[f"w{number}"], constants[f"s{number}"] = codes(weights)
        zero = "low" if number else "zero"
        nodes += [
            helper.make_node("QuantizeLinear", [last, "step", zero], [f"q{number}"]),
            helper.make_node("DequantizeLinear", [f"q{number}", "step", zero], [f"d{number}"]),
            helper.make_node(
                "DequantizeLinear", [f"w{number}", f"s{number}"], [f"v{number}"], axis=1
            ),
            helper.make_node(
                "MatMul", [f"d{number}", f"v{number}"], [f"y{number}"], f"layer{number}"
            ),
        ]
        last = f"y{number}"
    return model_of(nodes, [value("x", ["n", 64])], [value("y1", ["n", 64])], constants)


def signed() -> onnx.ModelProto:
    return qdq(signed=True)


def dynamic() -> onnx.ModelProto:
    constants = dict(zip(("w", "s"), codes(WEIGHTS[0]), strict=True))
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["sum"], "layer"),
        helper.make_node("Cast", ["sum"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["scale", "s"], ["both"]),
        helper.make_node("Mul", ["wide", "both"], ["y"]),
    ]
    return model_of(nodes, [value("x", ["n", 64])], [value("y", ["n", 64])], constants)


def linear() -> onnx.ModelProto:
    one = np.ones((), np.float32)
    constants: dict[str, Array] = {
        "xs": one / 32, "xz": np.array(128, np.uint8), "ws": one / 512, "wz": np.array(0, np.int8),
        "w": np.round(WEIGHTS[0] * 512).clip(-127, 127).astype(np.int8), "ys": one / 32,
        "yz": np.array(0, np.uint8),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node(
            "QLinearMatMul", ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["r"], "layer"
        ),
        helper.make_node("DequantizeLinear", ["r", "ys", "yz"], ["y"]),
    ]
    return model_of(nodes, [value("x", ["n", 64])], [value("y", ["n", 64])], constants)


X = RNG.standard_normal((5, 64)).astype(np.float32)


def wanted(model: Any) -> Array:
    x = X.astype(np.float64)
    if model in (qdq, signed):
        return np.maximum(x @ WEIGHTS[0], 0) @ WEIGHTS[1]
    if model is dynamic:
        return x @ WEIGHTS[0]
    return np.maximum(x @ np.clip(WEIGHTS[0], -127 / 512, 127 / 512), 0)


@pytest.mark.parametrize("model", [qdq, signed, dynamic, linear])
def test_the_twin_is_the_float_model(model: Any) -> None:
    twin = unquantised(model())
    (found,) = luban.compile(twin.model, cache=False)(X).values()
    error = np.abs(found - wanted(model)).max() / np.abs(wanted(model)).max()
    assert error < 0.01  # that of the weights' codes alone
    assert not {"QuantizeLinear", "QLinearMatMul"} & {n.op_type for n in twin.model.graph.node}


@pytest.mark.parametrize("model", [qdq, signed, dynamic, linear])
def test_each_layer_has_two_times_and_an_error(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luban.profiler.layers._TIMING_S", 0.05)
    found = measure_layers(model(), {"x": X}, 1)
    assert [line.name for line in found.lines] == (
        ["layer0", "layer1"] if model in (qdq, signed) else ["layer"]
    )
    for line in found.lines:
        assert line.quantised_s > 0
        assert line.float_s > 0
        assert line.error is not None
        assert 1e-4 < line.error < 0.05
    assert 1e-4 < found.error < 0.05
    assert found.call_quantised_s > 0
    assert found.to_json()["lines"][0]["name"] == found.lines[0].name


def test_equal_layers_share_a_kernel_and_keep_their_names() -> None:
    """Their bodies are one graph: places come from the nodes that each was made of."""
    compiled = luban.compile(unquantised(qdq()).model, cache=False).compiled
    places = [place for n in compiled.kernels.lowered for place in n.op.places]  # type: ignore[attr-defined]
    names = [place.path for place in places]
    assert {"layer0", "layer1"} <= set(names)


def test_verdicts() -> None:
    line = LayerLine("a", "panel_dot", 1e-3, 2e-3, 0.01)
    slow = replace(line, name="b", quantised_s=3e-3)
    report = LayerReport("m", 1, (line,), 1e-3, 2e-3, 0, 0, 0.01)
    assert report.verdict == "every layer is as fast as in float32, or faster"
    assert report.speedup == 2
    mixed = replace(report, lines=(line, slow))
    assert mixed.verdict == "faster as a whole; in float32 these layers would be faster: b"
    assert [x.name for x in mixed.losing] == ["b"]
    worse = replace(mixed, call_quantised_s=3e-3)
    assert worse.verdict.startswith("refused: quantised, the model takes 1.50 times as long")


def test_what_has_no_layers_and_no_twin() -> None:
    plain = model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", [3])], [value("y", [3])])
    with pytest.raises(OptionError, match="has no quantised layers"):
        measure_layers(plain, {"x": np.ones(3, np.float32)})
    odd = dynamic()
    odd.graph.node.insert(2, helper.make_node("Add", ["sum", "bias"], ["more"]))
    odd.graph.node[3].input[0] = "more"
    bias = np.ones(64, np.int32)
    odd.graph.initializer.append(onnx.numpy_helper.from_array(bias, "bias"))
    with pytest.raises(UnsupportedError, match="no float32 form of its quantised layers"):
        measure_layers(odd, {"x": X})
