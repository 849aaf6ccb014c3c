"""The passes, in order: the only list of them. Each has a name, a report, and can be left out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from luban.core.errors import OptionError
from luban.core.numerics import Numerics
from luban.core.progress import report
from luban.core.registers import Registers
from luban.engine import prepare
from luban.engine.control import separate_results
from luban.graph.ops.control import sub_graphs
from luban.graph.ops.fusion import Fusion, Once
from luban.ir.node import Graph, Node, map_graph, node
from luban.ir.rewrite import Rule, rewrite
from luban.lower.attention_plan import no_attention
from luban.lower.support import no_kernel
from luban.passes import simplify
from luban.passes.attention import fuse_attention
from luban.passes.decision import Decision
from luban.passes.fuse import fuse
from luban.passes.half_products import half_products
from luban.passes.halves import wide_convolutions
from luban.passes.invariants import move_invariants
from luban.passes.layout import choose_layouts
from luban.passes.own_constants import own_constants
from luban.passes.quantise import integer_products
from luban.passes.winograd import use_winograd

__all__ = [
    "PASSES",
    "Pass",
    "PassReport",
    "apply_pass",
    "map_graphs",
    "optimise",
    "passes_of",
    "registers_without",
]

Transform = Callable[[Graph, Registers, list[Decision]], Graph]


@dataclass(frozen=True, slots=True)
class Pass:
    """One step of the pipeline."""

    name: str
    doc: str
    apply: Transform
    numerics: Numerics = "strict"  # "fast": it rounds more than the model says


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass did to one graph."""

    name: str
    graph: str
    nodes_before: int
    nodes_after: int
    decisions: tuple[Decision, ...]


def _simplify(graph: Graph, _registers: Registers, decisions: list[Decision]) -> Graph:
    def note(by: Rule, old: Node, _new: Node) -> None:
        decisions.append(Decision(old, True, f"{by.name}: {by.doc}"))

    changed, effects = rewrite(graph, simplify.RULES, on_rewrite=note)
    decisions.extend(Decision(d.node, False, f"{d.rule}: {d.why}") for d in effects.declined)
    return changed


def _quantise(graph: Graph, _registers: Registers, decisions: list[Decision]) -> Graph:
    changed, taken = integer_products(graph)
    decisions.extend(taken)
    return changed


def _attention(graph: Graph, _registers: Registers, decisions: list[Decision]) -> Graph:
    changed, taken = fuse_attention(graph, no_attention, no_kernel)
    decisions.extend(taken)
    return changed


def _halves(graph: Graph, _registers: Registers, decisions: list[Decision]) -> Graph:
    changed, taken = wide_convolutions(graph)
    decisions.extend(taken)
    return changed


def _layout(graph: Graph, registers: Registers, decisions: list[Decision]) -> Graph:
    changed, taken = choose_layouts(graph, registers)
    decisions.extend(taken)
    return changed


def _winograd(graph: Graph, registers: Registers, decisions: list[Decision]) -> Graph:
    changed, taken = use_winograd(graph, registers)
    decisions.extend(taken)
    return changed


def _half_products(graph: Graph, registers: Registers, decisions: list[Decision]) -> Graph:
    changed, taken = half_products(graph, registers)
    decisions.extend(taken)
    return changed


def _invariants(graph: Graph, _registers: Registers, decisions: list[Decision]) -> Graph:
    for move in (move_invariants, own_constants):
        graph, taken = move(graph)
        decisions.extend(taken)
    return graph


def _fuse(graph: Graph, _registers: Registers, decisions: list[Decision]) -> Graph:
    fused, taken = fuse(graph, no_kernel)
    decisions.extend(taken)
    return fused


def _fold(graph: Graph, _registers: Registers, _decisions: list[Decision]) -> Graph:
    return prepare.fold_constants(graph)[0]


def _once(graph: Graph, _registers: Registers, _decisions: list[Decision]) -> Graph:
    return prepare.compute_once(graph)[0]


def _separate(graph: Graph, _registers: Registers, _decisions: list[Decision]) -> Graph:
    return separate_results(graph)


PASSES: tuple[Pass, ...] = (
    Pass("simplify", "exact algebraic rules", _simplify),
    Pass("invariants", "loops carry only what they change", _invariants),
    Pass("quantise", "products of dequantised factors as products of integers", _quantise),
    Pass("attention", "one kernel for the products and the softmax of attention", _attention),
    Pass("halves", "convolutions of half precision as convolutions of float32", _halves),
    Pass("layout", "operands in the layout that kernels read fastest", _layout),
    Pass("winograd", "3 x 3 convolutions with fewer multiplications", _winograd),
    Pass("half_products", "f32 products as products of bf16 pairs", _half_products, "fast"),
    Pass("fold", "small results of constants become constants", _fold),
    Pass("once", "large results of constants are computed once, at load", _once),
    Pass("fuse", "one kernel for neighbouring operations", _fuse),
    Pass("separate", "results of control flow's bodies in memory of their own", _separate),
)


def optimise(
    graph: Graph,
    registers: Registers,
    without: Collection[str] = (),
    numerics: Numerics = "strict",
) -> tuple[Graph, list[PassReport]]:
    """Run the passes over a graph and its sub-graphs. Raises OptionError for an unknown pass."""
    unknown = set(without) - {p.name for p in PASSES}
    if unknown:
        raise OptionError(
            f"unknown pass {', '.join(sorted(unknown))}",
            hint="the passes are " + ", ".join(p.name for p in PASSES),
        )
    reports: list[PassReport] = []
    registers = registers_without(registers, without)
    for each in passes_of(numerics):
        if each.name not in without:
            report(f"optimising: {each.name}")
            graph = _apply(each, graph, registers, reports)
    return graph, reports


def passes_of(numerics: Numerics) -> list[Pass]:
    """The passes of a mode, in order."""
    return [each for each in PASSES if each.numerics in ("strict", numerics)]


def registers_without(registers: Registers, without: Collection[str]) -> Registers:
    """What passes may use when some are left out: without `half_products` no pass makes pairs."""
    return replace(registers, pair_products=False) if "half_products" in without else registers


def apply_pass(each: Pass, graph: Graph, registers: Registers) -> Graph:
    """One pass over a graph and its sub-graphs."""
    return _apply(each, graph, registers, [])


def _apply(each: Pass, graph: Graph, registers: Registers, reports: list[PassReport]) -> Graph:
    def one(_number: int, graph: Graph) -> Graph:
        decisions: list[Decision] = []
        before = len(graph.nodes())
        result = each.apply(graph, registers, decisions)
        after = len(result.nodes())
        reports.append(PassReport(each.name, graph.name, before, after, tuple(decisions)))
        return result

    return map_graphs(graph, one)


def map_graphs(graph: Graph, change: Callable[[int, Graph], Graph]) -> Graph:
    """A graph and its sub-graphs changed, each after those inside it: what a pass does.

    change   takes the graph's number in that order and the graph with its inner ones changed
    """
    return _mapped(graph, change, itertools.count())


def _mapped(graph: Graph, change: Callable[[int, Graph], Graph], numbers: Iterator[int]) -> Graph:
    def inside(old: Node, operands: tuple[Node, ...]) -> Node:
        inner = {} if isinstance(old.op, (Fusion, Once)) else sub_graphs(old.op)
        if not inner:
            return old if operands == old.operands else node(old.op, *operands, loc=old.loc)
        new = {name: _mapped(sub, change, numbers) for name, sub in inner.items()}
        return node(replace(old.op, **new), *operands, loc=old.loc)

    graph = map_graph(graph, inside)
    return change(next(numbers), graph)
