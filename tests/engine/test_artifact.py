"""Models from the cache: the same answers, no compiler, and never a stale one."""

import hashlib
import os
import pickle
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
from luban.core.errors import LubanWarning
from luban.core.settings import child_environment
from luban.engine import artifact, artifact_writer
from luban.native.cache import Cache, default_cache
from tests.engine.models import (
    DATA,
    INT64,
    Array,
    affine,
    affine_answer,
    model_of,
    saved,
    value,
)

SOURCE = str(Path(luban.__file__).parents[1])
BOOL = TensorProto.BOOL


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """A cache of the test's own."""
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path / "cache"))
    return default_cache()


def sampled(model: luban.Model) -> dict[str, Array]:
    generator = np.random.default_rng(0)
    feeds: dict[str, Array] = {}
    for info in model.inputs:
        shape = [size if isinstance(size, int) else 3 for size in info.shape]
        if info.dtype == "f32":
            feeds[info.name] = generator.standard_normal(shape).astype(np.float32)
        else:
            feeds[info.name] = generator.integers(0, 2, shape)
    return feeds


def check_same(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert list(one) == list(two)
    for left, right in zip(one.values(), two.values(), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("name", ["tiny_mlp", "resnet_tiny", "bert_tiny", "mla_moe_tiny"])
def test_the_second_load_comes_from_the_cache_with_the_same_answers(name: str) -> None:
    path = DATA / f"{name}.onnx"
    first, second = luban.load(path), luban.load(path)
    assert (first.from_cache, second.from_cache) == (False, True)
    assert (first.inputs, first.outputs) == (second.inputs, second.outputs)
    feeds = sampled(first)
    check_same(first(feeds), second(feeds))


def test_a_process_that_loads_from_the_cache_loads_no_compiler(
    tmp_path: Path, store: Cache
) -> None:
    path = saved(affine(), tmp_path)
    script = (
        "import sys, luban, numpy\n"
        "from luban.engine import artifact\n"
        "artifact.versions_digest = lambda: 'now'\n"  # someone may be editing a source file
        f"model = luban.load({str(path)!r})\n"
        "model(numpy.ones((2, 8), numpy.float32))\n"
        "print(model.from_cache, [n for n in ('onnx', 'luban.graph.ops', 'luban.tile', "
        "'luban.codegen', 'luban.frontend', 'luban.lower.emit', 'llvmlite.binding', 'ml_dtypes', "
        "'luban.native.compiler', 'luban.native.elf', 'subprocess') if n in sys.modules])\n"
    )
    environment = child_environment({"LUBAN_CACHE_DIR": str(store.directory), "PYTHONPATH": SOURCE})
    command = [sys.executable, "-c", script]
    for found in ("False", "True []"):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.startswith(found)


def test_each_numerics_mode_has_an_entry_of_its_own() -> None:
    path = DATA / "tiny_mlp.onnx"
    for mode in ("strict", "fast"):
        first, second = (luban.load(path, numerics=mode) for _ in range(2))
        assert (first.from_cache, second.from_cache) == (False, True)
        here = luban.load(path, numerics=mode, cache=False)
        assert here.compiled.numerics == mode
        feeds = sampled(first)
        check_same(first(feeds), second(feeds))
        check_same(first(feeds), here(feeds))


def test_what_explains_a_model_from_the_cache_is_compiled_when_asked_for() -> None:
    path = DATA / "tiny_mlp.onnx"
    luban.load(path)
    model = luban.load(path)
    assert model.from_cache
    assert model.compiled.reports
    assert model.imported is not None


def test_warnings_of_the_compile_are_given_again(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"], "head")]
    weights: dict[str, Array] = {"shape": np.array([1, 3, 4])}
    frozen = model_of(nodes, [value("x", ["n", 12])], [value("y", [1, 3, 4])], weights)
    path = saved(frozen, tmp_path)
    for from_cache in (False, True):
        with pytest.warns(LubanWarning, match="works for one value of n only"):
            assert luban.load(path).from_cache is from_cache


def test_many_weights_are_written_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_writer, "_BACKGROUND_BYTES", 1)
    path = saved(affine(4096), tmp_path)
    x = np.ones((1, 4096), np.float32)
    expected = luban.load(path)(x)
    for thread in threading.enumerate():
        if thread.name == "luban-store":
            thread.join()
    second = luban.load(path)
    assert second.from_cache
    check_same(expected, second(x))


def test_bytes_are_kept_too_but_graphs_and_protos_are_not(store: Cache) -> None:
    content = affine().SerializeToString()
    assert not luban.compile(affine()).from_cache
    assert not luban.compile(affine()).from_cache
    assert not luban.compile(content).from_cache
    assert luban.compile(content).from_cache


def test_cache_false_neither_reads_nor_writes(tmp_path: Path) -> None:
    path = saved(affine(), tmp_path)
    luban.load(path, cache=False)
    assert not luban.load(path, cache=False).from_cache
    assert not luban.load(path).from_cache
    assert not luban.load(path, cache=False).from_cache


def test_options_have_artifacts_of_their_own(tmp_path: Path) -> None:
    path = saved(affine(), tmp_path)
    options: list[dict[str, Any]] = [
        {},
        {"without": ["simplify"]},
        {"shapes": {"x": [4, 8]}},
        {"shapes": {"x": ["n", 8]}},
        {"target": "avx2"} if luban.load(path, cache=False).compiled.target.has("avx2") else {},
    ]
    made = [luban.load(path, **chosen).from_cache for chosen in options[:4]]
    assert made == [False] * 4
    assert all(luban.load(path, **chosen).from_cache for chosen in options[:4])
    assert luban.load(path, threads=1).from_cache  # threads are no part of what is compiled
    assert luban.load(path, threads=1).num_threads == 1


def test_a_changed_file_is_compiled_again(tmp_path: Path) -> None:
    path = saved(affine(), tmp_path)
    luban.load(path)
    changed = affine()
    changed.graph.initializer[0].CopyFrom(
        numpy_helper.from_array(np.full(8, 2, np.float32), "scale")
    )
    saved(changed, tmp_path)
    again = luban.load(path)
    assert not again.from_cache
    x = np.ones((1, 8), np.float32)
    expected = x * 2 + np.arange(8, dtype=np.float32) / 8
    np.testing.assert_allclose(again(x)["y"], expected, rtol=1e-6)


def test_content_is_remembered_by_size_and_times_only_once_they_settled(
    tmp_path: Path, store: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(affine(), tmp_path)
    digest = artifact.file_digest(path, store)
    assert not list(store.directory.glob("files/*/*"))  # changed a moment ago
    monkeypatch.setattr(time, "time", lambda: os.stat(path).st_ctime + 60)
    assert artifact.file_digest(path, store) == digest
    assert len(list(store.directory.glob("files/*/*"))) == 1
    monkeypatch.setattr(hashlib, "file_digest", None)  # not read any more
    assert artifact.file_digest(path, store) == digest


def test_another_source_of_luban_is_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(affine(), tmp_path)
    luban.load(path)
    assert luban.load(path).from_cache
    monkeypatch.setattr(artifact, "versions_digest", lambda: "another")
    assert not luban.load(path).from_cache


def test_no_artifact_where_every_compile_is_to_be_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(affine(), tmp_path)
    luban.load(path)
    monkeypatch.setenv("LUBAN_VERIFY", "1")
    assert not luban.load(path).from_cache


def test_a_missing_or_damaged_part_means_a_compile(tmp_path: Path, store: Cache) -> None:
    path = saved(product(256), tmp_path)  # large enough for entries of weights
    luban.load(path)
    (programs,) = store.directory.glob("programs/*/*")
    entries = list(store.directory.glob(f"*/{programs.parent.name}/{programs.name}"))
    assert {entry.parts[-3] for entry in entries} >= {"programs", "code", "packed"}
    for entry in entries:
        damaged = entry.read_bytes()[:-7]
        entry.unlink()  # a loaded model has its pages mapped
        entry.write_bytes(damaged)
        again = luban.load(path)
        assert not again.from_cache
        assert luban.load(path).from_cache
    x = np.ones((2, 256), np.float32)
    np.testing.assert_allclose(luban.load(path)(x)["y"], np.full((2, 256), 512), rtol=1e-6)


def product(width: int) -> onnx.ModelProto:
    """y = x @ a + b, where a is packed for the kernel."""
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["xa"], "product"),
        helper.make_node("Add", ["xa", "b"], ["y"], "sum"),
    ]
    weights: dict[str, Array] = {
        "a": np.ones((width, width), np.float32),
        "b": np.full(width, width, np.float32),
    }
    return model_of(nodes, [value("x", ["n", width])], [value("y", ["n", width])], weights)


def external(folder: Path) -> Path:
    """A model whose weight lies in a file beside it."""
    model = affine(4096)
    path = folder / "external.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=1024)
    return path


def test_external_data_is_mapped_and_watched(tmp_path: Path, store: Cache) -> None:
    path = external(tmp_path)
    x = np.ones((1, 4096), np.float32)
    expected = luban.load(path)(x)
    second = luban.load(path)
    assert second.from_cache
    check_same(expected, second(x))
    data = tmp_path / "weights.bin"
    numbers = np.fromfile(data, np.float32)
    data.unlink()
    numbers[:] = 1
    numbers.tofile(data)
    third = luban.load(path)
    assert not third.from_cache
    np.testing.assert_array_equal(third(x)["y"], np.full((1, 4096), 2, np.float32))


def loop_model() -> onnx.ModelProto:
    """y = x doubled n times, rows of each turn stacked; strings and sequences do not occur."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "state"], ["doubled"]),
            helper.make_node("Identity", ["go"], ["still"]),
            helper.make_node("Identity", ["doubled"], ["row"]),
        ],
        "body",
        [value("turn", [], INT64), value("go", [], BOOL), value("state", [3])],
        [value("still", [], BOOL), value("doubled", [3]), value("row", [3])],
    )
    nodes = [
        helper.make_node("Loop", ["n", "", "x"], ["y", "rows"], "loop", body=body),
        helper.make_node("NonZero", ["y"], ["where"], "find"),
    ]
    return model_of(
        nodes,
        [value("n", [], INT64), value("x", [3])],
        [value("y", [3]), value("rows", ["turns", 3]), value("where", [1, "found"], INT64)],
    )


def test_control_flow_and_host_steps_come_back(tmp_path: Path) -> None:
    path = saved(loop_model(), tmp_path)
    first, second = luban.load(path), luban.load(path)
    assert second.from_cache
    x = np.array([1, 0, 3], np.float32)
    for turns in (0, 1, 5, 2):
        feeds = {"n": np.array(turns), "x": x}
        outputs = second(feeds)
        check_same(first(feeds), outputs)
        np.testing.assert_array_equal(outputs["y"], x * 2**turns)
        assert outputs["rows"].shape == (turns, 3)
        assert outputs["where"].tolist() == [[0, 2]]


def test_an_artifact_holds_nothing_but_what_it_is_made_of() -> None:
    reader = artifact._Reader(pickle.dumps(os.system), [], None)  # type: ignore[arg-type]
    with pytest.raises(pickle.UnpicklingError, match=r"an artifact does not hold posix\.system"):
        reader.load()


def test_an_unwritable_cache_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("in the way")
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(blocked))
    path = saved(affine(), tmp_path)
    with pytest.warns(LubanWarning, match=r"the cache in .* cannot be used"):
        model = luban.load(path)
    assert not luban.load(path).from_cache
    x = np.ones((1, 8), np.float32)
    np.testing.assert_allclose(model(x)["y"], affine_answer(x)[0], rtol=1e-6)
