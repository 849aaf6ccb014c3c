"""Element types: names, bit widths, ranges and their numpy representation.

Sub-byte types (i4, u4, i2, u2, f4, f6) live one element a byte in numpy arrays (ml_dtypes); only
files pack them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from luban.core.errors import DTypeError

__all__ = ["DTYPES", "DType", "dtype", "from_numpy"]


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

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype; that of a type numpy does not have loads ml_dtypes."""
        return _numpy_dtype(self.name)

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
            return _integer_limits(self)[0]
        info = _float_info(self)
        return -float("inf") if self.has_infinity else float(info.min)

    @property
    def highest(self) -> Any:
        """The largest value, inf for floats that have it, as a Python number."""
        if self.kind == "bool":
            return True
        if self.is_integer:
            return _integer_limits(self)[1]
        info = _float_info(self)
        return float("inf") if self.has_infinity else float(info.max)

    @property
    def has_infinity(self) -> bool:
        """True for floats that can hold an infinity (not e4m3fn, e2m1 and the like)."""
        return self.name in ("f16", "bf16", "f32", "f64", "f8e5m2")


# Name, kind, bits, and the name of the scalar type in numpy or, with a dot, in ml_dtypes.
_ROWS: tuple[tuple[str, str, int, str], ...] = (
    ("bool", "bool", 1, "bool_"),
    ("i2", "int", 2, ".int2"),
    ("i4", "int", 4, ".int4"),
    ("i8", "int", 8, "int8"),
    ("i16", "int", 16, "int16"),
    ("i32", "int", 32, "int32"),
    ("i64", "int", 64, "int64"),
    ("u2", "uint", 2, ".uint2"),
    ("u4", "uint", 4, ".uint4"),
    ("u8", "uint", 8, "uint8"),
    ("u16", "uint", 16, "uint16"),
    ("u32", "uint", 32, "uint32"),
    ("u64", "uint", 64, "uint64"),
    ("f4e2m1", "float", 4, ".float4_e2m1fn"),
    ("f6e2m3", "float", 6, ".float6_e2m3fn"),
    ("f6e3m2", "float", 6, ".float6_e3m2fn"),
    ("f8e4m3fn", "float", 8, ".float8_e4m3fn"),
    ("f8e4m3fnuz", "float", 8, ".float8_e4m3fnuz"),
    ("f8e5m2", "float", 8, ".float8_e5m2"),
    ("f8e5m2fnuz", "float", 8, ".float8_e5m2fnuz"),
    ("f8e8m0", "float", 8, ".float8_e8m0fnu"),
    ("f16", "float", 16, "float16"),
    ("bf16", "float", 16, ".bfloat16"),
    ("f32", "float", 32, "float32"),
    ("f64", "float", 64, "float64"),
    ("c64", "complex", 64, "complex64"),
    ("c128", "complex", 128, "complex128"),
    ("str", "string", 0, "object_"),
)

DTYPES: dict[str, DType] = {name: DType(name, kind, bits) for name, kind, bits, _ in _ROWS}
_SCALARS = {name: scalar for name, _, _, scalar in _ROWS}


@functools.cache
def _numpy_dtype(name: str) -> np.dtype[Any]:
    scalar = _SCALARS[name]
    if scalar.startswith("."):
        # Most models have none of them, and a start counts in milliseconds.
        found: np.dtype[Any] = np.dtype(getattr(import_module("ml_dtypes"), scalar[1:]))
    else:
        found = np.dtype(getattr(np, scalar))
    return found


@functools.cache
def _by_numpy(whole: bool) -> dict[np.dtype[Any], DType]:
    """Our types by numpy's, those of ml_dtypes only if `whole`."""
    names = (name for name, scalar in _SCALARS.items() if whole or not scalar.startswith("."))
    return {_numpy_dtype(name): DTYPES[name] for name in names}


@functools.cache
def _integer_limits(of: DType) -> tuple[int, int]:
    info = import_module("ml_dtypes").iinfo(of.numpy)
    return int(info.min), int(info.max)


def _float_info(of: DType) -> Any:
    return import_module("ml_dtypes").finfo(of.numpy)


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
    plain = wanted.newbyteorder("=")
    found = _by_numpy(False).get(plain)
    if found is None and "ml_dtypes" in sys.modules:  # else nobody has made such an array
        found = _by_numpy(True).get(plain)
    if found is None:
        raise DTypeError(
            f"numpy dtype {wanted} has no counterpart",
            hint="convert the array to one of " + ", ".join(DTYPES),
        )
    return found
