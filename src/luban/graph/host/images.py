"""Host function that decodes image files, through Pillow."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from luban.core.errors import InputError, UnsupportedError
from luban.graph.host import host

__all__: list[str] = []


@host("decode_image")
def decode_image(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """(bytes as u8[n]) -> u8[height, width, channels] in the order options["pixels"] names.

    Raises UnsupportedError without Pillow, InputError for bytes that are no image.
    """
    try:
        import PIL.Image  # noqa: PLC0415 - optional: only models that hold an ImageDecoder need it
    except ImportError as error:
        raise UnsupportedError(
            "decoding an image needs Pillow, which is not installed", hint="pip install pillow"
        ) from error
    pixels = options["pixels"]
    try:
        with PIL.Image.open(io.BytesIO(values[0].tobytes())) as image:
            decoded = np.array(image.convert("L" if pixels == "Grayscale" else "RGB"))
    except (OSError, SyntaxError) as error:
        raise InputError(f"the {values[0].size} bytes are no image: {error}") from error
    if pixels == "Grayscale":
        return (decoded[:, :, np.newaxis],)
    return (np.ascontiguousarray(decoded[:, :, ::-1]) if pixels == "BGR" else decoded,)
