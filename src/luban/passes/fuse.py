"""Fusion: which nodes become one kernel.

Clusters grow in one walk over the graph. A contraction or reduction starts a cluster; elementwise
nodes of the cluster's shape join it (its epilogue); reductions over the same axes of the same shape
join it (softmax, normalisation); pure elementwise clusters melt into the one that uses them. Views
(broadcast, transpose, slice, pad, gather, reshape) belong to nobody: each user copies them into its
body, where they cost an index. A cluster is legal when nothing outside it stands between two of its
members; every refusal is recorded with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from luban.core.dims import Shape
from luban.graph.ops.elementwise import TRANSCENDENTAL
from luban.graph.ops.packed import PackPanels
from luban.graph.ops.reduce import ArgReduce, Cumulative, Reduce
from luban.graph.ops.structure import (
    BroadcastInDim,
    Concatenate,
    Reshape,
    Scatter,
)
from luban.graph.order import execution_order, settlers
from luban.ir.node import GetItem, Graph, Node, users
from luban.passes.cluster import (
    CONTRACTIONS,
    ELEMENTWISE,
    KERNEL_OPS,
    ONE_TO_ONE,
    SOLITARY,
    Cluster,
    inlined_constant,
    is_copy,
    reads_once,
    reduced_axes,
    squeezed,
    streamed,
    streams,
)
from luban.passes.decision import Decision
from luban.passes.fuse_build import Builder

__all__ = ["Decision", "fuse"]


_MAX_MEMBERS = 64  # a body stays readable, and its registers countable


@dataclass(slots=True)
class _Fuser:
    graph: Graph
    no_kernel: Callable[[Node], str | None]
    decisions: list[Decision] = field(default_factory=list)
    alone: set[Node] = field(default_factory=set)
    scalars: set[Node] = field(default_factory=set)  # numbers that each user works out for itself
    clusters: list[Cluster] = field(default_factory=list)
    owner: dict[Node, Cluster] = field(default_factory=dict)
    after: dict[Node, int] = field(default_factory=dict)  # the last cluster that it depends on
    before: dict[Node, list[Node]] = field(default_factory=dict)  # who settles its sizes

    def grow(self, order: Sequence[Node]) -> None:
        """One walk that gives every elementwise, reduction and contraction node its cluster."""
        wanted = self._wanted_in_memory(order)
        for n in order:
            known = isinstance(n.op, (*KERNEL_OPS, *SOLITARY))
            why = self.no_kernel(n) if known else None
            if why is not None:
                self.alone.add(n)
                self.decisions.append(Decision(n, False, why))
            elif isinstance(n.op, CONTRACTIONS):
                self._start(n, "contraction", n.tensor.shape)
            elif isinstance(n.op, Cumulative):
                self._start(n, "running", n.tensor.shape)
            elif isinstance(
                n.op, Scatter
            ):  # space: what may melt into it is shaped like its updates
                self._start(n, "scatter", n.operands[2].tensor.shape)
            elif isinstance(n.op, (Reduce, ArgReduce)):
                self._reduction(n)
            elif isinstance(n.op, ELEMENTWISE):
                if not n.tensor.rank and all(self._is_number(o) for o in n.operands):
                    self.scalars.add(n)
                else:
                    self._elementwise(n)
            elif isinstance(n.op, (Concatenate, PackPanels)) or (n in wanted and is_copy(n)):
                self._start(n, "loop", n.tensor.shape)
            last = max((self.after[needed] for needed in self._needs(n)), default=-1)
            self.after[n] = max(last, self.owner[n].number) if n in self.owner else last

    def _needs(self, n: Node) -> Sequence[Node]:
        """Operands, and the nodes that settle sizes that it needs."""
        return (*n.operands, *self.before.get(n, ()))

    def _is_number(self, n: Node) -> bool:
        return n in self.scalars or inlined_constant(n)

    def _wanted_in_memory(self, order: Sequence[Node]) -> set[Node]:
        """Values that a host operation, control flow or the caller takes as they are."""
        kernel = (*KERNEL_OPS, GetItem)
        wanted = {operand for n in order if not isinstance(n.op, kernel) for operand in n.operands}
        wanted |= {streamed(n.operands[0]) for n in order if streams(n)}
        return wanted | set(self.graph.results)

    def _start(self, n: Node, kind: str, space: Shape, axes: tuple[int, ...] = ()) -> None:
        cluster = Cluster(len(self.clusters), kind, space, axes)
        self.clusters.append(cluster)
        self._join(n, cluster)

    def _join(self, n: Node, cluster: Cluster) -> None:
        cluster.members[n] = None
        self.owner[n] = cluster

    def _reaches(self, operand: Node, cluster: Cluster) -> tuple[bool, bool]:
        """(operand comes from the cluster, it does so only through views that rows allow)."""
        current = operand
        while current not in self.owner and isinstance(current.op, (BroadcastInDim, Reshape)):
            if isinstance(current.op, Reshape) and squeezed(current.tensor.shape) != squeezed(
                current.operands[0].tensor.shape
            ):
                break
            current = current.operands[0]
        direct = self.owner.get(current) is cluster
        depends = self.after[operand] >= cluster.number
        return direct or depends, direct and (current is operand or cluster.kind == "rows")

    def _fits(self, n: Node, cluster: Cluster) -> str:
        """Empty if the node may join, else why not."""
        if len(cluster.members) >= _MAX_MEMBERS:
            return f"the kernel already has {_MAX_MEMBERS} nodes"
        touches = False
        for operand in n.operands:
            inside, allowed = self._reaches(operand, cluster)
            if inside and not allowed:
                return "an operand is computed outside, from the kernel's own result or after it"
            touches = touches or allowed
            if allowed and not self._aligned(operand, cluster):
                return "an operand is read at another place than it is computed"
        if any(self.after[settler] >= cluster.number for settler in self.before.get(n, ())):
            return "a size that it needs is known only after the kernel has run"
        return "" if touches else "no operand is computed in the kernel"

    def _aligned(self, operand: Node, cluster: Cluster) -> bool:
        """True if a view chain from a member only restores reduced axes."""
        if operand in self.owner:
            return True
        current = operand
        while current not in self.owner:
            op, source = current.op, current.operands[0]
            if isinstance(op, BroadcastInDim):
                small = source.tensor.shape
                if op.shape != cluster.space or small not in (cluster.kept, cluster.kept_ones):
                    return False
                wanted = tuple(i for i in range(len(cluster.space)) if i not in cluster.axes)
                if small == cluster.kept and small != cluster.kept_ones and op.axes != wanted:
                    return False
            elif current.tensor.shape not in (cluster.kept, cluster.kept_ones):
                return False
            current = source
        return current.tensor.shape in (cluster.kept, cluster.kept_ones)

    def _reduction(self, n: Node) -> None:
        space = n.operands[0].tensor.shape
        axes = reduced_axes(n)
        for cluster in reversed(self._candidates(n)):
            alike = cluster.kind == "rows" and cluster.space == space and cluster.axes == axes
            if alike and not self._fits(n, cluster):
                self._join(n, cluster)
                return
        self._start(n, "rows", space, axes)

    def _elementwise(self, n: Node) -> None:
        shape = n.tensor.shape
        for cluster in reversed(self._candidates(n)):
            if not cluster.takes(shape):
                continue
            why_not = self._fits(n, cluster)
            if not why_not:
                self._join(n, cluster)
                return
            self.decisions.append(
                Decision(n, False, f"does not join kernel {cluster.number}: {why_not}")
            )
        self._start(n, "loop", shape)

    def _candidates(self, n: Node) -> list[Cluster]:
        found: dict[Cluster, None] = {}
        for operand in n.operands:
            current = operand
            while current not in self.owner and isinstance(current.op, (BroadcastInDim, Reshape)):
                if current in self.alone:
                    break
                current = current.operands[0]
            if current in self.owner:
                found[self.owner[current]] = None
        return sorted(found, key=lambda cluster: cluster.number)

    def melt(self, order: Sequence[Node]) -> None:
        """Elementwise clusters whose results only one other cluster uses become part of it."""
        used_by = users(order)
        results = set(self.graph.results)
        for cluster in reversed(self.clusters):
            if cluster.kind != "loop" or not cluster.members:
                continue
            target = self._only_user(cluster, used_by, results)
            if target is None or len(target.members) + len(cluster.members) > _MAX_MEMBERS:
                continue
            repeated = target.kind == "rows" and sum(
                isinstance(m.op, (Reduce, ArgReduce)) for m in target.members
            )
            if repeated and any(m.op.name in TRANSCENDENTAL for m in cluster.members):
                first = next(iter(cluster.members))
                why = "its maths would be repeated for every reduction of the kernel that uses it"
                self.decisions.append(Decision(first, False, why))
                continue
            for member in cluster.members:
                self.owner[member] = target
            target.members = {**cluster.members, **target.members}
            cluster.members = {}

    def share(self, order: Sequence[Node]) -> None:
        """Cheap elementwise clusters join a later kernel over the same elements, which stores both.

        A residual sum that feeds a normalisation and is used again later is then read only once.
        """
        used_by = users(order)
        position = {n: i for i, n in enumerate(order)}
        for cluster in reversed(self.clusters):
            cheap = not any(m.op.name in TRANSCENDENTAL for m in cluster.members)
            plain = all(isinstance(m.op, ELEMENTWISE) for m in cluster.members)
            if cluster.kind != "loop" or not cluster.members or not cheap or not plain:
                continue
            for target in self._direct_users(cluster, used_by):
                if len(target.members) + len(cluster.members) > _MAX_MEMBERS:
                    continue
                if self._passes_between(cluster, target, position):
                    first = next(iter(cluster.members))
                    why = f"kernel {target.number} also needs something computed from it elsewhere"
                    self.decisions.append(Decision(first, False, why))
                    continue
                for member in cluster.members:
                    self.owner[member] = target
                target.members = {**cluster.members, **target.members}
                cluster.members = {}
                break

    def _direct_users(self, cluster: Cluster, used_by: dict[Node, list[Node]]) -> list[Cluster]:
        found: dict[Cluster, None] = {}
        for m in cluster.members:
            for user in used_by[m]:
                target = self.owner.get(user)
                if target is None or target is cluster or target.space != m.tensor.shape:
                    continue
                if target.kind in ("loop", "rows") and isinstance(
                    user.op, (*ELEMENTWISE, Reduce, ArgReduce)
                ):
                    found[target] = None
        return sorted(found, key=lambda c: c.number)

    def _passes_between(self, cluster: Cluster, target: Cluster, position: dict[Node, int]) -> bool:
        """True if something outside both depends on `cluster` and is needed by `target`."""
        start = min(position[m] for m in cluster.members)
        seen: set[Node] = set()
        stack = [
            needed
            for m in target.members
            for needed in self._needs(m)
            if self.owner.get(needed) not in (cluster, target)
        ]
        while stack:
            current = stack.pop()
            owner = self.owner.get(current)
            if owner is cluster:
                return True
            early = owner is None and position[current] < start
            if current in seen or early or owner is target:
                continue
            seen.add(current)
            if owner is None:
                stack.extend(self._needs(current))
                continue
            for member in owner.members:  # a cluster runs as a whole
                if member is current or member not in seen:
                    seen.add(member)
                    stack.extend(o for o in self._needs(member) if self.owner.get(o) is not owner)
        return False

    def _only_user(
        self, cluster: Cluster, used_by: dict[Node, list[Node]], results: set[Node]
    ) -> Cluster | None:
        targets: set[Cluster] = set()
        stack = [(m, True) for m in cluster.members]
        while stack:
            current, own = stack.pop()
            if current in results:
                return None
            for user in used_by[current]:
                if user in self.owner:
                    other = self.owner[user]
                    if other is cluster:
                        continue
                    if isinstance(user.op, CONTRACTIONS) or not reads_once(user):
                        return None
                    if other.kind != "loop" and (not own or current.tensor.shape != other.space):
                        return None
                    targets.add(other)
                elif isinstance(user.op, ONE_TO_ONE) and len(used_by[current]) == 1:
                    if isinstance(user.op, Reshape) and squeezed(user.tensor.shape) != squeezed(
                        current.tensor.shape
                    ):
                        return None
                    stack.append((user, False))
                else:
                    return None
        return targets.pop() if len(targets) == 1 else None


def fuse(
    graph: Graph, no_kernel: Callable[[Node], str | None] = lambda _: None
) -> tuple[Graph, list[Decision]]:
    """The graph with every kernel as one `fusion` node, and the decisions taken.

    `no_kernel` gives the reason why a node has no kernel form, or None. Such nodes, and those that
    no kernel computes (host calls, control flow) stay as they are.
    """
    order = execution_order(graph)
    fuser = _Fuser(graph, no_kernel, before=settlers(graph))
    fuser.grow(order)
    fuser.melt(order)
    fuser.share(order)
    builder = Builder(graph, order, fuser.owner, fuser.alone, fuser.scalars)
    return builder.build(), fuser.decisions
