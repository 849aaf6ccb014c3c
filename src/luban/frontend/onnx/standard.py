"""What the standard itself says of one node: how many inputs it takes, what its results are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import onnx
from onnx.shape_inference import InferenceError

from luban.core.types import TupleType
from luban.frontend.onnx.context import NodeContext
from luban.frontend.onnx.functions import schema_of
from luban.frontend.onnx.value_types import type_proto
from luban.graph.ops.data import Constant
from luban.ir.node import Node

__all__ = ["check_inputs", "inferred_types", "refusal"]

Handler = Callable[..., Any]


@cache
def _accepted(handler: Handler) -> tuple[int, int | None, tuple[bool, ...]]:
    """How many inputs a handler takes at least and at most, if limited; which must be there."""
    parameters = list(inspect.signature(handler).parameters.values())[1:]
    low = sum(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in parameters)
    has_limit = all(p.kind is not p.VAR_POSITIONAL for p in parameters)
    needed = tuple("None" not in str(p.annotation) for p in parameters)
    return low, len(parameters) if has_limit else None, needed


def check_inputs(handler: Handler, context: NodeContext, inputs: Sequence[Node | None]) -> None:
    """Raises ModelError if the node has too many or too few inputs, or leaves a needed one out."""
    low, high, needed = _accepted(handler)
    schema = schema_of(context.domain, context.op, context.opset)
    if schema is not None:
        low = max(low, int(schema.min_input))
    if len(inputs) < low or (high is not None and len(inputs) > high):
        upper = "more" if high is None else str(high)
        wanted = str(low) if high == low else f"{low} to {upper}"
        raise context.wrong(f"{len(inputs)} inputs, expected {wanted}")
    for i, x in enumerate(inputs):
        if x is None and needed and needed[min(i, len(needed) - 1)]:
            raise context.wrong(f"input {i} is left out, but it is needed")


def inferred_types(
    context: NodeContext, proto: onnx.NodeProto, inputs: Sequence[Node | None]
) -> dict[str, onnx.TypeProto]:
    """What ONNX infers about the results, by name; nothing where it cannot tell."""
    try:
        result = onnx.shape_inference.infer_shapes(_model(context, proto, inputs), data_prop=True)
    except (InferenceError, RuntimeError):
        return {}
    return {v.name: v.type for v in result.graph.output if v.type.WhichOneof("value")}


def refusal(
    context: NodeContext, proto: onnx.NodeProto, inputs: Sequence[Node | None]
) -> str | None:
    """Why the standard does not allow this node on these inputs; None if it has no objection."""
    if any(x is not None and isinstance(x.type, TupleType) for x in inputs):
        return None
    try:
        model = _model(context, proto, inputs)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except (InferenceError, RuntimeError) as error:
        return str(error).strip().splitlines()[-1]
    return None


def _model(
    context: NodeContext, proto: onnx.NodeProto, inputs: Sequence[Node | None]
) -> onnx.ModelProto:
    """The node alone as a model; its small constants are known."""
    alone = onnx.NodeProto()
    alone.CopyFrom(proto)
    del alone.attribute[:]
    alone.attribute.extend(context.attributes.values())
    named = {name: x for name, x in zip(proto.input, inputs, strict=False) if x is not None}
    graph = onnx.GraphProto(name="one_node", node=[alone])
    for name, x in named.items():
        graph.input.add(name=name, type=type_proto(x.type))
        if isinstance(x.op, Constant) and x.op.value.array.size <= 64:
            graph.initializer.append(onnx.numpy_helper.from_array(x.op.value.array, name))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in proto.output if name)
    opset = [onnx.helper.make_opsetid(d, v) for d, v in context.scope.opset.items()]
    return onnx.helper.make_model(graph, opset_imports=opset)
