"""Runs a program: binds sizes, plans memory for them, fills addresses in, replays.

Nothing here compiles. New sizes cost a plan (kept for later); the same sizes cost a lookup.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from luban.core import dims, settings
from luban.core.errors import InputError
from luban.core.types import TensorType
from luban.engine.fast import FastCall, fast_call
from luban.engine.steps import HostStep, Launch, Program, Step, SubRunner, Value
from luban.graph.bind import bind_all
from luban.lower.kernel import Operand, Result
from luban.passes.memory import Lifetime, MemoryPlan, plan_memory, verify_plan
from luban.runtime.arena import Arena
from luban.runtime.program import Arguments, StepTable
from luban.runtime.program import Step as TableStep

__all__ = ["Executor"]

Array = np.ndarray[Any, Any]
_MAX_PLANS = 64  # per stage; the least recently used goes


@dataclass(slots=True)
class _StagePlan:
    """A stage of launches for certain sizes: its table, and where addresses from outside go."""

    table: StepTable
    arguments: Arguments
    external: list[tuple[Value, Array]]  # value, slots that take its address
    shapes: dict[Value, tuple[int, ...]]  # results that live outside the arena
    memory: MemoryPlan
    total_bytes: int

    def slot_addresses(self) -> dict[Value, list[int]]:
        """Where the addresses of values from outside go, in memory."""
        return {v: [self.arguments.address(int(i)) for i in at] for v, at in self.external}


@dataclass(slots=True)
class _Stage:
    """What is known of a stage before the sizes are."""

    steps: list[Step]
    symbols: tuple[str, ...] = ()
    escaping: set[Value] = field(default_factory=set)


class Executor:
    """One program on a number of threads. Concurrent calls are safe: each has its own memory."""

    def __init__(self, program: Program, num_threads: int, run_sub_graph: SubRunner) -> None:
        self.program = program
        self.num_threads = num_threads
        self.run_sub_graph = run_sub_graph
        self.stages = [_Stage(steps) for steps in program.stages]
        self._free: list[_Runner] = []
        self._fast: FastCall | None = None
        self._lock = threading.Lock()
        self._analyse()

    def _analyse(self) -> None:
        """Find each stage's symbols, and the results that must outlive it."""
        stage_of: dict[Value, int] = {}
        outputs = {value.root for value in self.program.outputs}
        for number, stage in enumerate(self.stages):
            names: set[str] = set()
            for step in stage.steps:
                for result in step.results:
                    stage_of[result] = number
                if isinstance(step, Launch):
                    names |= _symbols_of(step)
                for operand in step.operands:
                    home = stage_of.get(operand.root)
                    if home is not None and home != number:
                        self.stages[home].escaping.add(operand.root)
            stage.symbols = tuple(sorted(names))
        for value in outputs:
            if value in stage_of:
                self.stages[stage_of[value]].escaping.add(value)

    def replay(self, inputs: Sequence[Any], out: Sequence[Array] | None = None) -> Any:
        """The outputs if these arrays look like those of the last call, else None: call `run` then.

        The arrays are checked, so anything may be given. `out` must not overlap the inputs.
        """
        fast = self._fast
        return None if fast is None else fast(inputs, out)

    def run(
        self,
        inputs: Sequence[Any],
        outer_sizes: dict[str, int] | None = None,
        out: Sequence[Array | None] = (),
    ) -> list[Any]:
        """The outputs for inputs in order: fresh arrays, never views of an input or of each other.

        out   for each output an array to write it to, or None

        Raises InputError for shapes that do not fit.
        """
        with self._lock:
            runner = self._free.pop() if self._free else _Runner(self)
        free: _Runner | None = runner
        try:
            results = runner.run(inputs, outer_sizes or {}, out)
            if outer_sizes is None:
                free = self._promoted(runner, inputs, results)
        finally:
            if free is not None:
                with self._lock:
                    self._free.append(free)
        return results

    def _promoted(
        self, runner: _Runner, inputs: Sequence[Any], results: Sequence[Any]
    ) -> _Runner | None:
        """Make the call that was just run the fast one; the runner that is free after that."""
        fast = self._fast
        if len(self.stages) != 1 or (fast is not None and fast.misses < 2):
            return runner
        plan = next(reversed(runner.plans[0].values()), None)
        if plan is None:
            return runner
        found = fast_call(
            self.program, inputs, results, runner, plan.table.address, plan.slot_addresses()
        )
        if found is None:
            return runner
        with self._lock:
            if self._fast is not fast:  # another thread was quicker
                return runner
            self._fast = found
        before = fast.owner if fast is not None and fast.retire() else None
        return before if isinstance(before, _Runner) else None

    def release(self) -> None:
        """Drop the memory and the plans of earlier calls; the next call makes them again."""
        with self._lock:
            self._free.clear()
            self._fast = None

    def plans(self) -> list[MemoryPlan]:
        """The memory plans in use, for reports."""
        with self._lock:
            runners = list(self._free)
            if self._fast is not None and isinstance(self._fast.owner, _Runner):
                runners.append(self._fast.owner)
            return [p.memory for r in runners for plans in r.plans for p in plans.values()]


