"""Nodes that cannot be built yet: a handler needs a value (axes, ...) that only the run knows.

Such a node becomes a host step: at run time the very same handler builds it with the value as a
constant, so the meaning is the static one. `explain` lists these steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from luban.core.types import Type
from luban.frontend.onnx.context import NodeContext, RunTimeValueNeeded
from luban.frontend.onnx.standard import inferred_types
from luban.frontend.onnx.value_types import SymbolNames, type_of
from luban.ir.node import Node

__all__ = ["STEP", "run_time_step"]

STEP = "onnx_node_at_run_time"


def run_time_step(
    context: NodeContext, inputs: Sequence[Node | None], results: Sequence[Type] | None = None
) -> tuple[Node, ...]:
    """The node as a host step. Raises RunTimeValueNeeded again if a result's rank is not known."""
    proto = onnx.NodeProto()
    proto.CopyFrom(context.proto)
    del proto.attribute[:]
    proto.attribute.extend(_whole(a, context) for a in context.attributes.values())
    used = [i for i in range(len(proto.output)) if proto.output[i]]
    types = (
        _result_types(context, proto, inputs, used) if results is None else dict(enumerate(results))
    )
    given = [x for x in inputs if x is not None]
    if types is None or any(a.type == onnx.AttributeProto.GRAPH for a in proto.attribute):
        raise RunTimeValueNeeded(given[-1])
    made = context.host_call(
        STEP,
        given,
        [types[i] for i in used],
        node=proto.SerializeToString(),
        opset=tuple(sorted(context.scope.opset.items())),
        functions=tuple(f.SerializeToString() for f in context.importer.functions.protos),
        types=tuple(None if x is None else x.type for x in inputs),
    )
    by_place = dict(zip(used, made, strict=True))
    return tuple(by_place.get(i, made[0]) for i in range(len(proto.output)))


def _whole(attribute: onnx.AttributeProto, context: NodeContext) -> onnx.AttributeProto:
    """The attribute with its tensor's data inside, not in a file."""
    if attribute.t.data_location != onnx.TensorProto.EXTERNAL:
        return attribute
    found = onnx.AttributeProto(name=attribute.name, type=attribute.type)
    array = context.importer.source.array(attribute.t, f"attribute {attribute.name!r}")
    found.t.CopyFrom(onnx.numpy_helper.from_array(array))
    return found


def _result_types(
    context: NodeContext,
    proto: onnx.NodeProto,
    inputs: Sequence[Node | None],
    used: Sequence[int],
) -> dict[int, Type] | None:
    """What the model, or else ONNX's inference, states about the results; all sizes are fresh."""
    declared = {i: t for i in used if (t := context.declared_type(i)) is not None and _has_rank(t)}
    inferred = inferred_types(context, proto, inputs) if len(declared) < len(used) else {}
    found: dict[int, Type] = {}
    for i in used:
        stated = declared.get(i) or inferred.get(proto.output[i])
        if stated is None or not _has_rank(stated):
            return None
        found[i] = _open_type(stated, proto.output[i], context.importer.names)
    return found


def _has_rank(stated: onnx.TypeProto) -> bool:
    kind = stated.WhichOneof("value")
    return kind is not None and (kind != "tensor_type" or stated.tensor_type.HasField("shape"))


def _open_type(stated: onnx.TypeProto, name: str, names: SymbolNames) -> Type:
    proto = onnx.TypeProto()
    proto.CopyFrom(stated)
    if proto.WhichOneof("value") == "tensor_type":
        for dim in proto.tensor_type.shape.dim:
            dim.Clear()
    return type_of(proto, name, names)
