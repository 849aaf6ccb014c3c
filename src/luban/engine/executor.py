"""Runs a program: binds sizes, plans memory for them, fills addresses in, replays.

Nothing here compiles. New sizes cost a plan (kept for later); the same sizes cost a lookup.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from luban.core import dims, settings
from luban.core.errors import LubanError
from luban.core.types import TensorType
from luban.engine.program import HostStep, Launch, Program, Step, Value
from luban.graph.bind import bind_all, bind_symbols
from luban.graph.evaluate import evaluate_node
from luban.graph.meaning import MEANING
from luban.graph.meaning.context import Context as MeaningContext
from luban.graph.ops.control import sub_graphs
from luban.graph.ops.fusion import Fusion
from luban.ir.node import Graph
from luban.lower.kernel import Operand, Result
from luban.passes.memory import Lifetime, MemoryPlan, plan_memory, verify_plan
from luban.runtime.arena import Arena
from luban.runtime.program import Arguments, StepTable
from luban.runtime.program import Step as TableStep

__all__ = ["Executor"]

Array = np.ndarray[Any, Any]
SubRunner = Callable[[Graph, Sequence[Any], dict[str, int]], tuple[Any, ...]]
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

    def run(self, inputs: Sequence[Any], outer_sizes: dict[str, int] | None = None) -> list[Any]:
        """The outputs for inputs in order: fresh arrays, never views of an input or of each other.

        Raises InputError for shapes that do not fit.
        """
        with self._lock:
            runner = self._free.pop() if self._free else _Runner(self)
        try:
            return runner.run(inputs, outer_sizes or {})
        finally:
            with self._lock:
                self._free.append(runner)

    def release(self) -> None:
        """Drop the memory and the plans of earlier calls; the next call makes them again."""
        with self._lock:
            self._free.clear()

    def plans(self) -> list[MemoryPlan]:
        """The memory plans in use, for reports."""
        with self._lock:
            return [p.memory for r in self._free for plans in r.plans for p in plans.values()]


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

    def run(self, inputs: Sequence[Any], outer_sizes: dict[str, int]) -> list[Any]:
        """One call."""
        sizes: dict[str, int] = {}
        labels = self.program.graph.parameter_names
        rows = zip(labels, self.program.inputs, inputs, strict=True)
        bind_all(((f"input {label!r}", v.type, x) for label, v, x in rows), sizes)
        for name, size in outer_sizes.items():
            sizes.setdefault(name, size)
        held: dict[Value, Any] = {}
        for value, given in zip(self.program.inputs, inputs, strict=True):
            held[value] = given
        for number, stage in enumerate(self.executor.stages):
            if isinstance(stage.steps[0], HostStep):
                self._host(stage.steps[0], held, sizes)
            else:
                self._launch(number, stage, held, sizes)
        return self._outputs(held, sizes)

    def _array(self, value: Value, held: dict[Value, Any], sizes: dict[str, int]) -> Any:
        """The value as Python sees it: an array of its own shape over its storage."""
        root = value.root
        found = root.constant if root.constant is not None else held[root]
        if value is root or not isinstance(value.type, TensorType):
            return found
        return found.reshape(value.type.resolve(sizes))

    def _host(self, step: HostStep, held: dict[Value, Any], sizes: dict[str, int]) -> None:
        operands = [self._array(value, held, sizes) for value in step.operands]
        n = step.node
        if sub_graphs(n.op) and not isinstance(n.op, Fusion):

            def run(graph: Graph, values: Sequence[Any]) -> tuple[Any, ...]:
                return self.executor.run_sub_graph(graph, values, sizes)

            types = tuple(o.type for o in n.operands)
            try:
                result = MEANING[type(n.op)](
                    n.op, operands, MeaningContext("model", types, n.type, sizes, run)
                )
            except LubanError as error:
                raise error.located(n.loc) from None
            bind_symbols(n.type, result, sizes, what="result", given=False)
        else:
            result = evaluate_node(n, operands, sizes, "model")
        parts = (result,) if len(step.results) == 1 and not isinstance(result, tuple) else result
        for value, part in zip(step.results, parts, strict=True):
            held[value] = _owned(part, operands)

    def _launch(
        self, number: int, stage: _Stage, held: dict[Value, Any], sizes: dict[str, int]
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
                array = held[value] = np.empty(plan.shapes[value], value.type.dtype.numpy)
            elif isinstance(array, np.ndarray) and not array.flags.c_contiguous:
                array = held[value] = np.asarray(array, order="C")
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


def _owned(value: Any, operands: Sequence[Any]) -> Any:
    """The value in memory of its own, contiguous."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    array = np.asarray(value, order="C")
    if any(isinstance(o, np.ndarray) and np.may_share_memory(array, o) for o in operands):
        return array.copy()
    return array
