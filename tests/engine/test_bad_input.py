"""What is wrong with a file, an input or the machine is said; nothing half-written stays."""

import errno
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import luban
from luban.core.errors import (
    InputError,
    LubanError,
    LubanWarning,
    ModelError,
    OptionError,
    UnsupportedError,
)
from luban.core.settings import child_environment
from luban.native.cache import Cache
from tests.engine.models import DATA, INT64, affine, affine_answer, model_of, saved, value

SOURCE = str(Path(luban.__file__).parents[1])
X = np.ones((2, 8), np.float32)


# Files.


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"there is no file .*missing\.onnx"):
        luban.load(tmp_path / "missing.onnx")


def test_a_path_that_no_file_can_have() -> None:
    with pytest.raises(ModelError, match="cannot be read: embedded null"):
        luban.load("a\0b.onnx")


@pytest.mark.parametrize("source", [None, 5, ["model.onnx"]])
def test_what_is_no_model_at_all(source: Any) -> None:
    with pytest.raises(ModelError, match=r"the model is a \w+, expected a path, the bytes"):
        luban.compile(source)


@pytest.mark.parametrize("size", [-1, 1.5, 1 << 62, None])
def test_sizes_that_cannot_be(size: Any) -> None:
    with pytest.raises(InputError, match="expected a name or a whole number from 0 to"):
        luban.compile(affine(), shapes={"x": [size, 8]})


@pytest.mark.parametrize("shape", [5, "n", {2, 8}])
def test_a_shape_that_is_no_list(tmp_path: Path, shape: Any) -> None:
    for source in (affine(), saved(affine(), tmp_path)):
        with pytest.raises(InputError, match=r"input 'x': the shape .* expected a list of sizes"):
            luban.compile(source, shapes={"x": shape})


def test_passes_given_as_one_text() -> None:
    with pytest.raises(OptionError, match="without='fuse' is one text, expected a list of names"):
        luban.compile(affine(), without="fuse")


def test_an_absurd_size_in_a_file() -> None:
    neg = helper.make_node("Neg", ["x"], ["y"])
    with pytest.raises(ModelError, match="x_0 is 4611686018427387904, expected at most"):
        luban.compile(model_of([neg], [value("x", [1 << 62])], [value("y", None)]))


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read: Is a directory"):
        luban.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"PK\x03\x04 a zip", b"hello world\n" * 9])
def test_garbage(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "garbage.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError):
        luban.load(path)


def test_every_truncation_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    content = (DATA / "tiny_mlp.onnx").read_bytes()
    path = tmp_path / "cut.onnx"
    for length in (1, 10, 100, len(content) // 2, len(content) - 40, len(content) - 5):
        path.write_bytes(content[:length])
        with pytest.raises(ModelError, match=r"cut\.onnx"):
            luban.load(path)


def test_a_cycle_names_its_nodes() -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], "first"),
        helper.make_node("Neg", ["a"], ["b"], "second"),
    ]
    with pytest.raises(ModelError, match=r"cycle.*first.*second|first.*second.*cycle"):
        luban.compile(model_of(nodes, [value("x", [2])], [value("b", [2])]))


def test_a_value_that_nothing_makes() -> None:
    nodes = [helper.make_node("Add", ["x", "ghost"], ["y"], "sum")]
    with pytest.raises(ModelError, match="ghost"):
        luban.compile(model_of(nodes, [value("x", [2])], [value("y", [2])]))


def external(folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(affine(512), path, save_as_external_data=True, location="w.bin", size_threshold=64)
    return path


def test_external_data_that_is_missing_or_truncated(tmp_path: Path) -> None:
    path = external(tmp_path)
    data = tmp_path / "w.bin"
    content = data.read_bytes()
    data.write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match=r"needs bytes .* of w\.bin, which has"):
        luban.load(path)
    data.unlink()
    with pytest.raises(ModelError, match=r"w\.bin, which does not exist"):
        luban.load(path)


def test_external_data_outside_the_folder(tmp_path: Path) -> None:
    path = external(tmp_path)
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../../etc/passwd"
    with pytest.raises(ModelError, match="expected a path inside the model's folder"):
        luban.load(saved(model, tmp_path, "escape.onnx"))


