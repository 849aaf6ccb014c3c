"""Nodes: one operation applied to values, interned so that equal pure programs are the same object.

See docs/adr/0001-node-and-interning.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from luban.core.dims import Dim, symbol_bounds
from luban.core.errors import InternalError, LubanError
from luban.core.loc import Loc
from luban.core.types import OptionalType, SequenceType, TensorType, TupleType, Type

__all__ = [
    "GetItem",
    "Graph",
    "Node",
    "Op",
    "Parameter",
    "located",
    "map_graph",
    "node",
    "results_of",
    "topological",
    "users",
]


@dataclass(frozen=True, slots=True)
class Op:
    """What a node does. Subclasses are frozen dataclasses whose fields are the attributes.

    `infer` gives the result type from the operand types and raises ShapeError or DTypeError on
    operands that do not fit.
    """

    name: ClassVar[str] = ""

    def infer(self, *operands: Type) -> Type:
        """The type of the result; a TupleType for several results. Every subclass has its own.

        (No abstract method: `isinstance`, the question passes ask most, is slow for such classes.)
        """
        raise NotImplementedError

    def identity(self) -> tuple[object, ...]:
        """Equal identities mean the same operation.

        Fields that are not compared say where an operation came from.

        Floats compare by bits: 0.0 is not -0.0, and 1 is not True. Sizes compare with the bounds of
        their symbols.
        """
        compared = (f.name for f in fields(self) if f.compare)
        return (type(self), *(_frozen(getattr(self, name)) for name in compared))


def _frozen(value: object) -> object:
    if isinstance(value, float):
        return ("float", struct.pack("<d", value))
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, tuple):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, Dim):
        return (value, symbol_bounds(value))  # the n of one program may be 0, of another not
    if isinstance(value, TensorType):
        return (value.dtype, _frozen(value.shape))
    if isinstance(value, TupleType):
        return (TupleType, _frozen(value.items))
    if isinstance(value, SequenceType | OptionalType):
        return (type(value), _frozen(value.item))
    return value


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Node:
    """One operation applied to values.

    Built only by `node()`, which interns: two nodes with the same op and operands are the same
    object, so `is` compares programs and a dict on nodes is a memo table. `loc` is carried along
    but is not part of the identity.
    """

    op: Op
    operands: tuple[Node, ...]
    type: Type
    loc: Loc | None = field(default=None, repr=False)

    @property
    def tensor(self) -> TensorType:
        """The type, known to be a tensor; InternalError if it is not."""
        if not isinstance(self.type, TensorType):
            raise InternalError(
                f"{self.op.name} gives {self.type}, expected a tensor", loc=self.loc
            )
        return self.type

    def __repr__(self) -> str:
        return f"<{self.op.name} : {self.type}>"


_interned: WeakValueDictionary[tuple[object, ...], Node] = WeakValueDictionary()
_location: ContextVar[Loc | None] = ContextVar("location", default=None)


@contextmanager
def located(loc: Loc) -> Iterator[None]:
    """Within the block, nodes built without a location get this one: no need to pass it on."""
    token = _location.set(loc)
    try:
        yield
    finally:
        _location.reset(token)


def node(op: Op, *operands: Node, loc: Loc | None = None) -> Node:
    """The node that applies `op` to the operands; the same object for the same arguments.

    Raises what `op.infer` raises, with the location and the op's name added.
    """
    key = (op.identity(), operands)
    found = _interned.get(key)
    if found is None:
        loc = loc or _location.get()
        try:
            inferred = op.infer(*(operand.type for operand in operands))
        except LubanError as error:
            if not error.message.startswith(op.name):
                error.message = f"{op.name}: {error.message}"
            raise error.located(loc) from None
        found = Node(op, operands, inferred, loc)
        _interned[key] = found
    return found


@dataclass(frozen=True, slots=True)
class Parameter(Op):
    """An input of a graph, known by its name within that graph."""

    name: ClassVar[str] = "parameter"
    label: str
    type: Type

    def infer(self, *_: Type) -> Type:
        """The declared type."""
        return self.type


@dataclass(frozen=True, slots=True)
class GetItem(Op):
    """One result of an operation that has several."""

    name: ClassVar[str] = "get_item"
    index: int

    def infer(self, *operands: Type) -> Type:
        """The type of that result."""
        (given,) = operands
        if not isinstance(given, TupleType) or not 0 <= self.index < len(given.items):
            raise InternalError(f"get_item {self.index} of {given}")
        return given.items[self.index]


@dataclass(frozen=True, eq=False, slots=True)
class Graph:
    """A closed program: parameters, results and the names they carry. Compared by identity.

    Everything a sub-graph needs from outside comes in as a parameter, so each graph can be read,
    run and cut alone.
    """

    name: str
    parameters: tuple[Node, ...]
    results: tuple[Node, ...]
    result_names: tuple[str, ...] = ()
    _order: list[Node] = field(init=False, repr=False)  # see `nodes`

    def __post_init__(self) -> None:
        if self.result_names and len(self.result_names) != len(self.results):
            raise InternalError(
                f"graph {self.name}: {len(self.results)} results, {len(self.result_names)} names"
            )

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The labels of the parameters in order."""
        return tuple(p.op.label for p in self.parameters if isinstance(p.op, Parameter))

    def nodes(self) -> list[Node]:
        """Every node that a result needs, operands first."""
        try:
            order = self._order
        except AttributeError:
            order = topological(self.results)
            object.__setattr__(self, "_order", order)
        return list(order)

    def __repr__(self) -> str:
        return f"<graph {self.name}>"


