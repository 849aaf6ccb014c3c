"""Kernels, one by one, on the values that the program really computes.

Each step of the compiled program runs alone, with memory of its own, and its results are compared
with the float64 meaning of its node on the same operands: errors do not add up from layer to layer,
so the first kernel outside its bound is the guilty one. The tile evaluator then says whether the
lowering is wrong or the code that was generated from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from luban.core.errors import CheckError, LubanError
from luban.core.types import TensorType
from luban.engine.check.bound import Verdict, judge
from luban.engine.check.report import Finding, Layer
from luban.engine.check.sums import length, sums_of_step
from luban.engine.compile import Compiled
from luban.engine.executor import Executor
from luban.engine.steps import HostStep, Launch, Native, Program, Repeat, Step, Value
from luban.graph import build
from luban.graph.bind import bind_all
from luban.graph.evaluate import evaluate_node
from luban.graph.ops.elementwise import Cast
from luban.graph.ops.fusion import Fusion
from luban.ir.node import Graph, Node, node, results_of
from luban.lower.interpret import run_kernel

__all__ = [
    "StepRun",
    "layer_of",
    "ops_of",
    "piece_of",
    "places_of",
    "step_finding",
    "step_verdicts",
]

_MAX_TILE_WORK = 1 << 25  # some seconds in the tile evaluator
_HIDDEN = {"parameter", "constant", "broadcast_in_dim", "reshape", "get_item", "dimension_size"}


class StepRun:
    """A program run step by step: iterating gives (step, operands, results, sizes known before it).

    Values are freed after their last use; the last item's results stay valid while iterating.
    `outputs` is for afterwards.
    """

    def __init__(
        self,
        compiled: Compiled,
        program: Program,
        inputs: Sequence[Any],
        outer_sizes: Mapping[str, int] | None = None,
    ) -> None:
        self.compiled, self.program = compiled, program
        self.sizes: dict[str, int] = {}
        rows = zip(program.input_names, program.inputs, inputs, strict=True)
        bind_all([(f"input {label!r}", v.type, x) for label, v, x in rows], self.sizes)
        for name, size in (outer_sizes or {}).items():
            self.sizes.setdefault(name, size)
        self._held: dict[Value, Any] = dict(zip(program.inputs, inputs, strict=True))

    def __iter__(self) -> Iterator[tuple[Step, list[Any], list[Any], dict[str, int]]]:
        executor, steps, held = self.compiled.executor, self.program.steps, self._held
        last_use = {v.root: i for i, step in enumerate(steps) for v in step.operands}
        last_use |= {v.root: len(steps) for v in self.program.outputs}
        for number, step in enumerate(steps):
            operands = [_array(v, held, self.sizes) for v in step.operands]
            before = dict(self.sizes)
            if isinstance(step, HostStep):
                results = list(step.call(operands, self.sizes, executor.run_sub_graph))
            else:
                results = _alone(step, operands, self.sizes, executor)
                if isinstance(step, Repeat) and step.trips is not None:
                    self.sizes[step.trips] = len(results[step.num_carried])
            held.update(zip(step.results, results, strict=True))
            yield step, operands, results, before
            for value in {v.root for v in step.operands}:
                if last_use[value] == number and value in held:
                    del held[value]

    def outputs(self) -> tuple[Any, ...]:
        """The program's outputs, once all steps have run."""
        return tuple(_array(v, self._held, self.sizes) for v in self.program.outputs)


def _array(value: Value, held: Mapping[Value, Any], sizes: dict[str, int]) -> Any:
    root = value.root
    found = root.constant if root.constant is not None else held[root]
    if value is root or not isinstance(value.type, TensorType):
        return found
    return found.reshape(value.type.resolve(sizes))


def _alone(step: Native, operands: list[Any], sizes: dict[str, int], whole: Executor) -> list[Any]:
    """The results of one native step in a program of its own."""
    fresh: dict[Value, Value] = {}
    for number, value in enumerate((*step.operands, *step.results)):
        if value not in fresh:
            origin = "input" if number < len(operands) else value.origin
            fresh[value] = Value(number, value.type, origin)
    mine = {fresh[v]: x for v, x in zip(step.operands, operands, strict=True)}
    single = replace(
        step,
        operands=tuple(fresh[v] for v in step.operands),
        results=tuple(fresh[v] for v in step.results),
    )
    inputs = tuple(mine)
    program = Program(
        "step",
        tuple(f"x{i}" for i in range(len(inputs))),
        tuple(f"y{i}" for i in range(len(step.results))),
        values=list(fresh.values()),
        inputs=inputs,
        outputs=single.results,
        steps=[single],
    )
    executor = Executor(program, whole.num_threads, whole.run_sub_graph)
    return executor.run(list(mine.values()), sizes)


