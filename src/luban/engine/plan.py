"""A stage of native steps for certain sizes: memory, addresses, the table to replay.

Control flow becomes instructions between launches (see plan_code): a loop over time has each kernel
once, and its slots move on between turns. What one thread does best alone, such as a small
recurrence, is a table of its own; two that do not need each other run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from luban.core import dims, settings
from luban.core.errors import LubanError
from luban.core.types import TensorType
from luban.engine.plan_buffers import Level
from luban.engine.plan_code import Place, Room, Slots, Timing, Writer
from luban.engine.plan_control import ControlPlanner, OpenTrips
from luban.engine.steps import (
    HostStep,
    Launch,
    LinkedKernel,
    Native,
    Program,
    Repeat,
    Step,
    Value,
    bodies_of,
    native_steps,
)
from luban.lower.kernel import argument_size
from luban.passes.memory import MemoryPlan
from luban.runtime.arena import Arena
from luban.runtime.control import ControlTable
from luban.runtime.program import Arguments, StepTable

__all__ = ["Spent", "StagePlan", "plan_stage", "stages_of", "symbols_of"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Spent:
    """The time of a kernel in one call of the model, in nanoseconds.

    runs      how often it ran
    threads   that it was shared by
    """

    ns: float
    runs: int
    threads: int

    def __add__(self, other: Spent) -> Spent:
        threads = max(self.threads, other.threads)
        return Spent(self.ns + other.ns, self.runs + other.runs, threads)


@dataclass(slots=True)
class StagePlan:
    """A table with everything filled in but the addresses that change from call to call.

    kernels   what each launch runs, in order; None for tables in one step
    external  for each value from outside: the slots that take its address, and what to add to it
    shapes    the results that live outside the arena
    trips     loops whose number of turns the run settles
    stops     why the table may have stopped before its end, by the number in its stop cell
    timings   of launches between control flow, in a plan that was made to be timed
    """

    table: StepTable | ControlTable
    arguments: Arguments
    external: list[tuple[Value, Array, Array]]
    shapes: dict[Value, tuple[int, ...]]
    memory: MemoryPlan
    total_bytes: int
    kernels: list[LinkedKernel | None]
    trips: list[OpenTrips]
    stops: list[LubanError]
    stop_slot: int
    timings: list[Timing]

    def replay(self) -> None:
        """Run it. Raises what a step was stopped by, such as sizes that do not fit a branch."""
        self.table.replay()
        self._raise_stop()

    def _raise_stop(self) -> None:
        if self.stops and (number := int(self.arguments.slots[self.stop_slot])):
            raise self.stops[number - 1].with_traceback(None)

    def replay_timed(self) -> list[tuple[LinkedKernel, Spent]]:
        """The same, and what each launch took. The plan must be one that was made to be timed."""
        threads = self.table.num_threads
        if isinstance(self.table, StepTable):
            rows = zip(self.kernels, self.table.replay_timed(), strict=True)
            found = [(k, Spent(float(ns), 1, threads)) for k, ns in rows if k is not None]
        else:
            slots = self.arguments.slots
            for timing in self.timings:
                slots[timing.runs.number] = 0
            spent = self.table.replay_timed()
            found = []
            for t in self.timings:
                ns, runs = float(spent[t.instruction]), int(slots[t.runs.number])
                found.append((t.kernel, Spent(ns, runs, 1 if t.alone else threads)))
        self._raise_stop()
        return found

    def slot_addresses(self) -> dict[Value, list[tuple[int, int]]]:
        """For each value from outside: (address of a slot, bytes to add to the value's address)."""
        return {
            value: [
                (self.arguments.address(int(slot)), int(offset))
                for slot, offset in zip(slots, offsets, strict=True)
            ]
            for value, slots, offsets in self.external
        }


def stages_of(program: Program) -> list[list[Step]]:
    """Native steps in runs, each one call, and host steps alone.

    A step that needs a size which a loop settles begins a new run: its memory cannot be planned
    before.
    """
    found: list[list[Step]] = []
    open_sizes: set[str] = set()
    for step in program.steps:
        if isinstance(step, HostStep):
            found.append([step])
            continue
        new = not found or isinstance(found[-1][0], HostStep)
        if new or open_sizes & symbols_of(step):
            found.append([])
            open_sizes = set()
        found[-1].append(step)
        if isinstance(step, Repeat) and step.trips is not None:
            open_sizes.add(step.trips)
    return found


def symbols_of(step: Native) -> set[str]:
    """The names of all sizes that a step's plan depends on."""
    types = [value.type for value in (*step.operands, *step.results)]
    sizes = [size for t in types if isinstance(t, TensorType) for size in t.shape]
    if isinstance(step, Launch):
        sizes += [argument_size(a) for a in step.kernel.arguments]
        sizes.append(step.kernel.num_programs)
    found = {symbol.name for size in sizes for symbol in dims.symbols(size)}
    for body in bodies_of(step):
        for inner in native_steps(body):
            found |= symbols_of(inner)
        found |= {name for rule in body.rules for name in rule.symbols}
    if isinstance(step, Repeat):
        found.discard(step.trips or "")
    return found


def plan_stage(
    steps: Sequence[Native],
    escaping: set[Value],
    sizes: dict[str, int],
    arena: Arena,
    threads: int,
    stack_of: Callable[[Value], Arena] | None = None,
    *,
    timed: bool = False,
) -> StagePlan:
    """Plan a stage for these sizes. Results in `escaping` get memory of their own at each call.

    stack_of   the memory that a result of origin "stack" grows in, the same at each call
    timed      for `replay_timed`: what runs side by side then comes one after the other, and a run
               is not paused

    Raises LubanError if the arena would be too large.
    """
    level = Level(sizes, steps, escaping, threads)
    memory = level.memory
    if settings.VERIFY.get():
        level.verify()
    room = Room.of(_kernels(steps), sizes, threads, arena.address + memory.size_bytes)
    total = memory.size_bytes + room.size_bytes * level.width
    arena.require(total)
    slots = Slots()
    stop_cell = slots.number(0)
    writer = Writer(slots, sizes, room, pauses=not timed, timed=timed)
    planner = ControlPlanner(sizes, stop_cell, stack_of or _fresh_stack)
    planner.write(level, level.places(Place(arena.address)), writer)
    for value in level.shapes:  # also what nobody writes: stacks of no turns
        slots.outside.setdefault(value, [])
    arguments = Arguments(len(slots.values))
    arguments.slots[:] = slots.values
    external = [
        (value, table[:, 0], table[:, 1])
        for value, rows in slots.outside.items()
        for table in [np.array(rows, np.int64).reshape(-1, 2)]
    ]
    table = writer.build(arguments, threads)
    if planner.stops:
        table.set_stop_cell(arguments.address(stop_cell.number))
    return StagePlan(
        table,
        arguments,
        external,
        level.shapes,
        memory,
        total,
        writer.kernels(),
        planner.trips,
        planner.stops,
        stop_cell.number,
        writer.timings,
    )


def _kernels(steps: Sequence[Native]) -> Iterator[LinkedKernel]:
    for step in steps:
        if isinstance(step, Launch):
            yield step.kernel
        for body in bodies_of(step):
            yield from _kernels(native_steps(body))


def _fresh_stack(_value: Value) -> Arena:
    return Arena(1 << 30)
