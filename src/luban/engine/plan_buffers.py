"""The buffers of a program's steps for certain sizes, those of control flow's bodies inside.

A level is one program: a stage of the main one, or a body. A body's buffers lie together in one
buffer of the level around it, so each level is packed by itself; branches share theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from luban.core import dims
from luban.core.errors import LubanError
from luban.core.size_rules import check_sizes
from luban.core.types import TensorType
from luban.engine.plan_code import Place
from luban.engine.steps import (
    Branch,
    Control,
    Launch,
    Native,
    Program,
    Recurrence,
    Repeat,
    Value,
    bodies_of,
    native_steps,
)
from luban.passes.memory import Lifetime, plan_memory, verify_plan

__all__ = ["Level", "bytes_of", "carried_bytes"]

# A kernel of less work than this is sooner done by one thread than shared with another one.
_SHARED_WORK = 60_000


class Level:
    """The steps of one program, in groups that run side by side, and their buffers.

    shapes   results that live outside: those in `escaping`
    inner    the level of each body, or why it must not run at these sizes
    """

    def __init__(
        self, sizes: dict[str, int], steps: Sequence[Native], escaping: set[Value], threads: int
    ) -> None:
        self.sizes = sizes
        self.escaping = escaping
        self.threads = threads
        self.groups = _grouped(steps, sizes, threads)
        self.shapes: dict[Value, tuple[int, ...]] = {}
        self.inner: dict[tuple[Control, int], Level | LubanError] = {}
        self._buffers: list[Lifetime] = []
        self._local: dict[object, int] = {}
        self._lifetimes()
        self.memory = plan_memory(self._buffers)

    @property
    def width(self) -> int:
        """How many steps run side by side at most, here or in a body."""
        inner = (level.width for level in self.inner.values() if isinstance(level, Level))
        return max((*map(len, self.groups), *inner), default=1)

    def verify(self) -> None:
        """Check that no two live buffers overlap, in the bodies too. Raises CheckError."""
        verify_plan(self._buffers, self.memory)
        for level in self.inner.values():
            if isinstance(level, Level):
                level.verify()

    def places(self, start: Place) -> dict[object, Place]:
        """Where each local value and buffer lies if the level's memory starts there."""
        return {key: start + self.memory.offsets[i] for key, i in self._local.items()}

    def alone(self, group: Sequence[Native]) -> bool:
        """True if each step of the group is best run whole by one thread."""
        return all(_alone(step, self.sizes, self.threads, len(group)) for step in group)

    def _lifetimes(self) -> None:
        last: dict[Value, int] = {}
        for position, group in enumerate(self.groups):
            for step in group:
                for value in (*step.operands, *step.results):
                    last[value.root] = position
        for position, group in enumerate(self.groups):
            for step in group:
                for result in step.results:
                    self._result(result, position, last[result])
                if not isinstance(step, Launch):
                    self._control(step, position)

    def _result(self, result: Value, position: int, last: int) -> None:
        if result.origin == "stack":
            return
        if result in self.escaping:
            assert isinstance(result.type, TensorType)
            self.shapes[result] = result.type.resolve(self.sizes)
        else:
            self._buffer(result, bytes_of(result, self.sizes), position, last)

    def _control(self, step: Control, position: int) -> None:
        """The state, twice, of a loop; a counter; one buffer for the work of the bodies."""
        if not isinstance(step, Branch):
            for number, size in enumerate(carried_bytes(step, self.sizes)):
                self._buffer((step, "old", number), size, position, position)
                self._buffer((step, "new", number), size, position, position)
            # If sizes depend on the number of turns, it is read after the run.
            counted = not isinstance(step, Repeat) or step.trips is None
            self._buffer((step, "turn"), 8, position, position if counted else len(self.groups))
        size_bytes = 0
        for number, body in enumerate(bodies_of(step)):
            level = self._body(body)
            self.inner[step, number] = level
            if isinstance(level, Level):
                size_bytes = max(size_bytes, level.memory.size_bytes)
        self._buffer((step, "bodies"), size_bytes, position, position)

    def _body(self, body: Program) -> Level | LubanError:
        try:
            check_sizes(body.rules, self.sizes)
        except LubanError as error:
            return error
        outputs = {value.root for value in body.outputs}
        return Level(self.sizes, native_steps(body), outputs, self.threads)

    def _buffer(self, key: object, size_bytes: int, first: int, last: int) -> None:
        self._local[key] = len(self._buffers)
        self._buffers.append(Lifetime(size_bytes, first, last))


def bytes_of(value: Value, sizes: dict[str, int]) -> int:
    """The size of a tensor value in memory."""
    assert isinstance(value.type, TensorType)
    return prod(value.type.resolve(sizes)) * value.type.dtype.size_bytes


def carried_bytes(step: Recurrence | Repeat, sizes: dict[str, int]) -> list[int]:
    """The size of each carried value; a loop's condition comes first."""
    found = [bytes_of(value, sizes) for value in step.results[: step.num_carried]]
    return [1, *found] if isinstance(step, Repeat) else found


def _grouped(
    steps: Sequence[Native], sizes: dict[str, int], threads: int
) -> list[tuple[Native, ...]]:
    """The steps in order; neighbours in control flow that do not need each other, together."""
    groups: list[tuple[Native, ...]] = []
    for step in steps:
        last = groups[-1] if groups else ()
        made = {result for other in last for result in other.results}
        joins = (
            threads > 1
            and bool(last)
            and not any(value.root in made for value in step.operands)
            and all(_alone(s, sizes, threads, len(last) + 1) for s in (*last, step))
        )
        if joins:
            groups[-1] = (*last, step)
        else:
            groups.append((step,))
    return groups


def _alone(step: Native, sizes: dict[str, int], threads: int, beside: int) -> bool:
    """Whether one thread should run the whole step, `beside` such steps being run at a time."""
    if isinstance(step, Launch):
        return False
    if threads == 1 or beside >= threads:
        return True
    bodies = [list(_launches(body)) for body in bodies_of(step)]
    works = [[dims.evaluate(launch.work, sizes) for launch in body] for body in bodies]
    return all(sum(work) <= _SHARED_WORK * len(work) for work in works)


def _launches(body: Program) -> Iterator[Launch]:
    for step in native_steps(body):
        if isinstance(step, Launch):
            yield step
        for inner in bodies_of(step):
            yield from _launches(inner)
