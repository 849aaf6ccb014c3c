"""Values that are computed once, at load: packed weights, mostly, which are most of the memory.

They are computed in parts, and after each part the pages it was made from and the pages it was
written to go back to the system: they lie in files, the model's own and that of the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from luban.core.types import TensorType
from luban.engine.executor import Executor
from luban.engine.kernels import Kernels
from luban.engine.mapped import mapped_files, release_pages
from luban.engine.program import Program, build_program
from luban.engine.steps import Launch, Step, SubRunner, Value
from luban.engine.weight_memory import WeightMemory
from luban.graph.ops.data import Constant
from luban.ir.node import Graph, Node
from luban.native.draft import Draft

__all__ = ["StartDraft", "fill_once"]

Array = np.ndarray[Any, Any]
# Gives a draft of so many bytes in the cache, or None if what is computed is not to be kept there.
StartDraft = Callable[[int], Draft | None]

_LEAST_PART_BYTES = 1 << 22
_MOST_PARTS = 32
_LARGE_BYTES = 1 << 12  # smaller values are not worth a place in the draft
_ALIGNMENT = 64


def fill_once(
    programs: Iterable[Program],
    bodies: Sequence[Graph],
    prepared: Graph,
    kernels: Kernels,
    num_threads: int,
    run_sub_graph: SubRunner,
    start_draft: StartDraft,
) -> Draft | None:
    """Compute every value of the programs that is computed once; the draft that they lie in.

    bodies     what the programs call them by
    prepared   the graph whose results they are, in the same order
    """
    programs = list(programs)
    unaligned = _unaligned(programs)
    sizes = [_bytes_of(result) for result in prepared.results]
    room = _Room([*sizes, *(array.nbytes for array in unaligned.values())])
    draft = start_draft(room.size_bytes)
    _align(programs, unaligned, room, draft)
    maps = mapped_files(n.op.value.array for n in prepared.nodes() if isinstance(n.op, Constant))
    memory = WeightMemory()
    found: list[Array] = []
    for part in _parts(prepared):
        release_pages(maps)
        program = build_program(part, kernels.linked, kernels.declined)
        _align([program], _unaligned_in_part(program, kernels), room, None)
        executor = Executor(program, num_threads, run_sub_graph)
        executor.output_memory = memory
        places = [room.place(draft, result) for result in part.results]
        found += executor.run([], out=places)
        executor.release()  # also of aligned copies of its constants
        if draft is not None:
            draft.release()
    release_pages(maps)
    if draft is not None:
        draft.seal()
    _hand_out(programs, dict(zip(bodies, found, strict=True)))
    return draft


class _Room:
    """The layout of a draft: one value after the other."""

    def __init__(self, sizes: Iterable[int]) -> None:
        self.size_bytes = sum(_padded(size) for size in sizes if size >= _LARGE_BYTES)
        self._used = 0

    def array(self, draft: Draft, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """The next place."""
        size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        start = self._used
        self._used += _padded(size)
        place: Array = draft.memory[start : start + size].view(dtype).reshape(shape)
        return place

    def place(self, draft: Draft | None, result: Node) -> Array | None:
        """A place for a result; None if it gets memory of its own."""
        if draft is None or _bytes_of(result) < _LARGE_BYTES:
            return None
        return self.array(draft, result.tensor.dtype.numpy, result.tensor.static_shape)


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _unaligned(programs: Iterable[Program]) -> dict[int, Array]:
    """By identity, the constants that do not lie as kernels need them: files align nothing."""
    return _unaligned_of(v for p in programs for v in p.values)


def _unaligned_in_part(program: Program, kernels: Kernels) -> dict[int, Array]:
    """The same without those that are read by such kernels only as take any address."""
    steps = [step for step in program.steps if not _reads_anywhere(step, kernels)]
    read = [*program.outputs, *(v for step in steps for v in step.operands)]
    return _unaligned_of(v.root for v in read)


def _unaligned_of(values: Iterable[Value]) -> dict[int, Array]:
    held = [v.constant for v in values if v.constant is not None]
    return {id(array): array for array in held if not array.flags.aligned}


def _reads_anywhere(step: Step, kernels: Kernels) -> bool:
    if not isinstance(step, Launch) or step.node is None:
        return False
    params = kernels.lowered[step.node].kernel.module.kernel.params
    return all(p.alignment == 1 for p in params if p.is_pointer and p.access == "read")


def _align(
    programs: Iterable[Program], unaligned: Mapping[int, Array], room: _Room, draft: Draft | None
) -> None:
    """Have copies of the constants in their place: in the draft if there is one."""
    moved: dict[int, Array] = {}
    for number, array in unaligned.items():
        if draft is None or array.nbytes < _LARGE_BYTES:
            moved[number] = array.copy()
        else:
            moved[number] = room.array(draft, array.dtype, array.shape)
            _copy(array, moved[number], draft)
        moved[number].flags.writeable = False
    for program in programs:
        for value in program.values:
            if value.constant is not None and id(value.constant) in moved:
                value.constant = moved[id(value.constant)]


def _copy(source: Array, target: Array, draft: Draft) -> None:
    """Copy a large array from one file to another without holding all of either."""
    maps = mapped_files([source])
    whole, place = source.reshape(-1), target.reshape(-1)
    step = _LEAST_PART_BYTES // source.itemsize
    for start in range(0, whole.size, step):
        place[start : start + step] = whole[start : start + step]
        draft.release()
        release_pages(maps)


def _hand_out(programs: Iterable[Program], arrays: Mapping[Graph, Array]) -> None:
    for program in programs:
        for body, value in program.once.items():
            value.constant = arrays[body]
            value.constant.flags.writeable = False


def _parts(prepared: Graph) -> list[Graph]:
    """The graph in parts, in order, each of which reads and writes a bounded number of bytes."""
    needs = [_bytes_of(result) + _bytes_before(result) for result in prepared.results]
    bound = max(_LEAST_PART_BYTES, sum(needs) // _MOST_PARTS)
    parts: list[list[Node]] = []
    size = 0
    for result, needed in zip(prepared.results, needs, strict=True):
        if not parts or size + needed > bound:
            parts.append([])
            size = 0
        parts[-1].append(result)
        size += needed
    return [Graph("prepare", (), tuple(results)) for results in parts]


def _bytes_of(n: Node) -> int:
    """The size of a constant-only value; 0 if it is not one of fixed size."""
    if not isinstance(n.type, TensorType) or not n.type.is_static or n.type.dtype.bits == 0:
        return 0
    size = n.type.size_bytes
    assert isinstance(size, int)
    return size


def _bytes_before(result: Node) -> int:
    nodes = Graph("", (), (result,)).nodes()
    return sum(_bytes_of(n) for n in nodes if isinstance(n.op, Constant))