def _symbols_of(step: Launch) -> set[str]:
    names: set[str] = set()
    for value in (*step.operands, *step.results):
        if isinstance(value.type, TensorType):
            for size in value.type.shape:
                names |= {s.name for s in dims.symbols(size)}
    sizes = [a for a in step.kernel.arguments if not isinstance(a, (Operand, Result))]
    for size in (*sizes, step.kernel.num_programs):
        names |= {s.name for s in dims.symbols(size)}
    return names


class _Runner:
    """The memory and the plans of one call at a time."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.program = executor.program
        self.arena = Arena()
        self.plans: list[OrderedDict[tuple[int, ...], _StagePlan]] = [
            OrderedDict() for _ in executor.stages
        ]

    def run(
        self, inputs: Sequence[Any], outer_sizes: dict[str, int], out: Sequence[Array | None]
    ) -> list[Any]:
        """One call."""
        sizes: dict[str, int] = {}
        rows = zip(self.program.input_names, self.program.inputs, inputs, strict=True)
        bind_all(((f"input {label!r}", v.type, x) for label, v, x in rows), sizes)
        for name, size in outer_sizes.items():
            sizes.setdefault(name, size)
        held: dict[Value, Any] = dict(zip(self.program.inputs, inputs, strict=True))
        given = self._given(inputs, out, sizes) if any(o is not None for o in out) else {}
        for number, stage in enumerate(self.executor.stages):
            if isinstance(stage.steps[0], HostStep):
                self._host(stage.steps[0], held, sizes)
            else:
                self._launch(number, stage, held, sizes, given)
        return self._into(out, self._outputs(held, sizes))

    def _given(
        self, inputs: Sequence[Any], out: Sequence[Array | None], sizes: dict[str, int]
    ) -> dict[Value, Array]:
        """Check the arrays to write to; those that kernels can write to themselves, by value."""
        direct: dict[Value, Array] = {}
        roots = [value.root for value in self.program.outputs]
        names = self.program.output_names
        for name, value, array in zip(names, self.program.outputs, out, strict=True):
            if array is None or not isinstance(value.type, TensorType):
                continue
            known = {s.name for size in value.type.shape for s in dims.symbols(size)} <= set(sizes)
            if known and array.shape != value.type.resolve(sizes):
                raise InputError(
                    f"out {name!r} has shape {list(array.shape)}, "
                    f"expected {list(value.type.resolve(sizes))} as in {value.type}"
                )
            others = [*inputs, *(o for o in out if o is not array)]
            alone = not any(
                isinstance(o, np.ndarray) and np.may_share_memory(array, o) for o in others
            )
            plain = array.flags.c_contiguous and array.flags.aligned
            if known and alone and plain and roots.count(value.root) == 1:
                direct[value.root] = array
        return direct

    def _into(self, out: Sequence[Array | None], results: list[Any]) -> list[Any]:
        """Copy what is not yet where it was asked to be."""
        for number, array in enumerate(out):
            if array is None or results[number] is array:
                continue
            result = results[number]
            if array.shape != result.shape:
                raise InputError(
                    f"out {self.program.output_names[number]!r} has shape {list(array.shape)}, "
                    f"the result has {list(result.shape)}"
                )
            if result.ctypes.data != array.ctypes.data:
                np.copyto(array, result)
            results[number] = array
        return results

    def _array(self, value: Value, held: dict[Value, Any], sizes: dict[str, int]) -> Any:
        """The value as Python sees it: an array of its own shape over its storage."""
        root = value.root
        found = root.constant if root.constant is not None else held[root]
        if value is root or not isinstance(value.type, TensorType):
            return found
        return found.reshape(value.type.resolve(sizes))

    def _host(self, step: HostStep, held: dict[Value, Any], sizes: dict[str, int]) -> None:
        operands = [self._array(value, held, sizes) for value in step.operands]
        parts = step.call(operands, sizes, self.executor.run_sub_graph)
        held.update(zip(step.results, parts, strict=True))

    def _launch(
        self,
        number: int,
        stage: _Stage,
        held: dict[Value, Any],
        sizes: dict[str, int],
        given: dict[Value, Array],
    ) -> None:
        key = tuple(sizes[name] for name in stage.symbols)
        plans = self.plans[number]
        plan = plans.get(key)
        if plan is None:
            plan = self._plan(stage, sizes)
            plans[key] = plan
            if len(plans) > _MAX_PLANS:
                plans.popitem(last=False)
        else:
            plans.move_to_end(key)
        slots = plan.arguments.slots
        for value, places in plan.external:
            array = held.get(value)
            if array is None:
                assert isinstance(value.type, TensorType)
                if value in given:
                    array = given[value].reshape(plan.shapes[value])
                else:
                    array = np.empty(plan.shapes[value], value.type.dtype.numpy)
                held[value] = array
            elif not (array.flags.c_contiguous and array.flags.aligned):
                array = held[value] = np.array(array, order="C")
            slots[places] = array.ctypes.data
        plan.table.replay()

    def _plan(self, stage: _Stage, sizes: dict[str, int]) -> _StagePlan:
        """Memory, addresses and program counts of a stage for these sizes."""
        launches = [step for step in stage.steps if isinstance(step, Launch)]
        local, lifetimes, shapes = self._lifetimes(stage, launches, sizes)
        memory = plan_memory(lifetimes)
        if settings.VERIFY.get():
            verify_plan(lifetimes, memory)
        scratch = max((s.kernel.scratch_bytes for s in launches), default=0)
        total = memory.size_bytes + scratch * self.executor.num_threads
        self.arena.require(total)
        address = {v: self.arena.address + memory.offsets[i] for v, i in local.items()}
        return self._table(launches, address, shapes, memory, total, sizes)

    def _lifetimes(
        self, stage: _Stage, launches: list[Launch], sizes: dict[str, int]
    ) -> tuple[dict[Value, int], list[Lifetime], dict[Value, tuple[int, ...]]]:
        local: dict[Value, int] = {}
        first: list[int] = []
        last: list[int] = []
        size: list[int] = []
        shapes: dict[Value, tuple[int, ...]] = {}
        for position, step in enumerate(launches):
            for result in step.results:
                assert isinstance(result.type, TensorType)
                shape = result.type.resolve(sizes)
                if result in stage.escaping:
                    shapes[result] = shape
                    continue
                local[result] = len(first)
                first.append(position)
                last.append(position)
                size.append(int(np.prod(shape, dtype=np.int64)) * result.type.dtype.size_bytes)
            for operand in step.operands:
                if operand.root in local:
                    last[local[operand.root]] = position
        rows = zip(size, first, last, strict=True)
        return local, [Lifetime(*row) for row in rows], shapes

    def _table(
        self,
        launches: list[Launch],
        address: dict[Value, int],
        shapes: dict[Value, tuple[int, ...]],
        memory: MemoryPlan,
        total: int,
        sizes: dict[str, int],
    ) -> _StagePlan:
        starts: list[int] = []
        slots: list[int] = []
        places: dict[Value, list[int]] = {}
        for step in launches:
            starts.append(len(slots))
            for argument in step.kernel.arguments:
                if isinstance(argument, (Operand, Result)):
                    group = step.operands if isinstance(argument, Operand) else step.results
                    root = group[argument.index].root
                    if root.constant is not None:
                        slots.append(root.constant.ctypes.data)
                    elif root in address:
                        slots.append(address[root])
                    else:
                        places.setdefault(root, []).append(len(slots))
                        slots.append(0)
                else:
                    slots.append(dims.evaluate(argument, sizes))
            if step.kernel.scratch_bytes:
                slots.append(self.arena.address + memory.size_bytes)
        arguments = Arguments(len(slots))
        arguments.slots[:] = slots
        steps = [
            TableStep(
                s.kernel.address,
                arguments.address(start),
                max(dims.evaluate(s.kernel.num_programs, sizes), 0),
            )
            for s, start in zip(launches, starts, strict=True)
        ]
        table = StepTable(steps, self.executor.num_threads)
        external = [(value, np.array(at)) for value, at in places.items()]
        return _StagePlan(table, arguments, external, shapes, memory, total)

    def _outputs(self, held: dict[Value, Any], sizes: dict[str, int]) -> list[Any]:
        given = {value.root for value in self.program.inputs}
        results: list[Any] = []
        taken: set[Value] = set()
        for value in self.program.outputs:
            array = self._array(value, held, sizes)
            root = value.root
            if isinstance(array, np.ndarray) and (
                root in given or root in taken or root.constant is not None
            ):
                array = array.copy()
            taken.add(root)
            results.append(array)
        return results
