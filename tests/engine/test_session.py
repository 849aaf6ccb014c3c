"""ONNX Runtime's interface: the same calls, the same answers, and refusals in place of silence."""

import threading
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import luban
from luban.core.errors import InputError, LubanWarning, ModelError, OptionError
from luban.engine.pipeline import PASSES
from luban.engine.session import _OPTIONAL
from tests.engine.models import DATA, Array, affine, affine_answer, model_of, value

X = np.linspace(-2, 2, 16, dtype=np.float32).reshape(2, 8)
CONTENT = affine().SerializeToString()


@pytest.fixture(scope="module")
def session() -> luban.InferenceSession:
    return luban.InferenceSession(CONTENT)


def test_run_gives_outputs_in_order(session: luban.InferenceSession) -> None:
    for names in (None, [], ["y", "total"]):
        y, total = session.run(names, {"x": X})
        np.testing.assert_allclose(y, affine_answer(X)[0], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(total, affine_answer(X)[1], rtol=1e-5)
    (only,) = session.run(["total"], {"x": X}, None)
    np.testing.assert_array_equal(only, total)


def test_an_output_that_is_listed_twice_comes_twice() -> None:
    y = value("y", [2, 8])
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], [value("x", [2, 8])], [y, y])
    first, second = luban.InferenceSession(model.SerializeToString()).run(None, {"x": X})
    np.testing.assert_array_equal(first, -X)
    np.testing.assert_array_equal(second, -X)


def test_an_unknown_output_is_refused(session: luban.InferenceSession) -> None:
    with pytest.raises(InputError, match="there is no output z"):
        session.run(["y", "z"], {"x": X})


@pytest.mark.parametrize("feeds", [None, [X], X])
def test_feeds_that_are_no_mapping_are_refused(session: luban.InferenceSession, feeds: Any) -> None:
    with pytest.raises(InputError, match=r"input_feed is a \w+, expected a dict of arrays by name"):
        session.run(None, feeds)
    with pytest.raises(InputError, match="input_feed is a"):
        session.run_async(None, feeds, print)


def test_inputs_and_outputs_are_described(session: luban.InferenceSession) -> None:
    (given,) = session.get_inputs()
    assert (given.name, given.shape, given.type) == ("x", ["batch", 8], "tensor(float)")
    assert [o.name for o in session.get_outputs()] == ["y", "total"]
    assert session.get_overridable_initializers() == []
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_metadata() -> None:
    model = affine()
    model.doc_string = "tells nothing"
    model.model_version = 3
    helper.set_model_props(model, {"colour": "blue"})
    meta = luban.InferenceSession(model.SerializeToString()).get_modelmeta()
    assert (meta.producer_name, meta.graph_name) == ("tests", "tests")
    assert (meta.description, meta.version) == ("tells nothing", 3)
    assert meta.custom_metadata_map == {"colour": "blue"}


def test_options() -> None:
    options = luban.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = luban.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    with pytest.raises(OptionError, match="no session configuration entry 'other'"):
        options.get_session_config_entry("other")
    session = luban.InferenceSession(CONTENT, options)
    assert session.get_session_options() is options
    assert session._model.num_threads == 1
    y, _ = session.run(None, {"x": X})
    np.testing.assert_allclose(y, affine_answer(X)[0], rtol=1e-6, atol=1e-6)
    names = {report.name for report in session._model.compiled.reports}
    assert names.isdisjoint(_OPTIONAL)
    assert set(_OPTIONAL) < {each.name for each in PASSES}


def test_an_option_that_luban_does_not_know_is_an_error() -> None:
    with pytest.raises(AttributeError):
        luban.SessionOptions().optimized_model_filepath = "x"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "setting", "words"),
    [
        ("enable_profiling", True, "enable_profiling is not supported"),
        ("intra_op_num_threads", -1, "intra_op_num_threads=-1, expected 0 or more"),
        ("graph_optimization_level", 17, "graph_optimization_level=17 is not known"),
    ],
)
def test_options_that_cannot_be(name: str, setting: Any, words: str) -> None:
    options = luban.SessionOptions()
    setattr(options, name, setting)
    with pytest.raises(OptionError, match=words):
        luban.InferenceSession(CONTENT, options)


def test_a_gpu_alone_is_refused() -> None:
    with pytest.raises(OptionError, match="providers CUDAExecutionProvider were asked for"):
        luban.InferenceSession(CONTENT, providers=["CUDAExecutionProvider"])


def test_a_gpu_with_the_cpu_behind_it_is_said_to_be_unused() -> None:
    wanted: list[Any] = [("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]
    with pytest.warns(LubanWarning, match="CUDAExecutionProvider: not available"):
        luban.InferenceSession(CONTENT, providers=wanted)
    assert luban.get_available_providers() == ["CPUExecutionProvider"]
    assert luban.get_device() == "CPU"


def test_options_of_a_provider_are_refused() -> None:
    with pytest.raises(OptionError, match="provider_options were given, but the CPU has none"):
        luban.InferenceSession(CONTENT, provider_options=[{"device_id": 1}])


def test_run_async_calls_back(session: luban.InferenceSession) -> None:
    found: list[tuple[list[Array], object, str]] = []
    done = threading.Event()

    def back(results: list[Array], data: object, error: str) -> None:
        found.append((results, data, error))
        done.set()

    session.run_async(["total"], {"x": X}, back, "mine")
    assert done.wait(30)
    ((results, data, error),) = found
    np.testing.assert_allclose(results[0], affine_answer(X)[1], rtol=1e-5)
    assert (data, error) == ("mine", "")
    done.clear()
    session.run_async(None, {"x": X[:, :2]}, back, 7)
    assert done.wait(30)
    assert found[1][:2] == ([], 7)
    assert "axis 1 is 2, expected 8" in found[1][2]


def test_bytes_that_are_no_model() -> None:
    with pytest.raises(ModelError, match="not an ONNX model"):
        luban.InferenceSession(b"\xff\xff garbage")


@pytest.mark.parametrize(
    ("element", "text"),
    [
        (TensorProto.FLOAT16, "tensor(float16)"),
        (TensorProto.INT64, "tensor(int64)"),
        (TensorProto.BOOL, "tensor(bool)"),
        (TensorProto.STRING, "tensor(string)"),
        (TensorProto.UINT8, "tensor(uint8)"),
    ],
)
def test_types_are_written_as_onnxruntime_does(element: int, text: str) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    model = model_of(nodes, [value("x", [2], element)], [value("y", [2], element)])
    session = luban.InferenceSession(model.SerializeToString())
    assert session.get_inputs()[0].type == text


def test_the_same_program_with_either_import() -> None:
    other = pytest.importorskip("onnxruntime", reason="the peer is not installed")
    path = str(DATA / "tiny_mlp.onnx")
    answers: list[Array] = []
    described: list[list[tuple[str, Any, str]]] = []
    for runtime in (other, luban):
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        arguments = [*session.get_inputs(), *session.get_outputs()]
        described.append([(a.name, a.shape, a.type) for a in arguments])
        x = np.linspace(-1, 1, 5 * 64, dtype=np.float32).reshape(5, 64)
        (y,) = session.run([session.get_outputs()[0].name], {session.get_inputs()[0].name: x})
        answers.append(y)
    assert described[0] == described[1]
    np.testing.assert_allclose(answers[0], answers[1], rtol=1e-5, atol=1e-6)
