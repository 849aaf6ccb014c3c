"""Targets: what they say of a machine, the setting, the refusals."""

import pytest

from luban.core.errors import OptionError, UnsupportedError
from luban.native.host import Host
from luban.native.target import (
    TARGET_NAMES,
    default_target,
    host_target,
    named_target,
)


@pytest.mark.parametrize(
    ("name", "vector_bits", "registers"),
    [("avx512", 512, 32), ("avx2", 256, 16), ("neon", 128, 32)],
)
def test_named_targets_state_their_registers(name: str, vector_bits: int, registers: int) -> None:
    target = named_target(name)
    assert (target.vector_bits, target.num_vector_registers) == (vector_bits, registers)
    assert target.has_fma
    assert target.lanes(32) == vector_bits // 32


def test_wide_targets_ask_llvm_to_keep_512_bits() -> None:
    assert "-prefer-256-bit" in named_target("avx512").features
    assert "-prefer-256-bit" not in named_target("avx2").features
    assert '"prefer-vector-width"="512"' in named_target("avx512").function_attributes


def test_features_are_looked_up_whole() -> None:
    target = named_target("avx2")
    assert target.has("avx2")
    assert not target.has("avx512f")
    assert not target.has("vx2")


def test_the_host_runs_its_own_code() -> None:
    assert host_target().runs_here


def test_another_architecture_does_not_run_here() -> None:
    other = "neon" if host_target().architecture == "x86_64" else "avx2"
    assert not named_target(other).runs_here


def test_unknown_target_is_refused() -> None:
    with pytest.raises(OptionError, match="target 'avx1024' is not known, expected one of host, "):
        named_target("avx1024")


def test_default_target_follows_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUBAN_TARGET", raising=False)
    assert default_target() == host_target()
    monkeypatch.setenv("LUBAN_TARGET", "host")
    assert default_target() == host_target()


def test_default_target_must_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    other = "neon" if host_target().architecture == "x86_64" else "avx2"
    monkeypatch.setenv("LUBAN_TARGET", other)
    with pytest.raises(OptionError, match=f"target '{other}' cannot run here: .* lacks ") as error:
        default_target()
    assert "LUBAN_TARGET=host" in str(error.value)


@pytest.mark.parametrize(
    ("triple", "architecture"),
    [("arm64-apple-darwin24", "aarch64"), ("x86_64-pc-windows-msvc", "x86_64")],
)
def test_other_systems_spell_their_architecture_in_their_own_way(
    monkeypatch: pytest.MonkeyPatch, triple: str, architecture: str
) -> None:
    monkeypatch.setattr("luban.native.target.host", lambda: Host(triple, "any", "", "22.1.0"))
    assert host_target.__wrapped__().architecture == architecture


def test_unknown_processors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Host("riscv64-unknown-linux-gnu", "any", "", "22.1.0")
    monkeypatch.setattr("luban.native.target.host", lambda: other)
    with pytest.raises(
        UnsupportedError, match="this machine is riscv64-unknown-linux-gnu, expected"
    ):
        host_target.__wrapped__()


def test_target_names_are_frozen() -> None:
    assert TARGET_NAMES == ("host", "avx512", "avx2", "neon")
