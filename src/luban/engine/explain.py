"""Why a compiled model is as it is: passes, fusions, near misses, kernels, host steps, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from luban.core import dims
from luban.core.cost_model import rank_correlation
from luban.core.errors import LubanError
from luban.core.types import TensorType
from luban.engine.compile import Compiled
from luban.engine.executor import Executor
from luban.engine.kernel_times import KernelTimes, kernel_times
from luban.engine.kernel_work import launches_in
from luban.engine.pipeline import PASSES, passes_of
from luban.engine.plan import plan_stage
from luban.engine.samples import choose_sizes
from luban.engine.steps import HostStep, Launch, LinkedKernel, Program, Value
from luban.graph.ops.fusion import Fusion
from luban.ir.node import GetItem, Node, Parameter
from luban.runtime.arena import Arena

__all__ = ["Explanation", "KernelLine", "MemoryLine", "PassLine", "explain"]


@dataclass(frozen=True, slots=True)
class PassLine:
    """What one pass did to one graph. done, declined: a line for each decision, with the reason."""

    name: str
    doc: str
    graph: str
    nodes_before: int
    nodes_after: int
    done: tuple[str, ...]
    declined: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One kernel.

    moved_bytes   operands and results of one launch, None if a size is not known
    predicted_s   one run by the cost model, None unless this machine and the sizes are known
    measured_s    one run, None unless it was asked for and the kernel ran
    """

    name: str
    launches: int
    operators: dict[str, int]
    results: str
    grid: str
    scratch_bytes: int
    moved_bytes: int | None
    notes: tuple[str, ...]
    places: tuple[str, ...]
    predicted_s: float | None = None
    bound: str = ""
    measured_s: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """The plan of one stage: bytes of its arena, and the least that any plan would need."""

    stage: int
    kernels: int
    arena_bytes: int
    lower_bound_bytes: int
    gap: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything `luban explain` prints. sizes: those that bytes are counted for."""

    model: str
    target: str
    threads: int
    numerics: str
    vetoed: tuple[str, ...]
    passes: tuple[PassLine, ...]
    kernels: tuple[KernelLine, ...]
    host_steps: tuple[tuple[str, str, str], ...]  # operator, reason, place
    sizes: dict[str, int]
    memory: tuple[MemoryLine, ...]
    constant_bytes: int
    prepared_bytes: int  # computed once, at load
    assumptions: tuple[str, ...] = ()  # what runs must keep to: they fail otherwise
    correlation: float | None = None  # of the ranks of predicted and measured times

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data."""
        return asdict(self)


def explain(
    compiled: Compiled,
    sizes: Mapping[str, int] | None = None,
    assumptions: Sequence[str] = (),
    *,
    measure: bool = False,
) -> Explanation:
    """Explain a compiled model, with bytes for certain sizes of its symbols (see choose_sizes).

    assumptions  those of the front end, which the compiler does not know
    measure      time the kernels too, on inputs that are made up (see sample_inputs)

    Raises UnsupportedError if inputs cannot be made up.
    """
    executor = compiled.executor
    program = executor.program
    chosen = choose_sizes(list(zip(program.input_names, program.inputs, strict=True)), sizes)
    docs = {each.name: each.doc for each in PASSES}
    ran = {report.name for report in compiled.reports}
    passes = tuple(
        PassLine(
            report.name,
            docs.get(report.name, ""),
            report.graph,
            report.nodes_before,
            report.nodes_after,
            tuple(f"{_told(d.subject)}: {d.reason}" for d in report.decisions if d.done),
            tuple(f"{_told(d.subject)}: {d.reason}" for d in report.decisions if not d.done),
        )
        for report in compiled.reports
    )
    programs = list(compiled.programs.values())
    times = kernel_times(compiled, chosen, measure=measure)
    kernels = tuple(_kernels(compiled, programs, chosen, times))
    constants = {id(v.constant): v for p in programs for v in p.values if v.constant is not None}
    return Explanation(
        program.name,
        compiled.target.name,
        executor.num_threads,
        compiled.numerics,
        tuple(each.name for each in passes_of(compiled.numerics) if each.name not in ran),
        passes,
        kernels,
        tuple(_host_steps(programs)),
        chosen,
        tuple(_memory(executor, chosen)),
        sum(_constant_bytes(v) for v in constants.values() if v.origin == "constant"),
        sum(_constant_bytes(v) for v in constants.values() if v.origin == "once"),
        tuple(assumptions),
        _correlation(kernels) if measure else None,
    )


