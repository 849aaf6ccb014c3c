"""Sliding windows over the last axes: largest and mean, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from luban.core import dims
from luban.core.dims import DimLike
from luban.frontend.torch.call import Call
from luban.frontend.torch.ops.resize import between
from luban.frontend.torch.ops.shape import pad_with
from luban.frontend.torch.registry import aten
from luban.graph import build
from luban.graph.ops.reduce import ReduceWindow
from luban.graph.ops.structure import Scatter, Slice
from luban.ir.node import Node, node

__all__: list[str] = []

Sizes = Sequence[int]

_RANKS = {
    f"{name}.default": 3 if "3d" in name else 2
    for name in (
        "max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d",
        "max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward",
        "avg_pool2d_backward", "avg_pool3d_backward",
    )
}  # fmt: skip


def _each(given: Sizes, rank: int, default: Sizes = ()) -> list[int]:
    """A number for each axis, from a list of none, one or all."""
    listed = [int(v) for v in given] or [int(v) for v in default]
    return listed * rank if len(listed) == 1 else listed


def _batched(x: Node, rank: int) -> Node:
    """x as [batch, channels, *space] with `rank` axes of space."""
    return x if x.tensor.rank == rank + 2 else build.expand_dims(x, [0])


def _row_major_places(space: Sequence[DimLike]) -> Node:
    """The number of each place of an image."""
    found = build.full(space, 0, "i64")
    for axis, size in enumerate(space):
        found = build.add(build.multiply(found, build.dimension(size)), build.iota(space, axis))
    return found


def _beyond(
    size: DimLike, out: DimLike, window: int, stride: int, padding: int, dilation: int
) -> DimLike:
    """Elements behind the end that the last window reads; negative if it leaves some."""
    return (out - 1) * stride + (window - 1) * dilation + 1 - size - padding


@aten("max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def max_pool(
    call: Call,
    x: Node,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil_mode: bool = False,
) -> tuple[Node, Node]:
    """The largest of each window, and its place; of equals the first, NaN above all."""
    rank = _RANKS[call.target]
    window = _each(kernel_size, rank)
    steps, pads = _each(stride, rank, window), _each(padding, rank)
    gaps = _each(dilation, rank)
    image = _batched(x, rank)
    outer, space = image.tensor.shape[:2], image.tensor.shape[2:]
    counts = call.type.shape[-rank:]
    high = [_beyond(*row) for row in zip(space, counts, window, steps, pads, gaps, strict=True)]
    element = x.tensor.dtype
    plane = _row_major_places(space)
    values = build.pad(image, (0, 0, *pads), (0, 0, *high), build.constant(element.lowest, element))
    places = build.pad(plane, pads, high, build.constant(-1, "i64"))
    best: Node | None = None
    index: Node | None = None
    for offset in product(*(range(size) for size in window)):
        starts = [o * g for o, g in zip(offset, gaps, strict=True)]
        value = node(Slice((0, 0, *starts), (*outer, *counts), (1, 1, *steps)), values)
        place = node(Slice(tuple(starts), tuple(counts), tuple(steps)), places)
        place = build.broadcast_to(place, (*outer, *counts))
        if best is None or index is None:
            best, index = value, place
            continue
        larger = build.bitwise_not(build.less_equal(value, best))  # also if it is NaN
        if element.is_float:
            larger = build.bitwise_and(larger, build.bitwise_not(build.is_nan(best)))
        better = build.bitwise_or(larger, build.less(index, 0))
        wins = build.bitwise_and(build.greater_equal(place, 0), better)
        best, index = build.select(wins, value, best), build.select(wins, place, index)
    assert best is not None
    assert index is not None
    return build.reshape(best, call.type.shape), build.reshape(index, call.type.shape)


@aten("max_pool2d_with_indices_backward.default", "max_pool3d_with_indices_backward.default")
def max_pool_backward(
    call: Call,
    grad: Node,
    x: Node,
    _kernel_size: Sizes,
    _stride: Sizes,
    _padding: Sizes,
    _dilation: Sizes,
    _ceil_mode: bool,
    indices: Node,
) -> Node:
    """Gradients at the places that were largest."""
    rank = _RANKS[call.target]
    planes = dims.num_elements(x.tensor.shape[:-rank])
    count = dims.num_elements(grad.tensor.shape[-rank:])
    flat = build.reshape(grad, (planes, count))
    places = build.expand_dims(build.reshape(indices, (planes, count)), [2])
    target = build.full((planes, dims.num_elements(x.tensor.shape[-rank:])), 0, grad.tensor.dtype)
    op = Scatter("add", (), (1,), (0,), (0,), (1,))
    return build.reshape(node(op, target, places, flat), x.tensor.shape)


@aten("avg_pool2d.default", "avg_pool3d.default")
def avg_pool(
    call: Call,
    x: Node,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Node:
    """The mean of each window."""
    rank = _RANKS[call.target]
    window = _each(kernel_size, rank)
    steps, pads = _each(stride, rank, window), _each(padding, rank)
    image = _batched(build.cast(x, build.accumulator_dtype(x)), rank)
    found = _window_sums(image, window, steps, pads, call.type.shape[-rank:])
    counts = _counts(image, window, steps, pads, call.type.shape[-rank:], count_include_pad,
                     divisor_override)  # fmt: skip
    return build.reshape(build.divide(found, counts), call.type.shape)


@aten("avg_pool2d_backward.default", "avg_pool3d_backward.default")
def avg_pool_backward(
    call: Call,
    grad: Node,
    x: Node,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    _ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Node:
    """Each gradient shared out over its window."""
    rank = _RANKS[call.target]
    window = _each(kernel_size, rank)
    steps, pads = _each(stride, rank, window), _each(padding, rank)
    image = _batched(x, rank)
    sums = _batched(build.cast(grad, build.accumulator_dtype(grad)), rank)
    counts = sums.tensor.shape[2:]
    share = build.divide(
        sums, _counts(build.cast(image, sums.tensor.dtype), window, steps, pads, counts,
                      count_include_pad, divisor_override),
    )  # fmt: skip
    found: Node | None = None
    for offset in product(*(range(size) for size in window)):
        low = [o - p for o, p in zip(offset, pads, strict=True)]
        high = [
            size - b - ((out - 1) * s + 1)
            for size, b, out, s in zip(image.tensor.shape[2:], low, counts, steps, strict=True)
        ]
        wide = pad_with(share, (0, 0, *low), (0, 0, *high), 0, (0, 0, *(s - 1 for s in steps)))
        found = wide if found is None else build.add(found, wide)
    assert found is not None
    return build.reshape(found, call.type.shape)


def _window_sums(
    x: Node, window: Sizes, steps: Sizes, pads: Sizes, counts: Sequence[DimLike]
) -> Node:
    high = [
        _beyond(*row)
        for row in zip(
            x.tensor.shape[2:], counts, window, steps, pads, [1] * len(window), strict=True
        )
    ]
    kept = [min(h, 0) if isinstance(h, int) else 0 for h in high]
    cropped = build.pad(x, (0,) * x.tensor.rank, (0, 0, *kept))
    more = [h - k for h, k in zip(high, kept, strict=True)]
    ones = (1,) * x.tensor.rank
    op = ReduceWindow("sum", (1, 1, *window), (1, 1, *steps), (0, 0, *pads), (0, 0, *more), ones)
    return node(op, cropped)


def _counts(
    x: Node,
    window: Sizes,
    steps: Sizes,
    pads: Sizes,
    counts: Sequence[DimLike],
    include_pad: bool,
    divisor: int | None,
) -> Node:
    """What each window is divided by."""
    element = x.tensor.dtype
    if divisor is not None:
        return build.constant(divisor, element)
    ones = build.full((1, 1, *x.tensor.shape[2:]), 1, element)
    if not include_pad:
        return _window_sums(ones, window, steps, pads, counts)
    padded = build.pad(ones, (0, 0, *pads), (0, 0, *pads), 1)
    return _window_sums(padded, window, steps, [0] * len(window), counts)


@aten("_adaptive_avg_pool2d.default")
def adaptive_avg_pool(call: Call, x: Node, _sizes: Sizes) -> Node:
    """The means of a grid of blocks."""
    *outer, height, width = x.tensor.shape
    wanted = call.type.shape[-2:]
    blocks = _blocks(call, (height, width), wanted)
    if blocks is None:
        rows, columns = _shares(height, wanted[0]), _shares(width, wanted[1])
        return between(x, rows, columns)
    split = build.reshape(x, (*outer, wanted[0], blocks[0], wanted[1], blocks[1]))
    rank = len(outer)
    return build.mean(split, [rank + 1, rank + 3])


@aten("_adaptive_avg_pool2d_backward.default")
def adaptive_avg_pool_backward(call: Call, grad: Node, x: Node) -> Node:
    """Each gradient shared out over its block."""
    *outer, height, width = x.tensor.shape
    wanted = grad.tensor.shape[-2:]
    blocks = _blocks(call, (height, width), wanted)
    if blocks is None:
        rows, columns = _shares(height, wanted[0]), _shares(width, wanted[1])
        return between(grad, rows.T, columns.T)
    count = build.cast(build.dimension(blocks[0] * blocks[1]), grad.tensor.dtype)
    share = build.divide(grad, count)
    rank = len(outer)
    wide = build.expand_dims(share, [rank + 1, rank + 3])
    shape = (*outer, wanted[0], blocks[0], wanted[1], blocks[1])
    return build.reshape(build.broadcast_to(wide, shape), x.tensor.shape)


def _shares(size: DimLike, count: DimLike) -> np.ndarray[Any, Any]:
    """What each element gives to the mean of each block: [count, size]. Blocks may overlap."""
    assert isinstance(size, int)
    assert isinstance(count, int)
    found = np.zeros((count, size))
    for number in range(count):
        first, last = number * size // count, -(-(number + 1) * size // count)
        found[number, first:last] = 1 / (last - first)
    return found


def _blocks(
    call: Call, space: Sequence[DimLike], wanted: Sequence[DimLike]
) -> list[DimLike] | None:
    """The size of the blocks; None if they have several."""
    found: list[DimLike] = []
    for size, count in zip(space, wanted, strict=True):
        if count == 1:
            found.append(size)
        elif isinstance(size, int) and isinstance(count, int) and count and size % count == 0:
            found.append(size // count)
        elif isinstance(size, int) and isinstance(count, int):
            return None
        else:
            raise call.wrong(f"{size} elements in {count} blocks, which only the run knows")
    return found
