"""Passes, one by one: each must keep the float64 meaning of the whole graph.

The first pass whose results differ by more than the order of sums can explain, and leave the bound
(folding rounds to the model's dtypes), is guilty. Rules are then bisected down to the one rewrite;
folded constants and fusions are compared node by node. Bodies of control flow are graphs of their
own to a pass: the first one that it must not be applied to is the guilty one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from luban.core.numerics import Numerics
from luban.core.progress import report
from luban.core.registers import Registers
from luban.engine import prepare
from luban.engine.check.bound import judge
from luban.engine.check.kernels import ops_of, places_of
from luban.engine.check.report import Finding
from luban.engine.pipeline import Pass, apply_pass, map_graphs, passes_of
from luban.graph.evaluate import evaluate
from luban.graph.ops.data import Constant
from luban.ir.node import Graph, Node
from luban.ir.rewrite import Rule, rewrite
from luban.passes import simplify

__all__ = ["check_passes"]

# Both sides compute in float64, so all that a pass may change is the order of sums.
_TOLERANCE = 1e-9


def check_passes(
    graph: Graph,
    inputs: Sequence[Any],
    registers: Registers,
    without: Sequence[str] = (),
    numerics: Numerics = "strict",
) -> tuple[Finding | None, Graph]:
    """(what the first guilty pass did, or None; the graph before it, or after the last)."""
    expected = _meaning(graph, inputs)
    plain: list[Any] | None = None
    passes = passes_of(numerics)
    for number, each in enumerate(passes):
        if each.name in without:
            continue
        report("checking passes", number, len(passes))
        after = apply_pass(each, graph, registers)
        if after is graph or after.results == graph.results:
            continue
        got = _meaning(after, inputs)
        difference = _difference(got, expected)
        if difference is not None:
            plain = plain or list(evaluate(graph, inputs, precision="model"))
            verdicts = [judge(*row, rounded=True) for row in zip(got, expected, plain, strict=True)]
            difference = next(
                (f"output {i}: {v}" for i, v in enumerate(verdicts) if not v.ok), None
            )
        if difference is not None:
            return _Blame(each, graph, inputs, expected, registers).finding(difference), graph
        graph = after
        if each.numerics == "fast":
            plain = None  # from here on, what the pass rounds is part of the graph
    return None, graph


def _meaning(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    return list(evaluate(graph, inputs, precision="float64"))


def _difference(got: Sequence[Any], expected: Sequence[Any]) -> str | None:
    """Where the results differ; None if they do not."""
    for number, (a, b) in enumerate(zip(got, expected, strict=True)):
        if not isinstance(a, np.ndarray | np.generic):
            continue
        x, y = np.asarray(a), np.asarray(b)
        if x.shape != y.shape:
            return f"output {number} has shape {list(x.shape)}, expected {list(y.shape)}"
        if not x.size or x.dtype.kind == "O":
            continue
        wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
        same = (wide_x == wide_y) | (np.isnan(wide_x) & np.isnan(wide_y))
        finite = np.isfinite(wide_x) & np.isfinite(wide_y)
        scale = max(float(np.max(np.abs(np.where(finite, wide_y, 0)))), 1e-30)
        error = np.abs(np.where(finite, wide_x, 0) - np.where(finite, wide_y, 0))
        wrong = ~same & (~finite | (error > _TOLERANCE * scale))
        if wrong.any():
            place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            index = [int(i) for i in place]
            return f"output {number}: element {index} is {x[place]}, expected {y[place]}"
    return None


class _Blame:
    """Finds what a guilty pass did, in the graph or in one of its bodies."""

    def __init__(
        self,
        each: Pass,
        before: Graph,
        inputs: Sequence[Any],
        expected: Sequence[Any],
        registers: Registers,
    ) -> None:
        self.each, self.before, self.inputs = each, before, inputs
        self.expected, self.registers = expected, registers
        self.last = 0  # the number of the outermost graph
        map_graphs(before, self._counted)

    def finding(self, difference: str) -> Finding:
        """Who is to blame for the difference."""
        number, graph = self._guilty_graph()
        inside = "" if number == self.last else f"in {graph.name}, "
        found: Finding | None = None
        if self.each.name == "simplify":
            found = self._guilty_rewrite(number, graph, difference)
        elif self.each.name == "fold":
            found = _guilty_fold(graph)
        if found is None:
            after = self.each.apply(graph, self.registers, [])
            strange = None if inside else _first_strange(graph, after, self.inputs)
            culprit = self.each.name if strange is None else f"{self.each.name}: {ops_of(strange)}"
            places = () if strange is None else places_of(strange)
            found = Finding("pass", culprit, places, difference)
        return replace(found, detail=inside + found.detail)

    def _counted(self, number: int, graph: Graph) -> Graph:
        self.last = number
        return graph

    def _partly(self, number: int, change: Callable[[Graph], Graph]) -> Graph:
        """The pass on all graphs before number `number` in its order, and a change on that one."""

        def one(index: int, graph: Graph) -> Graph:
            if index < number:
                return self.each.apply(graph, self.registers, [])
            return change(graph) if index == number else graph

        return map_graphs(self.before, one)

    def _with(self, number: int, piece: Graph) -> Graph:
        """The graph with `piece` in the place of graph number `number`."""
        return self._partly(number, lambda _graph: piece)

    def _is_wrong(self, graph: Graph) -> bool:
        return _difference(_meaning(graph, self.inputs), self.expected) is not None

    def _guilty_graph(self) -> tuple[int, Graph]:
        """(number, graph before the pass) of the first one that the pass makes wrong."""
        seen: list[Graph] = []

        def apply(graph: Graph) -> Graph:
            seen.append(graph)
            return self.each.apply(graph, self.registers, [])

        for number in range(self.last + 1):
            seen.clear()
            if self._is_wrong(self._partly(number, apply)):
                return number, seen[-1]
        return self.last, seen[-1]

    def _guilty_rewrite(self, number: int, graph: Graph, difference: str) -> Finding | None:
        """Bisect by the number of rewrites: the first one that changes the meaning."""
        log: list[tuple[Rule, Node, Node]] = []

        def note(by: Rule, old: Node, new: Node) -> None:
            log.append((by, old, new))

        rewrite(graph, simplify.RULES, on_rewrite=note)
        if not log:
            return None
        low, high = 0, len(log)  # right after `low` rewrites, wrong after `high`
        while high - low > 1:
            middle = (low + high) // 2
            partial, _ = rewrite(graph, simplify.RULES, limit=middle)
            if self._is_wrong(self._with(number, partial)):
                high = middle
            else:
                low = middle
        rule, old, new = log[high - 1]
        culprit = f"simplify: rule {rule.name} ({rule.doc})"
        change = f"{old.op.name} : {old.type} became {new.op.name} : {new.type}"
        return Finding("pass", culprit, places_of(old), f"{change}; {difference}")


def _guilty_fold(graph: Graph) -> Finding | None:
    """The folded constant that is not what its node gives."""
    pairs: list[tuple[Node, Node]] = []
    prepare.fold_constants(graph, lambda old, new: pairs.append((old, new)))
    for old, new in pairs:
        assert isinstance(new.op, Constant)
        (exact,) = evaluate(Graph("folded", (), (old,)), [], precision="model")
        difference = _difference([new.op.value.array], [exact])
        if difference is not None:
            return Finding("pass", f"fold: {old.op.name} : {old.type}", places_of(old), difference)
    return None


def _first_strange(before: Graph, after: Graph, inputs: Sequence[Any]) -> Node | None:
    """The first node of `after` whose value no node of `before` has: where the pass went wrong."""
    known: dict[tuple[Any, ...], list[float]] = {}

    def remember(_n: Node, value: Any) -> None:
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, np.ndarray) and part.dtype.kind not in "OSU":
                known.setdefault(part.shape, []).append(_fingerprint(part))

    evaluate(before, inputs, precision="float64", observe=remember)
    strange: list[Node] = []

    def compare(n: Node, value: Any) -> None:
        if strange or n.op.name in ("parameter", "constant", "once", "get_item"):
            return
        for part in value if isinstance(value, tuple) else (value,):
            if not isinstance(part, np.ndarray) or part.dtype.kind in "OSU":
                continue
            mine = _fingerprint(part)
            candidates = known.get(part.shape, [])
            near = any(abs(mine - c) <= 1e-7 * max(abs(c), 1e-12) or mine == c for c in candidates)
            if not near and candidates:
                strange.append(n)
                return

    evaluate(after, inputs, precision="float64", observe=compare)
    return strange[0] if strange else None


def _fingerprint(array: np.ndarray[Any, Any]) -> float:
    """One number that tells arrays apart: a weighted sum with weights that do not repeat."""
    flat = np.nan_to_num(array.astype(np.float64).ravel(), nan=1.5, posinf=2.5, neginf=-2.5)
    weights = np.cos(np.arange(flat.size) * 0.7391 + 0.3)
    return float(np.dot(flat, weights) + np.abs(flat).sum() * 0.1234)
