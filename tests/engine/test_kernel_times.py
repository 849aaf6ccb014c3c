"""Predicted and measured times of kernels: from the stored description, on made-up inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from luban.core.errors import UnsupportedError
from luban.core.hardware import Hardware, Level, Limits
from luban.core.types import tensor
from luban.engine.compile import Compiled, compile_graph
from luban.engine.explain import explain
from luban.engine.kernel_times import kernel_times
from luban.graph import build as g
from luban.graph.ops.data import HostCall
from luban.ir.node import Graph, node
from luban.native.hardware_file import hardware_path, machine_name, remember_hardware
from luban.native.target import host_target, named_target
from tests.programs import p


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("luban.engine.kernel_times._TIMING_S", 0.01)


def small(target: str = "host") -> Compiled:
    x = p("x", "n", 64)
    y = g.matmul(x, g.constant(np.ones((64, 32), np.float32), "f32"))
    graph = Graph("small", (x,), (y, g.reduce("sum", x, (0,))))
    return compile_graph(graph, num_threads=1, target=named_target(target))


def remember(rate: float) -> None:
    limits = Limits(1, {"f32": rate}, (Level("DRAM", None, 1e15),), 1e-9)
    remember_hardware(
        hardware_path(), Hardware(machine_name(host_target()), "2026-01-01", (limits,))
    )


def test_nothing_is_predicted_for_a_machine_that_was_not_measured() -> None:
    assert kernel_times(small(), {"n": 5}) == {}
    assert all(line.predicted_s is None for line in explain(small()).kernels)


def test_predictions_come_from_the_stored_description() -> None:
    remember(1e9)
    found = kernel_times(small(), {"n": 5})
    seconds = sorted(t.predicted_s or 0.0 for t in found.values())
    assert seconds == pytest.approx([5 * 64 / 1e9 + 1e-9, 2 * 5 * 64 * 32 / 1e9 + 1e-9])
    assert {t.measured_s for t in found.values()} == {None}
    lines = explain(small(), {"n": 5}).kernels
    assert sorted(line.predicted_s or 0.0 for line in lines) == pytest.approx(seconds)
    assert {line.bound for line in lines} == {"compute"}


def test_measured_times_stand_beside_them() -> None:
    remember(1e15)
    found = explain(small(), {"n": 500}, measure=True)
    assert all(0 < (line.measured_s or 0.0) < 1 for line in found.kernels)
    assert found.correlation is not None
    assert -1 <= found.correlation <= 1
    assert explain(small()).correlation is None


def test_code_for_another_machine_has_no_times() -> None:
    remember(1e9)
    x = p("x", "n")
    compiled = compile_graph(Graph("far", (x,), (g.exp(x),)), num_threads=1)
    compiled.target = named_target("neon")
    assert kernel_times(compiled, {"n": 5}) == {}


def test_inputs_that_cannot_be_made_up_are_refused() -> None:
    remember(1e9)
    text = g.parameter("text", tensor("str", 2))
    same = node(HostCall("string_equal", (), (tensor("bool", 2),)), text, text)
    graph = Graph("texts", (text, p("x", 3)), (g.exp(p("x", 3)), same))
    compiled = compile_graph(graph, num_threads=1)
    with pytest.raises(UnsupportedError, match="values for it cannot be made up"):
        kernel_times(compiled, {}, measure=True)
