"""Rewriting: named rules, applied from the operands up until none fires.

A rule looks at one node and gives a node of the same type and meaning, `None` if it does not
match, or `Decline("why")` for a near miss that `luban explain` shows. The engine, not the rule,
checks that the type is unchanged, and blames the rule by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from luban.core.errors import InternalError, OptionError
from luban.core.loc import Loc
from luban.ir.node import Graph, Node, Op, Parameter, attributes, located, node, rebuilt

__all__ = ["Decline", "Declined", "Effects", "Rule", "inner_graphs", "rewrite", "rule"]

MAX_CHAIN = 200  # rewrites of one node in a row; a longer chain means rules that undo one another


@dataclass(frozen=True, slots=True)
class Decline:
    """A rule's answer to a near miss: it matched the shape, but may not fire for this reason."""

    why: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A named rewrite of nodes with certain ops. Made by `@rule`."""

    name: str
    ops: tuple[type[Op], ...]
    doc: str
    function: Callable[[Node], Node | Decline | None] = field(repr=False)

    def __call__(self, root: Node) -> Node | Decline | None:
        """Apply the rule to one node."""
        return self.function(root)


def rule(*ops: type[Op]) -> Callable[[Callable[[Node], Node | Decline | None]], Rule]:
    """Make a function a rule for nodes of these ops; its name is the rule's, its docstring says it.

    Raises InternalError without ops or a docstring.

    >>> @rule(Parameter)
    ... def keep(n):
    ...     \"\"\"x -> x\"\"\"
    >>> keep.name, keep.doc
    ('keep', 'x -> x')
    """

    def make(function: Callable[[Node], Node | Decline | None]) -> Rule:
        doc = (function.__doc__ or "").strip()
        if not ops or not doc:
            raise InternalError(f"rule {function.__name__} needs an op and a docstring")
        return Rule(function.__name__, ops, doc, function)

    return make


@dataclass(frozen=True, slots=True)
class Declined:
    """A near miss: which rule, at a node of which op and place, and why it did not fire."""

    rule: str
    op: str
    loc: Loc | None
    why: str
    node: Node = field(repr=False, compare=False)


@dataclass(slots=True)
class Effects:
    """What a rewrite did: how often each rule fired, and the near misses."""

    applied: Counter[str] = field(default_factory=Counter)
    declined: list[Declined] = field(default_factory=list)

    @property
    def num_rewrites(self) -> int:
        """How often any rule fired."""
        return self.applied.total()


Hook: TypeAlias = Callable[[Rule, Node, Node], None]


def inner_graphs(op: Op) -> dict[str, Graph]:
    """The sub-graphs among an op's attributes, by name."""
    return {name: v for name, v in attributes(op).items() if isinstance(v, Graph)}


def rewrite(
    graph: Graph,
    rules: Iterable[Rule],
    *,
    without: frozenset[str] = frozenset(),
    limit: int | None = None,
    on_rewrite: Hook | None = None,
) -> tuple[Graph, Effects]:
    """Apply rules everywhere, sub-graphs included, until none fires.

    A graph in which nothing fires comes back as it is.


    without     names of rules to leave out
    limit       stop rewriting after that many, so that a bisection can find a guilty one
    on_rewrite  called with the rule, the old and the new node, each time

    Takes time linear in nodes and rewrites, and no recursion but for nested sub-graphs.
    Raises InternalError that names the rule if a type changes or rules undo one another, and
    OptionError for a negative limit or two rules of one name.
    """
    chosen = [r for r in rules if r.name not in without]
    repeated = [name for name, count in Counter(r.name for r in chosen).items() if count > 1]
    if repeated or (limit is not None and limit < 0):
        raise OptionError(
            f"two rules are called {repeated[0]}"
            if repeated
            else f"limit is {limit}, expected at least 0"
        )
    engine = _Engine(chosen, limit, on_rewrite)
    return engine.graph(graph), engine.effects


class _Engine:
    """One run: rules by op, the memo of finished nodes, and what happened."""

    def __init__(self, rules: list[Rule], limit: int | None, on_rewrite: Hook | None) -> None:
        self.limit = limit
        self.on_rewrite = on_rewrite
        self.effects = Effects()
        self.rules: dict[type[Op], list[Rule]] = {}
        for r in rules:
            for op in r.ops:
                self.rules.setdefault(op, []).append(r)
        self.done: dict[Node, Node] = {}
        self.active: set[Node] = set()  # rewritten into something that is not finished yet
        self.graphs: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        """The rewritten graph; the same object if nothing changed."""
        if graph not in self.graphs:
            for result in graph.results:
                self.finish(result)
            results = tuple(self.done[r] for r in graph.results)
            new = graph if results == graph.results else replace(graph, results=results)
            self.graphs[graph] = new
        return self.graphs[graph]

    def finish(self, root: Node) -> None:
        """Fill `done` for the root and everything below it."""
        # Each entry is a node with the nodes that were rewritten into it, oldest first.
        stack: list[tuple[Node, tuple[Node, ...]]] = [(root, ())]
        while stack:
            current, origins = stack.pop()
            if current in self.done:
                self._settle(origins, self.done[current])
                continue
            missing = [o for o in current.operands if o not in self.done]
            if not self.active.isdisjoint(missing):
                raise self._endless(current)
            if missing:
                stack.append((current, origins))
                stack.extend((o, ()) for o in reversed(missing))
                continue
            built = self._rebuilt(current)
            if built in self.done:
                self._settle((*origins, current), self.done[built])
                continue
            new = self._apply(built)
            chain = (*origins, current, built)
            if new is None:
                self._settle(chain, built)
            elif new in self.active or new in chain or len(chain) > 2 * MAX_CHAIN:
                raise self._endless(built)
            else:
                self.active.update(chain)
                stack.append((new, chain))

    def _endless(self, place: Node) -> InternalError:
        fired = ", ".join(f"{name} {count}x" for name, count in self.effects.applied.items())
        return InternalError(
            f"rules feed one another without end at {place!r}: {fired}", loc=place.loc
        )

    def _settle(self, origins: tuple[Node, ...], final: Node) -> None:
        self.done[final] = final
        for origin in origins:
            self.done[origin] = final
        self.active.difference_update(origins)

    def _rebuilt(self, old: Node) -> Node:
        op = old.op
        if isinstance(op, Parameter):
            return old
        changed: Mapping[str, Graph] = {
            name: new
            for name, inner in inner_graphs(op).items()
            if (new := self.graph(inner)) is not inner
        }
        operands = tuple(self.done[o] for o in old.operands)
        if not changed:
            return rebuilt(old, operands)
        return node(replace(op, **changed), *operands, loc=old.loc)

    def _apply(self, old: Node) -> Node | None:
        """The result of the first rule that fires, checked; None if none does."""
        if self.limit is not None and self.effects.num_rewrites >= self.limit:
            return None
        for r in self.rules.get(type(old.op), ()):
            new = _tried(r, old)
            if isinstance(new, Decline):
                self.effects.declined.append(Declined(r.name, old.op.name, old.loc, new.why, old))
            elif new is not None and new is not old:
                if new.type != old.type:
                    raise InternalError(
                        f"rule {r.name} ({r.doc}) changed the type of {old.op.name} "
                        f"from {old.type} to {new.type}",
                        loc=old.loc,
                    )
                self.effects.applied[r.name] += 1
                if self.on_rewrite is not None:
                    self.on_rewrite(r, old, new)
                return new
        return None


def _tried(r: Rule, old: Node) -> Node | Decline | None:
    if old.loc is None:
        return r(old)
    with located(old.loc):
        return r(old)
