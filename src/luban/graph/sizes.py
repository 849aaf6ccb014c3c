"""Values of small tensors as dimension expressions: how shapes that a model computes stay symbolic.

>>> from luban.core.dims import symbol
>>> from luban.graph import build
>>> n = symbol("n")
>>> shape = build.shape_vector((n, 3, 8))
>>> half = build.divide(build.slice_axis(shape, 0, 0, 1), 2)
>>> symbolic_value(build.concatenate([half, build.constant([-1])], 0))
array([(n//2), -1], dtype=object)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from luban.core import dims
from luban.core.dims import Dim, DimLike
from luban.core.errors import InternalError, LubanError
from luban.core.types import TensorType, Type
from luban.graph.meaning import structure
from luban.graph.meaning.context import Array, Context, Value
from luban.graph.ops.data import Constant, DimensionSize, Iota
from luban.graph.ops.elementwise import BINARY, COMPARE, UNARY, Cast, Select
from luban.graph.ops.reduce import Reduce
from luban.graph.ops.structure import (
    BroadcastInDim,
    Concatenate,
    DynamicSlice,
    Gather,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from luban.ir.node import Graph, Node, Op

__all__ = ["MAX_ELEMENTS", "constant_value", "symbolic_value"]

MAX_ELEMENTS = 64
_MAX_EXACT = 256  # factors up to this size keep products with any real tensor size exact in f32


@dataclass(frozen=True, slots=True)
class Ratio:
    """A fraction that a float tensor holds on its way to a size: `numerator / denominator`, > 1."""

    numerator: DimLike
    denominator: int


Entry: TypeAlias = int | Dim | Ratio


class _UnknownValue(Exception):
    """This value is no dimension expression."""


def symbolic_value(node: Node) -> Array | None:
    """The value of a small integer or bool tensor, as an object array of int, bool and Dim.

    None if the tensor is large, of another dtype, or not a known function of sizes. Sizes that pass
    through f32 are taken to be below 2**24, and integer arithmetic not to overflow.
    """
    value = _value(node)
    if value is None or not isinstance(node.type, TensorType) or node.type.dtype.is_float:
        return None
    return value


def constant_value(node: Node) -> Array | None:
    """The value of a tensor that no size and no input can change, in its own dtype; None otherwise.

    >>> from luban.graph import build
    >>> constant_value(build.add(build.constant([1, 2]), 1))
    array([2, 3])
    """
    if isinstance(node.op, Constant):
        return node.op.value.array
    value = symbolic_value(node)
    if value is None or any(isinstance(entry, Dim) for entry in value.flat):
        return None
    return value.astype(node.tensor.dtype.numpy)


_memo: WeakKeyDictionary[Node, Array | None] = WeakKeyDictionary()


def _value(root: Node) -> Array | None:
    stack = [root]
    while stack:
        current = stack[-1]
        if current in _memo:
            stack.pop()
            continue
        rule = _RULES.get(type(current.op)) if _is_small(current.type) else None
        if rule is None:
            _memo[current] = None
            continue
        missing = [o for o in current.operands if o not in _memo]
        if missing:
            stack.extend(missing)
            continue
        _memo[current] = _applied(rule, current)
    return _memo[root]


def _is_small(type_: Type) -> bool:
    if not isinstance(type_, TensorType) or not type_.is_static:
        return False
    count = type_.num_elements
    known = type_.dtype.is_integer or type_.dtype.name in ("bool", "f32", "f64")
    return known and isinstance(count, int) and count <= MAX_ELEMENTS


Rule: TypeAlias = Callable[[Node, list[Array]], Array]


def _applied(rule: Rule, node: Node) -> Array | None:
    operands = [_memo[o] for o in node.operands]
    known = [o for o in operands if o is not None]
    if len(known) < len(operands):
        return None
    try:
        result = np.asarray(rule(node, known), dtype=object)
    except (_UnknownValue, LubanError, TypeError):
        return None
    if result.flags.writeable:
        result.flags.writeable = False
    return result


def _entries(function: Callable[..., Any], *operands: Array) -> Array:
    """A function of entries applied elementwise, always to an object array."""
    result = np.empty(operands[0].shape, dtype=object)
    for place in np.ndindex(result.shape):
        result[place] = function(*(o[place] for o in operands))
    return result


# Entries


def _parts(entry: Entry) -> tuple[DimLike, int]:
    if isinstance(entry, Ratio):
        return entry.numerator, entry.denominator
    return entry, 1


def _ratio(numerator: DimLike, denominator: int) -> Entry:
    if denominator < 0:
        numerator, denominator = -numerator, -denominator
    shared = gcd(dims.common_divisor(numerator), denominator)
    if shared > 1:
        numerator, denominator = dims.floor_div(numerator, shared), denominator // shared
    return numerator if denominator == 1 else Ratio(numerator, denominator)


def _add(x: Entry, y: Entry) -> Entry:
    (a, p), (b, q) = _parts(x), _parts(y)
    return _ratio(a * q + b * p, p * q)


def _subtract(x: Entry, y: Entry) -> Entry:
    return _add(x, _multiply(y, -1))


def _multiply(x: Entry, y: Entry) -> Entry:
    (a, p), (b, q) = _parts(x), _parts(y)
    return _ratio(a * b, p * q)


def _true_divide(x: Entry, y: Entry) -> Entry:
    (a, p), (b, q) = _parts(x), _parts(y)
    if not isinstance(b, int):
        quotient = dims.floor_div(a, b)
        if (p, q) == (1, 1) and quotient * b == a and dims.bounds(b)[0] > 0:
            return quotient
        raise _UnknownValue
    if b == 0:
        raise _UnknownValue
    return _ratio(a * q, p * b)


def _floor(x: Entry) -> DimLike:
    return dims.floor_div(*_parts(x))


def _ceil(x: Entry) -> DimLike:
    return dims.ceil_div(*_parts(x))


def _trunc(x: Entry) -> DimLike:
    numerator, denominator = _parts(x)
    if denominator == 1:
        return numerator
    low, high = dims.bounds(numerator)
    if low >= 0:
        return _floor(x)
    if high <= 0:
        return _ceil(x)
    raise _UnknownValue


def _sign_known(x: Entry) -> tuple[int, int]:
    if isinstance(x, Ratio):
        raise _UnknownValue
    return dims.bounds(x)


def _divide_whole(x: DimLike, y: DimLike) -> DimLike:
    if isinstance(x, int) and isinstance(y, int):
        return 0 if y == 0 else (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1)
    if _sign_known(x)[0] >= 0 and _sign_known(y)[0] >= 1:
        return dims.floor_div(x, y)
    raise _UnknownValue


def _floor_mod(x: DimLike, y: DimLike) -> DimLike:
    if isinstance(y, int) and y == 0:
        return 0
    if isinstance(y, int) or _sign_known(y)[0] >= 1:
        return dims.modulo(x, y)
    raise _UnknownValue


def _remainder(x: DimLike, y: DimLike) -> DimLike:
    if isinstance(x, int) and isinstance(y, int):
        return 0 if y == 0 else x - _whole(_divide_whole(x, y)) * y
    if _sign_known(x)[0] >= 0 and _sign_known(y)[0] >= 1:
        return dims.modulo(x, y)
    raise _UnknownValue


def _whole(x: object) -> int:
    if not isinstance(x, int):
        raise _UnknownValue
    return x


def _absolute(x: DimLike) -> DimLike:
    low, high = _sign_known(x)
    if low >= 0:
        return x
    if high <= 0:
        return -x
    raise _UnknownValue


def _sign(x: DimLike) -> int:
    low, high = _sign_known(x)
    for sign, known in ((1, low > 0), (0, low == high == 0), (-1, high < 0)):
        if known:
            return sign
    raise _UnknownValue


def _difference(x: Entry, y: Entry) -> tuple[int, int]:
    """Bounds of x - y."""
    numerator, _ = _parts(_subtract(x, y))
    return dims.bounds(numerator)


def _equal(x: Entry, y: Entry) -> bool:
    low, high = _difference(x, y)
    if low == high == 0:
        return True
    if low > 0 or high < 0:
        return False
    raise _UnknownValue


def _less(x: Entry, y: Entry) -> bool:
    low, high = _difference(x, y)
    if high < 0:
        return True
    if low >= 0:
        return False
    raise _UnknownValue


def _boolean(function: Callable[[int, int], int]) -> Callable[[DimLike, DimLike], DimLike]:
    return lambda x, y: function(_whole(x), _whole(y))


_ENTRY: dict[type[Op], Callable[..., Any]] = {
    BINARY["add"]: _add,
    BINARY["subtract"]: _subtract,
    BINARY["multiply"]: _multiply,
    BINARY["floor_mod"]: _floor_mod,
    BINARY["remainder"]: _remainder,
    BINARY["maximum"]: dims.maximum,
    BINARY["minimum"]: dims.minimum,
    BINARY["bitwise_and"]: _boolean(lambda x, y: x & y),
    BINARY["bitwise_or"]: _boolean(lambda x, y: x | y),
    BINARY["bitwise_xor"]: _boolean(lambda x, y: x ^ y),
    UNARY["negative"]: lambda x: _multiply(x, -1),
    UNARY["abs"]: _absolute,
    UNARY["sign"]: _sign,
    UNARY["floor"]: _floor,
    UNARY["ceil"]: _ceil,
    UNARY["trunc"]: _trunc,
    COMPARE["equal"]: _equal,
    COMPARE["not_equal"]: lambda x, y: not _equal(x, y),
    COMPARE["less"]: _less,
    COMPARE["greater_equal"]: lambda x, y: not _less(x, y),
    COMPARE["greater"]: lambda x, y: _less(y, x),
    COMPARE["less_equal"]: lambda x, y: not _less(y, x),
}


# Rules


def _elementwise(node: Node, operands: list[Array]) -> Array:
    return _entries(_ENTRY[type(node.op)], *operands)


def _divide(node: Node, operands: list[Array]) -> Array:
    return _entries(_true_divide if node.tensor.dtype.is_float else _divide_whole, *operands)


def _bitwise_not(node: Node, operands: list[Array]) -> Array:
    if node.tensor.dtype.kind != "bool":
        raise _UnknownValue
    return _entries(lambda x: not _whole(x), *operands)


def _select(_: Node, operands: list[Array]) -> Array:
    return _entries(lambda p, x, y: x if _whole(p) else y, *operands)


def _constant(node: Node, _: list[Array]) -> Array:
    assert isinstance(node.op, Constant)
    array = node.op.value.array
    if array.dtype.kind in "biu":
        return array.astype(object)
    return _entries(_from_float, array.astype(np.float64))


def _from_float(value: float) -> Entry:
    if not np.isfinite(value):
        raise _UnknownValue
    exact = Fraction(float(value))
    if exact.denominator > 1 and max(abs(exact.numerator), exact.denominator) > _MAX_EXACT:
        raise _UnknownValue  # its products would round
    return _ratio(exact.numerator, exact.denominator)


def _cast(node: Node, operands: list[Array]) -> Array:
    target = node.tensor.dtype
    if target.is_float:
        return _entries(_plain, *operands)
    if target.kind == "bool":
        return _entries(lambda x: not _equal(x, 0), *operands)
    low, high = int(target.lowest), int(target.highest)

    def cast_entry(x: Entry) -> DimLike:
        whole = _trunc(_plain(x))
        fits = low <= whole <= high if isinstance(whole, int) else target.bits >= 32
        if not fits:
            raise _UnknownValue
        return whole

    return _entries(cast_entry, *operands)


def _plain(x: Any) -> Any:
    """A bool as 0 or 1, everything else as it is."""
    return int(x) if isinstance(x, bool) else x


def _reduce(node: Node, operands: list[Array]) -> Array:
    assert isinstance(node.op, Reduce)
    combine, start = {
        "sum": (_add, 0),
        "product": (_multiply, 1),
        "maximum": (dims.maximum, None),
        "minimum": (dims.minimum, None),
        "and": (_boolean(lambda x, y: x & y), True),
        "or": (_boolean(lambda x, y: x | y), False),
    }[node.op.kind]
    if node.op.kind in ("and", "or") and node.tensor.dtype.kind != "bool":
        raise _UnknownValue
    result = operands[0]
    for axis in sorted(node.op.axes, reverse=True):
        result = _reduced(result, axis, combine, start)
    return result


def _reduced(x: Array, axis: int, combine: Callable[..., Any], start: object) -> Array:
    rows: Sequence[Array] = np.moveaxis(x, axis, 0)  # type: ignore[assignment]
    if not len(rows) and start is None:
        raise _UnknownValue
    total: Array | None = None
    for row in rows:
        row = np.asarray(row, dtype=object)
        total = row if total is None else _entries(combine, total, row)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return np.full(shape, start, dtype=object) if total is None else total


def _iota(node: Node, _: list[Array]) -> Array:
    assert isinstance(node.op, Iota)
    shape = node.tensor.static_shape
    along = [1] * len(shape)
    along[node.op.axis] = shape[node.op.axis]
    index = np.arange(shape[node.op.axis]).astype(object).reshape(along)
    return np.broadcast_to(index, shape)


def _dimension_size(node: Node, _: list[Array]) -> Array:
    assert isinstance(node.op, DimensionSize)
    result = np.empty((), dtype=object)
    result[()] = node.op.size
    return result


def _no_sub_graph(graph: Graph, _: Sequence[Value]) -> tuple[Value, ...]:
    raise InternalError(f"{graph.name} cannot run here")


def _moved(node: Node, operands: list[Array]) -> Array:
    """Structure primitives move entries as they move elements."""
    for position in _INDEX_OPERANDS.get(type(node.op), ()):
        operands[position] = operands[position].astype(np.int64)
    context = Context("model", tuple(o.type for o in node.operands), node.type, {}, _no_sub_graph)
    return structure.MEANING[type(node.op)](node.op, operands, context)  # type: ignore[no-any-return]


_INDEX_OPERANDS: dict[type[Op], tuple[int, ...]] = {Gather: (1,), DynamicSlice: (1,)}

_RULES: dict[type[Op], Rule] = {
    **dict.fromkeys(_ENTRY, _elementwise),
    **dict.fromkeys(
        (
            BroadcastInDim,
            Reshape,
            Transpose,
            Slice,
            DynamicSlice,
            Pad,
            Concatenate,
            Reverse,
            Gather,
        ),
        _moved,
    ),
    BINARY["divide"]: _divide,
    UNARY["bitwise_not"]: _bitwise_not,
    Select: _select,
    Constant: _constant,
    DimensionSize: _dimension_size,
    Iota: _iota,
    Cast: _cast,
    Reduce: _reduce,
}