def results_of(result: Node) -> tuple[Node, ...]:
    """A node with several results as a tuple of `get_item`s; any other node as a 1-tuple."""
    if not isinstance(result.type, TupleType):
        return (result,)
    return tuple(node(GetItem(i), result, loc=result.loc) for i in range(len(result.type.items)))


def topological(roots: Iterable[Node]) -> list[Node]:
    """Every node reachable from the roots, operands before users, in a fixed order.

    Walks with a stack: depth is no limit.
    """
    order: list[Node] = []
    seen: set[Node] = set()
    for root in roots:
        stack: list[tuple[Node, Iterator[Node]]] = (
            [] if root in seen else [(root, iter(root.operands))]
        )
        seen.add(root)
        while stack:
            current, rest = stack[-1]
            for following in rest:
                if following not in seen:
                    seen.add(following)
                    stack.append((following, iter(following.operands)))
                    break
            else:
                order.append(current)
                stack.pop()
    return order


def users(nodes: Sequence[Node]) -> dict[Node, list[Node]]:
    """For each node those of `nodes` that have it as an operand, once per user, in order."""
    found: dict[Node, list[Node]] = {n: [] for n in nodes}
    for n in nodes:
        for operand in dict.fromkeys(n.operands):
            found.setdefault(operand, []).append(n)
    return found


def map_graph(
    graph: Graph,
    build: Callable[[Node, tuple[Node, ...]], Node],
    parameters: Mapping[Node, Node] | None = None,
) -> Graph:
    """The graph rebuilt from the operands up: `build(old, new_operands)` gives each new node.

    `parameters` maps old parameters to new ones; those left out stay as they are. A graph in which
    nothing changes comes back as it is.
    """
    new: dict[Node, Node] = {p: p for p in graph.parameters} | dict(parameters or {})
    for old in graph.nodes():
        if old not in new:
            new[old] = build(old, tuple([new[operand] for operand in old.operands]))
    if all(new[old] is old for old in (*graph.parameters, *graph.results)):
        return graph
    return Graph(
        graph.name,
        tuple(new[p] for p in graph.parameters),
        tuple(new[r] for r in graph.results),
        graph.result_names,
    )


def rebuilt(old: Node, operands: tuple[Node, ...]) -> Node:
    """The same operation on other operands: the default `build` of `map_graph`."""
    return old if operands == old.operands else node(old.op, *operands, loc=old.loc)


def attributes(op: Op) -> dict[str, Any]:
    """The attributes by name, in order of definition."""
    return {f.name: getattr(op, f.name) for f in fields(op) if f.compare}
