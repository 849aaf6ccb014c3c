"""The stored description of machines: by fingerprint, only ever better, refused when damaged."""

import json
from pathlib import Path

import pytest

from luban.core.errors import LubanWarning, OptionError
from luban.core.hardware import Hardware, Level, Limits
from luban.native.hardware_file import (
    hardware_path,
    machine_name,
    read_hardware,
    remember_hardware,
    stored_hardware,
)
from luban.native.target import host_target, named_target

DRAM = Level("DRAM", None, 1e9)


def machine(name: str, rate: float) -> Hardware:
    return Hardware(name, "2026-01-01", (Limits(1, {"f32": rate}, (DRAM,), 1e-7),))


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path / "deep" / "cache"))
    return hardware_path()


def test_machines_stand_side_by_side_and_only_get_better(path: Path) -> None:
    assert read_hardware(path) == {}
    remember_hardware(path, machine("a", 2e9))
    remember_hardware(path, machine("b", 5e9))
    new = remember_hardware(path, machine("a", 1e9))
    assert new.at(1).rate("f32") == 2e9
    assert read_hardware(path) == {"a": machine("a", 2e9), "b": machine("b", 5e9)}


def test_this_machine_is_found_by_its_name(path: Path) -> None:
    assert stored_hardware(host_target()) is None
    here = machine(machine_name(host_target()), 1e9)
    remember_hardware(path, here)
    assert stored_hardware(host_target()) == here
    assert stored_hardware(named_target("neon")) is None


def test_the_number_of_threads_is_part_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUBAN_NUM_THREADS", "1")
    one = machine_name(host_target())
    monkeypatch.setenv("LUBAN_NUM_THREADS", "3")
    assert one.endswith(", 1 thread")
    assert machine_name(host_target()) == one.replace(", 1 thread", ", 3 threads")


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": 9, "machines": []}', "\xff"])
def test_a_damaged_file_is_told_and_replaced(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(OptionError, match=r"machines in .* cannot be read"):
        read_hardware(path)
    with pytest.warns(LubanWarning, match="going on without it"):
        assert stored_hardware(host_target()) is None
    remember_hardware(path, machine("a", 1e9))
    assert [row["machine"] for row in json.loads(path.read_text())["machines"]] == ["a"]


def test_a_folder_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUBAN_CACHE_DIR", "/dev/null/x")
    with pytest.raises(OptionError, match="cannot be written"):
        remember_hardware(hardware_path(), machine("a", 1e9))
