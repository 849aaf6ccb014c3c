"""A recurrent net, written as ONNX itself: torch would export it as loops or as plain products."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FEATURES, HIDDEN, CLASSES = 128, 256, 64
_LAYERS = 2


def write_bilstm(seed: int, opset: int, path: Path) -> None:
    """Two LSTM layers, both ways, and a product: as in recognisers of speech and of lines of text.

    x f32[batch, length, 128] -> y f32[batch, length, 64], any batch and length.
    """
    random = np.random.default_rng(seed)
    weights: dict[str, np.ndarray] = {}

    def uniform(name: str, *shape: int) -> str:
        scale = HIDDEN**-0.5
        weights[name] = random.uniform(-scale, scale, shape).astype(np.float32)
        return name

    nodes = [helper.make_node("Transpose", ["x"], ["steps_0"], perm=[1, 0, 2])]
    weights["joined"] = np.array([0, 0, 2 * HIDDEN])
    features = FEATURES
    for layer in range(_LAYERS):
        given = [
            f"steps_{layer}",
            uniform(f"w_{layer}", 2, 4 * HIDDEN, features),
            uniform(f"r_{layer}", 2, 4 * HIDDEN, HIDDEN),
            uniform(f"b_{layer}", 2, 8 * HIDDEN),
        ]
        ways, turned = f"ways_{layer}", f"turned_{layer}"
        nodes += [
            helper.make_node("LSTM", given, [ways], direction="bidirectional", hidden_size=HIDDEN),
            helper.make_node("Transpose", [ways], [turned], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [turned, "joined"], [f"steps_{layer + 1}"]),
        ]
        features = 2 * HIDDEN
    nodes += [
        helper.make_node("Transpose", [f"steps_{_LAYERS}"], ["frames"], perm=[1, 0, 2]),
        helper.make_node("MatMul", ["frames", uniform("classes", features, CLASSES)], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "bilstm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", FEATURES])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length", CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
