"""`luban tune`: what it prints and stores, and what it refuses before any work."""

import json
from pathlib import Path

import pytest

import luban
from luban.cli.main import main
from luban.core.hardware import Hardware, Level, Limits
from tests.engine.models import DATA

MLP = str(DATA / "tiny_mlp.onnx")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("luban.tuner.measure._TIMING_S", 0.01)
    # So fast a machine that nothing is near its limit.
    limits = Limits(1, {"f32": 1e18}, (Level("DRAM", None, 1e18),), 1e-12)
    machine = Hardware("made up", "2026-01-01", (limits,))
    monkeypatch.setattr("luban.engine.hardware.known_hardware", lambda _: machine)


def test_results_are_stored_and_the_next_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bank = tmp_path / "bank.json"
    arguments = ["tune", MLP, "--threads", "1", "--size", "batch=8", "--knowledge", str(bank)]
    assert main([*arguments, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["left"] == 0
    assert first["knowledge"] == str(bank)
    (stored,) = json.loads(bank.read_text())["machines"].values()
    assert stored.keys() == {row["words"] for row in first["products"]}
    assert first["products"]
    assert all(entry["speedup"] >= 1.0 for entry in stored.values())
    assert main(arguments) == 0
    second = capsys.readouterr().out
    assert "known from earlier runs" in second
    assert f"kept in {bank}" in second


def test_a_new_measurement_means_a_new_compile(tmp_path: Path) -> None:
    luban.load(MLP, threads=1)
    assert luban.load(MLP, threads=1).from_cache
    assert main(["tune", MLP, "--threads", "1", "--budget", "1"]) == 0
    assert not luban.load(MLP, threads=1).from_cache
    assert luban.load(MLP, threads=1).from_cache


@pytest.mark.parametrize("budget", ["soon", "-1s", "inf", "5 x"])
def test_a_budget_is_a_time(budget: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", MLP, f"--budget={budget}"]) == 2
    expected = f"--budget {budget!r} is no time, expected one such as 30s, 5m or 1h"
    assert expected in capsys.readouterr().err


def test_a_bank_that_cannot_be_written_is_told_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bank = tmp_path / "bank.json"
    bank.write_text("{")
    assert main(["tune", MLP, "--knowledge", str(bank)]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert bank.read_text() == "{"
