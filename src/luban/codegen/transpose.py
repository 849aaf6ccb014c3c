"""Transposes of whole squares of registers by butterflies: n log n shuffles instead of n * n."""

from __future__ import annotations

from luban.codegen.registers import RegisterTile, rechunk
from luban.codegen.writer import Value, Writer

__all__ = ["transpose_square"]


def transpose_square(
    w: Writer, source: RegisterTile, permutation: tuple[int, ...], lanes: int
) -> RegisterTile | None:
    """The transpose of a matrix made of squares of `lanes`; None where that does not fit."""
    if permutation != (1, 0) or source.constant is not None or source.uniform is not None:
        return None
    rows, columns = source.shape
    size = min(lanes, rows, columns)
    if size < 4 or rows % size or columns % size or size & (size - 1):
        return None
    kept = rechunk(w, source, size)
    across, down = columns // size, rows // size
    parts: list[list[Value]] = [[] for _ in range(columns)]
    for j in range(down):
        for i in range(across):
            square = [kept.parts[(j * size + r) * across + i] for r in range(size)]
            for r, part in enumerate(_square(w, square)):
                parts[i * size + r].append(part)
    flat = tuple(part for row in parts for part in row)
    found = RegisterTile(source.elem, (columns, rows), size, flat)
    return rechunk(w, found, lanes)


def _square(w: Writer, rows: list[Value]) -> list[Value]:
    """Swap blocks off the diagonal: of half the size, then a quarter, ... down to single lanes."""
    size = len(rows)
    step = size // 2
    while step:
        low = [i if not i & step else i - step + size for i in range(size)]
        high = [i + step if not i & step else i + size for i in range(size)]
        result = list(rows)
        for i in range(size):
            if not i & step:
                result[i] = w.shuffle(rows[i], rows[i + step], low)
                result[i + step] = w.shuffle(rows[i], rows[i + step], high)
        rows = result
        step //= 2
    return rows
