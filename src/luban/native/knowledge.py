"""What was measured on machines: for a product, the width of its panels that was the fastest.

One JSON file, small and portable: the measurements of a machine stand under its fingerprint, so
files from several machines can be merged, and one from another machine does no harm. `luban tune`
writes it, every compile reads it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from luban.core.errors import LubanWarning, OptionError
from luban.native.knowledge_file import knowledge_path
from luban.native.target import Target

__all__ = [
    "Measurement",
    "fingerprint",
    "measured_widths",
    "read_knowledge",
    "remember",
]

_FORMAT = 1


class Measurement(NamedTuple):
    """The answer for one product.

    vectors   vector registers of a panel's row, the fastest of those tried
    speedup   over the default, measured; 1.0 if the default is the fastest
    tried     the other widths that were timed
    threads   of the calls that were timed
    """

    vectors: int
    speedup: float
    tried: tuple[int, ...]
    threads: int


Machines = dict[str, dict[str, Measurement]]


def fingerprint(target: Target) -> str:
    """The machine as far as it decides which code is fast.

    >>> from luban.native.target import named_target
    >>> fingerprint(named_target("avx2")).startswith("x86_64 x86-64-v3, 16 registers of 256 bits, ")
    True
    """
    features = hashlib.sha256(target.features.encode()).hexdigest()[:12]
    vectors = f"{target.num_vector_registers} registers of {target.vector_bits} bits"
    return f"{target.architecture} {target.cpu}, {vectors}, features {features}"


def read_knowledge(path: Path) -> Machines:
    """All measurements of a file, by fingerprint and product; none if there is no file.

    Raises OptionError if it cannot be read or is not such a file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error
    try:
        document = json.loads(text)
        if document["format"] != _FORMAT:
            raise ValueError(f"its format is {document['format']!r}, expected {_FORMAT}")
        return {
            str(machine): {str(words): _measurement(entry) for words, entry in products.items()}
            for machine, products in document["machines"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, error) from error


def _measurement(entry: Mapping[str, Any]) -> Measurement:
    tried = tuple(int(width) for width in entry["tried"])
    return Measurement(int(entry["vectors"]), float(entry["speedup"]), tried, int(entry["threads"]))


def _unreadable(path: Path, error: Exception) -> OptionError:
    what = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
    return OptionError(
        f"the measurements in {path} cannot be read: {what}",
        hint="remove the file, or name another with LUBAN_KNOWLEDGE; luban tune writes it anew",
    )


def measured_widths(target: Target) -> dict[str, int]:
    """Products to the vectors of their panels, as measured on this machine. Warns if damaged."""
    try:
        known = read_knowledge(knowledge_path()).get(fingerprint(target), {})
    except OptionError as error:
        warnings.warn(f"{error.message}; compiling without them", LubanWarning, stacklevel=2)
        return {}
    return {words: found.vectors for words, found in known.items() if found.speedup > 1.0}


def remember(path: Path, target: Target, products: Mapping[str, Measurement]) -> None:
    """Add measurements of this machine, or replace them. The file is whole at every moment.

    Raises OptionError if it cannot be read or written.
    """
    machines = read_knowledge(path)
    here = {**machines.get(fingerprint(target), {}), **products}
    machines[fingerprint(target)] = dict(sorted(here.items()))
    document = {
        "format": _FORMAT,
        "machines": {
            machine: {words: found._asdict() for words, found in known.items()}
            for machine, known in sorted(machines.items())
        },
    }
    _write_whole(path, json.dumps(document, indent=1).encode() + b"\n")


def _write_whole(path: Path, data: bytes) -> None:
    name = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".knowledge-", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException as error:  # also Ctrl-C: nothing half-written stays
        with contextlib.suppress(OSError):
            os.unlink(name)
        if not isinstance(error, OSError):
            raise
        raise OptionError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="name a file in a folder that has room and may be written to: LUBAN_KNOWLEDGE",
        ) from error
