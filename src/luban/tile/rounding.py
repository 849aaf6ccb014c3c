"""Exact rounding in numpy: fused multiply-add and casts between every pair of element types.

The tool is rounding to odd: a result rounded that way to a wider format can be rounded again to a
format at least two bits narrower without a double-rounding error (Boldo and Melquiond, "Emulation
of a FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from luban.core.dtypes import DType

__all__ = ["cast", "fma"]

Array = NDArray[Any]


def _two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """x + y as a rounded sum and its exact error (Knuth)."""
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


def _make_odd(total: Array, error: Array) -> Array:
    """`total`, a sum rounded to nearest with this error left over, as rounded to odd."""
    bits = total.view(np.int64).copy()
    even = (bits & 1) == 0
    inexact = (error != 0) & np.isfinite(total) & even
    away = (error > 0) == (total > 0)
    return (bits + np.where(inexact, np.where(away, 1, -1), 0)).view(np.float64)


def _fma32(x: Array, y: Array, z: Array) -> Array:
    """The f32 fma: the product is exact in f64, the sum is rounded to odd there."""
    product = x.astype(np.float64) * y.astype(np.float64)
    total, error = _two_sum(product, z.astype(np.float64))
    error = np.where(np.isfinite(total), error, 0.0)
    result: Array = _make_odd(total, error).astype(np.float32)
    return result


def _fma_exact(x: float, y: float, z: float) -> float:
    """The f64 fma of three finite numbers by exact arithmetic."""
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        return x * y + z if x == 0 or y == 0 else 0.0  # signed zeros; exact cancellation gives 0.0
    try:
        return float(exact)  # Python rounds a ratio of integers to nearest even, subnormals too
    except OverflowError:
        return float("inf") if exact > 0 else -float("inf")


def _fma64(x: Array, y: Array, z: Array) -> Array:
    result = np.empty(x.shape)
    plain = x * y + z
    finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(z)
    for place in np.ndindex(x.shape):
        if finite[place]:
            result[place] = _fma_exact(float(x[place]), float(y[place]), float(z[place]))
        else:
            result[place] = plain[place]
    return result


def fma(x: Array, y: Array, z: Array, elem: DType) -> Array:
    """x * y + z rounded once to f32 or f64; for f16 and bf16 the f32 fma, rounded to the type.

    >>> one = np.float32(1)
    >>> tiny = np.float32(2.0**-24)
    >>> from luban.core.dtypes import DTYPES
    >>> bool(fma(*(np.asarray(v) for v in (one + tiny * 2, one - tiny, -one)), DTYPES["f32"]) > 0)
    True
    """
    with np.errstate(all="ignore"):
        if elem.bits == 64:
            return _fma64(x, y, z)
        wide = [item.astype(np.float32) for item in (x, y, z)]
        return _fma32(*wide).astype(elem.numpy)


def _odd_f32(x: Array) -> Array:
    """f64 to f32, rounded to odd: cut off, then the last bit set when anything was lost."""
    nearest = x.astype(np.float32)
    too_far = np.abs(nearest.astype(np.float64)) > np.abs(x)
    cut = np.where(too_far, np.nextafter(nearest, np.float32(0)), nearest).astype(np.float32)
    lost = (cut.astype(np.float64) != x) & ~np.isnan(x)
    result: Array = (cut.view(np.uint32) | lost.astype(np.uint32)).view(np.float32)
    return result


def _odd_f64(x: Array) -> Array:
    """i64 or u64 to f64, rounded to odd: both halves are exact, so their sum has a known error."""
    low = x & x.dtype.type(0x7FF)
    total, error = _two_sum((x - low).astype(np.float64), low.astype(np.float64))
    return _make_odd(total, error)


def _widen(x: Array, elem: DType) -> Array:
    """Any number as f64 (floats, exact), u64 (u64 only) or i64 (other integers and bool)."""
    if elem.is_float:
        return x if elem.bits == 64 else x.astype(np.float32).astype(np.float64)
    return x if elem.bits == 64 else x.astype(np.int64)


def _to_float(x: Array, to: DType, saturate: bool) -> Array:
    if x.dtype.kind in "iu":
        if to.bits >= 32:
            return x.astype(to.numpy)  # one hardware rounding
        x = _odd_f64(x)
    if to.bits >= 32:
        return x.astype(to.numpy)
    narrow = _odd_f32(x)
    if saturate and to.bits <= 8:
        info = ml_dtypes.finfo(to.numpy)  # type: ignore[no-untyped-call]
        narrow = np.clip(narrow, np.float32(info.min), np.float32(info.max))
    return narrow.astype(to.numpy)


def _float_to_wide_integer(x: Array, unsigned: bool) -> Array:
    """Truncate and clamp to i64 or u64; NaN becomes 0."""
    low, high = (0.0, 2.0**64) if unsigned else (-(2.0**63), 2.0**63)
    wide = np.uint64 if unsigned else np.int64
    whole = np.trunc(np.where(np.isnan(x), 0.0, x))
    inside = (whole >= low) & (whole < high)
    result: Array = np.where(inside, whole, 0.0).astype(wide)
    info = np.iinfo(wide)
    result = np.where(whole >= high, wide(info.max), result)
    return np.where(whole < low, wide(info.min), result)


def _to_integer(x: Array, to: DType, saturate: bool) -> Array:
    if x.dtype.kind == "f":
        x = _float_to_wide_integer(x, to.name == "u64")
    if saturate:
        low = max(to.lowest, int(np.iinfo(x.dtype).min))
        high = min(to.highest, int(np.iinfo(x.dtype).max))
        x = np.clip(x, x.dtype.type(low), x.dtype.type(high))
    if to.bits >= 8:
        return x.astype(to.numpy)
    kept = x.astype(np.int64) & ((1 << to.bits) - 1)
    if to.kind == "int":
        sign = 1 << (to.bits - 1)
        return ((kept ^ sign) - sign).astype(np.int8).astype(to.numpy)
    return kept.astype(np.uint8).astype(to.numpy)


def cast(x: Array, source: DType, to: DType, saturate: bool) -> Array:
    """`x` of `source` as `to`; the rules stand at `luban.tile.Cast`.

    >>> from luban.core.dtypes import DTYPES
    >>> cast(np.array([300.0, -1.5, np.nan]), DTYPES["f64"], DTYPES["u8"], saturate=True).tolist()
    [255, 0, 0]
    """
    with np.errstate(all="ignore"):
        wide = _widen(x, source)
        if to.kind == "bool":
            return np.asarray(wide != 0)
        if to.is_float:
            return _to_float(wide, to, saturate)
        return _to_integer(wide, to, saturate)