def test_external_data_of_a_model_given_as_bytes(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the model was given as bytes, without a folder"):
        luban.compile(external(tmp_path).read_bytes())


def test_a_weight_of_absurd_size() -> None:
    model = affine()
    model.graph.initializer[0].dims[:] = [1 << 40, 1 << 20]
    with pytest.raises(ModelError, match=r"'scale'.* and needs .* bytes, but has 32"):
        luban.compile(model)


def test_a_weight_of_negative_size() -> None:
    model = affine()
    model.graph.initializer[0].dims[:] = [-8]
    with pytest.raises(ModelError, match=r"'scale' has the shape \[-8\]"):
        luban.compile(model)


def test_everything_that_is_not_supported_is_listed_at_once() -> None:
    nodes = [
        helper.make_node("FancyOp", ["x"], ["a"], "one"),
        helper.make_node("OtherOp", ["a"], ["y"], "two", domain="com.example"),
    ]
    with pytest.raises(UnsupportedError) as caught:
        luban.compile(model_of(nodes, [value("x", [2])], [value("y", [2])]))
    assert len(caught.value.items) == 2
    assert "one: ai.onnx.FancyOp (opset 20) of (f32[2])" in str(caught.value)
    assert "two: com.example.OtherOp" in str(caught.value)


# Calls.


@pytest.fixture(scope="module")
def model() -> luban.Model:
    return luban.compile(affine())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, r"given inputs \[\], expected \['x'\]\nhint: missing: x"),
        ({"x": X, "z": X}, r"given inputs \['x', 'z'\].*\n.*unknown: z"),
        ({"y": X}, "missing: x; unknown: y"),
        ({"x": X.astype(np.float64)}, r"input 'x' is f64\[2, 8\], expected f32\[batch,8\]"),
        ({"x": X.astype(np.int32)}, "input 'x' is i32.*\nhint: convert it to f32"),
        ({"x": X[0]}, r"input 'x' has shape \[8\], expected 2 axes"),
        ({"x": X[:, :5]}, "input 'x': axis 1 is 5, expected 8"),
        ({"x": [[1, 2], [3]]}, "input 'x' is a list no array of f32"),
        ({"x": "text"}, "input 'x' is a str of numpy dtype <U4, expected numbers of f32"),
        ({"x": None}, "input 'x' is a NoneType"),
        ({"x": [[1j] * 8]}, "input 'x' is a list of numpy dtype complex128"),
    ],
)
def test_a_call_that_does_not_fit(model: luban.Model, given: dict[str, Any], words: str) -> None:
    model(X)
    for _ in range(3):  # the bound call says the same as the careful one
        with pytest.raises(InputError, match=words):
            model(given)
    np.testing.assert_allclose(model(X)["y"], affine_answer(X)[0], rtol=1e-6)


def test_too_many_inputs_in_order(model: luban.Model) -> None:
    with pytest.raises(InputError, match="given 2 inputs, expected 1: x"):
        model(X, X)
    with pytest.raises(InputError, match="given 1 inputs in order and \\['x'\\] by name"):
        model(X, x=X)


def test_numbers_that_the_dtype_cannot_hold() -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    same = luban.compile(
        model_of(
            nodes, [value("x", ["n"], TensorProto.INT8)], [value("y", ["n"], TensorProto.INT8)]
        )
    )
    assert same([1, -2])["y"].tolist() == [1, -2]
    with pytest.raises(InputError, match=r"no array of i8: .*300"):
        same([300])
    with pytest.raises(InputError, match="of numpy dtype float64, expected numbers of i8"):
        same([1.5])


def grown() -> onnx.ModelProto:
    """y = x expanded to a shape that each call gives."""
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["wide"], "grow"),
        helper.make_node("Neg", ["wide"], ["y"], "turn"),
    ]
    inputs = [value("x", [1]), value("shape", [2], INT64)]
    return model_of(nodes, inputs, [value("y", ["a", "b"])])


def test_absurd_sizes_at_run_time() -> None:
    big = luban.compile(grown())
    one = np.ones(1, np.float32)
    assert big(one, np.array([2, 3]))["y"].shape == (2, 3)
    for shape in ([1 << 40, 1 << 10], [1 << 62, 4], [-3, 2]):
        with pytest.raises(LubanError):
            big(one, np.array(shape))
    assert big(one, np.array([2, 3]))["y"].tolist() == [[-1] * 3] * 2


# Disks.


