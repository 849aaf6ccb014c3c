"""Tell what kind of file each path is, from its content alone, with magika's model run by Luban.

    python -m examples.identify_files [PATH ...]

Prints the answers, the check of those answers against float64, and the time next to ONNX Runtime's.
The model ships inside the `magika` package; only its files are used, not its code.
"""

import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

import luban
from examples.proof import print_check, print_times

PROJECT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Magika:
    """The model file of the magika package and what its numbers mean."""

    model: Path
    labels: tuple[str, ...]
    descriptions: dict[str, str]
    block_bytes: int
    edge_bytes: int
    padding: int

    @classmethod
    def installed(cls) -> "Magika":
        """Find the package without importing it. Raises SystemExit if it is missing."""
        spec = importlib.util.find_spec("magika")
        if spec is None or spec.origin is None:
            raise SystemExit("the demo reads its model from a package: pip install -e '.[demo]'")
        package = Path(spec.origin).parent
        folder = package / "models" / "standard_v3_3"
        config = json.loads((folder / "config.min.json").read_text(encoding="utf-8"))
        kinds = json.loads((package / "config" / "content_types_kb.min.json").read_text("utf-8"))
        return cls(
            model=folder / "model.onnx",
            labels=tuple(config["target_labels_space"]),
            descriptions={name: kind["description"] or name for name, kind in kinds.items()},
            block_bytes=config["block_size"],
            edge_bytes=config["beg_size"],
            padding=config["padding_token"],
        )

    def features(self, content: bytes) -> npt.NDArray[np.int32]:
        """The i32[2048] that the model sees: the first and the last 1024 bytes of the content.

        White space at both ends does not count. Short content is padded towards the middle.
        """
        first = content[: self.block_bytes].lstrip()[: self.edge_bytes]
        last = content[-self.block_bytes :].rstrip()[-self.edge_bytes :]
        tokens = np.full(2 * self.edge_bytes, self.padding, np.int32)
        tokens[: len(first)] = np.frombuffer(first, np.uint8)
        tokens[len(tokens) - len(last) :] = np.frombuffer(last, np.uint8)
        return tokens

    def answers(self, scores: npt.NDArray[np.float32]) -> list[tuple[str, float]]:
        """Description and score of the likeliest kind of each row of f32[files, kinds]."""
        return [
            (self.descriptions[self.labels[best]], float(row[best]))
            for row, best in zip(scores, scores.argmax(axis=1), strict=True)
        ]


def default_paths(magika: Magika) -> list[Path]:
    """Files that every checkout has, and two binary ones that every machine has."""
    names = ("README.md", "LICENSE", "Makefile", "pyproject.toml", "examples/identify_files.py")
    return [*(PROJECT / name for name in names), magika.model, Path(sys.executable).resolve()]


def main(arguments: Sequence[str]) -> None:
    """Identify the files, show that the answers are right, show how long they took."""
    magika = Magika.installed()
    paths = [Path(argument) for argument in arguments] or default_paths(magika)
    batch = np.stack([magika.features(path.read_bytes()) for path in paths])

    model = luban.load(magika.model)
    (scores,) = model(batch).values()

    console = Console()
    table = Table("file", "is", "score", title="What are these files?")
    for path, (kind, score) in zip(paths, magika.answers(scores), strict=True):
        table.add_row(path.name, kind, f"{score:.3f}")
    console.print(table)
    print_check(console, magika.model, {"bytes": batch})
    print_times(console, magika.model, {"bytes": batch[:1]}, "one file")


if __name__ == "__main__":
    main(sys.argv[1:])
