"""Packed weights: computed in bounded memory, in the cache's own file, the same values."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import luban
from luban.core.settings import child_environment
from luban.engine import once
from luban.native.cache import default_cache
from tests.engine.models import Array, model_of, value

WIDTH, LAYERS = 1024, 16  # 64 MB of weights


@pytest.fixture(autouse=True)
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path / "cache"))


def chain(width: int, layers: int) -> onnx.ModelProto:
    """Products one after the other."""
    generator = np.random.default_rng(0)
    names = ["x", *(f"x{i}" for i in range(1, layers)), "y"]
    weights: dict[str, Array] = {
        f"w{i}": generator.standard_normal((width, width)).astype(np.float32) / width
        for i in range(layers)
    }
    nodes = [
        helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]], f"n{i}")
        for i in range(layers)
    ]
    return model_of(nodes, [value("x", ["n", width])], [value("y", ["n", width])], weights)


def answer(model: onnx.ModelProto, x: Array) -> Array:
    for tensor in model.graph.initializer:
        x = x @ numpy_helper.to_array(tensor).astype(np.float64)
    return x


@pytest.mark.parametrize("padding", range(4))
def test_weights_at_any_place_of_the_file_give_the_same(padding: int, tmp_path: Path) -> None:
    """Also where the file does not align them, also from the cache."""
    model = chain(256, 5)
    model.doc_string = "x" * padding
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    x = np.ones((2, 256), np.float32)
    expected = answer(model, x)
    for from_cache in (False, True):
        loaded = luban.load(path)
        assert loaded.from_cache is from_cache
        np.testing.assert_allclose(loaded(x)["y"], expected, rtol=1e-4, atol=1e-9)
    np.testing.assert_array_equal(luban.load(path, cache=False)(x)["y"], loaded(x)["y"])


def printed_by(script: str, cache: Path) -> str:
    """What a fresh process that runs `script` prints."""
    source = str(Path(luban.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=child_environment({"PYTHONPATH": source, "LUBAN_CACHE_DIR": str(cache)}),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_parts_give_what_one_piece_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = chain(64, 9).SerializeToString()
    x = np.ones((3, 64), np.float32)
    whole = luban.compile(content, cache=False)(x)["y"]
    monkeypatch.setattr(once, "_LEAST_PART_BYTES", 1)
    np.testing.assert_array_equal(luban.compile(content, cache=False)(x)["y"], whole)


def test_constants_lie_in_the_cache_and_are_read_only(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(chain(256, 2), path)
    program = luban.load(path).executor.program
    constants = [v.constant for v in program.values if v.constant is not None]
    assert constants
    assert not any(array.flags.writeable for array in constants if array.nbytes > 4096)
    (entry,) = default_cache().directory.glob("packed/*/*")
    assert entry.stat().st_size >= 2 * 256 * 256 * 4


def test_first_loads_at_the_same_time_do_not_disturb_one_another(tmp_path: Path) -> None:
    model = chain(256, 3)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    x = np.ones((2, 256), np.float32)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: luban.load(path)(x)["y"], range(8)))
    assert all(np.array_equal(found, answers[0]) for found in answers)
    np.testing.assert_allclose(answers[0], answer(model, x), rtol=1e-4, atol=1e-9)
    assert luban.load(path).from_cache
    assert len(list(default_cache().directory.glob("packed/*/*"))) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_reads_the_weights_of_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(chain(256, 2), path)
    script = (
        "import os, numpy, luban\n"
        f"model = luban.load({str(path)!r}, threads=1)\n"
        "x = numpy.ones((2, 256), numpy.float32)\n"
        "expected = model(x)['y']\n"
        "pid = os.fork()\n"
        "same = numpy.array_equal(model(x)['y'], expected)\n"
        "if pid == 0: os._exit(0 if same else 1)\n"
        "print(same, os.waitpid(pid, 0)[1])\n"
    )
    assert printed_by(script, tmp_path / "cache") == "True 0\n"


def test_a_failed_compile_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(once, "_hand_out", fail)
    monkeypatch.setenv("LUBAN_COMPILE_PROCESS", "0")  # elsewhere: see test_apart.py
    path = tmp_path / "model.onnx"
    onnx.save(chain(256, 2), path)
    with pytest.raises(KeyboardInterrupt):
        luban.load(path)
    assert not list(default_cache().directory.glob("packed/*/*"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_first_load_holds_the_packed_weights_once_and_not_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(chain(WIDTH, LAYERS), path)
    onnx.save(chain(64, 1), tmp_path / "small.onnx")
    script = (
        "import re, luban\n"
        "def peak():\n"
        "    return int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        f"luban.load({str(tmp_path / 'small.onnx')!r}, threads=2)\n"
        "before = peak()\n"
        f"model = luban.load({str(path)!r}, threads=2)\n"
        "print(model.from_cache, (peak() - before) // 1024)\n"
    )
    from_cache, megabytes = printed_by(script, tmp_path / "cache").split()
    assert from_cache == "False"
    assert int(megabytes) < 72  # 64 packed, mapped for the first call; the file has 64 more


def test_weights_that_a_file_does_not_align_are_packed_as_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = chain(256, 2)
    unaligned: list[int] = []
    copied: list[int] = []
    find = once._unaligned_in_part

    def watch(*args: Any) -> dict[int, Array]:
        unaligned.extend(once._unaligned([args[0]]))
        found = find(*args)
        copied.extend(found)
        return found

    monkeypatch.setattr(once, "_unaligned_in_part", watch)
    for padding in range(4):
        model.doc_string = "x" * padding
        luban.compile(model.SerializeToString(), cache=False)
    assert unaligned
    assert not copied
