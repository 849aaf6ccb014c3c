"""Window geometry with symbolic sizes: the counts stay expressions that evaluate rightly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luban.core import dims
from tests.frontend.onnx.ops.comparison import SYMBOLIC, graph_of, model, run

X = np.zeros((1, 1, 9), np.float32)


@pytest.mark.parametrize("ceil_mode", [0, 1])
@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_symbolic_counts_agree_with_constant_ones(
    stride: int, auto_pad: str, ceil_mode: int
) -> None:
    options: dict[str, Any] = {"kernel_shape": [3], "strides": [stride], "auto_pad": auto_pad}
    options |= {"ceil_mode": ceil_mode} if auto_pad == "NOTSET" else {}
    graph = graph_of(model("MaxPool", [X], sizes=SYMBOLIC, **options))
    size = graph.results[0].tensor.shape[2]
    for length in range(3, 12):
        sizes = {"x0_0": 1, "x0_1": 1, "x0_2": length}
        (result,) = run("MaxPool", [X[:, :, :1].repeat(length, 2)], **options)
        assert dims.evaluate(size, sizes) == result.shape[2]


def test_a_plain_window_keeps_a_plain_size() -> None:
    graph = graph_of(
        model("MaxPool", [X], sizes=SYMBOLIC, kernel_shape=[3], pads=[1, 1], strides=[1])
    )
    assert str(graph.results[0].type) == "f32[x0_0,x0_1,x0_2]"
