"""Inside control flow: each step of a body, in each turn, on the values of that very turn.

The turns are driven here, by the meaning of the loop or branch: what a body's own kernels gave in
one turn goes into the next. So memory holds one turn, errors do not add up over turns, and the
first kernel outside its bound is named with its turn. That the native runner takes the same turns
is seen by comparing bits with what the whole step gives.

Of a long loop, a sample of turns is judged (`turns.py`); all are run. If one of them is wrong,
those before it that were passed over are judged too, so that the first wrong turn is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from luban.engine.check.turns import Turns, in_sample
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
    notes: list[str],
    *,
    every_turn: bool,
) -> Wrong | None:
    """The first thing wrong inside a step of control flow, and the smallest graph that shows it.

    layers      gets one line for each step inside: the worst of all turns
    notes       gets one line for each loop of which only a sample of turns was judged
    every_turn  judge all turns
    """
    walk = _Walk(compiled, every_turn)
    try:
        walk.control(step, operands, results, sizes, ())
    except _Found as found:
        return found.wrong
    finally:
        layers += walk.worst.values()
        notes += walk.notes()
    return None


class _Walk:
    """A walk through bodies; `worst` has each step's verdict nearest to its bound."""

    def __init__(self, compiled: Compiled, every_turn: bool) -> None:
        self.compiled = compiled
        self.every_turn = every_turn
        self.worst: dict[Step, Layer] = {}
        self.turns: dict[str, tuple[int, int]] = {}  # by place: judged, of how many

    def notes(self) -> Iterator[str]:
        """What was not judged."""
        for place, (judged, count) in self.turns.items():
            if judged < count:
                yield (
                    f"{place}: {judged} of {count} turns are held against float64, the first and "
                    "the last among them; `--every-turn` (every_turn=True) takes all"
                )

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
        place = _place_of(n)
        turns = Turns((lambda _: True) if self.every_turn else in_sample)
        try:
            result = self._taken(n, operands, sizes, where, turns)
        except _Found:
            passed = turns.passed_over()
            if passed:
                again = Turns(passed.__contains__, to_the_end=False)
                self._taken(n, operands, sizes, where, again)
            raise
        judged, count = self.turns.get(place, (0, 0))
        self.turns[place] = (judged + len(turns.judged), count + turns.count)
        return result

    def _taken(
        self,
        n: Node,
        operands: Sequence[Any],
        sizes: dict[str, int],
        where: tuple[str, ...],
        turns: Turns,
    ) -> tuple[Any, ...]:
        """All turns, of which those that `turns` wants are judged."""
        place, known = _place_of(n), dict(sizes)
        last: tuple[int, Graph, Sequence[Any]] | None = None

        def turn(number: int, graph: Graph, values: Sequence[Any], judge: bool) -> tuple[Any, ...]:
            label = f"turn {number} of {place}"
            if isinstance(n.op, If):
                label = f"{'then' if graph is n.op.then else 'otherwise'} of {place}"
            if judge:
                turns.judged.append(number)
            program = self.compiled.programs[graph]
            return self._body(program, values, known, (*where, label), judge)

        def inside(graph: Graph, values: Sequence[Any]) -> tuple[Any, ...]:
            nonlocal last
            number, turns.count = turns.count, turns.count + 1
            report(f"checking turns of {place}", number, turns.count)
            judge = turns.wanted(number)
            last = None if judge else (number, graph, values)
            return turn(number, graph, values, judge)

        types = tuple(operand.type for operand in n.operands)
        context = Context("model", types, n.type, known, inside)
        result: tuple[Any, ...] = MEANING[type(n.op)](n.op, list(operands), context)
        if last is not None and turns.to_the_end:
            turn(*last, judge=True)
        bind_symbols(n.type, result, known, what="result", given=False)
        return result

    def _body(
        self,
        program: Program,
        values: Sequence[Any],
        sizes: dict[str, int],
        where: tuple[str, ...],
        judge: bool,
    ) -> tuple[Any, ...]:
        run = StepRun(self.compiled, program, values, sizes)
        for step, operands, results, before in run:
            if not judge:
                continue
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


def _place_of(n: Node) -> str:
    return n.loc.path if n.loc is not None and n.loc.path else n.op.name


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
