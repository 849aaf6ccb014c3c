"""Gradients of images made larger or smaller: products with the transposes of what made them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from luban.core.dims import DimLike
from luban.frontend.torch.call import Call
from luban.frontend.torch.registry import aten
from luban.graph import build
from luban.ir.node import Node

__all__ = ["between"]

Array = np.ndarray[Any, Any]


@aten("upsample_bilinear2d_backward.default")
def bilinear_backward(
    call: Call,
    grad: Node,
    _size: Sequence[int],
    _input_size: Sequence[int],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Node:
    """The gradient of an image that was resized between its pixels."""
    rows, columns = (
        _linear(*_sizes(call, grad, axis), align_corners, scale)
        for axis, scale in ((-2, scales_h), (-1, scales_w))
    )
    return between(grad, rows.T, columns.T)


@aten("upsample_nearest2d_backward.default")
def nearest_backward(
    call: Call,
    grad: Node,
    _size: Sequence[int],
    _input_size: Sequence[int],
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Node:
    """The gradient of an image that was resized by repeating pixels."""
    rows, columns = (
        _nearest(*_sizes(call, grad, axis), scale)
        for axis, scale in ((-2, scales_h), (-1, scales_w))
    )
    return between(grad, rows.T, columns.T)


def _sizes(call: Call, grad: Node, axis: int) -> tuple[int, int]:
    """An axis before and after."""
    before: DimLike = call.type.shape[axis]
    after = grad.tensor.shape[axis]
    if not isinstance(before, int) or not isinstance(after, int):
        raise call.wrong("of an image whose size only the run knows")
    return before, after


def between(x: Node, rows: Array, columns: Array) -> Node:
    """rows x columns^T for each plane of the last two axes."""
    element = x.tensor.dtype
    wide = build.cast(x, build.accumulator_dtype(x))
    across = build.matmul(wide, build.constant(columns.T, wide.tensor.dtype))
    rank = across.tensor.rank
    turn = [*range(rank - 2), rank - 1, rank - 2]
    down = build.matmul(build.transpose(across, turn), build.constant(rows.T, wide.tensor.dtype))
    return build.cast(build.transpose(down, turn), element)


def _linear(before: int, after: int, align_corners: bool, scale: float | None) -> Array:
    """What each pixel before gives to each pixel after: [after, before]."""
    places = np.arange(after, dtype=np.float64)
    if align_corners:
        places *= (before - 1) / (after - 1) if after > 1 else 0
    else:
        step = 1 / scale if scale else before / after
        places = np.maximum((places + 0.5) * step - 0.5, 0)
    low = np.minimum(places.astype(np.int64), before - 1)
    high = np.minimum(low + 1, before - 1)
    weight = places - low
    found = np.zeros((after, before))
    np.add.at(found, (np.arange(after), low), 1 - weight)
    np.add.at(found, (np.arange(after), high), weight)
    return found


def _nearest(before: int, after: int, scale: float | None) -> Array:
    step = 1 / scale if scale else before / after
    places = np.minimum((np.arange(after) * np.float32(step)).astype(np.int64), before - 1)
    found = np.zeros((after, before))
    found[np.arange(after), places] = 1
    return found
