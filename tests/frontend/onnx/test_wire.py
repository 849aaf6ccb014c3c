"""Taking large tensors out of serialized models: what is left is the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from luban.frontend.onnx import import_model
from luban.frontend.onnx.load import load_model
from luban.frontend.onnx.wire import OWN_CONTENT, without_weights
from luban.graph import build
from luban.graph.evaluate import evaluate

LARGE = np.arange(600, dtype=np.float32)
SMALL = np.arange(3, dtype=np.float32)


def model() -> onnx.ModelProto:
    """Large tensors as an initializer, in a Constant node and inside a branch."""
    inside = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(LARGE + 1))
    body = helper.make_graph([inside], "body", [], [onnx.ValueInfoProto(name="c")])
    nodes = [
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(LARGE + 2)),
        helper.make_node("If", ["p"], ["b"], then_branch=body, else_branch=body),
        helper.make_node("Add", ["w", "k"], ["t"]),
        helper.make_node("Add", ["t", "b"], ["y"], doc_string="x" * 2000),
    ]
    graph = helper.make_graph(
        nodes,
        "main",
        [helper.make_tensor_value_info("p", onnx.TensorProto.BOOL, [])],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(LARGE, "w"), numpy_helper.from_array(SMALL, "s")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def restored(proto: onnx.ModelProto, content: bytes) -> onnx.ModelProto:
    """The model with what was taken out put back."""

    def put_back(graph: onnx.GraphProto) -> None:
        inner = [a for node in graph.node for a in node.attribute]
        for tensor in (*graph.initializer, *(a.t for a in inner if a.HasField("t"))):
            entries = {e.key: e.value for e in tensor.external_data}
            if entries.get("location") == OWN_CONTENT:
                offset, length = int(entries["offset"]), int(entries["length"])
                tensor.raw_data = content[offset : offset + length]
                del tensor.external_data[:]
                tensor.ClearField("data_location")
        for attribute in inner:
            if attribute.HasField("g"):
                put_back(attribute.g)

    put_back(proto.graph)
    return proto


def test_nothing_is_lost() -> None:
    whole = model()
    content = whole.SerializeToString()
    small = without_weights(memoryview(content))
    assert small is not None
    assert len(small) < len(content) - 4 * LARGE.nbytes + 500
    assert restored(onnx.ModelProto.FromString(small), content) == whole


def expected() -> Any:
    return LARGE + (LARGE + 2) + (LARGE + 1)


def test_bytes_and_files_give_the_same_values(tmp_path: Path) -> None:
    content = model().SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    for given in (content, path):
        (got,) = evaluate(import_model(given).graph, [np.array(True)])
        np.testing.assert_array_equal(got, expected())


def test_large_files_are_mapped_not_read(tmp_path: Path) -> None:
    weights = np.arange(1 << 18, dtype=np.int8)
    proto = model()
    proto.graph.initializer.append(numpy_helper.from_array(np.tile(weights, 4), "big"))
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    source = load_model(path)
    (tensor,) = [t for t in source.model.graph.initializer if t.name == "big"]
    array = source.array(tensor)
    np.testing.assert_array_equal(array, np.tile(weights, 4))
    whole: Any = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    assert isinstance(whole, np.memmap)
    assert source.files == (path,)


def test_weights_are_held_once(tmp_path: Path) -> None:
    """Aligned or not: what is loaded is what the constant holds."""
    path = tmp_path / "model.onnx"
    for padding in range(4):
        proto = model()
        proto.producer_name = "x" * padding
        proto.doc_string = "x" * (1 << 20)  # large enough to be mapped
        path.write_bytes(proto.SerializeToString())
        source = load_model(path)
        array = source.array(source.model.graph.initializer[0])
        assert np.shares_memory(array, build.constant(array).op.value.array)  # type: ignore[attr-defined]


def test_elements_are_read_where_they_lie_aligned_or_not() -> None:
    for padding in range(4):
        proto = model()
        proto.producer_name = "x" * padding
        source = load_model(proto.SerializeToString())
        for tensor, expected in zip(
            source.model.graph.initializer, model().graph.initializer, strict=True
        ):
            found = source.array(tensor)
            np.testing.assert_array_equal(found, onnx.numpy_helper.to_array(expected))
            if found.nbytes >= 1024:
                assert source.content is not None
                assert np.shares_memory(found, source.content)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff" * 20,  # a number without end
        b"\x3a\x7fabc",  # a field longer than the rest
        b"\x09abc",  # a fixed number cut short
        b"\x0b",  # a group
    ],
)
def test_what_is_no_message_is_left_to_the_parser(content: bytes) -> None:
    assert without_weights(memoryview(content)) is None


def test_a_stated_default_location_does_not_win() -> None:
    """Some writers state `data_location: DEFAULT` after the data."""
    proto = model()
    proto.graph.initializer[0].data_location = onnx.TensorProto.DEFAULT
    content = proto.SerializeToString()
    kept = without_weights(memoryview(content))
    assert kept is not None
    tensor = onnx.ModelProto.FromString(kept).graph.initializer[0]
    assert tensor.data_location == onnx.TensorProto.EXTERNAL
    assert tensor.external_data[0].value == OWN_CONTENT
