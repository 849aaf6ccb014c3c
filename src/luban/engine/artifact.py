"""Compiled models in the cache: a second process runs one without loading the compiler.

An artifact is a few cache entries. `programs` holds the steps and the small constants, `code` the
kernels, linked, to be executed from the file's own pages, `packed` what the first load computed in
place, and `weights` other large constants; the latter two are mapped when they are used. Where our
linker does not serve, `programs` holds object code. Entries are found under a hash of the model's
content, the options, the target, and every version that matters, our own source files included.
External data is recognised by size and times.

Programs are pickled, as our own plain classes: the cache holds machine code, so who may write
there is trusted anyway, and its entries are checksummed.
"""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import os
import pickle
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import llvmlite
import numpy as np

import luban
from luban.core import settings
from luban.core.errors import LubanWarning
from luban.core.numerics import Numerics
from luban.engine.executor import Executor
from luban.engine.steps import LinkedKernel
from luban.native.cache import Cache
from luban.native.entry import HEADER_BYTES
from luban.native.knowledge_file import knowledge_digest
from luban.native.link import Library, kept_image, link, load_library
from luban.native.pages import populate
from luban.native.target import Target
from luban.native.threads import available_threads

if TYPE_CHECKING:
    from luban.ir.node import Graph

__all__ = [
    "Signature",
    "Stored",
    "artifact_key",
    "file_digest",
    "last_sizes",
    "open_artifact",
    "read_artifact",
    "remember_sizes",
    "signature",
    "versions_digest",
]

Array = np.ndarray[Any, Any]

# A file that changed just now may change again within one tick of its time stamps.
_SETTLED_S = 2.0
_READ_AHEAD_BYTES = 1 << 29  # of panels, which the first call then finds resident
_LITTLE_BYTES = 1 << 22
_TRUSTED = ("luban.", "numpy", "ml_dtypes", "functools", "collections")


PACKED = -1
"""The `file` of an array that lies in the entry of values that were computed once."""


class Stored(NamedTuple):
    """An array in the weights entry, in the packed one, or in a file (`file` counts them)."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    file: int | None = None


class Signature(NamedTuple):
    """A file by what changes when it does."""

    path: str
    size_bytes: int
    modified_ns: int
    changed_ns: int
    inode: int


def signature(path: Path) -> Signature:
    """The file as it is now. Raises OSError if it is not there."""
    status = path.stat()
    return Signature(
        str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
    )


def _digest(*parts: object) -> str:
    found = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        found.update(len(data).to_bytes(8, "little"))
        found.update(data)
    return found.hexdigest()


@cache
def versions_digest() -> str:
    """Everything besides the model that decides what a compile gives.

    Our own source files count by name, size and time, so that working on Luban needs no clearing.
    """
    root = Path(luban.__file__).parent
    sources = sorted(_sources(str(root)))
    onnx = find_spec("onnx")
    package = signature(Path(onnx.origin)) if onnx is not None and onnx.origin else None
    versions = (luban.__version__, sys.version_info[:3], np.__version__, llvmlite.__version__)
    return _digest(versions, package, sources)


def _sources(folder: str) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                status = entry.stat()
                found.append((entry.path, status.st_size, status.st_mtime_ns))
            elif entry.name != "__pycache__" and entry.is_dir():
                found += _sources(entry.path)
    return found


def file_digest(path: Path, stored: Cache) -> str:
    """The sha256 of a file's content, looked up by its size and times if it was read before."""
    before = signature(path.resolve())
    key = _digest(before)
    known = stored.get("files", key)
    if known is not None:
        return known.decode()
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    age_s = time.time() - max(before.modified_ns, before.changed_ns) / 1e9
    if age_s > _SETTLED_S and signature(path.resolve()) == before:
        stored.put("files", key, found.encode())
    return found


def artifact_key(
    source: str | os.PathLike[str] | bytes,
    without: Sequence[str],
    shapes: Mapping[str, Sequence[int | str]],
    target: Target,
    numerics: Numerics,
    stored: Cache,
) -> str | None:
    """What a compiled model is found under, or None if it is not to be kept.

    That is so where there is no cache, where the file cannot be read (whoever opens it next says
    why), and where every compile is to be verified.
    """
    if stored.limit_bytes == 0 or settings.VERIFY.get():
        return None
    if isinstance(source, bytes):
        content, name = hashlib.sha256(source).hexdigest(), ""
    else:
        try:
            content, name = file_digest(Path(source), stored), Path(source).name
        except (OSError, ValueError):  # ValueError: a zero byte in the path
            return None
    options = (sorted(set(without)), sorted((n, _plain(s)) for n, s in shapes.items()))
    version = versions_digest()
    return _digest(content, name, options, target, numerics, knowledge_digest(), version)


def _plain(sizes: object) -> object:
    """Sizes as the key holds them; what is no list is for the front end to refuse."""
    return tuple(sizes) if isinstance(sizes, Iterable) else sizes


