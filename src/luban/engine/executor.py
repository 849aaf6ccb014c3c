"""Runs a program: binds sizes, plans memory for them, fills addresses in, replays.

Nothing here compiles. New sizes cost a plan (kept for later); the same sizes cost a lookup.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from typing import Any
from weakref import WeakSet

import numpy as np

from luban.core import dims
from luban.core.dtypes import from_numpy
from luban.core.errors import InputError, LubanError
from luban.core.size_rules import check_sizes
from luban.core.types import TensorType
from luban.engine.fast import FastCall, fast_call
from luban.engine.output_memory import OutputMemory
from luban.engine.plan import Spent, StagePlan, plan_stage, stages_of, symbols_of
from luban.engine.plan_control import OpenTrips
from luban.engine.steps import HostStep, LinkedKernel, Program, Step, SubRunner, Value
from luban.engine.weight_memory import WeightMemory
from luban.graph.bind import bind_all
from luban.passes.memory import MemoryPlan
from luban.runtime.arena import Arena

__all__ = ["CallTimes", "Executor"]

Array = np.ndarray[Any, Any]
_MAX_PLANS = 64  # per stage; the least recently used goes
_STACK_BYTES = 1 << 34  # addresses for each stacked result of a loop that has no limit
_SLACK_BYTES = 1 << 20  # memory that a stack keeps from a longer run
_PREPARED_BYTES = 1 << 25  # of memory that is made resident before the first call


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
        # Told the sizes of the first call that `prepare` had not been told.
        self.remember: Callable[[dict[str, int]], None] | None = None
        self.stages = [_Stage(steps) for steps in stages_of(program)]
        self._start_afresh()
        _all_executors.add(self)
        ruled = (rule.symbols for rule in program.rules)
        self.ruled_symbols = tuple(sorted(frozenset().union(*ruled)))
        self._analyse()

    def _start_afresh(self) -> None:
        """No runners, no lock held: the state at first, and in a child after a fork.

        Another thread may have been inside a call at that moment.
        """
        self._free: list[_Runner] = []
        self._fast: FastCall | None = None
        self._lock = threading.Lock()
        self.output_memory: OutputMemory | WeightMemory = OutputMemory()

    def _analyse(self) -> None:
        """Find each stage's symbols, and the results that must outlive it."""
        stage_of: dict[Value, int] = {}
        outputs = {value.root for value in self.program.outputs}
        for number, stage in enumerate(self.stages):
            names: set[str] = set()
            for step in stage.steps:
                for result in step.results:
                    stage_of[result] = number
                if not isinstance(step, HostStep):
                    names |= symbols_of(step)
                for operand in step.operands:
                    home = stage_of.get(operand.root)
                    if home is not None and home != number:
                        self.stages[home].escaping.add(operand.root)
            stage.symbols = tuple(sorted(names))
        for value in outputs:
            if value in stage_of:
                self.stages[stage_of[value]].escaping.add(value)

    def prepare(self, sizes: Mapping[str, int]) -> None:
        """Do now what the first call with these sizes would begin with: plan, and have memory.

        Stages that need other sizes, too, are left to that call, and so is what cannot be.
        """
        for value in self.program.inputs:
            if isinstance(value.type, TensorType):
                from_numpy(value.type.dtype.numpy)  # makes a table at its first use
        runner = _Runner(self)
        with suppress(LubanError):
            runner.prepare(dict(sizes))
        with self._lock:
            self._free.append(runner)

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

        Raises InputError for shapes that do not fit the inputs, ShapeError for those that do not
        fit together.
        """
        with self._lock:
            runner = self._free.pop() if self._free else _Runner(self)
        free: _Runner | None = runner
        try:
            results = runner.run(inputs, outer_sizes or {}, out)
            if outer_sizes is None:
                free = self._promoted(runner, inputs, results)
                self._remember(runner)
        finally:
            if free is not None:
                with self._lock:
                    self._free.append(free)
        return results

    def _remember(self, runner: _Runner) -> None:
        remember, self.remember = self.remember, None
        if remember is not None and runner.has_planned:
            remember(runner.sizes)

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
            self.program,
            inputs,
            results,
            runner,
            self.output_memory,
            plan.table.address,
            plan.slot_addresses(),
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
            self.output_memory = OutputMemory()

    def timed(self) -> Callable[[Sequence[Any]], CallTimes]:
        """A function that runs one call and gives what each kernel took.

        Its calls have memory of their own. One takes a microsecond a launch longer, and control
        flow that is driven from Python keeps the times of its kernels to itself.
        """
        runner = _Runner(self, timed=True)

        def call(inputs: Sequence[Any]) -> CallTimes:
            runner.times = {}
            runner.run(inputs, {}, ())
            return CallTimes(runner.times, runner.sizes)

        return call

    def plans(self) -> list[MemoryPlan]:
        """The memory plans in use, for reports."""
        with self._lock:
            runners = list(self._free)
            if self._fast is not None and isinstance(self._fast.owner, _Runner):
                runners.append(self._fast.owner)
            return [p.memory for r in runners for plans in r.plans for p in plans.values()]


@dataclass(frozen=True, slots=True)
class CallTimes:
    """One call: what each kernel took, and the sizes it ran with."""

    kernels: dict[LinkedKernel, Spent]
    sizes: dict[str, int]


class _Runner:
    """The memory and the plans of one call at a time."""

    def __init__(self, executor: Executor, *, timed: bool = False) -> None:
        self.executor = executor
        self.program = executor.program
        self.arena = Arena()
        self.plans: list[OrderedDict[tuple[int, ...], StagePlan]] = [
            OrderedDict() for _ in executor.stages
        ]
        self.allowed: set[tuple[int | None, ...]] = set()  # sizes that keep the program's rules
        self.timed = timed
        self.times: dict[LinkedKernel, Spent] = {}  # of the last call, if it was timed
        self.sizes: dict[str, int] = {}  # of the last call
        self.has_planned = False  # in a call: its sizes had not been prepared
        self.stacks: dict[Value, Arena] = {}  # of loops whose number of turns only the run knows

    def _stack_of(self, value: Value) -> Arena:
        if value not in self.stacks:
            self.stacks[value] = Arena(_STACK_BYTES)
        return self.stacks[value]

    def run(
        self, inputs: Sequence[Any], outer_sizes: dict[str, int], out: Sequence[Array | None]
    ) -> list[Any]:
        """One call."""
        sizes: dict[str, int] = {}
        self.sizes = sizes
        rows = zip(self.program.input_names, self.program.inputs, inputs, strict=True)
        bind_all(((f"input {label!r}", v.type, x) for label, v, x in rows), sizes)
        for name, size in outer_sizes.items():
            sizes.setdefault(name, size)
        self._check(sizes)
        held: dict[Value, Any] = dict(zip(self.program.inputs, inputs, strict=True))
        given = self._given(inputs, out, sizes) if any(o is not None for o in out) else {}
        for number, stage in enumerate(self.executor.stages):
            if isinstance(stage.steps[0], HostStep):
                self._host(stage.steps[0], held, sizes)
                self._check(sizes)
            else:
                self._launch(number, stage, held, sizes, given)
        return self._into(out, self._outputs(held, sizes))

    def _check(self, sizes: dict[str, int]) -> None:
        """Raises ShapeError unless the sizes known so far fit together, views included."""
        key = tuple(map(sizes.get, self.executor.ruled_symbols))
        if key not in self.allowed:
            check_sizes(self.program.rules, sizes)
            if len(self.allowed) >= _MAX_PLANS:
                self.allowed.clear()
            self.allowed.add(key)

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

    def prepare(self, sizes: dict[str, int]) -> None:
        """Plan the stages that these sizes suffice for. Raises LubanError where they cannot be."""
        for number, stage in enumerate(self.executor.stages):
            if not isinstance(stage.steps[0], HostStep) and {*stage.symbols} <= {*sizes}:
                self._plan(number, stage, sizes)
        self.has_planned = False
        self.arena.populate(_PREPARED_BYTES)

    def _plan(self, number: int, stage: _Stage, sizes: dict[str, int]) -> StagePlan:
        """The stage's plan for these sizes, made if it is not known."""
        key = tuple(sizes[name] for name in stage.symbols)
        plans = self.plans[number]
        plan = plans.get(key)
        if plan is not None:
            plans.move_to_end(key)
            return plan
        self.has_planned = True
        plans[key] = plan = plan_stage(
            [step for step in stage.steps if not isinstance(step, HostStep)],
            stage.escaping,
            sizes,
            self.arena,
            self.executor.num_threads,
            self._stack_of,
            timed=self.timed,
        )
        if len(plans) > _MAX_PLANS:
            plans.popitem(last=False)
        return plan

    def _launch(
        self,
        number: int,
        stage: _Stage,
        held: dict[Value, Any],
        sizes: dict[str, int],
        given: dict[Value, Array],
    ) -> None:
        plan = self._plan(number, stage, sizes)
        slots, memory = plan.arguments.slots, self.executor.output_memory
        for value, places, offsets in plan.external:
            array = held.get(value)
            if array is None:
                assert isinstance(value.type, TensorType)
                if value in given:
                    array = given[value].reshape(plan.shapes[value])
                else:
                    array = memory.empty(plan.shapes[value], value.type.dtype.numpy)
                held[value] = array
            elif not (array.flags.c_contiguous and array.flags.aligned):
                array = held[value] = np.array(array, order="C")
            slots[places] = array.ctypes.data + offsets
        if self.timed:
            for kernel, spent in plan.replay_timed():
                before = self.times.get(kernel)
                self.times[kernel] = spent if before is None else before + spent
        else:
            plan.replay()
        for loop in plan.trips:
            self._grown(loop, held, sizes)

    def _grown(self, loop: OpenTrips, held: dict[Value, Any], sizes: dict[str, int]) -> None:
        """Bind the number of turns; the stacked results are views of the memory they grew in."""
        offset = loop.cell - self.arena.address
        trips = sizes[loop.symbol] = int(self.arena.view(offset, np.dtype(np.int64), ()))
        for value, stack, row in loop.stacks:
            assert isinstance(value.type, TensorType)
            size_bytes = trips * prod(row) * value.type.dtype.size_bytes
            if stack.used_bytes > 4 * size_bytes + _SLACK_BYTES:
                stack.trim(size_bytes)
            stack.require(size_bytes)
            held[value] = stack.view(0, value.type.dtype.numpy, (trips, *row))
        self._check(sizes)

    def _outputs(self, held: dict[Value, Any], sizes: dict[str, int]) -> list[Any]:
        given = {value.root for value in self.program.inputs}
        results: list[Any] = []
        taken: set[Value] = set()
        for value in self.program.outputs:
            array = self._array(value, held, sizes)
            root = value.root
            if isinstance(array, np.ndarray) and (
                root in given
                or root in taken
                or root.constant is not None
                or root.origin == "stack"
            ):
                array = array.copy()
            taken.add(root)
            results.append(array)
        return results


_all_executors: WeakSet[Executor] = WeakSet()


def _after_fork_in_child() -> None:
    for executor in _all_executors:
        executor._start_afresh()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
