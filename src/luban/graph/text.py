"""The text form of graphs: prints, and `luban.graph.parse` reads it back to the same nodes.

    program  = graph { graph }                 sub-graphs first, the program itself last
    graph    = "graph" "@" name [ bounds ] "(" [ param { "," param } ] ")" "{"
                   { node } "return" [ result { "," result } ] "}"
    bounds   = "[" bound { "," bound } "]"     of the sizes that have any
    bound    = ident ":" int ".." [ int ]
    param    = value ":" type
    node     = value "=" ident "(" [ value { "," value } ] ")" [ attrs ] ":" type
    result   = value [ "as" string ]
    attrs    = "{" ident "=" attr { "," ident "=" attr } "}"    those that differ from their default
    attr     = int | float | "true" | "false" | "none" | string | dtype | type
             | "<" size ">" | "@" name | literal | "(" [ attr { "," attr } [ "," ] ] ")"
    literal  = "literal" "(" type "," "[" [ item { "," item } ] "]" [ "," string ] ")"
             | "external" "(" type "," string [ "," string ] ")"     its array comes by name
    item     = int | float | "true" | "false" | string | "0x" bits of a NaN
    type     = dtype "[" [ size { "," size } ] "]" | "(" [ type { "," type } ] ")"
             | "seq" "<" type ">" | "optional" "<" type ">"
    size     = what luban.core.dims.parse reads
    value    = "%" name          name = ident | int | string          "#" starts a comment

>>> from luban.core.types import tensor
>>> from luban.graph import build
>>> x = build.parameter("x", tensor("f32", "n", 4))
>>> print(print_graph(Graph("scale", (x,), (build.multiply(x, 2.0),), ("y",))).text)
graph @scale(%x: f32[n,4]) {
  %0 = constant() {value=literal(f32[], [2.0])} : f32[]
  %1 = broadcast_in_dim(%0) {shape=(<n>, 4), axes=()} : f32[n,4]
  %2 = multiply(%x, %1) : f32[n,4]
  return %2 as "y"
}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from luban.core import dims
from luban.core.dims import Dim, Symbol
from luban.core.dtypes import DType, from_numpy
from luban.core.errors import InternalError
from luban.core.types import (
    OptionalType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    type_of_array,
)
from luban.graph.meaning.context import Array, widened
from luban.graph.ops.data import Literal
from luban.ir.node import Graph, Node, Op, Parameter
from luban.ir.rewrite import inner_graphs

__all__ = ["Printed", "print_graph"]

IDENTIFIER = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)


class Printed(NamedTuple):
    """A graph as text, and the arrays too large to stand in it, by the name they have there."""

    text: str
    literals: dict[str, Array]


def print_graph(graph: Graph, *, max_inline: int = 16, locations: bool = False) -> Printed:
    """The text of a graph and its sub-graphs, the same for the same program.

    Literals of more than `max_inline` elements are named and returned beside the text.
    `locations` adds where each node came from as a comment.
    """
    printer = _Printer(max_inline, locations)
    printer.graph(graph)
    return Printed("\n\n".join(printer.blocks) + "\n", printer.literals)


def name_text(name: str) -> str:
    """A name as it stands after % or @: quoted unless it is an identifier."""
    return name if IDENTIFIER.fullmatch(name) else json.dumps(name)


class _Printer:
    def __init__(self, max_inline: int, locations: bool) -> None:
        self.max_inline = max_inline
        self.locations = locations
        self.blocks: list[str] = []
        self.names: dict[Graph, str] = {}
        self.literals: dict[str, Array] = {}
        self.external: dict[Literal, str] = {}

    def graph(self, graph: Graph) -> str:
        """Print a graph once, its sub-graphs before it; gives the name it has in the text."""
        if graph in self.names:
            return self.names[graph]
        order = graph.nodes()
        for n in order:
            for inner in inner_graphs(n.op).values():
                self.graph(inner)
        name = self.names[graph] = _unused(graph.name or "graph", self.names.values())
        values: dict[Node, str] = {p: f"%{name_text(_label(p))}" for p in graph.parameters}
        parameters = ", ".join(f"{values[p]}: {p.type}" for p in graph.parameters)
        lines = [f"graph @{name_text(name)}{_bounds(graph, order)}({parameters}) {{"]
        numbers = (i for i in count() if str(i) not in graph.parameter_names)
        for n in order:
            if n not in values:
                values[n] = f"%{next(numbers)}"
                lines.append("  " + self.node(n, values))
        names = graph.result_names or ("",) * len(graph.results)
        results = (
            values[r] + (f" as {json.dumps(label)}" if graph.result_names else "")
            for r, label in zip(graph.results, names, strict=True)
        )
        lines.append(f"  return {', '.join(results)}".rstrip())
        self.blocks.append("\n".join([*lines, "}"]))
        return name

    def node(self, n: Node, values: dict[Node, str]) -> str:
        if isinstance(n.op, Parameter):
            raise InternalError(f"parameter {n.op.label!r} is used but not declared")
        operands = ", ".join(values[o] for o in n.operands)
        given = ", ".join(f"{k}={self.attribute(v)}" for k, v in _attributes(n.op))
        attributes = f" {{{given}}}" if given else ""
        comment = f"  # {n.loc}" if self.locations and n.loc else ""
        return f"{values[n]} = {n.op.name}({operands}){attributes} : {n.type}{comment}"

    def attribute(self, value: object) -> str:
        match value:
            case None:
                return "none"
            case bool():
                return "true" if value else "false"
            case int() | float() | DType():
                return str(value)
            case str():
                return json.dumps(value)
            case Dim():
                return f"<{value}>"
            case tuple():
                comma = "," if len(value) == 1 else ""
                return f"({', '.join(map(self.attribute, value))}{comma})"
            case TensorType() | SequenceType() | OptionalType() | TupleType():
                return str(value)
            case Graph():
                return f"@{name_text(self.names[value])}"
            case Literal():
                return self.literal(value)
        raise InternalError(f"attribute {value!r} has no text form")

    def literal(self, literal: Literal) -> str:
        array, type_ = literal.array, type_of_array(literal.array)
        label = f", {json.dumps(literal.label)}" if literal.label else ""
        if array.size <= self.max_inline:
            return f"literal({type_}, [{', '.join(_items(array))}]{label})"
        if literal not in self.external:
            name = _unused(literal.label or "literal", self.literals)
            self.external[literal] = name
            self.literals[name] = array
        return f"external({type_}, {json.dumps(self.external[literal])}{label})"


def _label(parameter: Node) -> str:
    assert isinstance(parameter.op, Parameter)
    return parameter.op.label


def _unused(wanted: str, taken: Any) -> str:
    candidates = (wanted if not i else f"{wanted}.{i}" for i in count())
    return next(name for name in candidates if name not in taken)


def _attributes(op: Op) -> Iterator[tuple[str, object]]:
    for f in fields(op):
        value = getattr(op, f.name)
        if not f.compare:
            continue
        if f.default is MISSING or value != f.default or type(value) is not type(f.default):
            yield f.name, value


def _items(array: Array) -> Iterator[str]:
    element = from_numpy(array.dtype)
    if element.kind == "string":
        yield from (json.dumps(str(item)) for item in array.ravel().tolist())
        return
    plain = np.ascontiguousarray(array).ravel()
    if element.kind == "complex":
        plain = plain.view(plain.real.dtype)
    values = widened(plain).tolist()
    bits = plain.view(f"u{plain.dtype.itemsize}")
    for value, pattern in zip(values, bits.tolist(), strict=True):
        if isinstance(value, bool):
            yield "true" if value else "false"
        else:
            yield hex(pattern) if value != value else repr(value)


def _bounds(graph: Graph, order: list[Node]) -> str:
    found: dict[str, Symbol] = {}
    for n in (*graph.parameters, *order):
        for symbol in (
            *_type_symbols(n.type),
            *_value_symbols(tuple(dict(_attributes(n.op)).values())),
        ):
            found.setdefault(symbol.name, symbol)
    bounded = [s for _, s in sorted(found.items()) if (s.low, s.high) != (0, dims.UNBOUNDED)]
    if not bounded:
        return ""
    return (
        "["
        + ", ".join(
            f"{s.name}: {s.low}..{s.high if s.high < dims.UNBOUNDED else ''}" for s in bounded
        )
        + "]"
    )


def _type_symbols(type_: Type) -> Iterator[Symbol]:
    match type_:
        case TensorType():
            yield from _value_symbols(type_.shape)
        case TupleType():
            for item in type_.items:
                yield from _type_symbols(item)
        case SequenceType() | OptionalType():
            yield from _type_symbols(type_.item)


def _value_symbols(value: object) -> Iterator[Symbol]:
    match value:
        case Dim():
            yield from dims.symbols(value)
        case tuple():
            for item in value:
                yield from _value_symbols(item)
        case TensorType() | SequenceType() | OptionalType() | TupleType():
            yield from _type_symbols(value)
