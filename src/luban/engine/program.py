"""From a fused graph to the steps that the executor runs."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping

import numpy as np

from luban.core.types import TupleType, Type
from luban.engine.host import host_call
from luban.engine.recurrence import copies_for, scans_of, why_not_native
from luban.engine.steps import HostStep, Launch, LinkedKernel, Program, Recurrence, Value
from luban.graph.ops.control import Scan, sub_graphs
from luban.graph.ops.data import Constant, HostCall
from luban.graph.ops.fusion import Once
from luban.graph.ops.structure import Reshape
from luban.graph.order import execution_order, settlers
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

    bodies   the programs of sub-graphs: those of scans may become part of this one
    """
    native = {n: _recurrence_reason(n, kernels, bodies or {}) for n in scans_of(graph)}
    reasons = {**reasons, **{n: why for n, why in native.items() if why is not None}}
    program = Program(graph.name, graph.parameter_names, result_names(graph), graph)
    value_of: dict[Node, Value] = {}
    parts: dict[Node, tuple[Value, ...]] = {}

    def new(type_: Type, origin: str, storage: Value | None = None) -> Value:
        value = Value(len(program.values), type_, origin, storage)
        program.values.append(value)
        return value

    runs = {*kernels, *(n for n, why in native.items() if why is None)}
    for n in _launches_first(graph, runs):
        op = n.op
        if isinstance(op, Parameter):
            value_of[n] = new(n.type, "input")
        elif isinstance(op, Constant):
            value_of[n] = new(n.type, "constant")
            value_of[n].constant = np.asarray(op.value.array, order="C")
        elif isinstance(op, Once):
            value_of[n] = new(n.type, "once")
            program.once[op.body] = value_of[n]
        elif isinstance(op, GetItem):
            value_of[n] = parts[n.operands[0]][op.index]
        elif isinstance(op, Reshape):
            source = value_of[n.operands[0]]
            value_of[n] = new(n.type, source.origin, source)
        else:
            operands = tuple(value_of[operand] for operand in n.operands)
            origin = "launch" if n in runs else "host"
            types = n.type.items if isinstance(n.type, TupleType) else (n.type,)
            results = tuple(new(t, origin) for t in types)
            parts[n] = results
            value_of[n] = results[0]
            if n in kernels:
                program.steps.append(Launch(n, kernels[n], operands, results))
            elif n in runs and isinstance(op, Scan) and bodies is not None:
                copies = tuple(kernels[copy] for copy in copies_for(n))
                program.steps.append(
                    Recurrence(
                        n,
                        bodies[op.body],
                        op.num_carried,
                        op.scan_reverse,
                        op.stack_reverse,
                        operands,
                        results,
                        copies,
                    )
                )
            else:
                reason = reasons.get(n) or _why_on_host(n)
                program.steps.append(HostStep(n, reason, operands, results, host_call(n)))
    program.inputs = tuple(
        value_of[p] if p in value_of else new(p.type, "input") for p in graph.parameters
    )
    program.outputs = tuple(value_of[r] for r in graph.results)
    return program


def _recurrence_reason(
    scan: Node, kernels: Mapping[Node, LinkedKernel], bodies: Mapping[Graph, Program]
) -> str | None:
    op = scan.op
    assert isinstance(op, Scan)
    if op.body not in bodies or any(copy not in kernels for copy in copies_for(scan)):
        return "scan is driven from Python: its state has no kernel that copies it"
    why = why_not_native(scan, bodies[op.body])
    return None if why is None else f"scan is driven from Python: {why}"


def _why_on_host(n: Node) -> str:
    if sub_graphs(n.op):
        return f"{n.op.name} is driven from Python; its body is compiled"
    if isinstance(n.op, HostCall):
        return f"{n.op.function} is a host operation"
    return no_kernel(n) or f"{n.op.name} has no kernel yet"


def _launches_first(graph: Graph, runs: Collection[Node]) -> list[Node]:
    """A topological order that puts a host step off while anything else can run."""
    order = execution_order(graph)
    settling = settlers(graph)
    needs = {n: {*n.operands, *settling.get(n, ())} for n in order}
    waiting = {n: len(needs[n]) for n in order}
    users: dict[Node, list[Node]] = {n: [] for n in order}
    for n in order:
        for needed in needs[n]:
            users[needed].append(n)
    position = {n: i for i, n in enumerate(order)}

    def is_host(n: Node) -> bool:
        return n not in runs and not isinstance(n.op, (Parameter, Constant, Once, GetItem, Reshape))

    ready = [n for n in order if not waiting[n]]
    soon = sorted((n for n in ready if not is_host(n)), key=position.__getitem__)
    late = sorted((n for n in ready if is_host(n)), key=position.__getitem__)
    result: list[Node] = []
    soon_heap = [(position[n], n) for n in soon]
    late_heap = [(position[n], n) for n in late]
    while soon_heap or late_heap:
        _, n = heapq.heappop(soon_heap or late_heap)
        result.append(n)
        for user in users[n]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(late_heap if is_host(user) else soon_heap, (position[user], user))
    return result
