"""A stage of launches for certain sizes: memory, addresses, program counts, the table to replay.

Recurrences are written out: one launch per kernel of the body and turn, each with the addresses of
its turn. So a loop over time costs no Python and no synchronisation beyond its kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from luban.core import dims, settings
from luban.core.errors import LubanError
from luban.core.types import TensorType
from luban.engine.steps import Launch, LinkedKernel, Program, Recurrence, Value
from luban.lower.kernel import Operand, Result, Workspace, argument_size
from luban.passes.memory import Lifetime, MemoryPlan, aligned, plan_memory, verify_plan
from luban.runtime.arena import Arena
from luban.runtime.program import Arguments, StepTable
from luban.runtime.program import Step as TableStep

__all__ = ["StagePlan", "plan_stage", "symbols_of"]

Array = np.ndarray[Any, Any]
Native = Launch | Recurrence
_MAX_LAUNCHES = 1 << 20  # of one stage: 200 MB of table


@dataclass(slots=True)
class StagePlan:
    """A table with everything filled in but the addresses that change from call to call.

    kernels   what each step of the table runs
    external  for each value from outside: the slots that take its address, and what to add to it
    shapes    the results that live outside the arena
    """

    table: StepTable
    kernels: list[LinkedKernel]
    arguments: Arguments
    external: list[tuple[Value, Array, Array]]
    shapes: dict[Value, tuple[int, ...]]
    memory: MemoryPlan
    total_bytes: int

    def slot_addresses(self) -> dict[Value, list[tuple[int, int]]]:
        """For each value from outside: (address of a slot, bytes to add to the value's address)."""
        return {
            value: [
                (self.arguments.address(int(slot)), int(offset))
                for slot, offset in zip(slots, offsets, strict=True)
            ]
            for value, slots, offsets in self.external
        }


@dataclass(frozen=True, slots=True)
class _Place:
    """An address: a number, or an offset into a value whose address comes with each call."""

    offset: int
    outside: Value | None = None

    def __add__(self, by: int) -> _Place:
        return _Place(self.offset + by, self.outside)


def symbols_of(step: Native) -> set[str]:
    """The names of all sizes that a step's plan depends on."""
    values = [*step.operands, *step.results]
    launches = [step] if isinstance(step, Launch) else _launches(step.body)
    for launch in launches:
        values += [*launch.operands, *launch.results]
    sizes = [s for v in values if isinstance(v.type, TensorType) for s in v.type.shape]
    for launch in launches:
        sizes += [argument_size(a) for a in launch.kernel.arguments]
        sizes.append(launch.kernel.num_programs)
    return {symbol.name for size in sizes for symbol in dims.symbols(size)}


def plan_stage(
    steps: Sequence[Native], escaping: set[Value], sizes: dict[str, int], arena: Arena, threads: int
) -> StagePlan:
    """Plan a stage for these sizes. Results in `escaping` get memory of their own at each call.

    Raises LubanError if the arena or the table would be too large.
    """
    planner = _Planner(sizes, escaping)
    planner.lifetimes(steps)
    memory = plan_memory(planner.buffers)
    if settings.VERIFY.get():
        verify_plan(planner.buffers, memory)
    scratch = max((k.scratch_bytes for k in _kernels(steps)), default=0)
    planner.threads, planner.workspace = threads, memory.size_bytes + scratch * threads
    work = max((planner.workspace_bytes(k) for k in _kernels(steps)), default=0)
    total = planner.workspace + work
    arena.require(total)
    planner.write(steps, arena.address, memory)
    return planner.plan(threads, memory, total)


def _launches(program: Program) -> list[Launch]:
    return [step for step in program.steps if isinstance(step, Launch)]


def _kernels(steps: Sequence[Native]) -> Iterator[LinkedKernel]:
    for step in steps:
        if isinstance(step, Launch):
            yield step.kernel
        else:
            yield from step.copies
            yield from (launch.kernel for launch in _launches(step.body))


@dataclass(slots=True)
class _Planner:
    """Collects buffers first, then, when they have addresses, the launches with their slots."""

    sizes: dict[str, int]
    escaping: set[Value]
    buffers: list[Lifetime] = field(default_factory=list)
    local: dict[object, int] = field(default_factory=dict)  # value or (step, name) -> buffer
    shapes: dict[Value, tuple[int, ...]] = field(default_factory=dict)
    inner: dict[Recurrence, tuple[dict[Value, int], MemoryPlan]] = field(default_factory=dict)
    slots: list[int] = field(default_factory=list)
    outside: dict[Value, list[tuple[int, int]]] = field(default_factory=dict)
    launched: list[tuple[LinkedKernel, int]] = field(default_factory=list)
    scratch: int = 0
    workspace: int = 0
    threads: int = 1

    def bytes_of(self, value: Value) -> int:
        """The size of a tensor value in memory."""
        assert isinstance(value.type, TensorType)
        return prod(value.type.resolve(self.sizes)) * value.type.dtype.size_bytes

    def workspace_bytes(self, kernel: LinkedKernel) -> int:
        """All workspaces of a kernel, one after the other."""
        given = (a for a in kernel.arguments if isinstance(a, Workspace))
        return sum(self._bytes_of_workspace(argument) for argument in given)

    def _bytes_of_workspace(self, argument: Workspace) -> int:
        size_bytes = dims.evaluate(argument.count, self.sizes) * argument.dtype.size_bytes
        return aligned(size_bytes * self.threads)

    def lifetimes(self, steps: Sequence[Native]) -> None:
        """A buffer for each local result, and for each recurrence its state and its body's work."""
        last: dict[Value, int] = {}
        for position, step in enumerate(steps):
            for value in (*step.operands, *step.results):
                last[value.root] = position
        for position, step in enumerate(steps):
            for result in step.results:
                if result in self.escaping:
                    assert isinstance(result.type, TensorType)
                    self.shapes[result] = result.type.resolve(self.sizes)
                else:
                    self._buffer(result, self.bytes_of(result), position, last[result])
            if isinstance(step, Recurrence):
                for number in range(step.num_carried):
                    size = self.bytes_of(step.results[number])
                    self._buffer((step, number), size, position, position)
                self._body(step, position)

    def _body(self, step: Recurrence, position: int) -> None:
        body = _Planner(self.sizes, {value.root for value in step.body.outputs})
        body.lifetimes(_launches(step.body))
        memory = plan_memory(body.buffers)
        places = {v: memory.offsets[i] for v, i in body.local.items() if isinstance(v, Value)}
        self.inner[step] = (places, memory)
        self._buffer((step, "body"), memory.size_bytes, position, position)

    def _buffer(self, key: object, size_bytes: int, first: int, last: int) -> None:
        self.local[key] = len(self.buffers)
        self.buffers.append(Lifetime(size_bytes, first, last))

    def write(self, steps: Sequence[Native], base: int, memory: MemoryPlan) -> None:
        """All launches with their arguments."""
        at = {key: _Place(base + memory.offsets[i]) for key, i in self.local.items()}
        self.scratch = base + memory.size_bytes
        self.workspace += base
        for step in steps:
            if isinstance(step, Launch):
                places = {v.root: _place(v, at) for v in (*step.operands, *step.results)}
                self._launch(step.kernel, step.operands, step.results, places)
            else:
                self._recurrence(step, at)

    def _recurrence(self, step: Recurrence, at: dict[object, _Place]) -> None:
        body, carried = step.body, step.num_carried
        scanned = step.operands[carried : carried + len(step.scan_reverse)]
        assert isinstance(scanned[0].type, TensorType)
        turns = scanned[0].type.resolve(self.sizes)[0]
        launches = _launches(body)
        if turns * len(launches) + len(self.launched) > _MAX_LAUNCHES:
            raise LubanError(
                f"a recurrence of {turns} turns of {len(launches)} kernels, "
                f"expected at most {_MAX_LAUNCHES} launches in one call",
                hint="split the sequence over several calls and carry the state",
            )
        state = [
            (_place(final, at), at[step, number])
            for number, final in enumerate(step.results[:carried])
        ]
        fixed = self._fixed(step, at)
        if not turns:
            for kernel, start, final in zip(step.copies, step.operands, step.results, strict=False):
                places = {start.root: _place(start, at), final.root: _place(final, at)}
                self._launch(kernel, (start,), (final,), places)
        for turn in range(turns):
            places = dict(fixed)
            self._turn(step, turn, turns, state, at, places)
            for launch in launches:
                self._launch(launch.kernel, launch.operands, launch.results, places)

    def _fixed(self, step: Recurrence, at: dict[object, _Place]) -> dict[Value, _Place]:
        """Where the body's values lie that are the same in every turn."""
        offsets, _ = self.inner[step]
        base = at[step, "body"]
        places = {value: base + offset for value, offset in offsets.items()}
        captured = len(step.scan_reverse) + step.num_carried
        for inside, outside in zip(
            step.body.inputs[captured:], step.operands[captured:], strict=True
        ):
            places[inside.root] = _place(outside, at)
        for launch in _launches(step.body):
            for value in launch.operands:
                if value.root.constant is not None:
                    places[value.root] = _Place(value.root.constant.ctypes.data)
        return places

    def _turn(
        self,
        step: Recurrence,
        turn: int,
        turns: int,
        state: list[tuple[_Place, _Place]],
        at: dict[object, _Place],
        places: dict[Value, _Place],
    ) -> None:
        """Where carried values, slices and stacked results lie in one turn.

        Carried values alternate between two buffers so that the last turn writes the final one.
        """
        body, carried = step.body, step.num_carried
        for number, (final, other) in enumerate(state):
            ahead = (turns - turn - 1) % 2
            places[body.outputs[number].root] = other if ahead else final
            before = final if ahead else other
            first = _place(step.operands[number], at)
            places[body.inputs[number].root] = before if turn else first
        for number, reverse in enumerate(step.scan_reverse):
            inside, outside = body.inputs[carried + number], step.operands[carried + number]
            index = turns - 1 - turn if reverse else turn
            places[inside.root] = _place(outside, at) + index * self.bytes_of(inside)
        for number, reverse in enumerate(step.stack_reverse):
            inside, outside = body.outputs[carried + number], step.results[carried + number]
            index = turns - 1 - turn if reverse else turn
            places[inside.root] = _place(outside, at) + index * self.bytes_of(inside)

    def _launch(
        self,
        kernel: LinkedKernel,
        operands: Sequence[Value],
        results: Sequence[Value],
        places: dict[Value, _Place],
    ) -> None:
        self.launched.append((kernel, len(self.slots)))
        workspace = self.workspace  # all launches have the same: they run one after the other
        for argument in kernel.arguments:
            if isinstance(argument, (Operand, Result)):
                group = operands if isinstance(argument, Operand) else results
                place = places[group[argument.index].root]
                if place.outside is not None:
                    row = (len(self.slots), place.offset)
                    self.outside.setdefault(place.outside, []).append(row)
                self.slots.append(place.offset)
            elif isinstance(argument, Workspace):
                self.slots.append(workspace)
                workspace += self._bytes_of_workspace(argument)
            else:
                self.slots.append(dims.evaluate(argument, self.sizes))
        if kernel.scratch_bytes:
            self.slots.append(self.scratch)

    def plan(self, threads: int, memory: MemoryPlan, total_bytes: int) -> StagePlan:
        """The table and its slots."""
        arguments = Arguments(len(self.slots))
        arguments.slots[:] = self.slots
        programs = {
            kernel: max(dims.evaluate(kernel.num_programs, self.sizes), 0)
            for kernel in {kernel for kernel, _ in self.launched}
        }
        steps = [
            TableStep(kernel.address, arguments.address(start), programs[kernel])
            for kernel, start in self.launched
        ]
        for value in self.shapes:  # also what nobody writes: stacks of no turns
            self.outside.setdefault(value, [])
        external = [
            (value, table[:, 0], table[:, 1])
            for value, rows in self.outside.items()
            for table in [np.array(rows, np.int64).reshape(-1, 2)]
        ]
        table = StepTable(steps, threads)
        kernels = [kernel for kernel, _ in self.launched]
        return StagePlan(table, kernels, arguments, external, self.shapes, memory, total_bytes)


def _place(value: Value, at: dict[object, _Place]) -> _Place:
    root = value.root
    if root.constant is not None:
        return _Place(root.constant.ctypes.data)
    return at.get(root) or _Place(0, root)
