"""How a convolution by Winograd's algorithm is cut into programs."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from luban.core import dims
from luban.core.dims import DimLike
from luban.lower.row_tiles import split_rows

__all__ = ["Blocks", "choose_blocks"]

_MOST_BYTES = 3 << 18  # of a transformed image and the sums of a panel, in the second cache
_FREE_BYTES = 1 << 18  # of these leave room for what streams past them
_CROWDED = 0.1  # what twice as many bytes cost
_FAR_BYTES = 1 << 20  # of filters: beyond, each block reads them from the third cache or memory
_STREAM = {False: 1.5, True: 3.0}  # tiles that take as long as reading filters, near or far
_PROGRAMS = 8  # that every convolution should have, if it can
_TRANSFORM = 0.06  # of an image, in units of the products with a panel
_LOW_TILE = 3.7  # rows that take as long as reading a panel's row


@dataclass(frozen=True, slots=True)
class Blocks:
    """Programs take `tiles` tiles of the result, of `count` in all, and one of `groups` of panels.

    With several groups, each transforms the image of its tiles for itself.
    """

    count: DimLike
    tiles: int
    groups: DimLike


def choose_blocks(
    count: DimLike,
    limit: int,
    num_matrices: int,
    channels: int,
    columns: int,
    width: int,
    size_bytes: int = 4,
) -> Blocks:
    """Blocks whose image stays in the second cache, and enough programs for the threads.

    count         tiles in all
    limit         rows of the register tile
    num_matrices  pairs of points
    size_bytes    of a factor of the products; sums have 4
    """
    filters_bytes = num_matrices * channels * columns * size_bytes
    tile_bytes = num_matrices * (channels * size_bytes + width * 4)
    most = max(_MOST_BYTES // tile_bytes, limit)
    panels = -(-columns // width)
    stream = _STREAM[filters_bytes > _FAR_BYTES]

    def cost(tiles: int) -> float:
        crowded = max(log2(max(tiles * tile_bytes, 1) / _FREE_BYTES), 0.0)
        return _cost(known, tiles, limit, panels, stream) * (1 + _CROWDED * crowded)

    known = dims.common_divisor(count)
    if isinstance(count, int) or known >= limit:  # of a run-time batch, the blocks of one image
        fewest = -(-known // most)
        choices = {-(-known // n) for n in range(max(fewest, 1), 2 * (fewest + _PROGRAMS) + 1)}
        tiles = min(sorted(choices, reverse=True), key=cost)
    else:
        tiles = max(most // limit, 1) * limit if most < 4 * limit else 2 * limit
    num_blocks = dims.maximum(dims.ceil_div(count, max(tiles, 1)), 1)
    groups = dims.minimum(dims.ceil_div(_PROGRAMS, num_blocks), panels)
    return Blocks(count, max(tiles, 1), groups)


def _cost(count: int, tiles: int, limit: int, panels: int, stream: float) -> float:
    """Time of blocks of `tiles` tiles: rows that are wasted, low register tiles, idle threads."""
    if count == 0:
        return 0.0
    blocks = -(-count // tiles)
    groups = min(-(-_PROGRAMS // blocks), panels)
    programs = blocks * groups
    rows = sum(max(height, _LOW_TILE) * n for height, n in split_rows(tiles, limit))
    idle = sum(-(-programs // threads) * threads / programs for threads in (2, 4)) / 2
    again = 1 + _TRANSFORM * (groups - 1) / panels
    once = 1 + stream / tiles  # filters are read once for each block
    return blocks * rows / count * idle * again * once
