"""The graph with fusions in place of clusters: what each kernel loads, and what leaves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from luban.graph.ops.data import Iota
from luban.graph.ops.elementwise import BINARY, Cast
from luban.graph.ops.fusion import Fusion
from luban.graph.ops.structure import BroadcastInDim, Reshape
from luban.ir.node import GetItem, Graph, Node, Parameter, node, rebuilt, results_of, users
from luban.passes.cluster import (
    ELEMENTWISE,
    SOLITARY,
    VIEWS,
    Cluster,
    inlined_constant,
    is_copy,
    squeezed,
)

__all__ = ["Builder"]

_LINEAR = (BINARY["subtract"], BINARY["multiply"])


def _is_number(n: Node) -> bool:
    while isinstance(n.op, (BroadcastInDim, Reshape)):
        n = n.operands[0]
    return inlined_constant(n)


def _is_maths(n: Node) -> bool:
    return isinstance(n.op, ELEMENTWISE)


class Builder:
    """Rebuilds the graph with fusions in place of clusters."""

    def __init__(
        self,
        graph: Graph,
        order: Sequence[Node],
        owner: Mapping[Node, Cluster],
        alone: Set[Node],
        scalars: Set[Node],
    ) -> None:
        self.graph = graph
        self.owner = owner
        self.alone = alone
        self.scalars = scalars
        self.used_by = users(order)
        self.new: dict[Node, Node] = {}
        self.needed = set(graph.results)
        self.widened = self._widened(order)

    def _widened(self, order: Sequence[Node]) -> set[Node]:
        """Members that are dequantised bytes and only go on in maths: kernels read the bytes.

        Each kernel that uses one works it out again, from a quarter of the memory.
        """
        found: dict[Node, None] = {}
        for n in order:
            source = n.operands[0] if n.operands else n
            if n not in self.owner or self.owner.get(source) is not self.owner[n]:
                continue
            if isinstance(n.op, Cast) and n.tensor.dtype.name == "f32":
                starts = source.tensor.dtype.name in ("i8", "u8")
            else:
                starts = isinstance(n.op, _LINEAR) and source in found and _is_number(n.operands[1])
            if starts:
                found[n] = None
        kept: set[Node] = set()
        for n in reversed(found):
            users_are_maths = all(u in self.owner and _is_maths(u) for u in self.used_by[n])
            if n not in self.needed and users_are_maths:
                kept.add(n)
        return {n for n in kept if n.operands[0] in kept or isinstance(n.op, Cast)}

    def build(self) -> Graph:
        """Materialise every result, iteratively: operands first."""
        stack = list(reversed(self.graph.results))
        while stack:
            current = stack[-1]
            if current in self.new:
                stack.pop()
                continue
            missing = [n for n in self._inputs(current) if n not in self.new]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            self._make(current)
        return Graph(
            self.graph.name,
            self.graph.parameters,
            tuple(self.new[r] for r in self.graph.results),
            self.graph.result_names,
        )

    def _inputs(self, n: Node) -> list[Node]:
        """The materialised nodes that must exist before `n` can."""
        if n in self.owner:
            return self._cluster_plan(self.owner[n])[0]
        if self._needs_copy(n):
            return self._leaves([n], {n})
        return list(n.operands)

    def _needs_copy(self, n: Node) -> bool:
        """True for a view that needs a kernel of its own because somebody wants it in memory."""
        return n in self.scalars or (n not in self.alone and is_copy(n))

    def _cluster_plan(self, cluster: Cluster) -> tuple[list[Node], list[Node]]:
        """(materialised inputs, members whose values are needed outside) of a cluster."""
        inside = cluster.members
        outputs = [
            m
            for m in inside
            if m not in self.widened
            and (m in self.needed or any(self._outside_use(u, cluster) for u in self.used_by[m]))
        ]
        return self._leaves(outputs, inside), outputs

    def _outside_use(self, user: Node, cluster: Cluster) -> bool:
        """True if `user` wants memory: no member, nor a view that only members copy."""
        if user in cluster.members:
            further = self.used_by[user] if user in self.widened else ()
            return any(self._outside_use(use, cluster) for use in further)
        if user in self.owner or not isinstance(user.op, VIEWS):
            return True
        if user in self.needed:
            return True
        return any(self._outside_use(further, cluster) for further in self.used_by[user])

    def _leaves(self, outputs: Sequence[Node], inside: dict[Node, None] | set[Node]) -> list[Node]:
        """What a body loads: the first on each path that is neither a member nor a view to copy."""
        found: dict[Node, None] = {}
        seen: set[Node] = set()
        stack = list(reversed(outputs))
        while stack:
            current = stack.pop()
            if current in seen:
                continue
            seen.add(current)
            if current in inside or self._copied(current, inside):
                stack.extend(reversed(current.operands))
            elif not inlined_constant(current):
                found[current] = None
        return list(found)

    def _copied(self, n: Node, inside: dict[Node, None] | set[Node]) -> bool:
        """True if a user's body computes this view itself."""
        if n in self.alone:
            return False
        if isinstance(n.op, Iota) or n in self.scalars or n in self.widened:
            return True
        if n in self.owner or not isinstance(n.op, VIEWS) or n in self.new:
            return False
        if isinstance(n.op, Reshape):
            source = n.operands[0]
            if source in self.owner and source not in inside:
                return False
            return squeezed(n.tensor.shape) == squeezed(source.tensor.shape)
        return True

    def _make(self, n: Node) -> None:
        if n in self.owner:
            cluster = self.owner[n]
            inputs, outputs = self._cluster_plan(cluster)
            self._fusion(cluster.kind, cluster.number, inputs, outputs)
        elif isinstance(n.op, SOLITARY) and n not in self.alone:
            self.new[n] = self._whole(n)
        elif self._needs_copy(n):
            self._fusion("loop", -1, self._inputs(n), [n])
        else:
            self.new[n] = rebuilt(n, tuple(self.new[operand] for operand in n.operands))

    def _whole(self, n: Node) -> Node:
        """A kernel of one node, with all of its results."""
        operands = dict.fromkeys(n.operands)
        parameters = {o: node(Parameter(f"x{i}", o.type)) for i, o in enumerate(operands)}
        inner = node(n.op, *(parameters[o] for o in n.operands), loc=n.loc)
        body = Graph(n.op.name, tuple(parameters.values()), results_of(inner))
        fusion = Fusion(n.op.name, body, () if n.loc is None else (n.loc,))
        return node(fusion, *(self.new[o] for o in operands), loc=n.loc)

    def _fusion(self, kind: str, number: int, inputs: list[Node], outputs: list[Node]) -> None:
        parameters = {n: node(Parameter(f"x{i}", n.type)) for i, n in enumerate(inputs)}
        body_of: dict[Node, Node] = dict(parameters)
        stack = list(outputs)
        while stack:
            current = stack[-1]
            if current in body_of:
                stack.pop()
                continue
            missing = [operand for operand in current.operands if operand not in body_of]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            body_of[current] = rebuilt(current, tuple(body_of[o] for o in current.operands))
        name = f"{kind}_{number}" if number >= 0 else f"copy_{len(self.new)}"
        body = Graph(name, tuple(parameters.values()), tuple(body_of[o] for o in outputs))
        places = dict.fromkeys(n.loc for n in body_of if n.loc is not None)
        fusion = Fusion(kind, body, tuple(places))
        fused = node(fusion, *(self.new[n] for n in inputs), loc=outputs[-1].loc)
        if len(outputs) == 1:
            self.new[outputs[0]] = fused
        else:
            for i, output in enumerate(outputs):
                self.new[output] = node(GetItem(i), fused, loc=output.loc)
