"""Sub-graphs of If, Loop and Scan: read in a scope of their own, then closed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx

from luban.core.errors import ModelError
from luban.core.types import Type
from luban.frontend.onnx.context import NodeContext
from luban.frontend.onnx.scope import Failed, Scope, declared_types
from luban.frontend.onnx.settling import with_settlers
from luban.frontend.onnx.size_checks import with_branch_checks, with_size_checks
from luban.graph import build
from luban.ir.node import Graph, Node

__all__ = ["Body", "read_body"]


@dataclass(frozen=True, slots=True)
class Body:
    """A sub-graph: what its parameters are, what it gives, what it uses from outside."""

    path: str
    parameters: tuple[Node, ...]
    results: tuple[Node, ...]
    scope: Scope
    inner: frozenset[str]

    @property
    def captured(self) -> tuple[Node, ...]:
        """The outer nodes that it uses, in the order of first use."""
        return tuple(self.scope.captured)

    def closed(self, captured: Iterable[Node], results: Sequence[Node] | None = None) -> Graph:
        """As a graph that takes `captured`, used or not, after its own parameters."""
        inside = [
            self.scope.captured.get(outer) or build.parameter(f"{self.path}/unused_{i}", outer.type)
            for i, outer in enumerate(captured)
        ]
        given = tuple(self.results if results is None else results)
        return Graph(self.path, (*self.parameters, *inside), given)


def read_body(
    context: NodeContext, proto: onnx.GraphProto, path: str, types: Sequence[Type], *, closed: bool
) -> Body:
    """Translate a sub-graph whose inputs have the given types.

    With `closed` outer values are captured; without, it becomes part of the enclosing graph.
    Raises ModelError if it takes another number of inputs, UnsupportedError if a result has no
    translation.
    """
    if len(proto.input) != len(types):
        raise ModelError(
            f"{context.op}: sub-graph {proto.name!r} takes {len(proto.input)} values, "
            f"given {len(types)}",
            loc=context.loc,
        )
    importer = context.importer
    place = f"{context.loc.path}/{path}"
    scope = Scope(
        place,
        context.scope.opset,
        context.scope,
        closed=closed,
        attributes=context.scope.attributes,
        declared=declared_types(proto),
    )
    importer.add_initializers(proto, scope)
    first_inner = len(importer.names.created)
    parameters = [
        build.parameter(f"{place}/{value.name}", type_)
        for value, type_ in zip(proto.input, types, strict=True)
    ]
    scope.values.update(zip((v.name for v in proto.input), parameters, strict=True))
    outer = importer.made, importer.size_checks, importer.branch_checks
    if closed:
        importer.made, importer.size_checks, importer.branch_checks = [], [], []
    try:
        importer.walk(proto.node, scope)
        results = tuple(_result(context, scope, value.name) for value in proto.output)
        if closed:
            importer.loose.refuse((*results, *scope.captured))
            known = (*parameters, *scope.captured.values())
            results = with_branch_checks(results, importer.branch_checks)
            results = with_settlers(results, known, importer.made)
            results = with_size_checks(results, known, importer.size_checks)
    finally:
        importer.made, importer.size_checks, importer.branch_checks = outer
    inner = frozenset(importer.names.created[first_inner:])
    return Body(place, tuple(parameters), results, scope, inner)


def _result(context: NodeContext, scope: Scope, name: str) -> Node:
    found = scope.find(name)
    if isinstance(found, Failed):
        raise context.unsupported("a result of its sub-graph has no translation (see its nodes)")
    if found is None:
        raise ModelError(
            f"{context.op}: its sub-graph states the result {name!r}, which nothing makes",
            loc=context.loc,
        )
    return found
