"""A repro: one Python file that shows a fault alone, with nothing but Luban installed.

It holds the smallest failing piece as graph text, its inputs, the versions and the command, and
exits with 1 while the fault is there, with 0 once it is gone.
"""

from __future__ import annotations

import base64
import io
import json
import os
import platform
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - registers the names of its dtypes
import numpy as np

from luban import __version__
from luban.core.files import written_whole
from luban.graph.parse import parse_graph
from luban.graph.text import print_graph
from luban.ir.node import Graph

__all__ = ["unpack", "write_repro"]

_SCRIPT = '''"""{title}

made by  {command}
versions luban {luban}, python {python}, numpy {numpy}, {machine}
run      python {name}   (exits with 1 while the fault is there)
"""

import sys

from luban.engine.check import replay

GRAPH = r"""
{graph}
"""

DATA = (
{data}
)

if __name__ == "__main__":
    sys.exit(replay(GRAPH, DATA{mode}))
'''


def write_repro(
    path: str | os.PathLike[str],
    graph: Graph,
    inputs: Sequence[Any],
    title: str,
    command: str,
    numerics: str = "strict",
) -> None:
    """Write the script: it is whole or not there.

    Raises OptionError if it cannot be written.
    """
    printed = print_graph(graph)
    arrays = {f"input_{i}": np.asarray(x) for i, x in enumerate(inputs)}
    arrays |= {f"literal_{name}": array for name, array in printed.literals.items()}
    target = Path(path)
    text = _SCRIPT.format(
        title=title.replace('"""', "'''").replace("\\", "/"),
        command=command,
        luban=__version__,
        python=platform.python_version(),
        numpy=np.__version__,
        machine=platform.machine(),
        name=target.name,
        graph=printed.text,
        mode="" if numerics == "strict" else f", {numerics!r}",
        data=_quoted(_packed(arrays)),
    )
    with written_whole(target) as file:
        file.write(text.encode())


def _packed(arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """Arrays as text: raw bytes with a header of dtypes and shapes, compressed."""
    header = []
    body = io.BytesIO()
    for name, array in arrays.items():
        header.append([name, array.dtype.name, list(array.shape)])
        body.write(np.asarray(array, order="C").tobytes())
    head = json.dumps(header).encode()
    raw = len(head).to_bytes(8, "little") + head + body.getvalue()
    return base64.b85encode(zlib.compress(raw, 6)).decode()


def _unpacked(data: str) -> dict[str, np.ndarray[Any, Any]]:
    raw = zlib.decompress(base64.b85decode(data))
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    offset = 8 + size
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, element, shape in header:
        dtype = np.dtype(element)
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(raw, dtype, count, offset).reshape(shape)
        offset += count * dtype.itemsize
    return arrays


def _quoted(text: str, width: int = 92) -> str:
    return "\n".join(f"    {text[i : i + width]!r}" for i in range(0, len(text), width))


def unpack(graph_text: str, data: str) -> tuple[Graph, list[Any]]:
    """The graph and the inputs of a repro."""
    arrays = _unpacked(data)
    literals = {
        name.removeprefix("literal_"): array
        for name, array in arrays.items()
        if name.startswith("literal_")
    }
    graph = parse_graph(graph_text.strip("\n") + "\n", literals)
    inputs = [arrays[f"input_{i}"] for i in range(len(graph.parameters))]
    return graph, inputs
