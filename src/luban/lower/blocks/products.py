"""Matrix products of blocks: register tiles of sums over operands that lie in scratch memory."""

from __future__ import annotations

from dataclasses import dataclass

from luban.lower.blocks.places import Coordinates, Frame, Position, Slot
from luban.lower.blocks.strips import at, write_slot
from luban.tile.expr import Expr
from luban.tile.function import Operation, Value

__all__ = ["emit_product"]

_UNROLL = 4


@dataclass(frozen=True, slots=True)
class _Product:
    """One product: a[m, k] and b[k, n] in slots of the type of the sums."""

    f: Frame
    acc: Value
    a: Slot
    b: Slot
    result: Slot
    shape: tuple[int, ...]  # (batch,) m, n
    depth: int

    def emit(self) -> None:
        """All batches."""
        batches = self.shape[0] if len(self.shape) == 3 else 1
        with self.f.b.for_(0, batches) as loop, self.f.scope():
            self._matrix((Position(loop.index),) if len(self.shape) == 3 else ())

    def _matrix(self, batch: Coordinates) -> None:
        rows, columns = self.shape[-2:]
        lanes = self.f.registers.lanes(self.acc.type.dtype.size_bytes)
        vectors = 2 if columns >= 2 * lanes else 1
        width = min(vectors * lanes, columns)
        height = self.f.registers.tile_rows(width, self.acc.type.dtype.size_bytes)
        height = min(height, 8 if vectors == 2 else 14)
        while rows % height:
            height -= 1
        whole = columns // width * width
        with self.f.b.for_(0, whole, width) as across, self.f.scope():
            self._panel(batch, across.index, width, height)
        if whole < columns:
            with self.f.scope():
                self._panel(batch, self.f.b.constant(whole), columns - whole, height)

    def _panel(self, batch: Coordinates, column: Expr, width: int, height: int) -> None:
        with self.f.b.for_(0, self.shape[-2], height) as down, self.f.scope():
            self._tile(batch, down.index, Position(column, width), height)

    def _tile(self, batch: Coordinates, row: Expr, columns: Position, height: int) -> None:
        """height x width sums over the whole depth."""
        f, b = self.f, self.f.b
        width = columns.width
        places = [(*batch, Position(row + i), columns) for i in range(height)]
        lanes = (width,) if width > 1 else ()
        starts = [b.broadcast(at(f, self.acc, place), lanes) for place in places]
        first_a = self._start(self.a, batch, row, None)
        first_b = self._start(self.b, batch, None, columns.index)
        a_row, a_step = self.a.strides[-2:]
        b_row, b_step = self.b.strides[-2:]
        with b.for_(0, self.depth, carried=starts, unroll=_UNROLL) as loop:
            right = b.load(
                self.b.pointer, first_b + loop.index * b_row, lanes, (b_step,) if lanes else None
            )
            sums = []
            for i, total in enumerate(loop.carried):
                left = b.load(self.a.pointer, first_a + i * a_row + loop.index * a_step)
                sums.append(self._multiply(left, right, total))
            loop.yield_(*sums)
        for place, total in zip(places, loop.results, strict=True):
            write_slot(f, self.result, place, total)

    def _start(self, slot: Slot, batch: Coordinates, row: Expr | None, column: Expr | None) -> Expr:
        index: Expr = self.f.b.constant(slot.offset)
        for position, stride in zip(batch, slot.strides, strict=False):
            index = index + position.index * stride
        if row is not None:
            index = index + row * slot.strides[-2]
        if column is not None:
            index = index + column * slot.strides[-1]
        return index

    def _multiply(self, left: Expr, right: Expr, total: Expr) -> Expr:
        b = self.f.b
        if total.dtype.is_float:
            return b.fma(left, right, total)
        return total + left * right


def emit_product(f: Frame, operation: Operation, a: Slot, b: Slot, result: Slot) -> None:
    """Write acc + a @ b to `result`; the factors lie in slots in the type of the sums.

    `result` may be the slot that acc is read from.
    """
    left, _, acc = operation.operands
    shape = operation.result.type.shape
    _Product(f, acc, a, b, result, shape, left.type.shape[-1]).emit()
