"""The meaning of matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from luban.core.dtypes import DType
from luban.core.errors import ShapeError
from luban.graph.meaning.context import Array, Context, Meaning, stored, widened
from luban.graph.meaning.structure import padded, resolved
from luban.graph.ops.contract import Convolution, DotGeneral
from luban.ir.node import Op

__all__ = ["MEANING", "convolution", "dot_general"]

_EXACT_IN_F64 = 2.0**53


def _largest(x: Array) -> float:
    return max(abs(float(x.max())), abs(float(x.min()))) if x.size else 0.0


def _accumulators(lhs: Array, rhs: Array, length: int) -> tuple[Array, Array]:
    """Both operands in the dtype that accumulates `length` products: exact for integers."""
    lhs, rhs = widened(lhs), widened(rhs)
    if lhs.dtype.kind == "f":
        return lhs, rhs
    # BLAS knows only floats, float64 is exact up to 2**53, and 64-bit integers wrap rightly.
    if _largest(lhs) * _largest(rhs) * max(length, 1) < _EXACT_IN_F64:
        return lhs.astype(np.float64), rhs.astype(np.float64)
    return lhs.astype(np.int64), rhs.astype(np.int64)


def _finished(result: Array, element: DType, context: Context) -> Array:
    if element.is_integer and result.dtype.kind == "f":
        result = result.astype(np.int64)
    return stored(result, element, context.precision)


def dot_general(op: DotGeneral, operands: list[Array], context: Context) -> Array:
    """The product over the contracted axes."""
    lhs, rhs = operands
    left = [i for i in range(lhs.ndim) if i not in (*op.lhs_batch, *op.lhs_contract)]
    right = [i for i in range(rhs.ndim) if i not in (*op.rhs_batch, *op.rhs_contract)]
    pairs = [
        *zip(op.lhs_batch, op.rhs_batch, strict=True),
        *zip(op.lhs_contract, op.rhs_contract, strict=True),
    ]
    for a, b in pairs:
        if lhs.shape[a] != rhs.shape[b]:
            raise ShapeError(
                f"operands have shapes {list(lhs.shape)} and {list(rhs.shape)}: "
                f"axis {a} of one must equal axis {b} of the other"
            )
    batch_shape = [lhs.shape[a] for a in op.lhs_batch]
    left_shape, right_shape = [lhs.shape[a] for a in left], [rhs.shape[a] for a in right]
    length = prod(lhs.shape[a] for a in op.lhs_contract)
    wide_lhs, wide_rhs = _accumulators(lhs, rhs, length)
    rows = wide_lhs.transpose(*op.lhs_batch, *left, *op.lhs_contract).reshape(
        *batch_shape, prod(left_shape), length
    )
    columns = wide_rhs.transpose(*op.rhs_batch, *op.rhs_contract, *right).reshape(
        *batch_shape, length, prod(right_shape)
    )
    result = np.matmul(rows, columns).reshape((*batch_shape, *left_shape, *right_shape))
    return _finished(result, op.dtype, context)


def convolution(op: Convolution, operands: list[Array], context: Context) -> Array:
    """The cross-correlation."""
    lhs, rhs = operands
    rank = len(op.strides)
    if op.layout == "channels_last":
        lhs = lhs.transpose(0, rank + 1, *range(1, rank + 1))
        rhs = rhs.transpose(rank + 1, rank, *range(rank))
    if lhs.shape[1] != rhs.shape[1] * op.groups or rhs.shape[0] % op.groups:
        raise ShapeError(
            f"input has {lhs.shape[1]} channels, filter has {rhs.shape[0]} outputs of "
            f"{rhs.shape[1]} inputs: they do not fit {op.groups} groups"
        )
    lhs, rhs = _accumulators(lhs, rhs, prod(rhs.shape[1:]))
    ends = (0, 0)
    x = padded(
        lhs,
        (*ends, *resolved(op.low, context)),
        (*ends, *resolved(op.high, context)),
        (*ends, *(d - 1 for d in op.lhs_dilation)),
        np.zeros((), lhs.dtype),
    )
    result = _convolved(op, x, rhs)
    if op.layout == "channels_last":
        result = result.transpose(0, *range(2, rank + 2), 1)
    return _finished(result, op.dtype, context)


def _convolved(op: Convolution, x: Array, filters: Array) -> Array:
    """One matrix product for each place in the window, over all positions of the result."""
    batch, _, *space = x.shape
    outputs, per_group, *window = filters.shape
    counts = [
        max((size - (k - 1) * dilation - 1) // stride + 1, 0)
        for size, k, dilation, stride in zip(
            space, window, op.rhs_dilation, op.strides, strict=True
        )
    ]
    positions = prod(counts)
    result = np.zeros((batch, op.groups, outputs // op.groups, positions), x.dtype)
    if not positions:
        return result.reshape(batch, outputs, *counts)
    weights = filters.reshape(op.groups, outputs // op.groups, per_group, *window)
    taps: Iterator[tuple[Any, ...]] = product(*(range(k) for k in window))
    for tap in taps:
        index: tuple[Any, ...] = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, op.rhs_dilation, counts, op.strides, strict=True)
        )
        part = x[..., *index].reshape(batch, op.groups, per_group, positions)
        weight: Array = weights[(..., *tap)]
        if per_group == 1:
            result += weight * part
        else:
            result += np.matmul(weight, part)
    return result.reshape(batch, outputs, *counts)


MEANING: dict[type[Op], Meaning] = {DotGeneral: dot_general, Convolution: convolution}
