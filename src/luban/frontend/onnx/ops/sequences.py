"""Sequences and optionals: lists and maybe-values, handled by host steps."""

from __future__ import annotations

from luban.core.types import OptionalType, SequenceType, TensorType, Type, tensor
from luban.frontend.onnx.joining import joined_items
from luban.frontend.onnx.registry import NodeContext, op
from luban.frontend.onnx.value_types import UNRANKED, SymbolNames, is_unranked, type_of
from luban.graph import build
from luban.graph.host import sequences as host_sequences
from luban.ir.node import Node

__all__ = ["fresh_sizes"]

_ = host_sequences  # registers the host functions


def fresh_sizes(type_: Type, names: SymbolNames, hint: str) -> Type:
    """The type of one value of that kind: its sizes are its own, so each becomes a fresh symbol."""
    if not isinstance(type_, TensorType):
        return type_
    return type_.with_shape(
        s if isinstance(s, int) else names.fresh(f"{hint}_{i}") for i, s in enumerate(type_.shape)
    )


@op("SequenceEmpty", since=11)
def sequence_empty(ctx: NodeContext) -> tuple[Node, ...]:
    """A list of nothing; what goes in later says the number of axes."""
    item = TensorType(ctx.dtype("dtype", tensor("f32").dtype), (UNRANKED,))
    return ctx.host_call("sequence_construct", [], [SequenceType(item)])


@op("SequenceConstruct", since=11)
def sequence_construct(ctx: NodeContext, *items: Node) -> tuple[Node, ...]:
    """The inputs as a list."""
    item: Type = items[0].type
    for other in items[1:]:
        item = joined_items(item, other.type)
    return ctx.host_call("sequence_construct", items, [SequenceType(item)])


@op("SequenceAt", since=11)
def sequence_at(ctx: NodeContext, sequence: Node, position: Node) -> tuple[Node, ...]:
    """One item; negative positions count from the end."""
    item = _sequence(ctx, sequence).item
    return ctx.host_call("sequence_at", [sequence, position], [_one_item(ctx, item)])


def _one_item(ctx: NodeContext, item: Type) -> Type:
    """The type of an item taken out; the model may state axes that the list does not know."""
    if is_unranked(item):
        stated = ctx.declared_type(0)
        if stated is None or not stated.tensor_type.HasField("shape"):
            raise ctx.unsupported(
                f"items of {SequenceType(item)} have no known number of axes",
                "state the result's shape in value_info",
            )
        item = type_of(stated, ctx.proto.output[0], ctx.importer.names)
    return fresh_sizes(item, ctx.importer.names, "item")


@op("SequenceInsert", since=11)
def sequence_insert(
    ctx: NodeContext, sequence: Node, item: Node, position: Node | None = None
) -> tuple[Node, ...]:
    """The list with an item put in before a position, by default at the end."""
    type_ = SequenceType(joined_items(_sequence(ctx, sequence).item, item.type))
    inputs = [sequence, item] if position is None else [sequence, item, position]
    return ctx.host_call("sequence_insert", inputs, [type_])


@op("SequenceErase", since=11)
def sequence_erase(
    ctx: NodeContext, sequence: Node, position: Node | None = None
) -> tuple[Node, ...]:
    """The list without one item, by default the last."""
    inputs = [sequence] if position is None else [sequence, position]
    return ctx.host_call("sequence_erase", inputs, [_sequence(ctx, sequence)])


@op("SequenceLength", since=11)
def sequence_length(ctx: NodeContext, sequence: Node) -> tuple[Node, ...]:
    """The number of items."""
    return ctx.host_call("sequence_length", [sequence], [tensor("i64")])


@op("SplitToSequence", since=11)
def split_to_sequence(ctx: NodeContext, x: Node, split: Node | None = None) -> tuple[Node, ...]:
    """Pieces along an axis: of the given sizes, of one size, or single slices."""
    axis = ctx.int("axis", 0) % x.tensor.rank
    keep = bool(ctx.int("keepdims", 1)) or split is not None
    rest = [s for i, s in enumerate(x.tensor.shape) if i != axis]
    if keep:
        rest.insert(axis, ctx.fresh("piece"))
    inputs = [x] if split is None else [x, split]
    item = x.tensor.with_shape(rest)
    return ctx.host_call(
        "split_to_sequence", inputs, [SequenceType(item)], axis=axis, keep_axis=keep
    )


@op("ConcatFromSequence", since=11)
def concat_from_sequence(ctx: NodeContext, sequence: Node) -> tuple[Node, ...]:
    """All items joined along an axis, which may be a new one."""
    item = _sequence(ctx, sequence).item
    if not isinstance(item, TensorType) or is_unranked(item):
        raise ctx.unsupported(f"items of {sequence.type} have no known number of axes")
    new_axis = bool(ctx.int("new_axis", 0))
    rank = item.rank + new_axis
    axis = ctx.int("axis") % rank
    shape = [ctx.fresh("joined") for _ in range(rank)]
    return ctx.host_call(
        "concat_from_sequence", [sequence], [item.with_shape(shape)], axis=axis, new_axis=new_axis
    )


def _sequence(ctx: NodeContext, x: Node) -> SequenceType:
    if not isinstance(x.type, SequenceType):
        raise ctx.wrong(f"input is {x.type}, expected a sequence")
    return x.type


@op("Optional", since=15)
def optional(ctx: NodeContext, value: Node | None = None) -> tuple[Node, ...]:
    """A value as an optional, or nothing of a stated type."""
    if value is not None:
        return ctx.host_call("optional", [value], [OptionalType(value.type)])
    stated = ctx.attributes.get("type")
    if stated is None:
        raise ctx.wrong("neither a value nor attribute 'type' is given")
    return ctx.host_call(
        "optional", [], [OptionalType(type_of(stated.tp, ctx.op, ctx.importer.names))]
    )


@op("OptionalHasElement", since=15)
def optional_has_element(ctx: NodeContext, value: Node | None = None) -> Node | tuple[Node, ...]:
    """Whether there is a value. Tensors and sequences always are one."""
    if value is None:
        return build.constant(False, "bool")
    if not isinstance(value.type, OptionalType):
        return build.constant(True, "bool")
    return ctx.host_call("optional_has_element", [value], [tensor("bool")])


@op("OptionalGetElement", since=15)
def optional_get_element(ctx: NodeContext, value: Node) -> Node | tuple[Node, ...]:
    """The value of an optional; an error at run time if there is none."""
    if not isinstance(value.type, OptionalType):
        return value
    item = value.type.item
    inside = item if isinstance(item, SequenceType) else _one_item(ctx, item)
    return ctx.host_call("optional_get_element", [value], [inside])
