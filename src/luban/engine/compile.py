"""Graph to executors: optimise, lower, compile, link, for the main graph and every sub-graph."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from luban.core.numerics import Numerics
from luban.engine.executor import Executor
from luban.engine.kernels import Kernels, build_kernels, registers_of
from luban.engine.once import StartDraft, fill_once
from luban.engine.pipeline import PassReport, optimise
from luban.engine.prepare import once_bodies, prepare_graph
from luban.engine.program import Program, build_program
from luban.graph.ops.control import sub_graphs
from luban.graph.ops.fusion import Fusion, Once
from luban.graph.size_rules import size_rules
from luban.ir.node import Graph
from luban.native.cache import Cache, default_cache
from luban.native.draft import Draft
from luban.native.knowledge import measured_widths
from luban.native.target import Target, default_target
from luban.native.threads import available_threads

__all__ = ["Compiled", "compile_graph"]


@dataclass(slots=True)
class Compiled:
    """A compiled graph with everything that `explain` tells about it."""

    source: Graph
    optimised: Graph
    executor: Executor
    reports: list[PassReport]
    kernels: Kernels
    target: Target
    programs: dict[Graph, Program]  # the main graph's and those of control flow
    numerics: Numerics = "strict"
    draft: Draft | None = None  # of the cache entry that large constants lie in


def all_graphs(graph: Graph) -> list[Graph]:
    """The graph and every control-flow sub-graph in it."""
    found: list[Graph] = []
    stack = [graph]
    while stack:
        current = stack.pop()
        found.append(current)
        for n in current.nodes():
            if not isinstance(n.op, (Fusion, Once)):
                stack.extend(sub_graphs(n.op).values())
    return found


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection inside: compiling makes many objects and hardly a cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_no_collection()
def compile_graph(
    graph: Graph,
    *,
    num_threads: int | None = None,
    without: Collection[str] = (),
    numerics: Numerics = "strict",
    target: Target | None = None,
    cache: Cache | None = None,
    measured: Mapping[str, int] | None = None,
    start_draft: StartDraft = lambda _: None,
) -> Compiled:
    """Compile a graph for this machine.

    num_threads  threads of a call; default: the CPUs this process may use
    without      names of passes to leave out
    numerics     "fast": products may round their factors to bf16
    measured     products to the vectors of their panels; default: what `luban tune` has stored
    start_draft  where to compute packed weights; default: in memory of this process
    """
    target = target or default_target()
    cache = cache or default_cache()
    threads = num_threads or available_threads()
    known = measured_widths(target) if measured is None else measured
    registers = registers_of(target, known, numerics)
    optimised, reports = optimise(graph, registers, without, numerics)
    graphs = all_graphs(optimised)
    bodies = once_bodies(graphs)
    prepared, prepare_reports = optimise(
        prepare_graph(bodies), registers, {*without, "once"}, numerics
    )
    reports += prepare_reports
    graphs.append(prepared)
    fusions = list(dict.fromkeys(n for g in graphs for n in g.nodes() if isinstance(n.op, Fusion)))
    always = {n for g in graphs[:-1] for n in g.nodes()}
    once = {n for n in fusions if n not in always}
    kernels = build_kernels(fusions, target, cache, once)
    executors: dict[Graph, Executor] = {}

    def run(sub: Graph, values: Sequence[Any], sizes: dict[str, int]) -> tuple[Any, ...]:
        return tuple(executors[sub].run(values, sizes))

    programs: dict[Graph, Program] = {}
    for g in reversed(graphs[:-1]):  # inner ones first
        programs[g] = build_program(g, kernels.linked, kernels.declined, programs)
        programs[g].rules = size_rules(graph if g is optimised else g)
        executors[g] = Executor(programs[g], threads, run)
    draft = fill_once(programs.values(), bodies, prepared, kernels, threads, run, start_draft)
    return Compiled(
        graph,
        optimised,
        executors[optimised],
        reports,
        kernels,
        target,
        {g: programs[g] for g in graphs[:-1]},
        numerics,
        draft,
    )
