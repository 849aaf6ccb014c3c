"""What goes into the line reader and how its output becomes text; the model is not needed."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from examples.read_text import DEFAULT_IMAGE, LineReader, line_pixels

READER = LineReader(Path("rec.onnx"), ("", "a", "b", " "))


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ([0, 0], ""),
        ([1, 1, 2, 2], "ab"),
        ([1, 0, 1], "aa"),
        ([0, 1, 3, 2, 0], "a b"),
    ],
)
def test_repeats_collapse_and_blanks_separate(labels: list[int], text: str) -> None:
    scores = np.eye(4, dtype=np.float32)[labels] * np.float32(0.5)
    assert READER.text(scores) == (text, 0.5 if text else 0.0)


def test_pixels_are_blue_green_red_between_minus_one_and_one() -> None:
    pixels = line_pixels(Image.new("RGB", (96, 24), (255, 0, 0)))
    assert pixels.shape == (1, 3, 48, 192)
    assert pixels.dtype == np.float32
    assert pixels.flags.c_contiguous
    np.testing.assert_array_equal(pixels[0, :, 0, 0], [-1, -1, 1])


def test_default_picture_keeps_its_proportions() -> None:
    with Image.open(DEFAULT_IMAGE) as image:
        assert line_pixels(image).shape == (1, 3, 48, round(48 * image.width / image.height))


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"pip install -e '\.\[demo\]'"):
        LineReader.installed()
