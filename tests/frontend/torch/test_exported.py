"""Programs of torch.export: weights as constants, ranges of sizes, files, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the front end needs PyTorch")

import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export

import luban
from luban.core.errors import InputError, ModelError, OptionError, UnsupportedError
from luban.engine import exported as sources
from luban.frontend.torch import import_exported

# PyTorch's own, about what it will change.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Scores(nn.Module):
    """Two outputs by name, a buffer, a product."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.last = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.last(self.norm(x))
        return {"scores": y, "best": y.argmax(1)}


def program(model: nn.Module | None = None) -> tuple[nn.Module, ExportedProgram]:
    torch.manual_seed(0)
    model = (model or Scores()).eval()
    batch = Dim("batch", min=1, max=8)
    return model, export(model, (torch.randn(2, 6),), dynamic_shapes=({0: batch},))


def test_weights_names_and_sizes() -> None:
    model, exported = program()
    graph = import_exported(exported)
    assert graph.parameter_names == ("x",)
    assert graph.result_names == ("scores", "best")
    compiled = luban.compile(exported)
    for batch in (1, 2, 8):
        x = torch.randn(batch, 6)
        want = model(x)
        found = compiled(x)
        np.testing.assert_allclose(found["scores"], want["scores"].detach(), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found["best"], want["best"])
    with pytest.raises(InputError, match=r"input 'x': axis 0 is 9, expected s\d+ .* 1 to 8"):
        compiled(torch.randn(9, 6))


def test_a_file_is_loaded_checked_and_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path / "cache"))
    model, exported = program()
    path = tmp_path / "scores.pt2"
    torch.export.save(exported, path)
    x = torch.randn(4, 6)
    for from_cache in (False, True):
        loaded = luban.load(path)
        assert loaded.from_cache is from_cache
        np.testing.assert_allclose(
            loaded(x)["scores"], model(x)["scores"].detach(), rtol=1e-5, atol=1e-6
        )
    assert luban.check(path, [x.numpy()]).ok


def test_what_is_no_program(tmp_path: Path) -> None:
    path = tmp_path / "noise.pt2"
    path.write_bytes(b"noise")
    with pytest.raises(
        ModelError, match=r"noise\.pt2 is not a program of torch\.export: .*"
    ) as error:
        luban.load(path, cache=False)
    assert "torch.export.save" in str(error.value)
    with pytest.raises(ModelError, match=r"none\.pt2 does not exist"):
        luban.load(tmp_path / "none.pt2", cache=False)


def test_a_program_that_writes_is_refused() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.add_(1)  # type: ignore[operator]
            return x + 1

    _, exported = program(Counts())
    with pytest.raises(UnsupportedError, match="1 outputs are not the user's") as error:
        import_exported(exported)
    assert "buffer_mutation of seen" in str(error.value)


def test_an_output_that_is_no_tensor_is_refused() -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
            return x + 1, 3

    _, exported = program(Two())
    with pytest.raises(UnsupportedError, match="exported: an output is 3, expected a tensor"):
        import_exported(exported)


def test_shapes_are_the_programs_own() -> None:
    _, exported = program()
    with pytest.raises(OptionError, match="the sizes of an exported program are its own"):
        luban.compile(exported, shapes={"x": [1, 6]})


def test_without_pytorch_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(sources, "import_module", missing)
    with pytest.raises(
        ModelError, match=r"m\.pt2: reading an exported program needs PyTorch"
    ) as error:
        sources.exported_graph("m.pt2")
    assert "pip install 'luban[torch]'" in str(error.value)
