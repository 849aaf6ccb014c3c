"""Functions that build nodes: broadcasting, Python numbers as operands, and small compositions.

Everything here is a thin layer over `node(...)`: it adds `broadcast_in_dim` and constants, never
hidden casts.

>>> from luban.core.types import tensor
>>> x = parameter("x", tensor("f32", "n", 4))
>>> add(x, 1.0).type
f32[n,4]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from luban.core.dims import DimLike
from luban.core.dtypes import DType, dtype
from luban.core.errors import ShapeError
from luban.core.types import Type
from luban.graph.infer import broadcast_shapes
from luban.graph.ops.contract import Convolution, DotGeneral
from luban.graph.ops.data import Constant, DimensionSize, Iota, Literal
from luban.graph.ops.elementwise import BINARY, COMPARE, UNARY, UNARY_BOOL, Bitcast, Cast, Select
from luban.graph.ops.reduce import ArgReduce, Reduce
from luban.graph.ops.structure import (
    BroadcastInDim,
    Concatenate,
    DynamicReshape,
    Gather,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from luban.ir.node import Node, Parameter, node

Operand = Node | int | float | bool

__all__ = [
    "Operand",
    "broadcast_to",
    "cast",
    "concatenate",
    "constant",
    "matmul",
    "parameter",
    "reshape",
    "take",
]


def parameter(label: str, type_: Type) -> Node:
    """A graph input."""
    return node(Parameter(label, type_))


def constant(value: Any, element: DType | str | None = None, label: str = "") -> Node:
    """A literal tensor from anything numpy can turn into an array; `element` states its dtype.

    >>> constant([1, 2], "i64").type
    i64[2]
    """
    array = np.asarray(value) if element is None else np.asarray(value).astype(dtype(element).numpy)
    if array.flags.writeable:
        array = array.copy() if array.base is not None else array
        array.flags.writeable = False
    return node(Constant(Literal(array, label)))


def full(shape: Sequence[DimLike], value: int | float | bool, element: DType | str) -> Node:
    """One value in every element."""
    return broadcast_to(constant(value, element), shape)


def iota(shape: Sequence[DimLike], axis: int, element: DType | str = "i64") -> Node:
    """The index along one axis."""
    return node(Iota(dtype(element), tuple(shape), axis))


def dimension(size: DimLike) -> Node:
    """A dimension's value as an i64 scalar; a constant if it is one."""
    return constant(size, "i64") if isinstance(size, int) else node(DimensionSize(size))


def shape_vector(shape: Sequence[DimLike]) -> Node:
    """A shape's values as i64[rank]."""
    if all(isinstance(size, int) for size in shape):
        return constant(np.array(shape, np.int64).reshape(len(shape)))
    return concatenate([reshape(dimension(size), (1,)) for size in shape], 0)


def lift(value: Operand, like: Node) -> Node:
    """A Python number as a scalar constant of the dtype of `like`; a node as it is."""
    return value if isinstance(value, Node) else constant(value, like.tensor.dtype)


def broadcast_to(x: Node, shape: Sequence[DimLike]) -> Node:
    """x repeated along size-1 and missing leading axes, as numpy does. Raises ShapeError."""
    target = tuple(shape)
    if x.tensor.shape == target:
        return x
    missing = len(target) - x.tensor.rank
    if missing < 0:
        raise ShapeError(f"{x.tensor} has more axes than the target {list(target)}")
    return node(BroadcastInDim(target, tuple(range(missing, len(target)))), x)


def broadcast_together(*operands: Node) -> tuple[Node, ...]:
    """All operands with their common broadcast shape."""
    shape = broadcast_shapes(*(x.tensor.shape for x in operands))
    return tuple(broadcast_to(x, shape) for x in operands)


def _unary(name: str) -> Callable[[Node], Node]:
    op = (UNARY | UNARY_BOOL)[name]()

    def build(x: Node) -> Node:
        return node(op, x)

    build.__name__, build.__doc__ = name, op.__doc__
    return build


def _binary(name: str) -> Callable[[Operand, Operand], Node]:
    op = (BINARY | COMPARE)[name]()

    def build(x: Operand, y: Operand) -> Node:
        like = x if isinstance(x, Node) else y
        if not isinstance(like, Node):
            raise TypeError(f"{name} of two Python numbers: make one a constant")
        return node(op, *broadcast_together(lift(x, like), lift(y, like)))

    build.__name__, build.__doc__ = name, op.__doc__
    return build


