"""First loads in the compile process: the same answers and errors, and nothing of it stays here."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import luban
from luban.core.errors import InternalError, LubanError, ModelError, UnsupportedError
from luban.core.progress import listening
from luban.core.settings import child_environment
from luban.engine import apart
from luban.engine.apart import raised, rebuilt
from luban.native import compiler
from luban.native.cache import Cache, default_cache
from tests.engine.models import affine, affine_answer, model_of, saved, value

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    compiler.why_in_this_process() is not None, reason="no compile process here"
)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """A cache of the test's own."""
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path / "cache"))
    return default_cache()


def odd(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(apart, "_FUNCTION", f"tests.engine.odd_compilers:{name}")


def drafts(store: Cache) -> list[Path]:
    return list(store.directory.glob("*/??/.writing-*"))


def in_a_process(script: str, store: Cache) -> str:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = child_environment({"LUBAN_CACHE_DIR": str(store.directory), "PYTHONPATH": paths})
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_a_first_load_leaves_no_compiler_and_no_model_file_here(
    tmp_path: Path, store: Cache
) -> None:
    path = saved(affine(100_000), tmp_path)
    script = (
        "import sys, luban, numpy\n"
        f"model = luban.load({str(path)!r})\n"
        "model(numpy.ones((2, 100_000), numpy.float32))\n"
        "print(model.from_cache, [n for n in ('onnx', 'luban.graph.ops', 'luban.tile', "
        "'luban.codegen', 'luban.frontend', 'luban.engine.compile', 'llvmlite.binding', "
        "'luban.engine.once', 'luban.passes.fuse') if n in sys.modules], "
        f"{str(path)!r} in open('/proc/self/maps').read())\n"
    )
    assert in_a_process(script, store) == "False [] False\n"


def test_answers_and_the_next_load_are_those_of_compiling_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(affine(), tmp_path)
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    first = luban.load(path)(x)["y"]
    again = luban.load(path)
    assert again.from_cache
    monkeypatch.setenv("LUBAN_COMPILE_PROCESS", "0")
    here = luban.load(path, cache=False)(x)["y"]
    np.testing.assert_array_equal(first, here)
    np.testing.assert_array_equal(again(x)["y"], here)
    np.testing.assert_allclose(first, affine_answer(x)[0], rtol=1e-6)


def test_settings_and_the_folder_are_those_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may have been started before they changed."""
    luban.load(saved(affine(), tmp_path))
    other = tmp_path / "other"
    other.mkdir()
    path = saved(affine(16), other)
    monkeypatch.chdir(other)
    monkeypatch.setenv("LUBAN_CACHE_DIR", "stored here")
    assert not luban.load(path.name).from_cache
    assert luban.load(path.name).from_cache
    assert list((other / "stored here").glob("programs/*/*"))


@pytest.mark.parametrize("apart_", ["1", "0"])
def test_errors_are_those_of_compiling_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart_: str
) -> None:
    monkeypatch.setenv("LUBAN_COMPILE_PROCESS", apart_)
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\x08\x08\x12\xff")
    with pytest.raises(ModelError, match=r"broken\.onnx"):
        luban.load(broken)
    nodes = [helper.make_node("Nothing", ["x"], ["y"], "odd", domain="of.nobody")]
    path = saved(model_of(nodes, [value("x", [2])], [value("y", [2])], {}), tmp_path)
    with pytest.raises(UnsupportedError) as error:
        luban.load(path)
    assert len(error.value.items) == 1
    assert "Nothing" in error.value.items[0]
    assert str(error.value).count("Nothing") == 1
    with pytest.raises(ModelError, match=r"none\.onnx"):
        luban.load("none.onnx")


def test_a_bug_says_where_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    odd(monkeypatch, "broken")
    with pytest.raises(InternalError, match="RuntimeError: True"):
        luban.load(saved(affine(), tmp_path))


def test_exceptions_come_back_as_they_were() -> None:
    error = UnsupportedError("two ops", items=["a", "b"], hint="none")
    back = rebuilt(raised(error, "trace"))
    assert isinstance(back, UnsupportedError)
    assert (str(back), back.items, back.hint) == (str(error), ("a", "b"), "none")
    assert not hasattr(back, "__notes__")
    bug = rebuilt(raised(InternalError("lost a value"), "line 3"))
    assert str(bug).count("internal error") == 1
    assert bug.__notes__ == ["in the compile process:\nline 3"]

    class LocalError(Exception):
        """It cannot be pickled."""

    odd_one = rebuilt(raised(LocalError("here"), "line 4"))
    assert isinstance(odd_one, InternalError)
    assert "LocalError: here" in str(odd_one)


def test_a_crash_is_an_error_that_names_the_model_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Cache
) -> None:
    path = saved(affine(), tmp_path)
    with monkeypatch.context() as patch:
        odd(patch, "killed")
        with pytest.raises(LubanError, match=r"signal SIGKILL .* to compile: the model .*\.onnx"):
            luban.load(path)
    assert not drafts(store)
    x = np.ones((1, 8), np.float32)
    np.testing.assert_allclose(luban.load(path)(x)["y"], affine_answer(x)[0], rtol=1e-6)


def test_ctrl_c_ends_the_process_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Cache
) -> None:
    odd(monkeypatch, "interrupted")
    with pytest.raises(KeyboardInterrupt):
        luban.load(saved(affine(), tmp_path))
    assert not drafts(store)


def test_progress_comes_here(tmp_path: Path) -> None:
    seen: list[str] = []
    with listening(lambda stage, done, total: seen.append(stage)):
        luban.load(saved(affine(), tmp_path))
    assert seen
    assert seen[0] == "reading the model"
    assert "lowering" in seen


def test_a_process_ends_after_its_models_are_stored(tmp_path: Path, store: Cache) -> None:
    """Though their answers came before; and they can be run meanwhile."""
    path = saved(affine(9_000_000), tmp_path)  # 72 MB of weights: stored in the background
    script = (
        "import luban, numpy, os\n"
        "from luban.engine import apart\n"
        "apart._FUNCTION = 'tests.engine.odd_compilers:slow_to_store'\n"
        f"model = luban.load({str(path)!r})\n"
        "print(model(numpy.ones((1, 9_000_000), numpy.float32))['y'][0, :2].tolist(),"
        f"os.path.exists({str(store.directory / 'stored')!r}))\n"
        f"open({str(store.directory / 'used')!r}, 'w').close()\n"
    )
    expected = affine_answer(np.ones((1, 9_000_000), np.float32))[0][0, :2].tolist()
    assert in_a_process(script, store) == f"{expected} False\n"
    assert (store.directory / "stored").exists()
    assert luban.load(path).from_cache


def test_without_a_cache_or_a_process_it_is_compiled_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(compiler, "run", refuse)
    path = saved(affine(), tmp_path)
    x = np.ones((1, 8), np.float32)
    for variable, text in (("LUBAN_COMPILE_PROCESS", "0"), ("LUBAN_CACHE_SIZE", "0")):
        with monkeypatch.context() as patch:
            patch.setenv(variable, text)
            np.testing.assert_allclose(luban.load(path)(x)["y"], affine_answer(x)[0], rtol=1e-6)


def test_external_data_is_mapped_here(tmp_path: Path, store: Cache) -> None:
    path = tmp_path / "external.onnx"
    onnx.save(affine(4096), path, save_as_external_data=True, location="weights.bin")
    script = (
        "import luban, numpy\n"
        f"model = luban.load({str(path)!r})\n"
        "print(model(numpy.ones((1, 4096), numpy.float32))['y'].shape,"
        " 'weights.bin' in open('/proc/self/maps').read())\n"
    )
    assert in_a_process(script, store) == "(1, 4096) True\n"
