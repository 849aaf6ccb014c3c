"""From a fused graph to the steps that the executor runs."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping

import numpy as np

from luban.core.types import TupleType, Type
from luban.engine.control import control_nodes, control_step, why_not_native
from luban.engine.host import host_call
from luban.engine.steps import HostStep, Launch, LinkedKernel, Program, Repeat, Step, Value
from luban.engine.work import work_of
from luban.graph.ops.control import sub_graphs
from luban.graph.ops.data import Constant, HostCall
from luban.graph.ops.fusion import Once
from luban.graph.ops.structure import Reshape
from luban.graph.order import execution_order, settled_symbols, settlers, type_symbols
from luban.ir.node import GetItem, Graph, Node, Parameter
from luban.lower.support import no_kernel

__all__ = ["HostStep", "Launch", "Program", "Value", "build_program", "result_names"]


def result_names(graph: Graph) -> tuple[str, ...]:
    """The names of the results, made up where the graph gives none."""
    return graph.result_names or tuple(f"output_{i}" for i in range(len(graph.results)))


def build_program(
    graph: Graph,
    kernels: Mapping[Node, LinkedKernel],
    reasons: Mapping[Node, str],
    bodies: Mapping[Graph, Program] | None = None,
) -> Program:
    """The steps of a fused graph, launches as early as their operands allow: they run together.

    bodies   the programs of sub-graphs: they may become part of this one
    """
    builder = _Builder(graph, kernels, reasons, bodies or {})
    for n in _launches_first(graph, kernels, builder.native):
        builder.add(n)
    program, value_of = builder.program, builder.value_of
    program.inputs = tuple(
        value_of[p] if p in value_of else builder.new(p.type, "input") for p in graph.parameters
    )
    program.outputs = tuple(value_of[r] for r in graph.results)
    return program


class _Builder:
    """The values and steps of a program, one node after the other.

    native   nodes of control flow that become steps without Python
    known    symbols that have sizes at this point
    """

    def __init__(
        self,
        graph: Graph,
        kernels: Mapping[Node, LinkedKernel],
        reasons: Mapping[Node, str],
        bodies: Mapping[Graph, Program],
    ) -> None:
        self.program = Program(graph.name, graph.parameter_names, result_names(graph), graph)
        self.kernels, self.bodies = kernels, bodies
        self.known = frozenset[str]().union(*(type_symbols(p.type) for p in graph.parameters))
        self.value_of: dict[Node, Value] = {}
        self._parts: dict[Node, tuple[Value, ...]] = {}
        self._reasons = dict(reasons)
        self.native: set[Node] = set()
        for n in control_nodes(graph):
            why = why_not_native(n, bodies, self.known)
            if why is None:
                self.native.add(n)
            else:
                self._reasons[n] = f"{n.op.name} is driven from Python: {why}"

    def new(self, type_: Type, origin: str, storage: Value | None = None) -> Value:
        """The next value."""
        value = Value(len(self.program.values), type_, origin, storage)
        self.program.values.append(value)
        return value

    def add(self, n: Node) -> None:
        """The value of a node, and the step that computes it if it takes one."""
        match n.op:
            case Parameter():
                self.value_of[n] = self.new(n.type, "input")
            case Constant():
                self.value_of[n] = self.new(n.type, "constant")
                self.value_of[n].constant = np.asarray(n.op.value.array, order="C")
            case Once():
                self.value_of[n] = self.new(n.type, "once")
                self.program.once[n.op.body] = self.value_of[n]
            case GetItem():
                self.value_of[n] = self._parts[n.operands[0]][n.op.index]
            case Reshape():
                source = self.value_of[n.operands[0]]
                self.value_of[n] = self.new(n.type, source.origin, source)
            case _:
                self._step(n)

    def _step(self, n: Node) -> None:
        operands = tuple(self.value_of[operand] for operand in n.operands)
        types = n.type.items if isinstance(n.type, TupleType) else (n.type,)
        origin = "launch" if n in self.kernels or n in self.native else "host"
        results = tuple(self.new(t, origin) for t in types)
        step: Step
        if n in self.kernels:
            step = Launch(n, self.kernels[n], operands, results, work_of(n))
        elif n in self.native:
            step = control_step(n, self.bodies, operands, results, self.known)
            if isinstance(step, Repeat) and step.trips is not None:
                for result in results[step.num_carried :]:
                    result.origin = "stack"
        else:
            reason = self._reasons.get(n) or _why_on_host(n)
            step = HostStep(n, reason, operands, results, host_call(n))
        self.program.steps.append(step)
        self._parts[n] = results
        self.value_of[n] = results[0]
        self.known |= settled_symbols(n)


def _why_on_host(n: Node) -> str:
    if sub_graphs(n.op):
        return f"{n.op.name} is driven from Python"
    if isinstance(n.op, HostCall):
        return f"{n.op.function} is a host operation"
    return no_kernel(n) or f"{n.op.name} has no kernel yet"


def _launches_first(
    graph: Graph, kernels: Collection[Node], native: Collection[Node]
) -> list[Node]:
    """A topological order: a host step waits while anything else can run.

    Native control flow waits for launches: what can run side by side comes together.
    """
    order = execution_order(graph)
    settling = settlers(graph)
    needs = {n: {*n.operands, *settling.get(n, ())} for n in order}
    waiting = {n: len(needs[n]) for n in order}
    users: dict[Node, list[Node]] = {n: [] for n in order}
    for n in order:
        for needed in needs[n]:
            users[needed].append(n)
    position = {n: i for i, n in enumerate(order)}

    def rank(n: Node) -> tuple[int, int]:
        if n in kernels or isinstance(n.op, (Parameter, Constant, Once, GetItem, Reshape)):
            return 0, position[n]
        return (1 if n in native else 2), position[n]

    ready = [(*rank(n), n) for n in order if not waiting[n]]
    heapq.heapify(ready)
    result: list[Node] = []
    while ready:
        *_, n = heapq.heappop(ready)
        result.append(n)
        for user in users[n]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (*rank(user), user))
    return result
