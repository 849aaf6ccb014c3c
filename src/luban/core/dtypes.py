"""Element types: names, bit widths, ranges and their numpy representation.

Sub-byte types (i4, u4, i2, u2, f4, f6) live one element a byte in numpy arrays (ml_dtypes); only
files pack them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from luban.core.errors import DTypeError

__all__ = ["DTYPES", "DType", "dtype", "from_numpy"]

# ml_dtypes leaves these two without annotations.
_integer_info: Callable[[np.dtype[Any]], Any] = ml_dtypes.iinfo
_float_info: Callable[[np.dtype[Any]], Any] = ml_dtypes.finfo


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type. There is exactly one object for each name, so `is` compares.

    kind: "bool", "int", "uint", "float", "complex" or "string".

    >>> dtype("bf16").bits, dtype("bf16").numpy.name
    (16, 'bfloat16')
    """

    name: str
    kind: str
    bits: int
    numpy: np.dtype[Any]

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        """A copy or a pickle is the same object, as `is` compares."""
        return dtype, (self.name,)

    @property
    def size_bytes(self) -> int:
        """Bytes of one element in memory (1 for sub-byte types)."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        """True for every floating type, 4 bits to 64."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in ("int", "uint")

    @property
    def is_numeric(self) -> bool:
        """True for integers and floats."""
        return self.is_integer or self.is_float

    @property
    def lowest(self) -> Any:
        """The smallest value, -inf for floats that have it, as a Python number."""
        if self.kind == "bool":
            return False
        if self.is_integer:
            return int(_integer_info(self.numpy).min)
        info = _float_info(self.numpy)
        return -float("inf") if self.has_infinity else float(info.min)

    @property
    def highest(self) -> Any:
        """The largest value, inf for floats that have it, as a Python number."""
        if self.kind == "bool":
            return True
        if self.is_integer:
            return int(_integer_info(self.numpy).max)
        info = _float_info(self.numpy)
        return float("inf") if self.has_infinity else float(info.max)

    @property
    def has_infinity(self) -> bool:
        """True for floats that can hold an infinity (not e4m3fn, e2m1 and the like)."""
        return self.name in ("f16", "bf16", "f32", "f64", "f8e5m2")


def _table() -> dict[str, DType]:
    rows: list[tuple[str, str, int, Any]] = [
        ("bool", "bool", 1, np.bool_),
        ("i2", "int", 2, ml_dtypes.int2),
        ("i4", "int", 4, ml_dtypes.int4),
        ("i8", "int", 8, np.int8),
        ("i16", "int", 16, np.int16),
        ("i32", "int", 32, np.int32),
        ("i64", "int", 64, np.int64),
        ("u2", "uint", 2, ml_dtypes.uint2),
        ("u4", "uint", 4, ml_dtypes.uint4),
        ("u8", "uint", 8, np.uint8),
        ("u16", "uint", 16, np.uint16),
        ("u32", "uint", 32, np.uint32),
        ("u64", "uint", 64, np.uint64),
        ("f4e2m1", "float", 4, ml_dtypes.float4_e2m1fn),
        ("f6e2m3", "float", 6, ml_dtypes.float6_e2m3fn),
        ("f6e3m2", "float", 6, ml_dtypes.float6_e3m2fn),
        ("f8e4m3fn", "float", 8, ml_dtypes.float8_e4m3fn),
        ("f8e4m3fnuz", "float", 8, ml_dtypes.float8_e4m3fnuz),
        ("f8e5m2", "float", 8, ml_dtypes.float8_e5m2),
        ("f8e5m2fnuz", "float", 8, ml_dtypes.float8_e5m2fnuz),
        ("f8e8m0", "float", 8, ml_dtypes.float8_e8m0fnu),
        ("f16", "float", 16, np.float16),
        ("bf16", "float", 16, ml_dtypes.bfloat16),
        ("f32", "float", 32, np.float32),
        ("f64", "float", 64, np.float64),
        ("c64", "complex", 64, np.complex64),
        ("c128", "complex", 128, np.complex128),
        ("str", "string", 0, np.object_),
    ]
    return {name: DType(name, kind, bits, np.dtype(scalar)) for name, kind, bits, scalar in rows}


DTYPES: dict[str, DType] = _table()
_BY_NUMPY: dict[np.dtype[Any], DType] = {d.numpy: d for d in DTYPES.values()}


def dtype(name: str | DType) -> DType:
    """The element type of this name. Raises DTypeError for an unknown one.

    >>> dtype("f32") is dtype(dtype("f32"))
    True
    """
    if isinstance(name, DType):
        return name
    found = DTYPES.get(name)
    if found is None:
        raise DTypeError(f"unknown dtype {name!r}", hint="one of " + ", ".join(DTYPES))
    return found


def from_numpy(given: Any) -> DType:
    """The element type of a numpy dtype or scalar type; every string dtype maps to `str`.

    >>> from_numpy(np.dtype("int8"))
    i8
    """
    wanted = np.dtype(given)
    if wanted.kind in "USO" or wanted.kind == "T":
        return DTYPES["str"]
    found = _BY_NUMPY.get(wanted.newbyteorder("="))
    if found is None:
        raise DTypeError(
            f"numpy dtype {wanted} has no counterpart",
            hint="convert the array to one of " + ", ".join(DTYPES),
        )
    return found