negative = _unary("negative")
absolute = _unary("abs")
sign = _unary("sign")
sqrt = _unary("sqrt")
rsqrt = _unary("rsqrt")
exp = _unary("exp")
expm1 = _unary("expm1")
log = _unary("log")
log1p = _unary("log1p")
sin = _unary("sin")
cos = _unary("cos")
tanh = _unary("tanh")
erf = _unary("erf")
logistic = _unary("logistic")
floor = _unary("floor")
ceil = _unary("ceil")
round_even = _unary("round")
trunc = _unary("trunc")
bitwise_not = _unary("bitwise_not")
is_nan = _unary("is_nan")
is_inf = _unary("is_inf")
add = _binary("add")
subtract = _binary("subtract")
multiply = _binary("multiply")
divide = _binary("divide")
remainder = _binary("remainder")
floor_mod = _binary("floor_mod")
power = _binary("power")
maximum = _binary("maximum")
minimum = _binary("minimum")
bitwise_and = _binary("bitwise_and")
bitwise_or = _binary("bitwise_or")
bitwise_xor = _binary("bitwise_xor")
shift_left = _binary("shift_left")
shift_right = _binary("shift_right")
equal = _binary("equal")
not_equal = _binary("not_equal")
less = _binary("less")
less_equal = _binary("less_equal")
greater = _binary("greater")
greater_equal = _binary("greater_equal")


def unary(name: str, x: Node) -> Node:
    """The elementwise primitive of that name."""
    return node((UNARY | UNARY_BOOL)[name](), x)


def binary(name: str, x: Operand, y: Operand) -> Node:
    """The two-operand primitive of that name, broadcast."""
    return _binary(name)(x, y)


def select(predicate: Node, x: Operand, y: Operand) -> Node:
    """x where the predicate is true, else y; all three broadcast."""
    like = x if isinstance(x, Node) else y
    if not isinstance(like, Node):
        raise TypeError("select of two Python numbers: make one a constant")
    return node(Select(), *broadcast_together(predicate, lift(x, like), lift(y, like)))


def cast(x: Node, element: DType | str, *, saturate: bool = True, flush: bool = False) -> Node:
    """x in another dtype; x itself if it has it already."""
    to = dtype(element)
    return x if x.tensor.dtype is to else node(Cast(to, saturate, flush), x)


def bitcast(x: Node, element: DType | str) -> Node:
    """The same bits as another dtype of that width."""
    return node(Bitcast(dtype(element)), x)


def reshape(x: Node, shape: Sequence[DimLike]) -> Node:
    """The same elements under another shape; x itself if it has it already."""
    return x if x.tensor.shape == tuple(shape) else node(Reshape(tuple(shape)), x)


def dynamic_reshape(x: Node, sizes: Node, shape: Sequence[DimLike]) -> Node:
    """Reshape to run-time sizes (i64[rank]) that bind the symbols of `shape`."""
    return node(DynamicReshape(tuple(shape)), x, sizes)


def transpose(x: Node, permutation: Sequence[int]) -> Node:
    """Axes reordered; x itself for the identity."""
    order = tuple(permutation)
    return x if order == tuple(range(x.tensor.rank)) else node(Transpose(order), x)


def expand_dims(x: Node, axes: Sequence[int]) -> Node:
    """Size-1 axes inserted so that they stand at `axes` of the result (all >= 0)."""
    rank = x.tensor.rank + len(axes)
    rest = iter(x.tensor.shape)
    return reshape(x, [1 if i in set(axes) else next(rest) for i in range(rank)])


def squeeze(x: Node, axes: Sequence[int]) -> Node:
    """Axes (all >= 0) of size 1 removed. Raises ShapeError if one has another size."""
    for axis in axes:
        if x.tensor.shape[axis] != 1:
            raise ShapeError(f"squeeze of axis {axis} of {x.tensor}: expected size 1")
    return reshape(x, [s for i, s in enumerate(x.tensor.shape) if i not in set(axes)])


def slice_axis(x: Node, axis: int, start: DimLike, size: DimLike, stride: int = 1) -> Node:
    """`size` elements from `start` along one axis, every `stride`-th."""
    rank = x.tensor.rank
    starts: list[DimLike] = [0] * rank
    sizes = list(x.tensor.shape)
    strides = [1] * rank
    starts[axis], sizes[axis], strides[axis] = start, size, stride
    if sizes == list(x.tensor.shape) and stride == 1:
        return x
    return node(Slice(tuple(starts), tuple(sizes), tuple(strides)), x)


def split(x: Node, axis: int, sizes: Sequence[DimLike]) -> tuple[Node, ...]:
    """Consecutive pieces along an axis."""
    pieces: list[Node] = []
    start: DimLike = 0
    for size in sizes:
        pieces.append(slice_axis(x, axis, start, size))
        start = start + size
    return tuple(pieces)


def concatenate(operands: Sequence[Node], axis: int) -> Node:
    """Operands one after the other; the operand itself if there is one."""
    return operands[0] if len(operands) == 1 else node(Concatenate(axis), *operands)


def reverse(x: Node, axes: Sequence[int]) -> Node:
    """Elements in opposite order along the axes."""
    return node(Reverse(tuple(axes)), x)


