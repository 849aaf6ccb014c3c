"""Compiled models in the cache: a second process runs one without loading the compiler.

An artifact is two cache entries: `programs` holds the steps, the object code of the kernels and the
small constants; `weights` holds the large ones, mapped into memory when it is used. They are found
under a hash of the model's content, the options, the target, and every version that matters, our
own source files included. External data that the model names is recognised by size and times.

Programs are pickled, as our own plain classes: the cache holds machine code, so who may write
there is trusted anyway, and its entries are checksummed.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite
import numpy as np

import luban
from luban.core import settings
from luban.core.types import Type
from luban.engine.executor import Executor
from luban.engine.steps import Launch, LinkedKernel, Program, Recurrence
from luban.ir.node import Graph, Node, Op, Parameter, node
from luban.native.cache import Cache
from luban.native.link import Library, link
from luban.native.target import Target
from luban.native.threads import available_threads

if TYPE_CHECKING:
    from luban.engine.compile import Compiled

__all__ = ["artifact_key", "file_digest", "read_artifact", "write_artifact"]

Array = np.ndarray[Any, Any]

_LARGE_BYTES = 1 << 12  # constants from here on are mapped
_ALIGNMENT = 64
_BACKGROUND_BYTES = 1 << 25  # a tenth of a second of writing
# A file that changed just now may change again within one tick of its time stamps.
_SETTLED_S = 2.0
_TRUSTED = ("luban.", "numpy", "ml_dtypes", "functools", "collections")


@dataclass(frozen=True, slots=True)
class _Stored:
    """An array in the weights entry, or in an external data file (`file` counts them)."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    file: int | None = None


@dataclass(frozen=True, slots=True)
class _Signature:
    """A file by what changes when it does."""

    path: str
    size_bytes: int
    modified_ns: int
    changed_ns: int
    inode: int


