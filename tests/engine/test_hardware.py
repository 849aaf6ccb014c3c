"""Measuring this machine: plausible rates, kept once; sizes of caches as the system tells them.

No figure is held against a clock: only orders that any machine keeps.
"""

from pathlib import Path

import pytest

from luban.core.hardware import ARITHMETIC, Limits
from luban.engine import hardware
from luban.engine.hardware import Meter, cache_sizes, known_hardware, measure_hardware
from luban.native.hardware_file import hardware_path, read_hardware
from luban.native.target import host_target


@pytest.fixture(scope="module")
def meter() -> Meter:
    return Meter(host_target())


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(hardware, "_TURN_S", 0.002)
    monkeypatch.setattr(hardware, "_MOST_TURNS", 2)


@pytest.mark.parametrize("threads", [1, 2])
def test_limits_are_those_of_a_processor(meter: Meter, threads: int) -> None:
    found = meter.limits(threads, turn_s=0.01)
    assert found.threads == threads
    assert set(found.operations_s) == set(ARITHMETIC)
    assert all(rate > 1e8 for rate in found.operations_s.values())
    assert [level.name for level in found.levels][:2] == ["L1", "L2"]
    assert found.levels[-1].capacity_bytes is None
    capacities = [level.capacity_bytes or 1 << 60 for level in found.levels]
    assert capacities == sorted(capacities)
    assert all(level.bytes_s > 1e7 for level in found.levels)
    assert 0 < found.launch_s < 0.1


def test_it_is_measured_once_and_kept(meter: Meter, monkeypatch: pytest.MonkeyPatch) -> None:
    target = host_target()
    first = measure_hardware(target, meter)
    assert read_hardware(hardware_path()) == {first.machine: first}
    assert first.limits[0].threads == 1
    monkeypatch.setattr(hardware, "measure_hardware", None)
    assert known_hardware(target) == first


def test_figures_that_still_rise_are_measured_again(
    meter: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def limits(_meter: Meter, threads: int, turn_s: float = 0.0) -> Limits:
        asked.append(threads)
        level = base.levels[0]
        rate = 1e9 * min(len(asked), 6) * threads
        return Limits(threads, {"f32": rate}, (level,), 1e-7)

    base = meter.limits(1, turn_s=0.001)
    monkeypatch.setattr(hardware, "_MOST_TURNS", 50)
    monkeypatch.setattr(hardware, "available_threads", lambda: 1)
    monkeypatch.setattr(Meter, "limits", limits)
    found = measure_hardware(host_target(), meter)
    assert found.at(1).rate("f32") == 6e9
    assert len(asked) == 8  # two turns without a rise


def test_threads_that_never_ran_together_are_measured_again(
    meter: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def limits(_meter: Meter, threads: int, turn_s: float = 0.0) -> Limits:
        asked.append(threads)
        together = threads if len(asked) > 9 else 1
        return Limits(threads, {"f32": 1e9 * together}, base.levels, 1e-7)

    base = meter.limits(1, turn_s=0.001)
    monkeypatch.setattr(hardware, "_MOST_TURNS", 50)
    monkeypatch.setattr(hardware, "available_threads", lambda: 2)
    monkeypatch.setattr(Meter, "limits", limits)
    assert measure_hardware(host_target(), meter).at(2).rate("f32") == 2e9


def test_cache_sizes_come_from_the_system(tmp_path: Path) -> None:
    rows = [("1", "Data", "48K"), ("1", "Instruction", "64K"), ("2", "Unified", "2M")]
    for number, values in enumerate(rows):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, value in zip(("level", "type", "size"), values, strict=True):
            (folder / name).write_text(value + "\n")
    assert cache_sizes(tmp_path) == {1: 48 << 10, 2: 2 << 20, 3: 32 << 20}
    assert cache_sizes(tmp_path / "none") == {1: 32 << 10, 2: 1 << 20, 3: 32 << 20}
