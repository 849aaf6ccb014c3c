"""From a fused graph to the steps that the executor runs."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

import numpy as np

from luban.core.types import TupleType, Type
from luban.engine.host import host_call
from luban.engine.steps import HostStep, Launch, LinkedKernel, Program, Value
from luban.graph.ops.control import sub_graphs
from luban.graph.ops.data import Constant, HostCall
from luban.graph.ops.fusion import Once
from luban.graph.ops.structure import Reshape
from luban.ir.node import GetItem, Graph, Node, Parameter
from luban.lower.support import no_kernel

__all__ = ["HostStep", "Launch", "Program", "Value", "build_program", "result_names"]


def result_names(graph: Graph) -> tuple[str, ...]:
    """The names of the results, made up where the graph gives none."""
    return graph.result_names or tuple(f"output_{i}" for i in range(len(graph.results)))


def build_program(
    graph: Graph, kernels: Mapping[Node, LinkedKernel], reasons: Mapping[Node, str]
) -> Program:
    """The steps of a fused graph, launches as early as their operands allow: they run together."""
    program = Program(graph.name, graph.parameter_names, result_names(graph), graph)
    value_of: dict[Node, Value] = {}
    parts: dict[Node, tuple[Value, ...]] = {}

    def new(type_: Type, origin: str, storage: Value | None = None) -> Value:
        value = Value(len(program.values), type_, origin, storage)
        program.values.append(value)
        return value

    for n in _launches_first(graph, kernels):
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
            origin = "launch" if n in kernels else "host"
            types = n.type.items if isinstance(n.type, TupleType) else (n.type,)
            results = tuple(new(t, origin) for t in types)
            parts[n] = results
            value_of[n] = results[0]
            if n in kernels:
                program.steps.append(Launch(n, kernels[n], operands, results))
            else:
                reason = reasons.get(n) or _why_on_host(n)
                program.steps.append(HostStep(n, reason, operands, results, host_call(n)))
    program.inputs = tuple(
        value_of[p] if p in value_of else new(p.type, "input") for p in graph.parameters
    )
    program.outputs = tuple(value_of[r] for r in graph.results)
    return program


def _why_on_host(n: Node) -> str:
    if sub_graphs(n.op):
        return f"{n.op.name} is driven from Python; its body is compiled"
    if isinstance(n.op, HostCall):
        return f"{n.op.function} is a host operation"
    return no_kernel(n) or f"{n.op.name} has no kernel yet"


def _launches_first(graph: Graph, kernels: Mapping[Node, LinkedKernel]) -> list[Node]:
    """A topological order that puts a host step off while anything else can run."""
    order = graph.nodes()
    waiting = {n: len(set(n.operands)) for n in order}
    users: dict[Node, list[Node]] = {n: [] for n in order}
    for n in order:
        for operand in set(n.operands):
            users[operand].append(n)
    position = {n: i for i, n in enumerate(order)}

    def is_host(n: Node) -> bool:
        return n not in kernels and not isinstance(
            n.op, (Parameter, Constant, Once, GetItem, Reshape)
        )

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
