"""Cast, CastLike and BitCast between all element types."""

from __future__ import annotations

from luban.core.dtypes import DTYPES, DType
from luban.core.types import TensorType
from luban.frontend.onnx.registry import NodeContext, op
from luban.graph import build
from luban.graph.host import strings as host_strings
from luban.ir.node import Node

__all__ = ["converted"]

_ = host_strings  # registers the host functions


@op("Cast", since=6)
def cast(ctx: NodeContext, x: Node) -> Node:
    """x in another element type. Floats go to integers truncated and clamped, NaN as 0."""
    return converted(ctx, x, ctx.dtype("to"))


@op("Cast", since=1)
def cast_by_name(ctx: NodeContext, x: Node) -> Node:
    """Version 1 names the type in words."""
    name = ctx.text("to").lower()
    if name not in _NAMES:
        raise ctx.wrong(f"to={name!r} is no element type", hint=f"one of {', '.join(_NAMES)}")
    return converted(ctx, x, DTYPES[_NAMES[name]])


@op("CastLike", since=15)
def cast_like(ctx: NodeContext, x: Node, like: Node) -> Node:
    """x in the element type of the second input."""
    return converted(ctx, x, like.tensor.dtype)


@op("BitCast", since=26)
def bit_cast(ctx: NodeContext, x: Node) -> Node:
    """The bits of x read as another element type of the same width."""
    target = ctx.dtype("to")
    if x.tensor.dtype.kind == "bool":  # a byte in ONNX
        x = build.cast(x, "u8")
    if target.kind == "bool" and x.tensor.dtype.bits == 8:
        return build.not_equal(build.bitcast(x, "u8"), 0)
    if target.bits != x.tensor.dtype.bits:
        raise ctx.wrong(f"{x.tensor} has {x.tensor.dtype.bits} bits an element, {target} not")
    return x if target is x.tensor.dtype else build.bitcast(x, target)


def converted(ctx: NodeContext, x: Node, target: DType) -> Node:
    """x as ONNX casts it, by the node's attributes `saturate` and `round_mode`."""
    given = x.tensor.dtype
    if given is target:
        return x
    if "string" in (given.kind, target.kind):
        name = "string_from_numbers" if target.kind == "string" else "numbers_from_string"
        result = TensorType(target, x.tensor.shape)
        return ctx.host_call(name, [x], [result], dtype=target.name)[0]
    if target.name == "f8e8m0":
        return _to_power_of_two(ctx, x)
    is_small_float = target.is_float and target.bits <= 8
    saturate = bool(ctx.int("saturate", 1)) if is_small_float else True
    if given.is_float and target.is_integer and target.bits < 8:
        return build.cast(build.cast(x, "i32"), target)
    return build.cast(x, target, saturate=saturate)


def _to_power_of_two(ctx: NodeContext, x: Node) -> Node:
    """To f8e8m0: the exponent alone, rounded up, down or to nearest; the sign is dropped."""
    mode = ctx.text("round_mode", "up")
    bits = build.bitcast(build.cast(x, "f32"), "u32")
    exponent = build.bitwise_and(build.shift_right(bits, 23), 255)
    fraction = build.bitwise_and(bits, (1 << 23) - 1)
    if mode == "up":
        carries = build.greater(fraction, 0)
    elif mode == "nearest":
        # Ties go up, but between 0 and the smallest power of two they go down.
        tie_up = build.select(
            build.greater(exponent, 0), build.constant(1 << 22, "u32"), (1 << 22) + 1
        )
        carries = build.greater_equal(fraction, tie_up)
    elif mode == "down":
        carries = build.less(exponent, 0)
    else:
        raise ctx.wrong(f"round_mode is {mode!r}, expected up, down or nearest")
    limit = 254 if ctx.int("saturate", 1) else 255
    raised = build.minimum(build.add(exponent, build.cast(carries, "u32")), limit)
    is_finite = build.less(exponent, 255)
    code = build.select(is_finite, raised, build.full(x.tensor.shape, 255, "u32"))
    return build.bitcast(build.cast(code, "u8"), "f8e8m0")


_NAMES = {
    "bool": "bool",
    "double": "f64",
    "float": "f32",
    "float16": "f16",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "int8": "i8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "uint8": "u8",
}
