"""Where values come from: constants, indices, sizes, random bits, and host operators."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from luban.core.dims import DimLike, Shape
from luban.core.dtypes import DType
from luban.core.types import TensorType, TupleType, Type, tensor, type_of_array
from luban.graph.infer import axis_in_range, require, tensor_operand, tensor_operands
from luban.ir.node import Op

__all__ = [
    "OPS",
    "Constant",
    "DimensionSize",
    "HostCall",
    "Iota",
    "Literal",
    "Nonzero",
    "RandomBits",
]

_COMPARE_BYTES = 1 << 12


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A read-only array inside a program. Small ones compare by bytes, large ones by identity.

    `label` is the name it has in the model file, if any; it is not part of the identity.
    """

    array: np.ndarray[Any, Any]
    label: str = ""
    key: object = field(init=False)

    def __post_init__(self) -> None:
        array = self.array
        if array.dtype.kind == "O":
            key: object = (array.shape, tuple(array.ravel().tolist()))
        elif array.nbytes <= _COMPARE_BYTES:
            key = (array.dtype.name, array.shape, array.tobytes())
        else:
            key = id(array)
        object.__setattr__(self, "key", key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def digest(self) -> str:
        """Sha-256 of dtype, shape and bytes, in hex: the content address of packed copies."""
        content = hashlib.sha256(f"{self.array.dtype.name}{self.array.shape}".encode())
        content.update(np.ascontiguousarray(self.array).view(np.uint8).data)
        return content.hexdigest()


@dataclass(frozen=True, slots=True)
class Constant(Op):
    """A literal tensor."""

    name: ClassVar[str] = "constant"
    value: Literal

    def infer(self, *operands: Type) -> Type:
        """The type of the literal."""
        tensor_operands(operands, 0)
        return type_of_array(self.value.array)


@dataclass(frozen=True, slots=True)
class Iota(Op):
    """The index along one axis: y[.., i, ..] = i."""

    name: ClassVar[str] = "iota"
    dtype: DType
    shape: Shape
    axis: int

    def infer(self, *operands: Type) -> Type:
        """The declared shape and numeric dtype."""
        tensor_operands(operands, 0)
        require(self.dtype.is_numeric, self.dtype, "a numeric dtype")
        axis_in_range(self.axis, len(self.shape))
        return TensorType(self.dtype, self.shape)


@dataclass(frozen=True, slots=True)
class DimensionSize(Op):
    """The value of a symbolic dimension expression as an i64 scalar."""

    name: ClassVar[str] = "dimension_size"
    size: DimLike

    def infer(self, *operands: Type) -> Type:
        """i64[]."""
        tensor_operands(operands, 0)
        return tensor("i64")


@dataclass(frozen=True, slots=True)
class RandomBits(Op):
    """u32[shape] of uniform random bits for a key u64[1].

    The first word of Philox4x32-10 with the element's row-major index as counter.
    """

    name: ClassVar[str] = "random_bits"
    shape: Shape

    def infer(self, *operands: Type) -> Type:
        """u32 of the declared shape; the key is u64[1]."""
        key = tensor_operand(operands)
        require(key.dtype.name == "u64" and key.shape == (1,), key, "a key of type u64[1]")
        return tensor("u32", *self.shape)


@dataclass(frozen=True, slots=True)
class Nonzero(Op):
    """Indices of the true elements in row-major order: bool[S] -> i64[rank, count].

    `count` is a symbol of its own, known once the node has run.
    """

    name: ClassVar[str] = "nonzero"
    count: DimLike

    def infer(self, *operands: Type) -> Type:
        """i64[rank, count]."""
        given = tensor_operand(operands)
        require(given.dtype.kind == "bool", given, "bool")
        return tensor("i64", given.rank, self.count)


@dataclass(frozen=True, slots=True)
class HostCall(Op):
    """A named function of `graph.host`, run in Python: strings, sequences, optionals, rarities.

    `options` are its attributes; symbols in `result_types` that no operand has are known once it
    has run.
    """

    name: ClassVar[str] = "host_call"
    function: str
    options: tuple[tuple[str, Any], ...]
    result_types: tuple[Type, ...]

    def infer(self, *_: Type) -> Type:
        """The declared type; a tuple unless there is one result."""
        return self.result_types[0] if len(self.result_types) == 1 else TupleType(self.result_types)


OPS: tuple[type[Op], ...] = (Constant, Iota, DimensionSize, RandomBits, Nonzero, HostCall)
