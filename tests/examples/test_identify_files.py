"""What goes into magika's model and what its scores mean; the model itself is not needed."""

from pathlib import Path

import numpy as np
import pytest

from examples.identify_files import Magika

MAGIKA = Magika(
    model=Path("model.onnx"),
    labels=("python", "txt"),
    descriptions={"python": "Python source", "txt": "Plain text"},
    block_bytes=8,
    edge_bytes=4,
    padding=256,
)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", [256] * 8),
        (b"\n ", [256] * 8),
        (b"a", [97, 256, 256, 256, 256, 256, 256, 97]),
        (b" ab ", [97, 98, 32, 256, 256, 32, 97, 98]),
        (b"abcdefgh", [*b"abcd", *b"efgh"]),
        (b"abcdefgh-----ABCDEFGH", [*b"abcd", *b"EFGH"]),
        (b"       xy--zw       ", [120, 256, 256, 256, 256, 256, 256, 119]),
    ],
)
def test_features_are_both_ends_without_white_space(content: bytes, expected: list[int]) -> None:
    features = MAGIKA.features(content)
    assert features.dtype == np.int32
    assert features.tolist() == expected


def test_answer_is_the_likeliest_kind_of_each_row() -> None:
    scores = np.array([[0.75, 0.25], [0.125, 0.875]], np.float32)
    assert MAGIKA.answers(scores) == [("Python source", 0.75), ("Plain text", 0.875)]


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"pip install -e '\.\[demo\]'"):
        Magika.installed()
