"""Sizes: PyTorch's symbolic integers, sympy expressions, as dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from typing import Any

import torch
from torch.utils._sympy import functions as torch_functions

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.dtypes import DType, dtype
from luban.core.errors import DTypeError, UnsupportedError
from luban.core.types import TensorType

__all__ = ["dtype_of", "is_size", "ranged", "size_of", "tensor_type"]

_DTYPES = {
    torch.bool: "bool",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
}


def dtype_of(given: torch.dtype) -> DType:
    """Our dtype. Raises DTypeError for one that we do not have, complex ones above all.

    >>> dtype_of(torch.bfloat16)
    bf16
    """
    if given not in _DTYPES:
        raise DTypeError(
            f"dtype {given} is not supported, expected one of "
            + ", ".join(str(known).removeprefix("torch.") for known in _DTYPES)
        )
    return dtype(_DTYPES[given])


def is_size(value: Any) -> bool:
    """Whether a value is an integer, known now or in the run."""
    return isinstance(value, int | torch.SymInt) and not isinstance(value, bool)


def size_of(value: int | torch.SymInt) -> DimLike:
    """An integer as a dimension.

    >>> size_of(3)
    3
    """
    return int(value) if isinstance(value, int) else _dim(value.node.expr, value.node.shape_env)


def tensor_type(fake: torch.Tensor) -> TensorType:
    """The type of a tensor, or of a stand-in for one.

    >>> tensor_type(torch.zeros(2, 3))
    f32[2,3]
    """
    return TensorType(dtype_of(fake.dtype), tuple(size_of(size) for size in fake.shape))


@contextmanager
def ranged(ranges: Mapping[Any, Any]) -> Iterator[None]:
    """Within the block, symbols have these ranges instead of those that PyTorch traced with."""
    token = _ranges.set(ranges)
    try:
        yield
    finally:
        _ranges.reset(token)


_ranges: ContextVar[Mapping[Any, Any] | None] = ContextVar("ranges", default=None)


def _dim(expression: Any, environment: Any) -> DimLike:
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol:
        found = (_ranges.get() or environment.var_to_range).get(expression)
        if found is None:
            return dims.symbol(str(expression))
        bounds = [int(b) for b in (found.lower, found.upper) if b.is_Integer]
        return dims.symbol(str(expression), *bounds)
    arguments = [_dim(argument, environment) for argument in expression.args]
    if expression.is_Add:
        return sum(arguments)
    if expression.is_Mul:
        return dims.num_elements(arguments)
    if expression.is_Pow and isinstance(arguments[1], int) and arguments[1] >= 0:
        return dims.num_elements([arguments[0]] * arguments[1])
    build = _FUNCTIONS.get(type(expression).__name__)
    if build is None:
        raise UnsupportedError(f"the size {expression} has no translation")
    return reduce(build, arguments)


_FUNCTIONS: dict[str, Callable[[DimLike, DimLike], DimLike]] = {
    torch_functions.FloorDiv.__name__: dims.floor_div,
    torch_functions.CleanDiv.__name__: dims.floor_div,
    torch_functions.Mod.__name__: dims.modulo,
    torch_functions.PythonMod.__name__: dims.modulo,
    torch_functions.Max.__name__: dims.maximum,
    torch_functions.Min.__name__: dims.minimum,
}
