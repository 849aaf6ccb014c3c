"""The meaning of convolutions by Winograd's algorithm: the two transforms, as matrix products."""

from __future__ import annotations

import numpy as np

from luban.core import dims
from luban.core.dtypes import DTYPES
from luban.graph.meaning.context import Array, Context, Meaning, stored, widened
from luban.graph.meaning.packed import unpacked
from luban.graph.ops.winograd import TAPS, WinogradConvolution, transforms
from luban.ir.node import Op

__all__ = ["MEANING"]


def _winograd_convolution(
    op: WinogradConvolution, operands: list[Array], context: Context
) -> Array:
    image, panels = (widened(operand) for operand in operands)
    channels = image.shape[-1]
    filters = unpacked(panels, dims.evaluate(op.columns, context.sizes), op.group)[:, :channels]
    matrices = transforms(op.tile)
    to_points = np.array(matrices.image, image.dtype)
    to_places = np.array(matrices.result, image.dtype)
    if op.magnitudes:
        to_points, to_places = np.abs(to_points), np.abs(to_places)
    size = op.tile + TAPS - 1
    if op.filter_axes == 1:
        to_filters = np.array(matrices.filters, image.dtype)
        to_filters = np.abs(to_filters) if op.magnitudes else to_filters
        taps = filters.reshape(size, TAPS, *filters.shape[1:])
        filters = np.einsum("jx,ixco->ijco", to_filters, taps).reshape(-1, *filters.shape[1:])
    batch, *space, _ = image.shape
    low, high = ([dims.evaluate(v, context.sizes) for v in ends] for ends in (op.low, op.high))
    places = [max(s + a + b - (TAPS - 1), 0) for s, a, b in zip(space, low, high, strict=True)]
    counts = [-(-p // op.tile) for p in places]
    ends = [(a, n * op.tile + TAPS - 1 - s - a) for a, n, s in zip(low, counts, space, strict=True)]
    if 0 in (batch, *places):
        return stored(np.zeros((batch, *places, filters.shape[-1])), op.dtype, context.precision)
    whole = np.pad(image, ((0, 0), *[(a, max(b, 0)) for a, b in ends], (0, 0)))
    tiles = np.lib.stride_tricks.sliding_window_view(whole, (size, size), (1, 2))
    tiles = tiles[:, :: op.tile, :: op.tile][:, : counts[0], : counts[1]]
    # [batch, tile row, tile column, channel, size, size] -> [size * size, tiles, channel]
    points = to_points @ tiles @ to_points.T
    if op.group > 1:
        points = widened(stored(points, DTYPES["bf16"], context.precision))
    points = points.reshape(-1, channels, size * size).transpose(2, 0, 1)
    sums = (points @ filters).transpose(1, 2, 0)
    sums = sums.reshape(batch, *counts, filters.shape[-1], size, size)
    result = to_places @ sums @ to_places.T
    # [batch, tile row, tile column, column, tile, tile] -> [batch, height, width, column]
    result = result.transpose(0, 1, 4, 2, 5, 3)
    result = result.reshape(batch, *[n * op.tile for n in counts], filters.shape[-1])
    return stored(result[:, : places[0], : places[1]], op.dtype, context.precision)


MEANING: dict[type[Op], Meaning] = {WinogradConvolution: _winograd_convolution}