def _signature(path: Path) -> _Signature:
    status = path.stat()
    return _Signature(
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
def _versions() -> str:
    """Everything besides the model that decides what a compile gives.

    Our own source files count by name, size and time, so that working on Luban needs no clearing.
    """
    root = Path(luban.__file__).parent
    sources = sorted(_sources(str(root)))
    onnx = find_spec("onnx")
    package = _signature(Path(onnx.origin)) if onnx is not None and onnx.origin else None
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
    before = _signature(path.resolve())
    key = _digest(before)
    known = stored.get("files", key)
    if known is not None:
        return known.decode()
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    age_s = time.time() - max(before.modified_ns, before.changed_ns) / 1e9
    if age_s > _SETTLED_S and _signature(path.resolve()) == before:
        stored.put("files", key, found.encode())
    return found


def artifact_key(
    source: str | os.PathLike[str] | bytes,
    without: Sequence[str],
    shapes: Mapping[str, Sequence[int | str]],
    target: Target,
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
        except OSError:
            return None
    options = (sorted(set(without)), sorted((n, tuple(s)) for n, s in shapes.items()))
    return _digest(content, name, options, target, _versions())


# Writing.


def write_artifact(key: str, compiled: Compiled, files: Sequence[Path], stored: Cache) -> None:
    """Keep a compiled model under `key`. Many weights are written in the background.

    files   external data that the model was made from

    The process does not end before all is written.
    """
    main = compiled.executor.program
    programs = {g: p for g, p in compiled.programs.items() if p is not main}
    writer = _Writer(list(programs), files)
    writer.dump((main, list(programs.values())))
    record = (
        [_signature(path) for path in files],
        writer.kernels,
        writer.stored,
        sorted(writer.modules),
        writer.buffer.getvalue(),
    )
    rest = pickle.dumps(record, 5)

    def put() -> None:
        weights = not writer.parts or stored.put("weights", key, *writer.parts, durable=True)
        if weights:
            stored.put("programs", key, rest)

    if sum(part.nbytes for part in writer.parts) < _BACKGROUND_BYTES:
        put()
    else:
        threading.Thread(target=put, name="luban-store").start()


class _Writer(pickle.Pickler):
    """Pickles programs without graphs, with large arrays and object code aside."""

    def __init__(self, graphs: Sequence[Graph], files: Sequence[Path]) -> None:
        self.buffer = io.BytesIO()
        super().__init__(self.buffer, 5)
        self.kernels: dict[str, bytes] = {}
        self.stored: list[_Stored] = []
        self.parts: list[memoryview] = []
        self.modules: set[str] = set()  # that register host functions
        self._graphs = {graph: number for number, graph in enumerate(graphs)}
        self._files = {str(path): number for number, path in enumerate(files)}
        self._numbers: dict[tuple[int, str, tuple[int, ...]], int] = {}
        self._offset = 0
        self._kept: list[Array] = []  # so that no address is used twice

    def persistent_id(self, value: Any) -> Any:
        """What is stored aside, by number."""
        if isinstance(value, np.ndarray) and value.dtype.kind != "O":
            return ("array", self._array(value)) if value.nbytes >= _LARGE_BYTES else None
        if isinstance(value, LinkedKernel):
            self.kernels[value.name] = value.code
            rest = (value.arguments, value.num_programs, value.scratch_bytes)
            return ("kernel", value.name, *rest)
        if isinstance(value, Graph) and value in self._graphs:
            types = [p.type for p in value.parameters], [r.type for r in value.results]
            names = value.name, value.parameter_names, value.result_names
            return ("program", self._graphs[value], *types, *names)
        return None

    def reducer_override(self, value: Any) -> Any:
        """Steps without the nodes they came from; nodes of host steps by themselves."""
        if isinstance(value, Launch):
            return Launch, (None, value.kernel, value.operands, value.results)
        if isinstance(value, Recurrence):
            names = list(Recurrence.__dataclass_fields__)
            return Recurrence, (None, *(getattr(value, name) for name in names[1:]))
        if isinstance(value, Program):
            names = value.name, value.input_names, value.output_names, None
            return Program, (*names, value.values, value.inputs, value.outputs, value.steps)
        if isinstance(value, Node):
            self.modules |= _host_modules(value.op)
            return _alone, (value.op, [operand.type for operand in value.operands], value.loc)
        if isinstance(value, Graph):
            self.modules |= {name for n in value.nodes() for name in _host_modules(n.op)}
            return _graph, _flat(value)
        if type(value).__qualname__ == "Literal" and isinstance(value.array, np.ndarray):
            return type(value), (value.array, value.label)
        return NotImplemented

    def _array(self, array: Array) -> int:
        array = np.asarray(array, order="C")
        identity = (array.ctypes.data, str(array.dtype), array.shape)
        number = self._numbers.get(identity)
        if number is None:
            number = self._numbers[identity] = len(self.stored)
            self._kept.append(array)
            self.stored.append(self._in_file(array) or self._in_weights(array))
        return number

    def _in_weights(self, array: Array) -> _Stored:
        stored = _Stored(self._offset, array.dtype, array.shape)
        gap = -array.nbytes % _ALIGNMENT
        self.parts += [memoryview(array.reshape(-1).view(np.uint8)), memoryview(bytes(gap))]
        self._offset += array.nbytes + gap
        return stored

    def _in_file(self, array: Array) -> _Stored | None:
        """Where the array lies in an external data file, if it is a view of a mapped one."""
        whole: Any = array
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        if not isinstance(whole, np.memmap) or str(whole.filename) not in self._files:
            return None
        offset = array.ctypes.data - whole.ctypes.data + whole.offset
        return _Stored(offset, array.dtype, array.shape, self._files[str(whole.filename)])


def _host_modules(op: Op) -> set[str]:
    """The module that registers the host function of a `host_call`: it must be loaded to run."""
    if op.name != "host_call":
        return set()
    host_function = import_module("luban.graph.host").host_function
    return {str(host_function(getattr(op, "function", "")).__module__)}


def _flat(graph: Graph) -> tuple[Any, ...]:
    """A graph as a list, as its nodes are nested deeper than a pickle may be."""
    number = {n: i for i, n in enumerate(dict.fromkeys((*graph.parameters, *graph.nodes())))}
    rows = [(n.op, [number[operand] for operand in n.operands], n.loc) for n in number]
    parameters, results = ([number[n] for n in g] for g in (graph.parameters, graph.results))
    return graph.name, rows, parameters, results, graph.result_names


# Reading.


def read_artifact(key: str, num_threads: int | None, stored: Cache) -> Executor | None:
    """The compiled model under `key`, ready to run; None if it is not there as a whole."""
    record = stored.get("programs", key)
    if record is None:
        return None
    signatures, kernels, arrays, modules, payload = pickle.loads(record)
    files = [Path(signature.path) for signature in signatures]
    if any(not path.is_file() for path in files) or [*map(_signature, files)] != signatures:
        return None
    weights = memoryview(b"")
    if any(array.file is None for array in arrays):
        mapped = stored.map("weights", key)
        if mapped is None:
            return None
        weights = mapped
    maps = [np.memmap(path, np.uint8, "r") for path in files]
    places = [weights if a.file is None else memoryview(maps[a.file]) for a in arrays]
    loaded = [_view(place, a) for place, a in zip(places, arrays, strict=True)]
    for module in modules:
        import_module(module)
    library = link(list(kernels.values()), list(kernels))
    reader = _Reader(payload, loaded, library)
    main, inner = reader.load()
    threads = num_threads or available_threads()
    executors: dict[Graph, Executor] = {}

    def run(sub: Graph, values: Sequence[Any], sizes: dict[str, int]) -> tuple[Any, ...]:
        return tuple(executors[sub].run(values, sizes))

    for number, program in enumerate(inner):
        if number in reader.graphs:
            executors[reader.graphs[number]] = Executor(program, threads, run)
    return Executor(main, threads, run)


def _view(whole: memoryview, stored: _Stored) -> Array:
    count = int(np.prod(stored.shape, dtype=np.int64))
    return np.frombuffer(whole, stored.dtype, count, stored.offset).reshape(stored.shape)


class _Reader(pickle.Unpickler):
    """The reverse of _Writer."""

    def __init__(self, payload: bytes, arrays: Sequence[Array], library: Library) -> None:
        super().__init__(io.BytesIO(payload))
        self.graphs: dict[int, Graph] = {}
        self._arrays = arrays
        self._library = library

    def find_class(self, module: str, name: str) -> Any:
        """Only what an artifact is made of."""
        if not module.startswith(_TRUSTED):
            raise pickle.UnpicklingError(f"an artifact does not hold {module}.{name}")
        return super().find_class(module, name)

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
                    self.graphs[number] = _stand_in(*signature)
                return self.graphs[number]
        raise pickle.UnpicklingError(f"an artifact does not refer to {reference!r}")


def _stand_in(
    parameters: Sequence[Type],
    results: Sequence[Type],
    name: str,
    parameter_names: Sequence[str],
    result_names: tuple[str, ...],
) -> Graph:
    """A graph with the types of one that is compiled: its program runs in its place."""
    labelled = zip(parameter_names, parameters, strict=True)
    return Graph(
        name,
        tuple(node(Parameter(label, type_)) for label, type_ in labelled),
        tuple(node(Parameter(f"result_{i}", type_)) for i, type_ in enumerate(results)),
        result_names,
    )


def _alone(op: Op, operands: Sequence[Type], loc: Any) -> Node:
    """A node on operands of which only the types matter."""
    given = (node(Parameter(f"operand_{i}", type_)) for i, type_ in enumerate(operands))
    return node(op, *given, loc=loc)


def _graph(
    name: str,
    rows: Sequence[tuple[Op, Sequence[int], Any]],
    parameters: Sequence[int],
    results: Sequence[int],
    result_names: tuple[str, ...],
) -> Graph:
    nodes: list[Node] = []
    for op, operands, loc in rows:
        nodes.append(node(op, *(nodes[i] for i in operands), loc=loc))
    return Graph(
        name,
        tuple(nodes[i] for i in parameters),
        tuple(nodes[i] for i in results),
        result_names,
    )