def step_verdicts(
    step: Step, operands: list[Any], results: list[Any], sizes: dict[str, int]
) -> list[Verdict]:
    """The results of a step against its node's meaning on the same operands."""
    n = step.node
    assert n is not None
    exact = _results(evaluate_node(n, operands, dict(sizes), "float64"), len(results))
    plain = _results(evaluate_node(n, operands, dict(sizes), "model"), len(results))
    rounded, sums = _rounds(n), sums_of_step(n, operands, sizes, exact)
    rows = zip(results, exact, plain, strict=True)
    return [judge(r, e, p, rounded=rounded, sums=sums) for r, e, p in rows]


def _results(value: Any, count: int) -> list[Any]:
    return list(value) if isinstance(value, tuple) and (count > 1 or len(value) == 1) else [value]


def _rounds(n: Node) -> bool:
    """True if somewhere inside a float becomes an integer."""
    body = n.op.body.nodes() if isinstance(n.op, Fusion) else [n]
    return any(
        isinstance(m.op, Cast) and m.op.dtype.is_integer and m.operands[0].tensor.dtype.is_float
        for m in body
    )


def ops_of(n: Node) -> str:
    """The operations behind a step in a few words, such as `dot_general+add+maximum`."""
    if not isinstance(n.op, Fusion):
        return n.op.name
    names = [m.op.name for m in n.op.body.nodes() if m.op.name not in _HIDDEN]
    shown = names if len(names) <= 6 else [*names[:5], f"{len(names) - 5} more"]
    return "+".join(shown) or "copy"


def places_of(n: Node) -> tuple[str, ...]:
    """The nodes of the model that a step computes, as far as their places are known."""
    places = n.op.places if isinstance(n.op, Fusion) else ()
    found = places or ((n.loc,) if n.loc is not None else ())
    return tuple(dict.fromkeys(loc.path or str(loc) for loc in found))


def piece_of(step: Step) -> Graph:
    """What a step computes, as a graph of its own."""
    n = step.node
    assert n is not None
    if isinstance(n.op, Fusion):
        return n.op.body
    parameters = tuple(build.parameter(f"x{i}", o.type) for i, o in enumerate(n.operands))
    return Graph("piece", parameters, results_of(node(n.op, *parameters)))


def layer_of(step: Step, verdict: Verdict) -> Layer:
    """The report line of a step."""
    n = step.node
    assert n is not None
    places = places_of(n)
    return Layer(places[-1] if places else n.op.name, ops_of(n), verdict)


def step_finding(
    compiled: Compiled, step: Step, operands: list[Any], sizes: dict[str, int], verdict: Verdict
) -> Finding:
    """Who is to blame for a step outside its bound."""
    n = step.node
    assert n is not None
    if not isinstance(step, Launch):
        level = "host operation" if isinstance(step, HostStep) else "code generation"
        return Finding(level, n.op.name, places_of(n), str(verdict))
    level, detail = _classified(compiled, step, operands, sizes)
    kernel = f"kernel {step.kernel.name} ({ops_of(n)})"
    return Finding(level, kernel, places_of(n), "; ".join(t for t in (str(verdict), detail) if t))


def _work(n: Node, sizes: dict[str, int]) -> int:
    """About how many elements a fusion computes, terms of sums included."""
    assert isinstance(n.op, Fusion)
    return sum(
        int(np.prod(m.type.resolve(sizes))) * length(m, sizes)
        for m in n.op.body.nodes()
        if isinstance(m.type, TensorType)
    )


def _classified(
    compiled: Compiled, step: Launch, operands: list[Any], sizes: dict[str, int]
) -> tuple[str, str]:
    """("lowering" or "code generation", what the tile evaluator says)."""
    n = step.node
    assert n is not None
    if _work(n, sizes) > _MAX_TILE_WORK:
        return "lowering or code generation", (
            "too large for the tile evaluator to tell which: check again with smaller inputs"
        )
    kernel = compiled.kernels.lowered[n].kernel
    types = [value.type for value in step.results if isinstance(value.type, TensorType)]
    try:
        results = run_kernel(kernel, operands, types, sizes)
    except (CheckError, LubanError) as error:
        return "lowering", f"the tile program fails its own check: {error}"
    verdicts = step_verdicts(step, operands, results, sizes)
    bad = next((v for v in verdicts if not v.ok), None)
    if bad is None:
        return (
            "code generation",
            "the tile program gives the right result, its machine code does not",
        )
    return "lowering", f"the tile program gives the wrong result too: {bad}"
