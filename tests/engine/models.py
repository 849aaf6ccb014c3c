"""Small ONNX models for the tests of the API and the command line."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DATA = Path(__file__).parents[2] / "benchmarks" / "data"
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

Array = np.ndarray[Any, np.dtype[Any]]


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: dict[str, Array] | None = None,
    opset: int = 20,
) -> onnx.ModelProto:
    """A model with one opset."""
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "tests", inputs, outputs, tensors)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10, producer_name="tests"
    )


def value(name: str, shape: list[int | str] | None, element: int = FLOAT) -> onnx.ValueInfoProto:
    """An input or output."""
    return helper.make_tensor_value_info(name, element, shape)


def affine(width: int = 8) -> onnx.ModelProto:
    """y[b, w] = relu(x[b, w] * scale[w] + shift[w]) and total[b] = sum(y)."""
    scale = np.linspace(-1, 1, width, dtype=np.float32)
    shift = np.arange(width, dtype=np.float32) / 8
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["scaled"], "scale_it"),
        helper.make_node("Add", ["scaled", "shift"], ["shifted"], "shift_it"),
        helper.make_node("Relu", ["shifted"], ["y"], "clip_it"),
        helper.make_node("ReduceSum", ["y", "axes"], ["total"], "sum_it", keepdims=0),
    ]
    weights: dict[str, Array] = {"scale": scale, "shift": shift, "axes": np.array([1])}
    return model_of(
        nodes,
        [value("x", ["batch", width])],
        [value("y", ["batch", width]), value("total", ["batch"])],
        weights,
    )


def affine_answer(x: Array) -> tuple[Array, Array]:
    """What `affine` gives."""
    width = x.shape[1]
    scale = np.linspace(-1, 1, width, dtype=np.float32)
    y = np.maximum(x * scale + np.arange(width, dtype=np.float32) / 8, 0)
    return y, y.sum(axis=1)


def saved(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    """The path of the model, written to a folder."""
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path
