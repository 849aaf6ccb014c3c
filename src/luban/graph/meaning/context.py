"""What a primitive's meaning is told besides its operands, and the two precisions.

model    every value has its own dtype. Floats narrower than f32 compute in f32 and round after
         each operation.
float64  the oracle: every float is held as float64 and nothing rounds, except casts to 8-bit and
         4-bit floats, integers and bool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from luban.core.dtypes import DTYPES, DType
from luban.core.types import OptionalType, SequenceType, TensorType, TupleType, Type
from luban.ir.node import Graph

__all__ = [
    "Array",
    "Context",
    "Meaning",
    "Precision",
    "conform",
    "storage",
    "stored",
    "to_narrow_float",
    "widened",
]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
# An array, a tuple of values, a list (a sequence), or None (an empty optional).
Value: TypeAlias = Any
Precision: TypeAlias = Literal["model", "float64"]


@dataclass(frozen=True, slots=True)
class Context:
    """The types round one node, the sizes known so far, and how to run a sub-graph."""

    precision: Precision
    operand_types: tuple[Type, ...]
    result_type: Type
    sizes: dict[str, int]
    run: Callable[[Graph, Sequence[Value]], tuple[Value, ...]]

    @property
    def result(self) -> TensorType:
        """The result type of a node that gives one tensor."""
        assert isinstance(self.result_type, TensorType)
        return self.result_type

    def operand(self, index: int) -> TensorType:
        """The type of an operand that is a tensor."""
        given = self.operand_types[index]
        assert isinstance(given, TensorType)
        return given


Meaning: TypeAlias = Callable[[Any, list[Value], Context], Value]


def storage(dtype: DType, precision: Precision) -> np.dtype[Any]:
    """The numpy dtype that holds values of a dtype."""
    if precision == "float64" and dtype.is_float:
        return np.dtype(np.float64)
    return dtype.numpy


def _wide_dtype(dtype: DType) -> np.dtype[Any]:
    if dtype.is_float and dtype.bits < 32:
        return np.dtype(np.float32)
    if dtype.is_integer and dtype.bits < 8:
        return np.dtype(np.int8 if dtype.kind == "int" else np.uint8)
    return dtype.numpy


_WIDE: dict[np.dtype[Any], np.dtype[Any]] = {
    d.numpy: _wide_dtype(d) for d in DTYPES.values() if _wide_dtype(d) != d.numpy
}


def widened(array: Array) -> Array:
    """The same values in a dtype that numpy computes in.

    Floats narrower than f32 become f32, integers narrower than 8 bits get 8 bits, others stay.
    """
    wide = _WIDE.get(array.dtype)
    return array if wide is None else array.astype(wide)


def stored(array: Array, dtype: DType, precision: Precision) -> Array:
    """A computed array in the dtype that holds its values: floats round to even, integers wrap."""
    target = storage(dtype, precision)
    array = np.asarray(array)
    if array.dtype == target:
        return array
    if dtype.is_float and target in _WIDE and target != np.float16:
        return to_narrow_float(array, target)
    return array.astype(target)


def to_narrow_float(array: Array, target: np.dtype[Any]) -> Array:
    """Round once to an ml_dtypes float. Its own casts from f64 rounded twice before 0.7.

    >>> import ml_dtypes
    >>> to_narrow_float(np.array([1 + 2**-8 + 2**-30]), np.dtype(ml_dtypes.bfloat16)).item()
    1.0078125
    """
    if array.dtype.kind in "iu" and array.dtype.itemsize > 4:
        # Keep 53 bits; what is cut off sets the last of them, so that the next rounding is right.
        sticky = (array >> 11) | ((array & 2047) != 0)
        exact = np.abs(array.astype(np.float64)) < 2.0**53
        array = np.where(exact, array.astype(np.float64), sticky.astype(np.float64) * 2048.0)
    if array.dtype in (np.int32, np.uint32):
        array = array.astype(np.float64)
    if array.dtype == np.float64:
        array = _odd_float32(array)
    return array.astype(target)


def _odd_float32(array: Array) -> Array:
    """float64 to float32, rounding inexact values to the neighbour whose last bit is odd."""
    near = array.astype(np.float32)
    back = near.astype(np.float64)
    inexact = (back != array) & np.isfinite(back) & np.isfinite(array)
    if not inexact.any():
        return near
    bits = near.view(np.uint32)
    too_far = inexact & (np.abs(back) > np.abs(array))
    truncated = bits - too_far.astype(np.uint32)
    odd: Array = np.where(inexact, truncated | np.uint32(1), bits).view(np.float32)
    return odd


def conform(value: Value, type_: Type, precision: Precision) -> Value:
    """A value from outside (input, constant, host function) as this precision holds it."""
    if isinstance(value, dict):
        return value  # of a host function that names scores: there is no type for it
    match type_:
        case TensorType():
            if type_.dtype.kind == "string":
                return np.asarray(value, dtype=object)
            return stored(np.asarray(value), type_.dtype, precision)
        case TupleType():
            return tuple(conform(v, t, precision) for v, t in zip(value, type_.items, strict=True))
        case SequenceType():
            return [conform(item, type_.item, precision) for item in value]
        case OptionalType():
            return None if value is None else conform(value, type_.item, precision)
