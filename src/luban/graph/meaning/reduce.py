"""The meaning of reductions, windows, cumulative operations and sorting."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from luban.core import dims
from luban.core.dtypes import DType
from luban.core.errors import ShapeError
from luban.graph.meaning.context import Array, Context, Meaning, stored, widened
from luban.graph.meaning.structure import padded, resolved
from luban.graph.ops.reduce import ArgReduce, Cumulative, Reduce, ReduceWindow, Sort, TopK
from luban.ir.node import Op

__all__ = ["MEANING", "empty_value"]

_UFUNC: dict[str, np.ufunc] = {
    "sum": np.add,
    "product": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def empty_value(kind: str, dtype: DType) -> int | float | bool:
    """What a reduction of nothing gives.

    >>> from luban.core.dtypes import dtype
    >>> empty_value("maximum", dtype("f32")), empty_value("and", dtype("u8"))
    (-inf, 255)
    """
    match kind:
        case "sum" | "or":
            return False if dtype.kind == "bool" else 0
        case "product":
            return 1
        case "maximum":
            return dtype.lowest  # type: ignore[no-any-return]
        case "minimum":
            return dtype.highest  # type: ignore[no-any-return]
    return -1 if dtype.kind == "int" else dtype.highest


def _start(kind: str, element: DType, wide: Array) -> Array:
    """The empty value in the dtype of the widened array."""
    return np.asarray(empty_value(kind, element)).astype(wide.dtype)


def _reduce(op: Reduce, operands: list[Array], context: Context) -> Array:
    element = context.result.dtype
    wide = widened(operands[0])
    axes = tuple(op.axes)
    if op.kind in ("sum", "product"):
        result = _UFUNC[op.kind].reduce(wide, axis=axes, dtype=wide.dtype)
    else:
        start = _start(op.kind, element, wide)
        result = _UFUNC[op.kind].reduce(wide, axis=axes, initial=start[()])
    return stored(result, element, context.precision)


def _arg_reduce(op: ArgReduce, operands: list[Array], _: Context) -> Array:
    x = widened(operands[0])
    if not x.shape[op.axis]:
        raise ShapeError(
            f"{op.kind} of axis {op.axis} of shape {list(x.shape)}: the axis is empty, "
            "expected at least one element"
        )
    choose: Callable[..., Array] = np.argmax if op.kind == "maximum" else np.argmin
    if op.last:
        found = x.shape[op.axis] - 1 - choose(np.flip(x, op.axis), axis=op.axis)
    else:
        found = choose(x, axis=op.axis)
    if x.dtype.kind == "f":
        is_nan = np.isnan(x)
        found = np.where(is_nan.any(op.axis), is_nan.argmax(op.axis), found)
    return np.asarray(found, np.int64)


def _cumulative(op: Cumulative, operands: list[Array], context: Context) -> Array:
    element = context.result.dtype
    wide = widened(operands[0])
    if op.reverse:
        wide = np.flip(wide, op.axis)
    running = _UFUNC[op.kind].accumulate(wide, axis=op.axis, dtype=wide.dtype)
    if op.exclusive:
        shifted = np.full(wide.shape, _start(op.kind, element, wide), wide.dtype)
        index: list[slice] = [slice(None)] * wide.ndim
        source = list(index)
        index[op.axis], source[op.axis] = slice(1, None), slice(None, -1)
        shifted[tuple(index)] = running[tuple(source)]
        running = shifted
    if op.reverse:
        running = np.flip(running, op.axis)
    return stored(running, element, context.precision)


def _reduce_window(op: ReduceWindow, operands: list[Array], context: Context) -> Array:
    element = context.result.dtype
    wide = widened(operands[0])
    low, high = resolved(op.low, context), resolved(op.high, context)
    start = _start(op.kind, element, wide)
    result = padded(wide, low, high, (0,) * wide.ndim, start)
    # Every kind is separable: one axis after the other.
    for axis in range(wide.ndim):
        row = (op.window[axis], op.strides[axis], op.dilation[axis])
        if row != (1, 1, 1):
            result = _window_axis(result, axis, row, _UFUNC[op.kind], start)
    return stored(result, element, context.precision)


def _window_axis(
    x: Array, axis: int, row: tuple[int, int, int], combine: np.ufunc, start: Array
) -> Array:
    window, stride, dilation = row
    count = max((x.shape[axis] - (window - 1) * dilation - 1) // stride + 1, 0)
    shape = list(x.shape)
    shape[axis] = count
    if not count:
        return np.full(shape, start, x.dtype)
    index: list[slice] = [slice(None)] * x.ndim
    result: Array | None = None
    for tap in range(window):
        first = tap * dilation
        index[axis] = slice(first, first + (count - 1) * stride + 1, stride)
        part = x[tuple(index)]
        if result is None:
            result = part.copy()
        else:
            combine(result, part, out=result)
    return np.full(shape, start, x.dtype) if result is None else result


def _order(x: Array, axis: int, descending: bool) -> Array:
    """Stable order with NaN as the largest; equal elements keep their order in both directions."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    from_the_end = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - from_the_end, axis)


def _sort(op: Sort, operands: list[Array], _: Context) -> Array | tuple[Array, ...]:
    order = _order(widened(operands[0]), op.axis, op.descending)
    sorted_ = tuple(np.take_along_axis(x, order, op.axis) for x in operands)
    return sorted_[0] if len(sorted_) == 1 else sorted_


def _top_k(op: TopK, operands: list[Array], context: Context) -> tuple[Array, Array]:
    x = operands[0]
    k = int(operands[1]) if len(operands) == 2 else dims.evaluate(op.k, context.sizes)
    if not 0 <= k <= x.shape[op.axis]:
        raise ShapeError(
            f"k is {k}, expected 0 to {x.shape[op.axis]}, the size of axis {op.axis} "
            f"of shape {list(x.shape)}"
        )
    order = _order(widened(x), op.axis, op.largest)
    index: list[slice] = [slice(None)] * x.ndim
    index[op.axis] = slice(0, k)
    chosen = order[tuple(index)].astype(np.int64)
    return np.take_along_axis(x, chosen, op.axis), chosen


MEANING: dict[type[Op], Meaning] = {
    Reduce: _reduce,
    ArgReduce: _arg_reduce,
    Cumulative: _cumulative,
    ReduceWindow: _reduce_window,
    Sort: _sort,
    TopK: _top_k,
}
