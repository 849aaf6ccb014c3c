"""Types of graph values: tensors, tuples, and the sequences and optionals of host operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from luban.core import dims
from luban.core.dims import DimLike, Shape
from luban.core.dtypes import DType, dtype, from_numpy
from luban.core.errors import InternalError, ShapeError

__all__ = [
    "OptionalType",
    "SequenceType",
    "TensorType",
    "TupleType",
    "Type",
    "tensor",
    "type_of_array",
]


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape; sizes are ints or symbolic `Dim`s. Prints as `f32[batch,3,2*h+1]`."""

    dtype: DType
    shape: Shape

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def num_elements(self) -> DimLike:
        """Product of the sizes."""
        return dims.num_elements(self.shape)

    @property
    def size_bytes(self) -> DimLike:
        """Bytes in memory, row-major without gaps."""
        return self.num_elements * self.dtype.size_bytes

    @property
    def is_static(self) -> bool:
        """True if no size is symbolic."""
        return all(isinstance(size, int) for size in self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as ints; InternalError if any size is symbolic."""
        if not self.is_static:
            raise InternalError(f"{self} is not static")
        return tuple(size for size in self.shape if isinstance(size, int))

    def with_shape(self, shape: Iterable[DimLike]) -> TensorType:
        """The same element type with another shape."""
        return TensorType(self.dtype, tuple(shape))

    def with_dtype(self, new: DType | str) -> TensorType:
        """The same shape with another element type."""
        return TensorType(dtype(new), self.shape)

    def resolve(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape with every symbol replaced by its size; ShapeError if one is negative."""
        shape = tuple(dims.evaluate(size, sizes) for size in self.shape)
        if any(size < 0 for size in shape):
            raise ShapeError(f"{self} has a negative size for {dict(sizes)}")
        return shape

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(str(size) for size in self.shape)}]"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class TupleType:
    """The results of an operation that has several."""

    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A list of values of one type, its length known at run time. Only host operators use it."""

    item: Type

    def __str__(self) -> str:
        return f"seq<{self.item}>"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value or nothing. Only host operators use it."""

    item: Type

    def __str__(self) -> str:
        return f"optional<{self.item}>"

    __repr__ = __str__


Type = TensorType | TupleType | SequenceType | OptionalType


def tensor(element: DType | str, *shape: DimLike | str) -> TensorType:
    """A tensor type; sizes may be given as text.

    Raises DTypeError or ShapeError for names it cannot read.

    >>> tensor("f32", "batch", 3, "2*h+1")
    f32[batch,3,2*h+1]
    """
    return TensorType(
        dtype(element), tuple(dims.parse(s) if isinstance(s, str) else s for s in shape)
    )


def type_of_array(array: np.ndarray[Any, Any]) -> TensorType:
    """The type of a numpy array.

    >>> type_of_array(np.zeros((2, 3), np.float32))
    f32[2,3]
    """
    return TensorType(from_numpy(array.dtype), tuple(array.shape))
