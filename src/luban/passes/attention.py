"""Attention as one kernel: softmax(scores(q k')) v becomes one fusion.

Its body holds the two products, the softmax and the views through which q, k and v are read, so
that heads are never moved in memory. Runs before layout, which would put k and v into panels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from luban.graph.attention import Attention, find_attention
from luban.graph.ops.contract import DotGeneral
from luban.graph.ops.data import Iota
from luban.graph.ops.fusion import Fusion
from luban.graph.ops.structure import BroadcastInDim, Reshape, Reverse, Slice, Transpose
from luban.ir.node import Graph, Node, Parameter, map_graph, node, rebuilt, users
from luban.passes.cluster import CONTRACTIONS, ELEMENTWISE, inlined_constant
from luban.passes.decision import Decision

__all__ = ["fuse_attention"]

_VIEWS = (BroadcastInDim, Transpose, Slice, Reshape, Reverse)


def fuse_attention(
    graph: Graph,
    no_attention: Callable[[Graph], str | None] = lambda _: None,
    no_kernel: Callable[[Node], str | None] = lambda _: None,
) -> tuple[Graph, list[Decision]]:
    """The graph with attentions as fusions, and the decisions taken.

    `no_attention` gives the reason why a body has no kernel, or None; `no_kernel` does for a node.
    """
    order = graph.nodes()
    finder = _Finder(users(order), set(graph.results), no_attention, no_kernel)
    found: dict[Node, tuple[Fusion, tuple[Node, ...]]] = {}
    for n in order:
        if isinstance(n.op, DotGeneral) and (made := finder.fusion(n)) is not None:
            found[made[0]] = made[1:]
    if not found:
        return graph, finder.decisions
    return map_graph(graph, _Replacement(found)), finder.decisions


class _Replacement:
    """Puts fusions in place of the results of attentions."""

    def __init__(self, found: dict[Node, tuple[Fusion, tuple[Node, ...]]]) -> None:
        self.found = found
        self.new: dict[Node, Node] = {}

    def __call__(self, old: Node, operands: tuple[Node, ...]) -> Node:
        """`map_graph` asks for operands first, so whatever a fusion reads is known by then."""
        self.new.update(zip(old.operands, operands, strict=True))
        if old not in self.found:
            return rebuilt(old, operands)
        op, leaves = self.found[old]
        return node(op, *(self.new.get(leaf, leaf) for leaf in leaves), loc=old.loc)


class _Finder:
    """Looks for attentions; notes why a softmax before a product is none."""

    def __init__(
        self,
        used_by: dict[Node, list[Node]],
        results: set[Node],
        no_attention: Callable[[Graph], str | None],
        no_kernel: Callable[[Node], str | None],
    ) -> None:
        self.used_by = used_by
        self.results = results
        self.no_attention = no_attention
        self.no_kernel = no_kernel
        self.decisions: list[Decision] = []

    def fusion(self, last: Node) -> tuple[Node, Fusion, tuple[Node, ...]] | None:
        """(the result, the fusion, what it reads) of the attention that ends in this product."""
        attention = find_attention(last)
        if isinstance(attention, str):
            return None
        why = self._stays_apart(attention)
        for result, inside in () if why else self._forms(attention):
            body, leaves = _body(result, inside)
            reason = self.no_attention(body)
            if reason is None:
                self.decisions.append(Decision(last, True, "attention as one kernel"))
                places = {m.loc for m in inside if m.loc is not None}
                return result, Fusion("attention", body, tuple(sorted(places, key=str))), leaves
            why = why or reason
        self.decisions.append(Decision(last, False, f"attention in several kernels: {why}"))
        return None

    def _stays_apart(self, attention: Attention) -> str:
        """Why these nodes are no kernel of their own; empty if they are."""
        for member in attention.members:
            reason = self.no_kernel(member) if isinstance(member.op, ELEMENTWISE) else None
            if reason is not None:
                return reason
            if member is attention.result:
                continue
            if member in self.results or not attention.members.issuperset(self.used_by[member]):
                return f"{member.op.name} inside it is used elsewhere"
        return ""

    def _forms(self, attention: Attention) -> Iterator[tuple[Node, set[Node]]]:
        """(result, nodes that its body computes), the form with most views inside first."""
        inside = set(attention.members)
        result = current = attention.result
        behind: list[Node] = []
        while current not in self.results and len(self.used_by[current]) == 1:
            (current,) = self.used_by[current]
            if not isinstance(current.op, (Transpose, Reshape)):
                break
            behind.append(current)
            if isinstance(current.op, Transpose):
                result, inside = current, inside | set(behind)
        queries = self._own(attention.raw.operands[0])
        yield result, inside | queries | _views(inside | queries)
        yield result, inside | _views(inside)
        yield attention.result, set(attention.members)

    def _own(self, operand: Node) -> set[Node]:
        """Maths that only this operand is for, such as the scale of the queries."""
        chain: list[Node] = []
        current = operand
        while len(self.used_by[current]) == 1 and current not in self.results:
            if isinstance(current.op, ELEMENTWISE):
                # What broadcasts is a number or a bias: the rest of the chain is elsewhere.
                wide = [o for o in current.operands if not isinstance(o.op, BroadcastInDim)]
                if len(wide) != 1 or self.no_kernel(current) is not None:
                    break
            elif isinstance(current.op, _VIEWS):
                wide = [current.operands[0]]
            else:
                break
            chain.append(current)
            (current,) = wide
        if isinstance(current.op, CONTRACTIONS):  # which does the maths right behind it itself
            while chain and isinstance(chain[-1].op, ELEMENTWISE):
                chain.pop()
        return set(chain)


def _views(inside: set[Node]) -> set[Node]:
    """Views, numbers and counters that lead into these nodes: each costs an index, no memory."""
    found: set[Node] = set()
    stack = [operand for n in inside for operand in n.operands]
    while stack:
        current = stack.pop()
        if current not in inside and current not in found and isinstance(current.op, _VIEWS):
            found.add(current)
            stack.extend(current.operands)
    return found


def _body(result: Node, inside: set[Node]) -> tuple[Graph, tuple[Node, ...]]:
    """The body that computes `inside`, with a parameter for everything else that it needs."""
    leaves: list[Node] = []
    new: dict[Node, Node] = {}
    stack = [result]
    while stack:
        current = stack[-1]
        if current in new:
            stack.pop()
            continue
        computed = current in inside or inlined_constant(current) or isinstance(current.op, Iota)
        missing = [o for o in current.operands if o not in new] if computed else []
        if missing:
            stack.extend(reversed(missing))
            continue
        stack.pop()
        if computed:
            new[current] = rebuilt(current, tuple(new[o] for o in current.operands))
        else:
            new[current] = node(Parameter(f"x{len(leaves)}", current.type))
            leaves.append(current)
    parameters = tuple(new[leaf] for leaf in leaves)
    return Graph("attention", parameters, (new[result],)), tuple(leaves)
