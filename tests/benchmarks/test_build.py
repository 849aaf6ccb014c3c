"""Building a model again gives the bundled one; a failed build says how to repeat it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import models
from benchmarks.engines import load_reference
from benchmarks.models import BUILT, BUNDLED, BuildError, built_file

pytestmark = pytest.mark.slow  # needs the bench extra: torch takes seconds to import


@pytest.mark.parametrize("name", ["tiny_mlp", "resnet_tiny", "gpt2_tiny", "resnet_tiny_int8"])
def test_a_bundled_model_is_what_the_builder_makes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUBAN_BENCH_DIR", str(tmp_path))
    monkeypatch.setattr(models, "BUNDLED", tmp_path / "nothing bundled")
    fresh, bundled = built_file(name), BUNDLED / f"{name}.onnx"
    assert fresh.is_relative_to(tmp_path)
    operators = [[node.op_type for node in onnx.load(path).graph.node] for path in (fresh, bundled)]
    assert operators[0] == operators[1]
    feeds = next(case for case in BUILT if case.name == name).inputs()
    for ours, theirs in zip(
        load_reference(fresh, 1)(feeds), load_reference(bundled, 1)(feeds), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_bundled_models_hold_no_path_of_the_machine_that_made_them() -> None:
    for path in BUNDLED.glob("*.onnx"):
        content = path.read_bytes()
        assert b"site-packages" not in content
        assert b"/benchmarks/nets" not in content


def test_a_model_that_cannot_be_built_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUBAN_BENCH_DIR", str(tmp_path))
    with pytest.raises(BuildError, match=r"`python -m benchmarks\.build no_such_net` failed"):
        built_file("no_such_net")