def test_a_full_disk_is_a_warning_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path / "cache"))
    original = os.replace

    def full(source: Any, goal: Any) -> None:
        if str(tmp_path) in str(goal):
            raise OSError(errno.ENOSPC, "No space left on device")
        original(source, goal)

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setenv("LUBAN_COMPILE_PROCESS", "0")  # the patch works here only
    path = saved(affine(), tmp_path)
    with pytest.warns(LubanWarning, match="No space left on device.*\n.*LUBAN_CACHE_DIR"):
        model = luban.load(path)
    np.testing.assert_allclose(model(X)["y"], affine_answer(X)[0], rtol=1e-6)
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()] == []


def _small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))


def _luban(cache: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "luban.cli.main", *arguments],
        env=child_environment(
            {
                "LUBAN_CACHE_DIR": str(cache),
                "PYTHONPATH": SOURCE,
                "PYTHONDONTWRITEBYTECODE": "1",  # Python would keep the halves of what it writes
            }
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_a_process_whose_files_cannot_grow(tmp_path: Path) -> None:
    path, output = saved(affine(4096), tmp_path), tmp_path / "out.npz"
    arguments = ("run", str(path), "--size", "batch=64", "--output", str(output))
    process = _luban(tmp_path / "cache", *arguments, preexec_fn=_small_files)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "cannot be used (File too large): going on without it" in errors
    assert "out.npz cannot be written: File too large" in errors
    left = [p.name for p in tmp_path.rglob("*") if p.is_file() and p != path]
    assert not [name for name in left if name.startswith(".")]
    assert "out.npz" not in left


# Ctrl-C.


def endless() -> onnx.ModelProto:
    """y = x after n turns of a loop whose condition is computed: as long as one likes."""
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["state", "state"], ["next"]),
            helper.make_node("ReduceSum", ["next"], ["sum"], keepdims=0),
            helper.make_node("Cast", ["sum"], ["still"], to=TensorProto.BOOL),
        ],
        "body",
        [value("turn", [], INT64), value("go", [], TensorProto.BOOL), value("state", [3])],
        [value("still", [], TensorProto.BOOL), value("next", [3])],
    )
    nodes = [helper.make_node("Loop", ["n", "", "x"], ["y"], "loop", body=body)]
    return model_of(nodes, [value("n", [], INT64), value("x", [3])], [value("y", [3])])


def layers() -> onnx.ModelProto:
    """Products of many sizes: `luban tune` is busy with each for a while."""
    nodes, last, weights = [], "x", []
    for i in range(24):
        rows, columns = 256 + 8 * i, 264 + 8 * i
        matrix = np.full((rows, columns), 0.01, np.float32)
        weights.append(numpy_helper.from_array(matrix, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [f"y{i}"]))
        last = f"y{i}"
    made = model_of(nodes, [value("x", [256, 256])], [value(last, [256, 448])])
    made.graph.initializer.extend(weights)
    return made


def test_a_model_works_after_an_interrupt() -> None:
    model = luban.compile(endless())
    x = np.ones(3, np.float32)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        model({"n": np.array(1 << 40), "x": x})
    timer.join()
    assert model({"n": np.array(5), "x": x})["y"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("command", ["run", "check", "tune"])
@pytest.mark.parametrize("delay_s", [0.0, 1.0])
def test_ctrl_c_during_a_command_ends_it_soon_and_leaves_whole_files_only(
    tmp_path: Path, command: str, delay_s: float
) -> None:
    """From when it has begun to compile: `run` and `check` then go on to a loop without an end."""
    feeds = tmp_path / "feeds.npz"
    np.savez(feeds, n=np.array(1 << 40), x=np.ones(3, np.float32))
    cache, output = tmp_path / "cache", tmp_path / "out.npz"
    path = saved(endless() if command != "tune" else layers(), tmp_path)
    options = {
        "run": ("--inputs", str(feeds), "--output", str(output)),
        "check": ("--inputs", str(feeds), "--repro", str(tmp_path / "repro.py")),
        "tune": (),
    }
    process = _luban(cache, command, str(path), *options[command])
    while not cache.exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(delay_s)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - start < 10  # 0.2 to 0.5 s on a machine that does nothing else
    assert process.returncode in (130, -signal.SIGINT), errors
    names = [p.name for p in tmp_path.rglob("*")]
    assert not [name for name in names if name.startswith((".writing", ".luban"))]
    assert not {"out.npz", "repro.py"} & {*names}
    store = Cache(cache, 1 << 30)
    kept = [p for p in cache.rglob("*") if p.is_file() and p.name != "knowledge.json"]
    assert store.stats().num_entries == len(kept)
