"""Thread counts: settings first, then cores within affinity and cgroup quota."""

import os
from pathlib import Path

import pytest

from luban.core.errors import OptionError
from luban.native import threads
from luban.native.threads import available_threads, thread_budget


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUBAN_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def machine(monkeypatch: pytest.MonkeyPatch, cpus: int) -> None:
    monkeypatch.setattr(threads, "_allowed_cpus", lambda: frozenset(range(cpus)))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_own_setting_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUBAN_NUM_THREADS", "3")
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert available_threads() == 3


def test_bad_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUBAN_NUM_THREADS", "0")
    with pytest.raises(OptionError, match="LUBAN_NUM_THREADS='0' is not understood"):
        available_threads()


def test_openmp_setting_counts_and_nonsense_in_it_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine(monkeypatch, 8)
    monkeypatch.setenv("OMP_NUM_THREADS", "5,2")
    assert thread_budget(tmp_path).count == 5
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert thread_budget(tmp_path).count == 8


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity is a Linux call")
def test_affinity_of_this_process_is_respected() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert available_threads() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_two_hardware_threads_of_a_core_count_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine(monkeypatch, 4)
    for cpu in range(4):
        name = f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        write(tmp_path / name, f"{cpu % 2},{cpu % 2 + 2}\n")
    assert thread_budget(tmp_path).count == 2


def test_quota_of_cgroup_version_2_and_its_parents(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine(monkeypatch, 8)
    write(tmp_path / "proc/self/cgroup", "0::/pod/container\n")
    write(tmp_path / "sys/fs/cgroup/pod/container/cpu.max", "max 100000\n")
    assert thread_budget(tmp_path).count == 8
    write(tmp_path / "sys/fs/cgroup/pod/cpu.max", "250000 100000\n")
    budget = thread_budget(tmp_path)
    assert budget.count == 2
    assert budget.reason.startswith("cgroup quota of 2.5 CPUs")


def test_quota_of_cgroup_version_1_seen_from_inside_a_container(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine(monkeypatch, 8)
    write(tmp_path / "proc/self/cgroup", "4:memory:/docker/1\n3:cpu,cpuacct:/docker/1\n")
    write(tmp_path / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n")
    write(tmp_path / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    assert thread_budget(tmp_path).count == 3


def test_no_quota_in_cgroup_version_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine(monkeypatch, 8)
    write(tmp_path / "proc/self/cgroup", "3:cpu:/\n")
    write(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    assert thread_budget(tmp_path).count == 8


def test_a_quota_under_one_cpu_still_gives_a_thread(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine(monkeypatch, 8)
    write(tmp_path / "proc/self/cgroup", "0::/\n")
    write(tmp_path / "sys/fs/cgroup/cpu.max", "50000 100000\n")
    assert thread_budget(tmp_path).count == 1
