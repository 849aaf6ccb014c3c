"""Writing compiled models to the cache: the other half of artifact.py."""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from luban.engine.artifact import PACKED, Stored, signature
from luban.engine.artifact_nodes import alone, flat, host_modules, restored
from luban.engine.compilation import Compilation
from luban.engine.mapped import mapped_files, release_pages
from luban.engine.steps import Branch, Launch, LinkedKernel, Program, Recurrence, Repeat
from luban.graph.ops.data import Literal
from luban.ir.node import Graph, Node
from luban.native.cache import Cache
from luban.native.draft import Draft, start_draft
from luban.native.link import image_of, keep_image

__all__ = ["ArtifactWriter"]

Array = np.ndarray[Any, Any]

_LARGE_BYTES = 1 << 12  # constants from here on are mapped
_ALIGNMENT = 64
_BACKGROUND_BYTES = 1 << 25  # a tenth of a second of writing


class ArtifactWriter:
    """Keeps one compiled model under a key."""

    def __init__(self, key: str, stored: Cache) -> None:
        self._key = key
        self._stored = stored
        self._draft: Draft | None = None

    def start_draft(self, size_bytes: int) -> Draft | None:
        """The entry for values that are computed once, to compute them in."""
        self._draft = start_draft(self._stored, "packed", self._key, size_bytes)
        return self._draft

    def discard(self) -> None:
        """Nothing is to be kept: the compilation failed."""
        if self._draft is not None:
            self._draft.discard()
            self._draft = None

    def write(self, compilation: Compilation) -> None:
        """Keep a compiled model. Many weights are written in the background.

        The process does not end before all is written.
        """
        compiled, files, draft = compilation.compiled, compilation.files, self._draft
        main = compiled.executor.program
        programs = {g: p for g, p in compiled.programs.items() if p is not main}
        writer = _Writer(list(programs), files, draft)
        writer.dump((main, list(programs.values())))
        image = image_of(list(writer.kernels.values()))
        record = (
            [signature(path) for path in files],
            writer.kernels if image is None else {},
            writer.stored,
            sorted(writer.modules),
            compilation.warnings,
            writer.buffer.getvalue(),
        )
        rest = pickle.dumps(record, 5)
        key, stored = self._key, self._stored

        def put() -> None:
            maps = mapped_files(writer.arrays)
            kept = draft is None or draft.keep()
            kept = kept and (
                not writer.parts
                or stored.put(
                    "weights", key, *writer.parts, durable=True, after=lambda: release_pages(maps)
                )
            )
            kept = kept and (image is None or keep_image(stored, key, image))
            if kept:
                stored.put("programs", key, rest)

        self._draft = None  # kept or discarded by `put`
        packed = 0 if draft is None else draft.memory.nbytes
        if packed + sum(part.nbytes for part in writer.parts) < _BACKGROUND_BYTES:
            put()
        else:
            threading.Thread(target=put, name="luban-store").start()


class _Writer(pickle.Pickler):
    """Pickles programs without graphs, with large arrays and object code aside."""

    def __init__(self, graphs: Sequence[Graph], files: Sequence[Path], draft: Draft | None) -> None:
        self.buffer = io.BytesIO()
        super().__init__(self.buffer, 5)
        self.kernels: dict[str, bytes] = {}
        self.stored: list[Stored] = []
        self.parts: list[memoryview] = []
        self.modules: set[str] = set()  # that register host functions
        self._graphs = {graph: number for number, graph in enumerate(graphs)}
        self._files = {str(path): number for number, path in enumerate(files)}
        self._numbers: dict[tuple[int, str, tuple[int, ...]], int] = {}
        self._draft = draft
        self._offset = 0
        self.arrays: list[Array] = []  # so that no address is used twice

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
        if isinstance(value, Launch | Recurrence | Repeat | Branch):
            return _with(value, node=None)
        if isinstance(value, Program):
            return _with(value, graph=None, once={})
        if isinstance(value, Node):
            self.modules |= host_modules(value.op)
            return alone, (value.op, [operand.type for operand in value.operands], value.loc)
        if isinstance(value, Graph):
            self.modules |= {name for n in value.nodes() for name in host_modules(n.op)}
            return restored, flat(value)
        if isinstance(value, Literal):
            return Literal, (value.array, value.label)
        return NotImplemented

    def _array(self, array: Array) -> int:
        array = np.asarray(array, order="C")
        identity = (array.ctypes.data, str(array.dtype), array.shape)
        number = self._numbers.get(identity)
        if number is None:
            number = self._numbers[identity] = len(self.stored)
            self.arrays.append(array)
            self.stored.append(
                self._in_file(array) or self._in_draft(array) or self._in_weights(array)
            )
        return number

    def _in_weights(self, array: Array) -> Stored:
        stored = Stored(self._offset, array.dtype, array.shape)
        gap = -array.nbytes % _ALIGNMENT
        self.parts += [array.reshape(-1).view(np.uint8).data, memoryview(bytes(gap))]
        self._offset += array.nbytes + gap
        return stored

    def _in_draft(self, array: Array) -> Stored | None:
        """Where the array lies in the draft, if it does."""
        if self._draft is None:
            return None
        offset = array.ctypes.data - self._draft.memory.ctypes.data
        if not 0 <= offset < self._draft.memory.nbytes:
            return None
        return Stored(offset, array.dtype, array.shape, PACKED)

    def _in_file(self, array: Array) -> Stored | None:
        """Where the array lies in an external data file, if it is a view of a mapped one."""
        whole: Any = array
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        if not isinstance(whole, np.memmap) or str(whole.filename) not in self._files:
            return None
        offset = array.ctypes.data - whole.ctypes.data + whole.offset
        return Stored(offset, array.dtype, array.shape, self._files[str(whole.filename)])


def _with(value: Any, **changed: Any) -> tuple[type, tuple[Any, ...]]:
    """How to make a dataclass instance again, with some fields changed."""
    names = (f.name for f in fields(value))
    return type(value), tuple(changed.get(n, getattr(value, n)) for n in names)
