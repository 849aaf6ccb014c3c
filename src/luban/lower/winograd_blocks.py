"""How a convolution by Winograd's algorithm is cut into programs."""

from __future__ import annotations

from dataclasses import dataclass

from luban.core import dims
from luban.core.dims import DimLike
from luban.lower.row_tiles import split_rows

__all__ = ["Blocks", "choose_blocks"]

_IMAGE_BYTES = 1 << 19  # of a transformed image: half of the second cache
_PROGRAMS = 8  # that every convolution should have, if it can
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
    count: DimLike, limit: int, num_matrices: int, channels: int, columns: int, width: int
) -> Blocks:
    """Blocks whose image stays in the second cache, and enough programs for the threads.

    count         tiles in all
    limit         rows of the register tile
    num_matrices  pairs of points
    """
    most = max(_IMAGE_BYTES // (num_matrices * channels * 4), limit)
    panels = -(-columns // width)
    if isinstance(count, int):
        fewest = -(-count // most)
        choices = {-(-count // n) for n in range(max(fewest, 1), fewest + _PROGRAMS + 1)}
        tiles = min(sorted(choices, reverse=True), key=lambda t: _cost(count, t, limit, panels))
    else:
        tiles = max(most // limit, 1) * limit if most < 4 * limit else 2 * limit
    num_blocks = dims.maximum(dims.ceil_div(count, max(tiles, 1)), 1)
    groups = dims.minimum(dims.ceil_div(_PROGRAMS, num_blocks), panels)
    return Blocks(count, max(tiles, 1), groups)


def _cost(count: int, tiles: int, limit: int, panels: int) -> float:
    """Time of blocks of `tiles` tiles: rows that are wasted, low register tiles, idle threads."""
    if count == 0:
        return 0.0
    blocks = -(-count // tiles)
    groups = min(-(-_PROGRAMS // blocks), panels)
    programs = blocks * groups
    rows = sum(max(height, _LOW_TILE) * n for height, n in split_rows(tiles, limit))
    idle = sum(-(-programs // threads) * threads / programs for threads in (2, 4)) / 2
    again = 1 + 0.03 * (groups - 1)
    stream = 1 + 1.5 / tiles  # filters are read once for each block
    return blocks * rows / count * idle * again * stream
