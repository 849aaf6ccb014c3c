"""ImageDecoder."""

from __future__ import annotations

import builtins
import io
from typing import Any

import numpy as np
import pytest

from luban.core.errors import InputError, ModelError, UnsupportedError
from tests.frontend.onnx.ops.comparison import Array, run

PICTURE = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [9, 9, 9]]], np.uint8)


def encoded() -> Array:
    image = pytest.importorskip("PIL.Image", reason="decoding images needs Pillow")
    buffer = io.BytesIO()
    image.fromarray(PICTURE).save(buffer, "PNG")
    return np.frombuffer(buffer.getvalue(), np.uint8)


def test_channel_orders() -> None:
    np.testing.assert_array_equal(run("ImageDecoder", [encoded()])[0], PICTURE)
    (swapped,) = run("ImageDecoder", [encoded()], pixel_format="BGR")
    np.testing.assert_array_equal(swapped, PICTURE[:, :, ::-1])
    assert run("ImageDecoder", [encoded()], pixel_format="Grayscale")[0].shape == (2, 2, 1)


def test_what_is_refused() -> None:
    with pytest.raises(ModelError, match="pixel_format is 'CMYK', expected RGB, BGR or Grayscale"):
        run("ImageDecoder", [np.zeros(4, np.uint8)], pixel_format="CMYK")
    encoded()
    with pytest.raises(InputError, match="the 4 bytes are no image"):
        run("ImageDecoder", [np.zeros(4, np.uint8)])


def test_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name.startswith("PIL"):
            raise ImportError(name)
        return original(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UnsupportedError, match="needs Pillow, which is not installed"):
        run("ImageDecoder", [np.zeros(4, np.uint8)])