def pad(x: Node, low: Sequence[DimLike], high: Sequence[DimLike], value: Operand = 0) -> Node:
    """`low` and `high` elements of `value` added to each axis, or removed if negative."""
    if all(p == 0 for p in (*low, *high)):
        return x
    return node(Pad(tuple(low), tuple(high), (0,) * x.tensor.rank), x, lift(value, x))


def take(x: Node, indices: Node, axis: int) -> Node:
    """numpy.take: slices of x along an axis at indices of any shape, clamped to [0, size)."""
    given, places = x.tensor, indices.tensor
    offsets = (*range(axis), *range(axis + places.rank, given.rank - 1 + places.rank))
    sizes = (*given.shape[:axis], 1, *given.shape[axis + 1 :])
    op = Gather(offsets, (axis,), (), (), (axis,), sizes)
    return node(op, x, expand_dims(indices, [places.rank]))


def reduce(kind: str, x: Node, axes: Sequence[int], *, keep_axes: bool = False) -> Node:
    """A reduction along the axes (all >= 0); with `keep_axes` they stay with size 1."""
    result = node(Reduce(kind, tuple(sorted(axes))), x) if axes else x
    return expand_dims(result, sorted(axes)) if keep_axes else result


def arg_reduce(kind: str, x: Node, axis: int, *, last: bool = False) -> Node:
    """Index of the maximum or minimum along an axis."""
    return node(ArgReduce(kind, axis, last), x)


def mean(x: Node, axes: Sequence[int], *, keep_axes: bool = False) -> Node:
    """Arithmetic mean along the axes.

    That of floats narrower than f32 is taken in f32 and rounded once: neither their sum nor the
    count need fit the narrow dtype.
    """
    count: DimLike = 1
    for axis in axes:
        count = count * x.tensor.shape[axis]
    total = reduce("sum", cast(x, accumulator_dtype(x)), axes, keep_axes=keep_axes)
    return cast(divide(total, cast(dimension(count), total.tensor.dtype)), x.tensor.dtype)


def accumulator_dtype(x: Node) -> DType:
    """The dtype in which sums over x are taken: f32 for narrower floats, else that of x."""
    element = x.tensor.dtype
    return dtype("f32") if element.is_float and element.bits < 32 else element


def softmax(x: Node, axis: int) -> Node:
    """exp(x - max) / sum(exp(x - max)) along an axis."""
    shifted = exp(subtract(x, reduce("maximum", x, [axis], keep_axes=True)))
    return divide(shifted, reduce("sum", shifted, [axis], keep_axes=True))


def dot_general(
    x: Node,
    y: Node,
    contract: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
    element: DType | str | None = None,
) -> Node:
    """Sum of products over the contracted axes for each batch."""
    result = dtype(element) if element is not None else x.tensor.dtype
    op = DotGeneral(
        tuple(batch[0]), tuple(batch[1]), tuple(contract[0]), tuple(contract[1]), result
    )
    return node(op, x, y)


def matmul(x: Node, y: Node, element: DType | str | None = None) -> Node:
    """numpy.matmul: batch axes broadcast, 1-D operands gain and lose an axis; no scalars.

    >>> from luban.core.types import tensor
    >>> matmul(parameter("x", tensor("f32", "b", 2, 3)), parameter("y", tensor("f32", 3, 4))).type
    f32[b,2,4]
    """
    if not x.tensor.rank or not y.tensor.rank:
        raise ShapeError(f"matmul of {x.tensor} and {y.tensor}: expected at least one axis each")
    if x.tensor.rank == 1:
        return squeeze_at(matmul(expand_dims(x, [0]), y, element), -2)
    if y.tensor.rank == 1:
        return squeeze_at(matmul(x, expand_dims(y, [1]), element), -1)
    if y.tensor.rank == 2:
        return dot_general(x, y, ([x.tensor.rank - 1], [0]), element=element)
    batch = broadcast_shapes(x.tensor.shape[:-2], y.tensor.shape[:-2])
    x = broadcast_to(x, (*batch, *x.tensor.shape[-2:]))
    y = broadcast_to(y, (*batch, *y.tensor.shape[-2:]))
    axes = range(len(batch))
    return dot_general(x, y, ([len(batch) + 1], [len(batch)]), (axes, axes), element)


def squeeze_at(x: Node, axis: int) -> Node:
    """One size-1 axis removed; negative counts from the end."""
    return squeeze(x, [axis % x.tensor.rank])


def convolution(
    x: Node,
    filters: Node,
    strides: Sequence[int],
    low: Sequence[DimLike],
    high: Sequence[DimLike],
    *,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    groups: int = 1,
    element: DType | str | None = None,
) -> Node:
    """Cross-correlation, channels first."""
    ones = (1,) * len(strides)
    op = Convolution(
        tuple(strides),
        tuple(low),
        tuple(high),
        tuple(lhs_dilation or ones),
        tuple(rhs_dilation or ones),
        groups,
        dtype(element) if element is not None else x.tensor.dtype,
    )
    return node(op, x, filters)
