"""Vector registers of a CPU, and the register tiles of matrix products that suit them.

A product keeps a tile of `rows` x `width` sums in registers while it walks the contracted axis. The
right operand lies in panels of `width` columns, so the width is chosen before any kernel is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from luban.core import dims
from luban.core.dims import DimLike

__all__ = ["Registers", "fair_divisor", "few_heights"]

# (rows, vectors) of sums by vector bytes and number of registers: sums + one row of the panel + one
# element of the left operand fit, and there are enough sums to hide the latency of an FMA.
_TILES: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {
    (64, 32): ((6, 4), (8, 3), (14, 2), (16, 1)),
    (32, 16): ((4, 3), (6, 2), (12, 1)),
    (16, 32): ((6, 4), (8, 3), (12, 2), (16, 1)),
    (16, 16): ((4, 2), (8, 1)),
}
# What a row of sums costs, by vectors, relative to 4: fewer vectors mean more loads a product.
_FEW_ROWS = 3.7
_FEW_SUMS = 10  # vectors of sums that hide the latency of a multiply-add
_WAYS = 8  # of the first cache, which has 64 sets of 64 bytes
_PANEL_BYTES = 3 << 18
_ROW_COST = {4: 1.0, 3: 1.0, 2: 1.02, 1: 1.2}


@dataclass(frozen=True, slots=True)
class Registers:
    """How many vector registers of how many bytes there are.

    measured        products, in words, to the vectors of a panel that were the fastest on this
                    machine
    pair_products   pairs of bf16 products may stand for f32 ones, and an instruction sums them

    >>> registers = Registers(64, 32)
    >>> registers.panel_width(768, 4), registers.panel_width(40, 4), registers.panel_width(10, 4)
    (64, 48, 16)
    >>> registers.tile_rows(64, 4), registers.tile_rows(16, 4)
    (6, 16)
    """

    vector_bytes: int
    count: int
    measured: Mapping[str, int] = field(default_factory=dict, hash=False)
    pair_products: bool = False

    def lanes(self, size_bytes: int) -> int:
        """Numbers of a product in one vector: floats narrower than f32 compute as f32."""
        return self.vector_bytes // max(size_bytes, 4)

    @property
    def tiles(self) -> Sequence[tuple[int, int]]:
        """(rows, vectors) of the register tiles, the widest first."""
        return _TILES[self.vector_bytes, self.count]

    def panel_width(
        self,
        columns: DimLike,
        size_bytes: int,
        rows: DimLike = 1 << 20,
        depth: DimLike = 1,
        row_step: DimLike = 1,
        product: str = "",
    ) -> int:
        """Columns of a panel: as wide as pays, or as was measured for this product.

        columns     of the matrix: little padding behind the last one
        rows        next to each other: tiles high enough to use what they read from the panel
        depth       rows of the panel, which should stay in the second cache
        row_step    elements from row to row: many rows must not fall on the same cache sets
        product     in words; what was measured for it comes first
        """
        lanes = self.lanes(size_bytes)
        widths = [vectors for _, vectors in self.tiles]
        if self.measured.get(product) in widths:
            return self.measured[product] * lanes

        def cost(vectors: int) -> float:
            return self.width_cost(vectors, columns, size_bytes, rows, depth, row_step)

        return min(widths, key=cost) * lanes

    def width_cost(
        self,
        vectors: int,
        columns: DimLike,
        size_bytes: int,
        rows: DimLike,
        depth: DimLike,
        row_step: DimLike,
    ) -> float:
        """What a product costs with panels of so many vectors; only ratios of costs mean anything.

        >>> registers = Registers(64, 32)
        >>> costs = [registers.width_cost(v, 768, 4, 128, 64, 64) for v in (4, 3, 2, 1)]
        >>> costs == sorted(costs)
        True
        """
        lanes = self.lanes(size_bytes)
        padded = self._padded(columns, vectors, lanes)
        panel_bytes = depth * vectors * lanes * size_bytes if isinstance(depth, int) else 0
        far = 1.08 if panel_bytes > _PANEL_BYTES else 1.0
        clash = self._clash(row_step * size_bytes, vectors)
        return padded * far * clash * self._low_tiles(rows, vectors)

    def _padded(self, columns: DimLike, vectors: int, lanes: int) -> float:
        """What the columns cost: the last panel leaves out whole vectors, but has small tiles."""
        if not isinstance(columns, int):
            return _ROW_COST[vectors]
        full, rest = divmod(columns, vectors * lanes)
        used = -(-rest // lanes)
        cost = full * vectors * _ROW_COST[vectors]
        if used:
            sums = used * next(r for r, v in self.tiles if v == vectors)
            cost += used * _ROW_COST[used] * max(_FEW_SUMS / sums, 1.0)
            cost += 0.05 * (vectors - used)  # zeros that pass through the caches
        return lanes * cost

    def _clash(self, step_bytes: DimLike, vectors: int) -> float:
        """What rows cost whose elements fall on the same sets of the first cache."""
        limit = next(r for r, v in self.tiles if v == vectors)
        if not isinstance(step_bytes, int) or limit <= _WAYS:
            return 1.0
        return 1.5 if step_bytes % 4096 == 0 else 1.15 if step_bytes % 2048 == 0 else 1.0

    def _low_tiles(self, rows: DimLike, vectors: int) -> float:
        """What tiles of few rows cost: reading a panel's row takes as long as _FEW_ROWS of sums."""
        limit = next(r for r, v in self.tiles if v == vectors)
        known = dims.common_divisor(rows)
        if known <= 1 and not isinstance(rows, int):
            return 1.03
        if known < 1 or fair_divisor(rows, limit):
            return 1.0
        if isinstance(rows, int):
            if rows <= limit // 2:
                limit = limit // rows * rows
            return max(-(-rows // limit) * _FEW_ROWS / rows, 1.0)
        cost, left = 0.0, known
        for height in (limit, *reversed(few_heights(limit, gcd(known, limit)))):
            cost += left // height * max(height, _FEW_ROWS)
            left %= height
        return max(cost / known, 1.0)

    def tile_rows(self, width: int, size_bytes: int) -> int:
        """Rows of the register tile over panels of `width` columns."""
        vectors = -(-width // self.lanes(size_bytes))
        return next((rows for rows, v in reversed(self.tiles) if v >= vectors), 1)


def few_heights(limit: int, step: int = 1) -> tuple[int, ...]:
    """Heights of which a few make up any count of rows that is a multiple of `step`.

    >>> few_heights(14), few_heights(6), few_heights(14, 7)
    ((1, 2, 4, 7, 14), (1, 2, 4, 6), (7, 14))
    """
    most = limit // step
    half = -(-most // 2)
    counts = {1, 2, 4, most} | ({half} if half > 4 else set())
    return tuple(sorted(step * count for count in counts if count <= most))


def fair_divisor(count: DimLike, limit: int) -> int:
    """The greatest divisor up to `limit` that every value of `count` has; 0 if it is low.

    >>> from luban.core import dims
    >>> fair_divisor(dims.symbol("n") * 49, 8), fair_divisor(dims.symbol("n") * 49, 6)
    (7, 0)
    """
    known = dims.common_divisor(count)
    found = max((d for d in range(1, limit + 1) if known % d == 0), default=1)
    return found if 3 * found >= 2 * limit else 0
