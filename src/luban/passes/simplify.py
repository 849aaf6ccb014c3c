"""Algebraic rules that hold for every value, NaN, infinities and -0.0 included.

Each rule is exact: the result has the same bits. What would only nearly hold is declined with its
reason, which `luban explain` shows.
"""

from __future__ import annotations

import math

import numpy as np

from luban.core.dims import DimLike
from luban.graph import build
from luban.graph.ops.data import Constant
from luban.graph.ops.elementwise import BINARY, UNARY, Cast, Select
from luban.graph.ops.reduce import Reduce
from luban.graph.ops.structure import (
    BroadcastInDim,
    Concatenate,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from luban.ir.node import Node, node
from luban.ir.rewrite import Decline, Rule, rule

__all__ = ["RULES"]

Add, Subtract, Multiply, Divide = (BINARY[n] for n in ("add", "subtract", "multiply", "divide"))
Maximum, Minimum, Power = (BINARY[n] for n in ("maximum", "minimum", "power"))
And, Or = BINARY["bitwise_and"], BINARY["bitwise_or"]
Negative, Not, Sqrt, Abs = (UNARY[n] for n in ("negative", "bitwise_not", "sqrt", "abs"))


def scalar_of(n: Node) -> int | float | bool | None:
    """The one number that a constant (or a broadcast of one) holds everywhere; None otherwise."""
    current = n
    while isinstance(current.op, (BroadcastInDim, Reshape)):
        current = current.operands[0]
    if not isinstance(current.op, Constant) or current.tensor.dtype.kind in ("string", "complex"):
        return None
    array = current.op.value.array
    if array.size != 1:
        return None
    value = array.reshape(()).item()
    return value if isinstance(value, (bool, int, float)) else float(value)


def is_number(n: Node, value: int | float) -> bool:
    """True if the node is that number everywhere, sign of zero included."""
    found = scalar_of(n)
    if found is None or isinstance(found, bool) or found != value:
        return False
    return math.copysign(1, found) == math.copysign(1, value)


@rule(Add)
def add_zero(n: Node) -> Node | Decline | None:
    """x + 0 -> x for integers, x + -0.0 -> x for floats"""
    for x, zero in (n.operands, n.operands[::-1]):
        if n.tensor.dtype.is_float and is_number(zero, 0.0):
            return Decline("-0.0 + 0.0 is 0.0, so adding 0.0 is not the identity")
        if is_number(zero, -0.0 if n.tensor.dtype.is_float else 0):
            return x
    return None


@rule(Subtract)
def subtract_zero(n: Node) -> Node | Decline | None:
    """x - 0 -> x"""
    x, zero = n.operands
    if is_number(zero, 0.0 if n.tensor.dtype.is_float else 0):
        return x
    if x is zero and n.tensor.dtype.is_float:
        return Decline("x - x is NaN for infinities and NaN, not 0")
    return None


@rule(Multiply)
def multiply_one(n: Node) -> Node | Decline | None:
    """x * 1 -> x"""
    for x, one in (n.operands, n.operands[::-1]):
        if is_number(one, 1):
            return x
        if n.tensor.dtype.is_float and scalar_of(one) == 0:
            return Decline("x * 0 is NaN for infinities and NaN, -0.0 for negative x")
    return None


@rule(Divide)
def divide_one(n: Node) -> Node | None:
    """x / 1 -> x"""
    x, one = n.operands
    return x if is_number(one, 1) else None


@rule(Divide)
def divide_power_of_two(n: Node) -> Node | Decline | None:
    """x / 2**k -> x * 2**-k, both exact"""
    x, divisor = n.operands
    value = scalar_of(divisor)
    if not n.tensor.dtype.is_float or value is None or value == 0 or is_number(divisor, 1):
        return None
    if not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5:
        return Decline(f"1 / {value} is not exact")
    inverse = n.tensor.dtype.numpy.type(1 / value)
    tiny = np.finfo(np.float32).tiny if n.tensor.dtype.name in ("f32", "bf16") else 0
    if float(inverse) != 1 / value or abs(1 / value) < tiny or n.tensor.dtype.bits < 32:
        return None
    return build.multiply(x, float(inverse))


@rule(Divide)
def reciprocal_root(n: Node) -> Node | None:
    """1 / sqrt(x) -> rsqrt(x), which is defined so"""
    one, root = n.operands
    if is_number(one, 1) and isinstance(root.op, Sqrt):
        return build.rsqrt(root.operands[0])
    return None


@rule(Power)
def power_one_two(n: Node) -> Node | Decline | None:
    """x ** 1 -> x, x ** 2 -> x * x"""
    x, exponent = n.operands
    value = scalar_of(exponent)
    if value is None or isinstance(value, bool):
        return None
    if value == 1:
        return x
    if value == 2:
        return build.multiply(x, x)
    if value == 0.5:
        return Decline("sqrt(-0.0) is -0.0 and sqrt(-inf) is NaN; the powers are 0.0 and inf")
    return None


@rule(Negative, Not, Reverse)
def twice_undone(n: Node) -> Node | None:
    """-(-x) -> x, not not x -> x, reversing twice -> x"""
    inner = n.operands[0]
    return inner.operands[0] if inner.op.identity() == n.op.identity() else None


@rule(Maximum, Minimum, And, Or)
def same_operands(n: Node) -> Node | None:
    """max(x, x) -> x, and the like"""
    return n.operands[0] if n.operands[0] is n.operands[1] else None


@rule(Cast)
def cast_to_same(n: Node) -> Node | None:
    """A cast to the dtype that x has -> x"""
    return n.operands[0] if n.operands[0].tensor.dtype is n.tensor.dtype else None


@rule(Cast)
def cast_there_and_back(n: Node) -> Node | Decline | None:
    """T -> wider -> T is x, when the wider type holds every T"""
    inner = n.operands[0]
    if not isinstance(inner.op, Cast):
        return None
    start, middle = inner.operands[0].tensor.dtype, inner.tensor.dtype
    if start is not n.tensor.dtype:
        return None
    exact = {
        ("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64"), ("f32", "f64"),
        ("i8", "i16"), ("i8", "i32"), ("i8", "i64"), ("i16", "i32"), ("i16", "i64"), ("i32", "i64"),
        ("u8", "u16"), ("u8", "u32"), ("u8", "u64"), ("u8", "i16"), ("u8", "i32"), ("u8", "i64"),
        ("u16", "i32"), ("u16", "i64"), ("i8", "f32"), ("u8", "f32"), ("i16", "f32"),
        ("i32", "f64"),
        ("bool", "u8"), ("bool", "i32"), ("bool", "i64"), ("bool", "f32"),
    }  # fmt: skip
    if (start.name, middle.name) in exact:
        return inner.operands[0]
    return Decline(f"{middle} does not hold every {start}")


@rule(Select)
def select_known(n: Node) -> Node | None:
    """select(true, x, y) -> x; select(p, x, x) -> x"""
    predicate, x, y = n.operands
    if x is y:
        return x
    value = scalar_of(predicate)
    return None if value is None else (x if value else y)


@rule(Reshape)
def reshape_chain(n: Node) -> Node | None:
    """reshape(reshape(x)) -> reshape(x); to the same shape -> x"""
    inner = n.operands[0]
    if inner.tensor.shape == n.tensor.shape:
        return inner
    if isinstance(inner.op, Reshape):
        return build.reshape(inner.operands[0], n.tensor.shape)
    return None


@rule(Transpose)
def transpose_chain(n: Node) -> Node | None:
    """transpose(transpose(x)) -> one transpose, or x"""
    op, inner = n.op, n.operands[0]
    assert isinstance(op, Transpose)
    if op.permutation == tuple(range(len(op.permutation))):
        return inner
    if isinstance(inner.op, Transpose):
        order = [inner.op.permutation[axis] for axis in op.permutation]
        return build.transpose(inner.operands[0], order)
    return None


@rule(Transpose)
def transpose_of_ones(n: Node) -> Node | None:
    """A transpose that only moves axes of size 1 -> reshape"""
    op, inner = n.op, n.operands[0]
    assert isinstance(op, Transpose)
    moved = [axis for axis in op.permutation if inner.tensor.shape[axis] != 1]
    return build.reshape(inner, n.tensor.shape) if moved == sorted(moved) else None


@rule(BroadcastInDim)
def broadcast_chain(n: Node) -> Node | None:
    """broadcast(broadcast(x)) -> broadcast(x); to the same shape -> x"""
    op, inner = n.op, n.operands[0]
    assert isinstance(op, BroadcastInDim)
    if inner.tensor.shape == op.shape and op.axes == tuple(range(inner.tensor.rank)):
        return inner
    if isinstance(inner.op, BroadcastInDim):
        axes = tuple(op.axes[axis] for axis in inner.op.axes)
        return node(BroadcastInDim(op.shape, axes), inner.operands[0])
    return None


@rule(Slice)
def slice_all(n: Node) -> Node | None:
    """A slice of everything -> x"""
    op, inner = n.op, n.operands[0]
    assert isinstance(op, Slice)
    whole = all(start == 0 for start in op.starts) and all(step == 1 for step in op.strides)
    return inner if whole and op.sizes == inner.tensor.shape else None


@rule(Slice)
def slice_chain(n: Node) -> Node | None:
    """slice(slice(x)) -> slice(x)"""
    op, inner = n.op, n.operands[0]
    assert isinstance(op, Slice)
    if not isinstance(inner.op, Slice):
        return None
    rows = zip(inner.op.starts, op.starts, inner.op.strides, op.strides, strict=True)
    starts: list[DimLike] = []
    strides: list[int] = []
    for outer_start, start, outer_stride, stride in rows:
        starts.append(outer_start + start * outer_stride)
        strides.append(outer_stride * stride)
    return node(Slice(tuple(starts), op.sizes, tuple(strides)), inner.operands[0])


@rule(Concatenate)
def concatenate_one(n: Node) -> Node | Decline | None:
    """A concatenation with one operand that is not empty -> that operand"""
    op = n.op
    assert isinstance(op, Concatenate)
    full = [x for x in n.operands if x.tensor.shape[op.axis] != 0]
    if not full or len(full) == len(n.operands):
        return None
    made = full[0] if len(full) == 1 else build.concatenate(full, op.axis)
    return made if made.type == n.type else Decline("what is empty states a size")


@rule(Pad)
def pad_nothing(n: Node) -> Node | None:
    """Padding by zero everywhere -> x"""
    op = n.op
    assert isinstance(op, Pad)
    amounts = (*op.low, *op.high, *op.interior)
    return n.operands[0] if all(amount == 0 for amount in amounts) else None


@rule(Reduce)
def reduce_ones(n: Node) -> Node | Decline | None:
    """A reduction over axes of size 1 only -> reshape"""
    op, inner = n.op, n.operands[0]
    assert isinstance(op, Reduce)
    if any(inner.tensor.shape[axis] != 1 for axis in op.axes):
        return None
    if op.kind == "sum" and n.tensor.dtype.is_float:
        return Decline("a sum starts from 0.0, which turns -0.0 into 0.0")
    return build.reshape(inner, n.tensor.shape)


RULES: tuple[Rule, ...] = (
    add_zero,
    subtract_zero,
    multiply_one,
    divide_one,
    divide_power_of_two,
    reciprocal_root,
    power_one_two,
    twice_undone,
    same_operands,
    cast_to_same,
    cast_there_and_back,
    select_known,
    reshape_chain,
    transpose_chain,
    transpose_of_ones,
    broadcast_chain,
    slice_all,
    slice_chain,
    concatenate_one,
    pad_nothing,
    reduce_ones,
)
