"""Writing compiled models to the cache: the other half of artifact.py."""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
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
from luban.native.entry import paced
from luban.native.link import image_of, keep_image

__all__ = ["ArtifactWriter", "Written"]

Array = np.ndarray[Any, Any]

_LARGE_BYTES = 1 << 12  # constants from here on are mapped
_ALIGNMENT = 64
_BACKGROUND_BYTES = 1 << 25  # a tenth of a second of writing


@dataclass(frozen=True, slots=True)
class Written:
    """A compiled model whose large parts lie in files that are not entries of the cache yet.

    record   what `open_artifact` makes the model of
    names    of the files, by the kind of entry that each will be: the file's and the entry's
    store    makes entries of all; takes time where there is much, which `is_large` says
    """

    record: bytes
    names: dict[str, tuple[str, str]]
    is_large: bool
    store: Callable[[], None]


class ArtifactWriter:
    """Keeps one compiled model under a key."""

    def __init__(self, key: str, stored: Cache) -> None:
        self._key = key
        self._stored = stored
        self._drafts: dict[str, Draft] = {}

    def start_draft(self, size_bytes: int) -> Draft | None:
        """The entry for values that are computed once, to compute them in."""
        return self._draft("packed", size_bytes)

    def _draft(self, kind: str, size_bytes: int) -> Draft | None:
        draft = start_draft(self._stored, kind, self._key, size_bytes)
        if draft is not None:
            self._drafts[kind] = draft
        return draft

    def discard(self) -> None:
        """Nothing is to be kept: the compilation failed."""
        for draft in self._drafts.values():
            draft.discard()
        self._drafts = {}

    def write(self, compilation: Compilation) -> None:
        """Keep a compiled model. Many weights are written in the background.

        The process does not end before all is written.
        """
        written = self.prepare(compilation)
        if written.is_large:
            threading.Thread(target=written.store, name="luban-store").start()
        else:
            written.store()

    def prepare(self, compilation: Compilation) -> Written:
        """Write a compiled model aside, to be stored later."""
        compiled, files = compilation.compiled, compilation.files
        main = compiled.executor.program
        programs = {g: p for g, p in compiled.programs.items() if p is not main}
        writer = _Writer(list(programs), files, self._drafts.get("packed"))
        writer.dump((main, list(programs.values())))
        self._write_weights(writer)
        image = image_of(list(writer.kernels.values()))
        if image is not None and not keep_image(self._stored, self._key, image):
            image = None
        record = pickle.dumps(
            (
                [signature(path) for path in files],
                writer.kernels if image is None else {},
                writer.stored,
                _start_of_panels(compiled.programs.values(), self._drafts.get("packed")),
                sorted(writer.modules),
                compilation.warnings,
                writer.buffer.getvalue(),
            ),
            5,
        )
        drafts, self._drafts = self._drafts, {}  # kept or discarded by `store`
        key, stored = self._key, self._stored

        def store() -> None:
            kept = [draft.keep() for draft in drafts.values()]
            if writer.parts and "weights" not in drafts:  # a system without drafts
                kept.append(stored.put("weights", key, *writer.parts, durable=True))
            if all(kept):
                stored.put("programs", key, record)

        size = sum(draft.memory.nbytes for draft in drafts.values())
        names = {kind: draft.names for kind, draft in drafts.items()}
        return Written(record, names, size >= _BACKGROUND_BYTES, store)

    def _write_weights(self, writer: _Writer) -> None:
        """Copy what lies elsewhere to a draft, a few megabytes at a time."""
        draft = self._draft("weights", sum(part.nbytes for part in writer.parts))
        if draft is None:
            return
        maps = mapped_files(writer.arrays)

        def release() -> None:
            draft.release()
            release_pages(maps)

        place = 0
        for piece in paced(writer.parts, release):
            draft.memory[place : place + piece.nbytes] = piece
            place += piece.nbytes
        draft.seal()


def _start_of_panels(programs: Iterable[Program], draft: Draft | None) -> int:
    """Where values that are computed once begin in the draft; before them are copies of others."""
    if draft is None:
        return 0
    values = [value for program in programs for value in program.once.values()]
    begin, size = draft.memory.ctypes.data, draft.memory.nbytes
    offsets = [v.constant.ctypes.data - begin for v in values if v.constant is not None]
    return min((offset for offset in offsets if 0 <= offset < size), default=size)


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
