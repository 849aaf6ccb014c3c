"""What each value op computes, in numpy: one row for every op, the oracle of all back ends.

Arithmetic, comparisons, casts and reductions are bit-exact. Transcendental functions are evaluated
in f64 and rounded; compiled code may differ from them by its documented ULP bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luban.core.dtypes import DTYPES, DType
from luban.core.errors import InternalError
from luban.tile.op import TileOp
from luban.tile.ops import (
    Arange,
    Binary,
    Bitcast,
    Broadcast,
    Cast,
    Compare,
    Concat,
    Constant,
    Dot4,
    DotPair,
    ExtractSlice,
    Fma,
    Reduce,
    Reshape,
    Select,
    Transpose,
    Unary,
)
from luban.tile.rounding import cast, fma
from luban.tile.types import TileType

__all__ = ["MEANING", "binary", "compute"]

Array = NDArray[Any]


def _logistic(x: Array) -> Array:
    """1 / (1 + e**-x) without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _acosh(x: Array) -> Array:
    return np.where(x < 1, np.nan, np.arccosh(np.maximum(x, 1.0)))


# Evaluated in f64 whatever the type, then rounded.
_TRANSCENDENTAL: dict[str, Callable[[Array], Array]] = {
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": _acosh,
    "atanh": np.arctanh,
    "erf": lambda x: np.asarray(np.frompyfunc(math.erf, 1, 1)(x), dtype=np.float64),
    "logistic": _logistic,
}
# Evaluated in the type itself (f32 for f16 and bf16).
_EXACT_UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": lambda x: np.sign(x) + x.dtype.type(0),  # + 0: -0.0 becomes 0.0
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "not": np.invert,
    "popcount": lambda x: np.bitwise_count(x.view(f"u{x.itemsize}")).astype(x.dtype),
    "is_nan": np.isnan,
    "is_inf": np.isinf,
}


def _working(x: Array, elem: DType) -> Array:
    """f16 and bf16 compute in f32; everything else in its own type."""
    return x.astype(np.float32) if elem.is_float and elem.bits == 16 else x


def unary(kind: str, x: Array, elem: DType) -> Array:
    """One elementwise function of one tile."""
    with np.errstate(all="ignore"):
        found = _TRANSCENDENTAL.get(kind)
        if found is None:
            result = np.asarray(_EXACT_UNARY[kind](_working(x, elem)))
            return result if result.dtype == np.bool_ else result.astype(elem.numpy)
        result = np.asarray(found(x.astype(np.float64)))
        if elem.bits == 16:
            result = result.astype(np.float32)
        return result.astype(elem.numpy)


def _smaller(x: Array, y: Array) -> Array:
    """The smaller of two floats, neither NaN, with -0.0 < 0.0."""
    return np.where((x < y) | ((x == y) & np.signbit(x)), x, y)


def _minimum(x: Array, y: Array) -> Array:
    if x.dtype.kind in "iu":
        return np.minimum(x, y)
    return np.where(np.isnan(x), x, np.where(np.isnan(y), y, _smaller(x, y)))


def _maximum(x: Array, y: Array) -> Array:
    return np.maximum(x, y) if x.dtype.kind in "iu" else -_minimum(-x, -y)


def _minnum(x: Array, y: Array) -> Array:
    return np.where(np.isnan(x), y, np.where(np.isnan(y), x, _smaller(x, y)))


def _divide(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.divide(x, y)
    floor = np.floor_divide(x, y)  # 0 for y = 0, min for min / -1
    rest = x - floor * y
    return np.where((y != 0) & (rest != 0) & ((x < 0) != (y < 0)), floor + x.dtype.type(1), floor)


def _shift_left(x: Array, y: Array) -> Array:
    legal = _legal_shift(x, y)
    return np.where(legal, np.left_shift(x, np.where(legal, y, 0).astype(x.dtype)), 0)


def _shift_logical(x: Array, y: Array) -> Array:
    legal = _legal_shift(x, y)
    plain = x.view(f"u{x.itemsize}")
    shifted = np.right_shift(plain, np.where(legal, y, 0).astype(plain.dtype))
    return np.where(legal, shifted.view(x.dtype), 0)


def _shift_arithmetic(x: Array, y: Array) -> Array:
    signed = x.view(f"i{x.itemsize}")
    bits = 8 * x.itemsize
    amount = np.where(_legal_shift(x, y), y, bits - 1).astype(signed.dtype)
    return np.asarray(np.right_shift(signed, amount).view(x.dtype))


def _legal_shift(x: Array, y: Array) -> Array:
    return np.asarray((y >= 0) & (y < 8 * x.itemsize))


def _multiply_high(x: Array, y: Array) -> Array:
    product = x.astype(object) * y.astype(object)  # Python integers: exact at any width
    return np.asarray(np.asarray(product, dtype=object) >> (8 * x.itemsize), dtype=x.dtype)


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "rem": np.fmod,  # C's remainder; 0 for integers with y = 0
    "min": _minimum,
    "max": _maximum,
    "minnum": _minnum,
    "maxnum": lambda x, y: -_minnum(-x, -y),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": _shift_left,
    "shr_logical": _shift_logical,
    "shr_arithmetic": _shift_arithmetic,
    "mulhi": _multiply_high,
}
_BINARY_F64: dict[str, Callable[[Array, Array], Array]] = {"pow": np.power, "atan2": np.arctan2}
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def binary(kind: str, x: Array, y: Array, elem: DType) -> Array:
    """One elementwise function of two tiles of the same type."""
    with np.errstate(all="ignore"):
        in_f64 = _BINARY_F64.get(kind)
        if in_f64 is not None:
            result = np.asarray(in_f64(x.astype(np.float64), y.astype(np.float64)))
            if elem.bits == 16:
                result = result.astype(np.float32)
            return result.astype(elem.numpy)
        result = np.asarray(_BINARY[kind](_working(x, elem), _working(y, elem)))
        return result.astype(elem.numpy)


