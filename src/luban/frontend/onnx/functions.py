"""Operators in terms of others: a model's own functions, and the bodies of ONNX's schemas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx
from onnx.defs import SchemaError

from luban.core.errors import ModelError
from luban.core.types import TupleType
from luban.frontend.onnx.scope import Failed, Scope, Value
from luban.frontend.onnx.value_types import type_proto
from luban.ir.node import Node

if TYPE_CHECKING:
    from luban.frontend.onnx.context import NodeContext
    from luban.frontend.onnx.importer import Importer

__all__ = ["Functions", "has_standard_body", "schema_of"]


class Functions:
    """The functions that one model brings along."""

    def __init__(self, functions: Iterable[onnx.FunctionProto]) -> None:
        self.protos = tuple(functions)
        self._by_name = {(f.domain, f.name, f.overload): f for f in self.protos}
        self._open: list[onnx.FunctionProto] = []

    def local(self, domain: str, proto: onnx.NodeProto) -> onnx.FunctionProto | None:
        """The model's function that the node calls; None if it calls none."""
        return self._by_name.get((domain, proto.op_type, proto.overload))

    def standard(
        self, domain: str, opset: int, context: NodeContext, inputs: Sequence[Node | None]
    ) -> onnx.FunctionProto | None:
        """The body that the operator's schema states for these input types; None if it has none."""
        schema = schema_of(domain, context.op, opset)
        if schema is None:
            return None
        if schema.has_context_dependent_function:
            proto = onnx.NodeProto()
            proto.CopyFrom(context.proto)
            del proto.attribute[:]
            proto.attribute.extend(context.attributes.values())
            types = [
                b""
                if x is None or isinstance(x.type, TupleType)
                else type_proto(x.type).SerializeToString()
                for x in inputs
            ]
            version = _version(schema.context_dependent_function_opset_versions, opset)
            content = schema.get_context_dependent_function_with_opset_version(
                version, proto.SerializeToString(), types
            )
            return onnx.FunctionProto.FromString(content) if content else None
        if not schema.has_function:
            return None
        version = _version(schema.function_opset_versions, opset)
        body: onnx.FunctionProto = onnx.FunctionProto.FromString(
            schema.get_function_with_opset_version(version)
        )
        return body

    def expand(
        self,
        importer: Importer,
        function: onnx.FunctionProto,
        context: NodeContext,
        inputs: Sequence[Node | None],
    ) -> tuple[Value, ...]:
        """The function's results on these inputs, its nodes added in place of the call.

        Raises ModelError for a function that calls itself.
        """
        if any(f is function for f in self._open):
            raise ModelError(f"function {function.domain}.{function.name} calls itself")
        scope = Scope(
            context.loc.path,
            _opset(function, context.scope.opset),
            is_function=True,
            attributes=_attributes(function, context),
            declared={v.name: v.type for v in function.value_info},
        )
        padded = [*inputs, *[None] * (len(function.input) - len(inputs))]
        for name, value in zip(function.input, padded, strict=False):
            if value is None:
                scope.absent.add(name)
            else:
                scope.values[name] = value
        self._open.append(function)
        try:
            importer.walk(function.node, scope)
        finally:
            self._open.pop()
        return tuple(
            _result(name, scope, function, needed=context.output_used(i))
            for i, name in enumerate(function.output)
        )


def _result(name: str, scope: Scope, function: onnx.FunctionProto, *, needed: bool) -> Value:
    value = scope.find(name)
    if value is None and not needed:
        return Failed("an output that the call does not use")
    if value is None:
        raise ModelError(f"function {function.domain}.{function.name} does not make {name!r}")
    return value


def _opset(function: onnx.FunctionProto, outer: Mapping[str, int]) -> dict[str, int]:
    own = {entry.domain: entry.version for entry in function.opset_import}
    return {**outer, **{"" if d == "ai.onnx" else d: v for d, v in own.items()}}


def _attributes(
    function: onnx.FunctionProto, context: NodeContext
) -> dict[str, onnx.AttributeProto]:
    """The call's attributes, else the function's own defaults, else those of the schema."""
    found = {a.name: a for a in function.attribute_proto}
    schema = schema_of(function.domain, function.name, context.opset)
    if schema is not None:
        for name, attribute in schema.attributes.items():
            if attribute.default_value.name:
                found.setdefault(name, attribute.default_value)
    return {**found, **context.attributes}


def _version(versions: Sequence[int], opset: int) -> int:
    """The newest body that fits the model's version, else the oldest there is."""
    fitting = [v for v in versions if v <= opset]
    return max(fitting) if fitting else min(versions)


def schema_of(domain: str, op: str, opset: int) -> Any:
    """ONNX's schema of an operator at a version of its operator set; None if it has none."""
    try:
        return onnx.defs.get_schema(op, opset, domain)
    except SchemaError:
        return None


def has_standard_body(domain: str, op: str, opset: int) -> bool:
    """True if the operator's schema states it in terms of others."""
    schema = schema_of(domain, op, opset)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)
