"""Conditions that a compiled branch relies on, most of them over sizes.

A check in the middle would cut a run in two. Where two sizes must be equal, a reshape from the one
to the other says so: compiled programs test that once for each new size. What else depends on
sizes alone is tested on the parameters, by a host step that hands the first of them on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.types import TensorType
from luban.graph import build
from luban.graph.host import branches as host_branches
from luban.graph.ops.data import HostCall
from luban.graph.ops.elementwise import COMPARE, UNARY, Cast
from luban.graph.ops.structure import Reshape
from luban.graph.sizes import symbolic_value
from luban.ir.node import Graph, Node, map_graph, node, rebuilt, topological

__all__ = [
    "BranchCheck",
    "SizeCheck",
    "same_sizes",
    "size_check",
    "with_branch_checks",
    "with_size_checks",
]

_ = host_branches  # registers the host functions


@dataclass(frozen=True, slots=True)
class BranchCheck:
    """A condition over data that must hold, or must not, and what relies on it."""

    condition: Node
    holds: bool
    what: str

    def before(self, x: Node) -> Node:
        """The value, handed on once the condition has been tested."""
        taken = (("then", self.holds), ("what", self.what))
        return node(HostCall("taken_branch", taken, (x.type,)), self.condition, x)


def with_branch_checks(results: Sequence[Node], checks: Sequence[BranchCheck]) -> tuple[Node, ...]:
    """The results, which run every check: also those of branches of which only a size is used."""
    if not checks or not results:
        return tuple(results)
    run = {
        dict(n.op.options).get("what")
        for n in topological(results)
        if isinstance(n.op, HostCall) and n.op.function == "taken_branch"
    }
    first = results[0]
    for check in checks:
        if check.what not in run:
            first = check.before(first)
    return (first, *results[1:])


@dataclass(frozen=True, slots=True)
class SizeCheck:
    """A condition that must hold, or must not, and what relies on it: two sizes compared."""

    condition: Node
    holds: bool
    what: str
    left: DimLike
    right: DimLike
    equal: bool

    @property
    def symbols(self) -> frozenset[str]:
        """The names that must have sizes."""
        found = dims.symbols(self.left) | dims.symbols(self.right)
        return frozenset(s.name for s in found)


def size_check(condition: Node, holds: bool, what: str) -> SizeCheck | None:
    """The check that a condition has a value, if it compares two sizes; else None."""
    whole, wanted = condition, holds
    while True:
        if isinstance(condition.op, UNARY["bitwise_not"]):
            holds = not holds
        elif not isinstance(condition.op, Reshape | Cast):
            break
        condition = condition.operands[0]
        if condition.tensor.dtype.kind != "bool":
            return None
    equal = isinstance(condition.op, COMPARE["equal"])
    if not equal and not isinstance(condition.op, COMPARE["not_equal"]):
        return None
    sides = [symbolic_value(side) for side in condition.operands]
    if any(side is None or side.size != 1 for side in sides):
        return None
    left, right = (side.item() for side in sides if side is not None)
    return SizeCheck(whole, wanted, what, left, right, equal is holds)


def same_sizes(values: Sequence[Node], check: SizeCheck | None) -> dict[Node, Node] | None:
    """The values in which the one size stands, with the other in its place; None if it is in none.

    A reshape can be run only if both are equal, and that is tested once for each new size.
    """
    if check is None or not check.equal:
        return None
    old, new = (
        (check.left, check.right) if isinstance(check.right, int) else (check.right, check.left)
    )
    found = {
        x: build.reshape(x, [new if size == old else size for size in x.tensor.shape])
        for x in values
        if isinstance(x.type, TensorType) and old in x.type.shape
    }
    return found or None


def with_size_checks(
    results: Sequence[Node], parameters: Sequence[Node], checks: Sequence[SizeCheck]
) -> tuple[Node, ...]:
    """The results of a graph that begins with the checks."""
    given = [p for p in parameters if isinstance(p.type, TensorType)]
    if not checks or not (given or results):
        return tuple(results)
    target = given[0] if given else results[0]
    places = {
        str(size): (p, axis) for p in reversed(given) for axis, size in enumerate(p.tensor.shape)
    }
    early = [c for c in checks if c.symbols <= places.keys()]
    checked = _checked_early(target, early, places) if early else target
    for check in checks:
        if check not in early:
            checked = BranchCheck(check.condition, check.holds, check.what).before(checked)
    if not given:
        return (checked, *results[1:])
    graph = Graph("checked", tuple(parameters), tuple(results))
    return map_graph(graph, rebuilt, {target: checked}).results


def _checked_early(
    target: Node, checks: Sequence[SizeCheck], places: Mapping[str, tuple[Node, int]]
) -> Node:
    """The target, handed on once the sizes of parameters have passed."""
    needed = sorted(frozenset[str]().union(*(c.symbols for c in checks)))
    operands = list(dict.fromkeys((target, *(places[name][0] for name in needed))))
    options = (
        ("checks", tuple((c.left, c.right, c.equal, c.what) for c in checks)),
        ("sizes", tuple((n, operands.index(places[n][0]), places[n][1]) for n in needed)),
    )
    return node(HostCall("sizes_as_compiled", options, (target.type,)), *operands)
