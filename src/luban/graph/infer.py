"""Checks and rules that several primitives share when they infer their result type."""

from __future__ import annotations

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.dtypes import DType
from luban.core.errors import DTypeError, ShapeError
from luban.core.types import TensorType, Type

__all__ = [
    "axis_in_range",
    "broadcast_shapes",
    "same_shape",
    "tensor_operand",
    "tensor_operands",
    "window_size",
]


def tensor_operand(operands: tuple[Type, ...]) -> TensorType:
    """The only operand, a tensor. Raises ShapeError otherwise."""
    return tensor_operands(operands, 1)[0]


def tensor_operands(operands: tuple[Type, ...], count: int) -> tuple[TensorType, ...]:
    """Exactly `count` operands, all tensors. Raises ShapeError otherwise."""
    tensors = tuple(o for o in operands if isinstance(o, TensorType))
    if len(operands) != count or len(tensors) != count:
        given = ", ".join(map(str, operands))
        raise ShapeError(f"given ({given}), expected {count} tensor operand{'s' * (count != 1)}")
    return tensors


def same_shape(operands: tuple[TensorType, ...]) -> TensorType:
    """The first operand's type. Raises ShapeError or DTypeError unless all operands have it."""
    first = operands[0]
    for other in operands[1:]:
        if other.dtype is not first.dtype:
            raise DTypeError(
                f"operands are {first} and {other}, expected one dtype", hint="cast one of them"
            )
        if other.shape != first.shape:
            raise ShapeError(
                f"operands are {first} and {other}, expected one shape",
                hint="broadcast one of them",
            )
    return first


def require(condition: bool, given: TensorType | DType, expected: str) -> None:
    """Raises DTypeError with what was given and expected unless the condition holds."""
    if not condition:
        raise DTypeError(f"operand is {given}, expected {expected}")


def axis_in_range(axis: int, rank: int) -> None:
    """Raises ShapeError unless 0 <= axis < rank."""
    if not 0 <= axis < rank:
        raise ShapeError(f"axis {axis} is outside the {rank} axes of the operand")


def broadcast_shapes(*shapes: tuple[DimLike, ...]) -> tuple[DimLike, ...]:
    """The numpy broadcast of the shapes; symbolic sizes that may differ give `broadcast(a,b)`.

    Raises ShapeError if constants do not fit.

    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    rank = max((len(s) for s in shapes), default=0)
    result: list[DimLike] = [1] * rank
    for shape in shapes:
        for i, size in enumerate(shape, start=rank - len(shape)):
            result[i] = dims.broadcast(result[i], size)
    return tuple(result)


def window_size(
    size: DimLike, window: int, stride: int, low: DimLike, high: DimLike, dilation: int
) -> DimLike:
    """How many windows fit along an axis with `low` + `high` padding; 0 if none does.

    >>> window_size(7, 3, 2, 1, 1, 1)
    4
    """
    span = (window - 1) * dilation + 1
    return dims.maximum(dims.floor_div(size + low + high - span, stride) + 1, 0)
