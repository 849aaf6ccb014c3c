"""A layer that is wrong ends an example: nobody overlooks it."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from examples.proof import print_check
from tests.engine.models import DATA


@pytest.mark.parametrize("ok", [True, False])
def test_a_wrong_layer_ends_the_example(ok: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Report(SimpleNamespace):
        def __str__(self) -> str:
            return "the report"

    monkeypatch.setattr("luban.check", lambda *_: Report(ok=ok))
    console = Console(file=io.StringIO())
    inputs = {"x": np.ones((1, 64), np.float32)}
    if ok:
        print_check(console, DATA / "tiny_mlp.onnx", inputs)
    else:
        with pytest.raises(SystemExit):
            print_check(console, DATA / "tiny_mlp.onnx", inputs)
    assert "the report" in console.file.getvalue()  # type: ignore[attr-defined]
