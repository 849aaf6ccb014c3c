"""Inside control flow: each step of a body, in each turn, on the values of that very turn.

The turns are driven here, by the meaning of the loop or branch: what a body's own kernels gave in
one turn goes into the next. So memory holds one turn, errors do not add up over turns, and the
first kernel outside its bound is named with its turn. That the native runner takes the same turns
is seen by comparing bits with what the whole step gives.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from luban.core.progress import report
from luban.engine.check.kernels import (
    StepRun,
    layer_of,
    piece_of,
    places_of,
    step_finding,
    step_verdicts,
)
from luban.engine.check.report import Finding, Layer
from luban.engine.compile import Compiled
from luban.engine.steps import Program, Step
from luban.graph.bind import bind_symbols
from luban.graph.meaning import MEANING
from luban.graph.meaning.context import Context
from luban.graph.ops.control import If, Loop, Scan
from luban.ir.node import Graph, Node

__all__ = ["check_control", "is_control"]

Wrong = tuple[Finding, tuple[Graph, Sequence[Any]]]


class _Found(Exception):  # not an error: it ends the walk
    def __init__(self, wrong: Wrong) -> None:
        super().__init__()
        self.wrong = wrong


def is_control(step: Step) -> bool:
    """True for a step of control flow, native or not."""
    return step.node is not None and isinstance(step.node.op, (If, Loop, Scan))


def check_control(
    compiled: Compiled,
    step: Step,
    operands: Sequence[Any],
    results: Sequence[Any],
    sizes: dict[str, int],
    layers: list[Layer],
) -> Wrong | None:
    """The first thing wrong inside a step of control flow, and the smallest graph that shows it.

    layers   gets one line for each step inside: the worst of all turns
    """
    walk = _Walk(compiled)
    try:
        walk.control(step, operands, results, sizes, ())
    except _Found as found:
        return found.wrong
    finally:
        layers += walk.worst.values()
    return None


class _Walk:
    """A walk through bodies; `worst` has each step's verdict nearest to its bound."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self.worst: dict[Step, Layer] = {}

    def control(
        self,
        step: Step,
        operands: Sequence[Any],
        results: Sequence[Any],
        sizes: dict[str, int],
        where: tuple[str, ...],
    ) -> None:
        """Take all turns of a step, then compare with what the step gave as a whole."""
        n = step.node
        assert n is not None
        driven = self._driven(n, operands, sizes, where)
        for number, (got, expected) in enumerate(zip(results, driven, strict=True)):
            if not _same_bits(got, expected):
                detail = (
                    f"{_within(where)}result {number} has other bits than its turns give one by "
                    "one: the turns, the states or the stacks are not where they should be"
                )
                finding = Finding("control flow", n.op.name, places_of(n), detail)
                raise _Found((finding, (piece_of(step), list(operands))))

    def _driven(
        self, n: Node, operands: Sequence[Any], sizes: dict[str, int], where: tuple[str, ...]
    ) -> tuple[Any, ...]:
        turns = itertools.count()
        place = n.loc.path if n.loc is not None and n.loc.path else n.op.name

        def inside(graph: Graph, values: Sequence[Any]) -> tuple[Any, ...]:
            turn = next(turns)
            report(f"checking turns of {place}", turn, turn + 1)
            label = f"turn {turn} of {place}"
            if isinstance(n.op, If):
                label = f"{'then' if graph is n.op.then else 'otherwise'} of {place}"
            return self._body(self.compiled.programs[graph], values, sizes, (*where, label))

        known = dict(sizes)
        types = tuple(operand.type for operand in n.operands)
        context = Context("model", types, n.type, known, inside)
        result: tuple[Any, ...] = MEANING[type(n.op)](n.op, list(operands), context)
        bind_symbols(n.type, result, known, what="result", given=False)
        return result

    def _body(
        self,
        program: Program,
        values: Sequence[Any],
        sizes: dict[str, int],
        where: tuple[str, ...],
    ) -> tuple[Any, ...]:
        run = StepRun(self.compiled, program, values, sizes)
        for step, operands, results, before in run:
            if is_control(step):
                self.control(step, operands, results, before, where)
                continue
            verdicts = step_verdicts(step, operands, results, before)
            bad = next((v for v in verdicts if not v.ok), None)
            layer = layer_of(step, bad or max(verdicts, key=lambda v: v.error))
            if step not in self.worst or layer.closeness > self.worst[step].closeness:
                self.worst[step] = layer
            if bad is not None:
                found = step_finding(self.compiled, step, operands, before, bad)
                detail = _within(where) + found.detail
                finding = Finding(found.level, found.culprit, found.nodes, detail)
                raise _Found((finding, (piece_of(step), list(operands))))
        return run.outputs()


def _within(where: Sequence[str]) -> str:
    """The turns around a place, outermost last."""
    return "".join(f"in {label}, " for label in reversed(where))


def _same_bits(got: Any, expected: Any) -> bool:
    if not isinstance(got, np.ndarray) or not isinstance(expected, np.ndarray | np.generic):
        return True
    want = np.asarray(expected)
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    if got.dtype.kind == "O":
        return bool(np.all(got == want))
    return bool(
        np.array_equal(
            np.ascontiguousarray(got).ravel().view(np.uint8),
            np.ascontiguousarray(want).ravel().view(np.uint8),
        )
    )