def _correlation(kernels: Sequence[KernelLine]) -> float | None:
    known = [(k.predicted_s, k.measured_s) for k in kernels]
    pairs = [(p, m) for p, m in known if p is not None and m is not None]
    return rank_correlation([p for p, _ in pairs], [m for _, m in pairs]) if pairs else None


def _told(n: Node) -> str:
    """A node as people know it: operator, type, place in the model file."""
    name = f"{n.op.name} {n.type}"
    return f"{name} at {n.loc.path or n.loc}" if n.loc else name


def _constant_bytes(value: Value) -> int:
    return 0 if value.constant is None else value.constant.nbytes


def _kernels(
    compiled: Compiled,
    programs: list[Program],
    sizes: Mapping[str, int],
    times: Mapping[LinkedKernel, KernelTimes],
) -> Iterator[KernelLine]:
    groups: dict[tuple[str, str], list[Launch]] = {}
    for program in programs:
        for step in launches_in(program):
            results = ", ".join(str(value.type) for value in step.results)
            groups.setdefault((step.kernel.name, results), []).append(step)
    for (name, results), steps in groups.items():
        n, kernel = steps[0].node, steps[0].kernel
        inside = n.op.body.nodes() if n is not None and isinstance(n.op, Fusion) else []
        lowered = compiled.kernels.lowered.get(n) if n is not None else None
        places = [s.node.loc for s in steps if s.node is not None and s.node.loc is not None]
        known = times.get(kernel, KernelTimes())
        measured = [t.measured_s for s in steps if (t := times.get(s.kernel)) and t.measured_s]
        yield KernelLine(
            name,
            len(steps),
            dict(Counter(m.op.name for m in inside if not isinstance(m.op, Parameter | GetItem))),
            results,
            str(kernel.num_programs),
            kernel.scratch_bytes,
            _moved_bytes(steps[0], sizes),
            lowered.kernel.notes if lowered is not None else (),
            tuple(dict.fromkeys(loc.path or str(loc) for loc in places)),
            known.predicted_s,
            known.bound,
            median(measured) if measured else None,
        )


def _moved_bytes(step: Launch, sizes: Mapping[str, int]) -> int | None:
    total = 0
    for value in dict.fromkeys((*step.operands, *step.results)):
        if not isinstance(value.type, TensorType):
            return None
        size = value.type.size_bytes
        if not {s.name for s in dims.symbols(size)} <= set(sizes):
            return None
        total += dims.evaluate(size, sizes)
    return total


def _host_steps(programs: list[Program]) -> Iterator[tuple[str, str, str]]:
    for program in programs:
        for step in program.steps:
            if isinstance(step, HostStep):
                op = step.node.op
                name = getattr(op, "function", "") if op.name == "host_call" else op.name
                place = step.node.loc.path if step.node.loc else ""
                yield name, step.reason, place


def _memory(executor: Executor, sizes: dict[str, int]) -> Iterator[MemoryLine]:
    """The plan of each stage whose sizes are known before a run."""
    for number, stage in enumerate(executor.stages):
        steps = [step for step in stage.steps if not isinstance(step, HostStep)]
        if not steps or not set(stage.symbols) <= set(sizes):
            continue
        try:
            plan = plan_stage(steps, stage.escaping, sizes, Arena(), executor.num_threads)
        except LubanError:
            continue  # sizes that no call could have: the run says so
        memory = plan.memory
        yield MemoryLine(
            number, len(plan.kernels), memory.size_bytes, memory.lower_bound_bytes, memory.gap
        )
