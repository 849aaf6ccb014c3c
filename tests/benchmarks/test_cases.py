"""The collection: unique names, seeded inputs that fit the models, files that are whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.cases import ModelCase, cache_folder, write_atomically
from benchmarks.models import BUILT, BUNDLED
from benchmarks.packages import PACKAGES

BUNDLED_CASES = [case for case in BUILT if (BUNDLED / f"{case.name}.onnx").exists()]


def test_names_are_unique() -> None:
    names = [case.name for case in (*BUILT, *PACKAGES)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", [*BUILT, *PACKAGES], ids=lambda case: case.name)
def test_a_seed_gives_the_same_inputs_and_another_seed_others(case: ModelCase) -> None:
    sizes = case.sizes[-1]
    first, again, other = (case.inputs(sizes, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    if any(value.size > 0 for value in first.values()):
        assert any(not np.array_equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("case", BUNDLED_CASES, ids=lambda case: case.name)
def test_inputs_have_the_names_dtypes_and_fixed_sizes_of_the_model(case: ModelCase) -> None:
    graph = onnx.load(case.path()).graph
    for sizes in case.sizes:
        feeds = case.inputs(sizes)
        assert list(feeds) == [value.name for value in graph.input]
        for value in graph.input:
            kind = value.type.tensor_type
            array = feeds[value.name]
            assert array.dtype == onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            for actual, dim in zip(array.shape, kind.shape.dim, strict=True):
                assert dim.dim_param or actual == dim.dim_value


def test_ten_tiny_models_are_bundled() -> None:
    assert len(BUNDLED_CASES) == len(list(BUNDLED.glob("*.onnx"))) == 10


def test_the_cache_folder_is_the_one_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUBAN_BENCH_DIR", str(tmp_path / "new"))
    assert cache_folder() == tmp_path / "new"
    assert cache_folder().is_dir()


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def half(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(tmp_path / "model.onnx", half)
    assert list(tmp_path.iterdir()) == []


def test_saved_inputs_are_the_timed_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUBAN_BENCH_DIR", str(tmp_path))
    case = BUNDLED_CASES[0]
    with np.load(case.save_inputs()) as stored:
        assert all(np.array_equal(stored[name], value) for name, value in case.inputs().items())
