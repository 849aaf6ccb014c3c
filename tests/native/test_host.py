"""The record of the host: kept by processor and version, made again when either changes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from luban.native import compiler
from luban.native import host as hosts
from luban.native.compile import describe_host
from luban.native.host import Host, host, is_known

CPUINFO = (
    "processor\t: 0\nmodel name\t: One\nflags\t\t: fpu avx2\ncpu MHz\t\t: 2100.000\n\n"
    "processor\t: 1\nmodel name\t: One\n"
)


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache of the test's own, and nothing remembered before or after."""
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path / "cache"))
    host.cache_clear()
    yield
    host.cache_clear()


def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows each time LLVM is asked."""
    times: list[int] = []

    def ask() -> dict[str, str]:
        times.append(1)
        return describe_host()

    monkeypatch.setattr(compiler, "ask_for_host", ask)
    return times


def test_the_host_is_what_llvm_says() -> None:
    assert host() == Host(**describe_host())


def test_llvm_is_asked_once_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    times = asked(monkeypatch)
    assert not is_known()
    first = host()
    assert is_known()
    host.cache_clear()
    assert is_known()
    assert host() == first
    assert len(times) == 1
    monkeypatch.setattr(hosts, "_processor", lambda: ("model name: another",))
    host.cache_clear()
    assert not is_known()
    assert host() == first
    monkeypatch.setattr("llvmlite.__version__", "0.0")
    host.cache_clear()
    assert host() == first
    assert len(times) == 3


def test_a_processor_that_says_nothing_is_asked_about_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = asked(monkeypatch)
    monkeypatch.setattr(hosts, "_processor", lambda: None)
    for _ in range(2):
        host.cache_clear()
        assert not is_known()
        host()
    assert len(times) == 2


def test_a_processor_is_what_does_not_change_by_the_hour(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(CPUINFO)
    first = hosts._processor(str(path))
    assert first == ("model name\t: One", "flags\t\t: fpu avx2")
    path.write_text(CPUINFO.replace("2100", "3300"))
    assert hosts._processor(str(path)) == first
    path.write_text(CPUINFO.replace("avx2", "avx2 avx512f"))
    assert hosts._processor(str(path)) != first
    path.write_text("nothing we know\n")
    assert hosts._processor(str(path)) is None
    assert hosts._processor(str(tmp_path / "absent")) is None
