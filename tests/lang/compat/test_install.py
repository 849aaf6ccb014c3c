"""The stand-in for Triton: opt-in, complete in its names, and gone when asked to be."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from luban.core.errors import OptionError
from luban.lang import compat
from luban.lang.compat.modules import MODULES, SUBMODULES

SCRIPT = """
import sys
import numpy as np
import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.autotune([triton.Config({"BLOCK": 64}, num_warps=w) for w in (4, 8)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@triton.jit
def kernel(x_ptr, out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    if EVEN:
        x = libdevice.tanh(x) + tl.math.exp(x)
    tl.store(out_ptr + offsets, x.to(tl.float32), mask=mask)

def run(n):
    x = np.linspace(-1, 1, n, dtype=np.float32)
    out = np.zeros_like(x)
    kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
    return x, out
"""


@pytest.fixture
def _installed() -> Iterator[None]:
    if importlib.util.find_spec("triton") is not None:
        pytest.skip("Triton itself is installed here")
    with compat.standing_in():
        yield


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("name", MODULES)
def test_every_module_of_the_table_is_there(name: str) -> None:
    found = importlib.import_module(name)
    assert found.__spec__ is not None
    assert found.__spec__.origin == "luban"


@pytest.mark.usefixtures("_installed")
def test_submodules_come_with_their_parent() -> None:
    for parent, names in SUBMODULES.items():
        module = importlib.import_module(parent)
        for name in names:
            assert getattr(module, name) is sys.modules[f"{parent}.{name}"]


@pytest.mark.usefixtures("_installed")
def test_an_unmodified_script_runs(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    spec = importlib.util.spec_from_file_location("script", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, out = module.run(100)
    np.testing.assert_allclose(out, np.tanh(x) + np.exp(x), atol=1e-6)
    x, out = module.run(101)
    np.testing.assert_array_equal(out, x)


@pytest.mark.usefixtures("_installed")
def test_what_has_no_stand_in_is_missing() -> None:
    triton = importlib.import_module("triton")
    with pytest.raises(AttributeError, match=r"triton.warp_lanes has no stand-in in Luban"):
        _ = triton.warp_lanes
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'triton.experimental'"):
        importlib.import_module("triton.experimental")


def test_nothing_stays_after_uninstall() -> None:
    with compat.standing_in():
        assert compat.installed()
        importlib.import_module("triton.language")
    assert not compat.installed()
    assert not [name for name in sys.modules if name.split(".")[0] == "triton"]


def test_a_real_installation_is_not_hidden_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "triton"
    package.mkdir()
    (package / "__init__.py").write_text("REAL = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OptionError, match=r"triton is installed, in .*: the stand-in would hide"):
        compat.install()
    assert not compat.installed()
    with compat.standing_in(shadow=True):
        assert not hasattr(importlib.import_module("triton"), "REAL")
    real = importlib.import_module("triton")
    assert real.REAL
    with pytest.raises(OptionError, match="triton has been imported already, from"):
        compat.install(shadow=True)
    del sys.modules["triton"]


def test_a_device_map_that_is_none_is_refused() -> None:
    pytest.importorskip("torch")
    try:
        with pytest.raises(OptionError, match="device map 'cuda' is not understood, expected FROM"):
            compat.install(device_map="cuda")
    finally:
        compat.uninstall()
