"""`luban check`: what it prints and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from luban.cli.main import main
from luban.lower import emit
from tests.engine.check.test_check import model


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.onnx"
    onnx.save(model(), path)
    return str(path)


def test_a_right_model_ends_with_0(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", small]) == 0
    captured = capsys.readouterr()
    assert "all inside the bound" in captured.out
    assert "inputs were made up with seed 0: x: f32[4,4]" in captured.err


def test_json_is_one_document(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", small, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is True
    assert document["finding"] is None
    assert all(layer["ok"] for layer in document["layers"])


def test_a_wrong_kernel_ends_with_1_and_leaves_a_repro(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = emit.empty_value
    monkeypatch.setattr(emit, "empty_value", lambda kind, dtype: right(kind, dtype) + 1)
    wide = tmp_path / "wide.onnx"
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 5])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n"])
    total = onnx.helper.make_node("ReduceL1", ["x"], ["y"], "total", keepdims=0, axes=[1])
    graph = onnx.helper.make_graph([total], "sums", [x], [y])
    opset = onnx.helper.make_opsetid("", 13)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), wide)
    repro = tmp_path / "repro.py"
    assert main(["check", str(wide), "--repro", str(repro), "--size", "n=3"]) == 1
    out = capsys.readouterr().out
    assert "WRONG after 1 layers" in out
    assert "nodes: total" in out
    assert f"repro: {repro}" in out
    assert repro.exists()


def test_inputs_from_a_file(small: str, tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    np.savez(path, x=np.eye(4, dtype=np.float32))
    assert main(["check", small, "--inputs", str(path), "--runtime", "onnxruntime"]) == 0


def test_bad_input_ends_with_2(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", small, "--runtime", "abacus"]) == 2
    assert "unknown runtime 'abacus'" in capsys.readouterr().err
