"""Reading files: what is refused and why, and tensors of every element type."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from luban.core.errors import LubanError, ModelError, UnsupportedError
from luban.frontend.onnx import import_model
from luban.frontend.onnx.load import ELEMENT_TYPES, Source, element_type, load_model

Array = np.ndarray[Any, np.dtype[Any]]


def model_adding(weights: TensorProto) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "adding",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
        [weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def external(location: str, **entries: int) -> TensorProto:
    tensor = TensorProto(
        name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL
    )
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def saved(folder: Path, weights: TensorProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model_adding(weights).SerializeToString())
    return path


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ModelError) as caught:
        call()
    return str(caught.value)


def test_missing_file() -> None:
    text = refusal(lambda: load_model("/nowhere/model.onnx"))
    assert text == "there is no file /nowhere/model.onnx\nhint: check the path of the model"


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    assert refusal(lambda: load_model(tmp_path)).endswith("cannot be read: Is a directory")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "the bytes is empty, expected an ONNX model"),
        (b"garbage of some length", "is not an ONNX model, or is truncated (22 bytes)"),
        (onnx.ModelProto(ir_version=10).SerializeToString(), "holds no graph"),
        (
            onnx.ModelProto(
                graph=onnx.GraphProto(node=[onnx.NodeProto()]),
                opset_import=[helper.make_opsetid("", 20)],
            ).SerializeToString(),
            "states no IR version",
        ),
        (
            onnx.ModelProto(
                graph=onnx.GraphProto(node=[onnx.NodeProto()]), ir_version=10
            ).SerializeToString(),
            "imports no operator set",
        ),
    ],
)
def test_bytes_that_are_no_model(content: bytes, what: str) -> None:
    assert what in refusal(lambda: load_model(content))


def test_every_truncation_is_refused() -> None:
    weights = numpy_helper.from_array(np.ones(4, np.float32), "w")
    whole = model_adding(weights).SerializeToString()
    for length in range(len(whole)):
        try:
            import_model(whole[:length])
        except ModelError:
            continue
        # What is left out is the part after the graph: the operator set.
        pytest.fail(f"{length} of {len(whole)} bytes were taken for a model")


def test_names_that_are_no_text() -> None:
    weights = numpy_helper.from_array(np.ones(4, np.float32), "w")
    content = model_adding(weights).SerializeToString()
    damaged = content.replace(b"Add", b"\xff\xff\xff")
    assert "is no UTF-8 text" in refusal(lambda: import_model(damaged))


def test_damaged_bytes_give_errors_that_are_ours() -> None:
    random = Random(0)
    weights = numpy_helper.from_array(np.ones(4, np.float32), "w")
    whole = model_adding(weights).SerializeToString()
    for _ in range(500):
        damaged = bytearray(whole)
        for _ in range(random.randrange(1, 4)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        with suppress(LubanError):
            import_model(bytes(damaged))


def test_external_data_is_mapped(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32)
    (tmp_path / "data.bin").write_bytes(values.tobytes())
    path = saved(tmp_path, external("data.bin", offset=8, length=16))
    source = load_model(path)
    array = source.array(source.model.graph.initializer[0])
    np.testing.assert_array_equal(array, values[2:])
    mapped = array
    while not isinstance(mapped, np.memmap):
        assert isinstance(mapped.base, np.ndarray)
        mapped = mapped.base


def test_external_data_lies_where_the_folder_says(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(np.ones(4, np.float32).tobytes())
    content = model_adding(external("data.bin")).SerializeToString()
    assert load_model(content, folder=tmp_path).folder == tmp_path
    assert "without a folder" in refusal(lambda: import_model(content))


def test_missing_external_file(tmp_path: Path) -> None:
    text = refusal(lambda: import_model(saved(tmp_path, external("gone.bin"))))
    assert "tensor 'w' needs the external file" in text
    assert "gone.bin, which does not exist" in text


def test_truncated_external_file(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"\0" * 12)
    text = refusal(lambda: import_model(saved(tmp_path, external("data.bin", length=16))))
    assert "needs bytes 0 to 16 of data.bin, which has 12" in text
    text = refusal(lambda: import_model(saved(tmp_path, external("data.bin"))))
    assert "is f32[4] and needs 16 bytes, but has 12" in text


@pytest.mark.parametrize("location", ["../data.bin", "/etc/passwd", "a/../../b", ""])
def test_external_data_stays_in_the_folder(tmp_path: Path, location: str) -> None:
    text = refusal(lambda: import_model(saved(tmp_path, external(location))))
    assert "expected a path inside the model's folder" in text


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 16)
    (inside / "data.bin").symlink_to(tmp_path / "secret.bin")
    assert "outside the model's folder" in refusal(
        lambda: import_model(saved(inside, external("data.bin")))
    )


def test_a_download_cache_of_links_is_read(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    real = saved(blobs, external("data.bin"))
    (blobs / "data").write_bytes(np.ones(4, np.float32).tobytes())
    (snapshot / "model.onnx").symlink_to(real)
    (snapshot / "data.bin").symlink_to(blobs / "data")
    source = load_model(snapshot / "model.onnx")
    assert source.array(source.model.graph.initializer[0]).sum() == 4


def test_offset_that_is_no_number(tmp_path: Path) -> None:
    tensor = external("data.bin")
    (tmp_path / "data.bin").write_bytes(b"\0" * 16)
    tensor.external_data.add(key="offset", value="many")
    assert "offset or length that is no number" in refusal(
        lambda: import_model(saved(tmp_path, tensor))
    )


def source() -> Source:
    return Source(onnx.ModelProto(), "model.onnx", None)


@pytest.mark.parametrize("code", sorted(set(ELEMENT_TYPES) - {TensorProto.STRING}))
@pytest.mark.parametrize("raw", [True, False])
def test_every_element_type(code: int, raw: bool) -> None:
    element = element_type(code)
    numbers = np.array([0, 1, 1, 0, 1]) if element.kind != "uint" else np.array([0, 1, 3, 2, 1])
    array = numbers.astype(np.float32).astype(element.numpy)
    tensor = numpy_helper.from_array(array, "w")
    if not raw:
        wide = array if element.kind in ("complex", "bool") else array.astype(np.float64)
        if element.is_integer:
            wide = array.astype(np.int64)
        tensor = helper.make_tensor("w", code, [5], wide.tolist())
    found = source().array(tensor)
    assert found.dtype == element.numpy
    np.testing.assert_array_equal(found.astype(np.complex128), array.astype(np.complex128))


def test_negative_int4_is_unpacked() -> None:
    tensor = helper.make_tensor("w", TensorProto.INT4, [3], [-8, 7, -1])
    assert source().array(tensor).astype(int).tolist() == [-8, 7, -1]


def test_strings() -> None:
    texts = [b"a", "ü".encode()]
    tensor = TensorProto(name="w", data_type=TensorProto.STRING, dims=[2], string_data=texts)
    assert source().array(tensor).tolist() == ["a", "ü"]


def test_shape_and_bytes_must_agree() -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], raw_data=b"\0" * 8)
    assert "is f32[3] and needs 12 bytes, but has 8" in refusal(lambda: source().array(tensor))
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[-3])
    assert "has the shape [-3]" in refusal(lambda: source().array(tensor))
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], float_data=[1.0])
    assert "cannot be read" in refusal(lambda: source().array(tensor))


def test_absurd_sizes_are_refused_before_memory_is_taken() -> None:
    for dims in ([1 << 40], [1 << 40, 1 << 40]):
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, raw_data=b"\0" * 4)
        with pytest.raises(ModelError, match="bytes, but has 4"):
            source().array(tensor)


def test_unknown_element_type() -> None:
    with pytest.raises(UnsupportedError, match="ONNX element type 99 is unknown"):
        element_type(99)


def test_sparse_tensors() -> None:
    values = numpy_helper.from_array(np.array([5, 7], np.float32), "w")
    flat = helper.make_sparse_tensor(
        values, numpy_helper.from_array(np.array([1, 3], np.int64)), [2, 2]
    )
    assert source().dense(flat).tolist() == [[0, 5], [0, 7]]
    places = numpy_helper.from_array(np.array([[0, 0], [1, 1]], np.int64))
    assert source().dense(helper.make_sparse_tensor(values, places, [2, 2])).tolist() == [
        [5, 0],
        [0, 7],
    ]
    outside = numpy_helper.from_array(np.array([1, 9], np.int64))
    bad = helper.make_sparse_tensor(values, outside, [2, 2])
    assert "sparse tensor 'w'[2, 2]" in refusal(lambda: source().dense(bad))
