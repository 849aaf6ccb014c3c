"""The node tests with every size of every input a symbol: a sample, or with `-m slow` all of them.

Scalars and vectors of integers keep their sizes: they state axes and shapes, so how many axes a
result has follows from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from luban.core.errors import LubanError
from luban.frontend.onnx import import_model
from luban.graph.evaluate import evaluate
from luban.graph.verify import verify
from tests.frontend.onnx.backend_cases import cases, check, unsupported

NAMES = sorted(name for name in cases() if "_expanded" not in name)
SAMPLE = NAMES[::29]

NEEDS_CONSTANTS = {
    "a number of channels": ("test_causal_conv_with_state",),
    "a number of directions": ("test_gru", "test_lstm", "test_rnn", "test_simple_rnn"),
    "a number of blocks": ("test_dequantizelinear_blocked", "test_quantizelinear_blocked"),
    "one row or a vector": ("test_strnormalizer_export_monday_insensintive_upper_twodim",),
}


def with_symbols(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with symbols for sizes, and nothing stated about those of its results."""
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    for value in opened.graph.input:
        tensor = value.type.tensor_type
        states_a_shape = tensor.elem_type in (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
        if states_a_shape and len(tensor.shape.dim) < 2:
            continue
        for axis, size in enumerate(tensor.shape.dim):
            size.Clear()
            size.dim_param = f"{value.name}_{axis}"
    for value in (*opened.graph.output, *opened.graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            size.Clear()
    return opened


def run(model: onnx.ModelProto, inputs: Sequence[Any]) -> Sequence[Any]:
    graph = import_model(with_symbols(model)).graph
    verify(graph)
    return evaluate(graph, [np.asarray(x) if isinstance(x, np.generic) else x for x in inputs])


def _refusal(name: str) -> str:
    """What the error says; nothing if the case passes."""
    try:
        check(name, run)
    except LubanError as error:
        return str(error)
    return ""


def check_symbolic(name: str) -> None:
    if name in unsupported("evaluate"):
        return  # its own test says why, and that it still fails
    prefixes = tuple(prefix for group in NEEDS_CONSTANTS.values() for prefix in group)
    if not name.startswith(prefixes):
        check(name, run)
        return
    message = _refusal(name)
    assert not message or "expected" in message or "no translation" in message


@pytest.mark.parametrize("name", SAMPLE)
def test_sampled_node(name: str) -> None:
    check_symbolic(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(NAMES) - set(SAMPLE)))
def test_node(name: str) -> None:
    check_symbolic(name)
