"""Parts and forms of Kokoro's speech model whose loudness can be compared with a reference's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

ENCODED: dict[str, Sequence[int | str]] = {
    "/encoder/MatMul_1_output_0": (1, 512, "frames"),
    "/encoder/Reshape_output_0": (1, "half_frames"),
    "/encoder/Reshape_1_output_0": (1, "half_frames"),
}
"""What the decoder takes from the encoder: text by frame, pitch and energy by half a frame."""

_EMBEDDED = "/encoder/bert/embeddings/LayerNorm/LayerNormalization_output_0"


def encoder(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model up to ENCODED."""
    return _ending_in(model, [_float(name, shape) for name, shape in ENCODED.items()])


def decoder(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model from ENCODED on."""
    cut = _copied(model)
    for node in cut.graph.node:
        for i, name in enumerate(node.output):
            if name in ENCODED:
                node.output[i] = f"{name}_of_the_encoder"
    given = [value for value in cut.graph.input if value.name == "style"]
    del cut.graph.input[:]
    cut.graph.input.extend(given)
    cut.graph.input.extend(_float(name, shape) for name, shape in ENCODED.items())
    return _ending_in(cut, list(cut.graph.output))


def with_offset(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with one more input, `offset` f32[1, length, 128], added to embedded phonemes."""
    moved = _copied(model)
    for node in moved.graph.node:
        for i, name in enumerate(node.input):
            if name == _EMBEDDED:
                node.input[i] = "embedded_and_offset"
    producer = next(k for k, node in enumerate(moved.graph.node) if _EMBEDDED in node.output)
    add = helper.make_node("Add", [_EMBEDDED, "offset"], ["embedded_and_offset"])
    moved.graph.node.insert(producer + 1, add)
    moved.graph.input.append(_float("offset", (1, "length", 128)))
    return moved


def with_exact_spectrum(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its STFT as a float64 product, whose result is rounded to float32 once."""
    exact = _copied(model)
    place = next(k for k, node in enumerate(exact.graph.node) if node.op_type == "STFT")
    stft = exact.graph.node[place]
    constants = {t.name: numpy_helper.to_array(t) for t in exact.graph.initializer}
    for node in exact.graph.node:
        if node.op_type == "Constant":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    step, window = int(constants[stft.input[1]]), constants[stft.input[2]].astype(np.float64)
    count = len(window)
    angle = 2 * np.pi * np.outer(np.arange(count), np.arange(count // 2 + 1)) / count
    roots = np.stack([np.cos(angle), -np.sin(angle)], -1)
    roots[:, [0, -1], 1] = 0  # a real signal has no imaginary part there
    for name, value in {
        "roots": (window[:, None, None] * roots).reshape(count, -1),
        "places": np.arange(count)[None],
        "shape": np.array([1, -1, count // 2 + 1, 2]),
        "first": np.int64(0),
        "one": np.int64(1),
        "second_axis": np.array([1]),
        "step": np.int64(step),
        "all_but_one": np.int64(count - 1),
    }.items():
        exact.graph.initializer.append(numpy_helper.from_array(np.asarray(value), f"exact_{name}"))
    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Cast", [stft.input[0]], "signal", {"to": onnx.TensorProto.DOUBLE}),
        ("Shape", [stft.input[0]], "sizes", {}),
        ("Gather", ["exact_sizes", "exact_one"], "length", {}),
        ("Sub", ["exact_length", "exact_all_but_one"], "end", {}),
        ("Range", ["exact_first", "exact_end", "exact_step"], "starts", {}),
        ("Unsqueeze", ["exact_starts", "exact_second_axis"], "column", {}),
        ("Add", ["exact_column", "exact_places"], "samples", {}),
        ("Gather", ["exact_signal", "exact_samples"], "framed", {"axis": 1}),
        ("MatMul", ["exact_framed", "exact_roots"], "product", {}),
        ("Reshape", ["exact_product", "exact_shape"], "pairs", {}),
    ]
    nodes = [helper.make_node(op, ins, [f"exact_{out}"], **kw) for op, ins, out, kw in steps]
    to_float = onnx.TensorProto.FLOAT
    nodes.append(helper.make_node("Cast", ["exact_pairs"], [stft.output[0]], to=to_float))
    rest = [*exact.graph.node[:place], *nodes, *exact.graph.node[place + 1 :]]
    del exact.graph.node[:]
    exact.graph.node.extend(rest)
    return exact


def _copied(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _float(name: str, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)


def _ending_in(model: onnx.ModelProto, outputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    """A copy with these outputs, and only the nodes and weights that they need."""
    part = _copied(model)
    needed = {value.name for value in outputs}
    nodes = []
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            nodes.append(node)
            needed.update(node.input)
    weights = [tensor for tensor in model.graph.initializer if tensor.name in needed]
    given = [value for value in model.graph.input if value.name in needed]
    for field in ("node", "initializer", "input", "output", "value_info"):
        part.graph.ClearField(field)
    part.graph.node.extend(reversed(nodes))
    part.graph.initializer.extend(weights)
    part.graph.input.extend(given)
    part.graph.output.extend(outputs)
    return part