def read_artifact(key: str, num_threads: int | None, stored: Cache) -> Executor | None:
    """The compiled model under `key`, ready to run; None if it is not there as a whole.

    Warnings that its compilation gave are given again.
    """
    record = stored.get("programs", key)
    if record is None:
        return None
    opened = open_artifact(record, key, num_threads, stored, lambda kind: stored.map(kind, key))
    if opened is None:
        return None
    executor, told = opened
    for text in told:
        warnings.warn(text, LubanWarning, stacklevel=4)  # at the call of luban.load
    return executor


def open_artifact(
    record: bytes,
    key: str,
    num_threads: int | None,
    stored: Cache,
    mapped: Callable[[str], memoryview | None],
) -> tuple[Executor, Sequence[str]] | None:
    """The model of a record, and the warnings of its compilation; None if a part is missing.

    mapped   gives the memory of `packed` and `weights`
    """
    signatures, kernels, arrays, panels, modules, told, payload = _Unpickler(
        io.BytesIO(record)
    ).load()
    library = _library(kernels, key, stored)
    if library is None:
        return None
    files = [Path(signature.path) for signature in signatures]
    if any(not path.is_file() for path in files) or [*map(signature, files)] != signatures:
        return None
    places: dict[int | None, memoryview] = {
        number: np.memmap(path, np.uint8, "r").data for number, path in enumerate(files)
    }
    for place, kind in ((None, "weights"), (PACKED, "packed")):
        if any(array.file == place for array in arrays):
            memory = mapped(kind)
            if memory is None:
                return None
            places[place] = memory
    _populate(places.get(PACKED), panels)
    loaded = [_view(places[array.file], array) for array in arrays]
    for module in modules:
        import_module(module)
    reader = _Reader(payload, loaded, library)
    main, inner = reader.load()
    threads = num_threads or available_threads()
    executors: dict[Graph, Executor] = {}

    def run(sub: Graph, values: Sequence[Any], sizes: dict[str, int]) -> tuple[Any, ...]:
        return tuple(executors[sub].run(values, sizes))

    for number, program in enumerate(inner):
        if number in reader.graphs:
            executors[reader.graphs[number]] = Executor(program, threads, run)
    return Executor(main, threads, run), told


def last_sizes(key: str, stored: Cache) -> dict[str, int]:
    """The sizes that `remember_sizes` was told of; none if there are none."""
    record = stored.get("sizes", key)
    try:
        known = {} if record is None else json.loads(record)
        return {str(name): int(size) for name, size in known.items()}
    except (AttributeError, TypeError, ValueError):  # of another time
        return {}


def remember_sizes(key: str, stored: Cache, sizes: Mapping[str, int]) -> None:
    """Have the next process prepare for a call with these sizes when it loads the model."""
    stored.put("sizes", key, json.dumps(dict(sizes)).encode(), counted=False)


def _populate(packed: memoryview | None, panels: int) -> None:
    """Have what every call reads resident: not the tables in front of the panels."""
    if packed is not None and isinstance(packed.obj, mmap.mmap):
        start = HEADER_BYTES + (panels if panels > _LITTLE_BYTES else 0)
        stop = min(HEADER_BYTES + packed.nbytes, start + _READ_AHEAD_BYTES)
        populate(packed.obj, start, stop, write=False)


def _library(kernels: dict[str, bytes], key: str, stored: Cache) -> Library | None:
    """The kernels in memory; None if their entry is not there as a whole."""
    if kernels:
        return link(list(kernels.values()), list(kernels))
    image = kept_image(stored, key)
    return None if image is None else load_library(image, image.symbols)


def _view(whole: memoryview, stored: Stored) -> Array:
    count = int(np.prod(stored.shape, dtype=np.int64))
    return np.frombuffer(whole, stored.dtype, count, stored.offset).reshape(stored.shape)


class _Unpickler(pickle.Unpickler):
    """Only what an artifact is made of."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse everything else."""
        if not module.startswith(_TRUSTED):
            raise pickle.UnpicklingError(f"an artifact does not hold {module}.{name}")
        return super().find_class(module, name)


class _Reader(_Unpickler):
    """Programs, with arrays and kernels from aside: the reverse of artifact_writer."""

    def __init__(self, payload: bytes, arrays: Sequence[Array], library: Library) -> None:
        super().__init__(io.BytesIO(payload))
        self.graphs: dict[int, Graph] = {}
        self._arrays = arrays
        self._library = library

    def persistent_load(self, reference: Any) -> Any:
        """What was stored aside."""
        match reference:
            case ("array", number):
                return self._arrays[number]
            case ("kernel", name, arguments, num_programs, scratch_bytes):
                return LinkedKernel(
                    name,
                    self._library.address(name),
                    arguments,
                    num_programs,
                    scratch_bytes,
                    self._library,
                )
            case ("program", number, *signature):
                if number not in self.graphs:
                    nodes = import_module(
                        "luban.engine.artifact_nodes"
                    )  # only where there are some
                    self.graphs[number] = nodes.stand_in(*signature)
                return self.graphs[number]
        raise pickle.UnpicklingError(f"an artifact does not refer to {reference!r}")