_REDUCE = {"sum": "add", "prod": "mul"}


def reduce(kind: str, x: Array, axis: int, elem: DType) -> Array:
    """Fold an axis in the order that `Reduce` states."""
    step = _REDUCE.get(kind, kind)
    parts = np.moveaxis(x, axis, 0)
    count = len(parts)
    half = 1 << (count.bit_length() - 1)
    if half < count:
        head = binary(step, parts[: count - half], parts[half:], elem)
        parts = np.concatenate([head, parts[count - half : half]])
    while half > 1:
        half //= 2
        parts = binary(step, parts[:half], parts[half:], elem)
    return np.asarray(parts[0])


def _dot4(acc: Array, a: Array, b: Array) -> Array:
    products = np.einsum("mj,nj->mn", a.astype(np.int64), b.astype(np.int64).reshape(-1, 4))
    return np.asarray(acc + products).astype(np.int32)


def _dot_pair(acc: Array, a: Array, b: Array) -> Array:
    pairs = b.reshape(-1, 2)
    for j in (1, 0):
        left, right = np.broadcast_arrays(a[:, j : j + 1], pairs[:, j])
        acc = fma(left, right, acc, DTYPES["f32"])
    return acc


Rule = Callable[[Any, Sequence[Array], Sequence[TileType]], Array]

# The closed set of value ops. program_id and thread_id are answered by the evaluator.
MEANING: dict[type[TileOp], Rule] = {
    Constant: lambda op, _x, _t: np.array(op.value, dtype=op.dtype.numpy),
    Arange: lambda op, _x, _t: np.arange(op.n).astype(op.dtype.numpy),
    Unary: lambda op, x, t: unary(op.kind, x[0], t[0].dtype),
    Binary: lambda op, x, t: binary(op.kind, x[0], x[1], t[0].dtype),
    Compare: lambda op, x, t: np.asarray(
        _COMPARE[op.predicate](_working(x[0], t[0].dtype), _working(x[1], t[0].dtype))
    ),
    Select: lambda _op, x, _t: np.where(x[0], x[1], x[2]),
    Fma: lambda _op, x, t: fma(x[0], x[1], x[2], t[0].dtype),
    Cast: lambda op, x, t: cast(x[0], t[0].dtype, op.dtype, op.saturate),
    Bitcast: lambda op, x, _t: np.ascontiguousarray(x[0]).reshape(x[0].shape).view(op.dtype.numpy),
    Broadcast: lambda op, x, _t: np.broadcast_to(x[0], op.shape),
    Reshape: lambda op, x, _t: x[0].reshape(op.shape),
    Transpose: lambda op, x, _t: x[0].transpose(op.permutation),
    ExtractSlice: lambda op, x, _t: x[0][
        tuple(slice(at, at + n) for at, n in zip(op.offsets, op.shape, strict=True))
    ],
    Concat: lambda op, x, _t: np.concatenate(x, axis=op.axis),
    Reduce: lambda op, x, t: reduce(op.kind, x[0], op.axis, t[0].dtype),
    Dot4: lambda _op, x, _t: _dot4(*x),
    DotPair: lambda _op, x, _t: _dot_pair(*x),
}


def compute(op: TileOp, operands: Sequence[Array], types: Sequence[TileType]) -> Array:
    """The result of a value op on arrays whose dtypes and shapes are those of `types`.

    >>> from luban.tile.types import tile_type
    >>> compute(Unary("neg"), [np.array([1, 2], np.int8)], [tile_type("i8", 2)]).tolist()
    [-1, -2]
    """
    rule = MEANING.get(type(op))
    if rule is None:
        raise InternalError(f"tile op {op.mnemonic} has no row in MEANING of tile/meaning.py")
    return rule(op, operands, types)
