"""Sorting and picking the largest: one row of the axis at a time, rows over programs.

Every element gets an unsigned key that orders as the element does, so that floats, integers and
both directions are one case. Short rows count for each element how many stand before it: that is
its place. Long rows sort (key, place) by digits, least first, which keeps equal keys in order; to
pick few of many, whatever lies beyond the digit that the last one falls in is left out before.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.dtypes import DTYPES, DType
from luban.core.registers import Registers
from luban.graph.ops.reduce import Sort, TopK
from luban.ir.node import GetItem, Graph, Node
from luban.lower.kernel import Kernel
from luban.lower.nest import Nest
from luban.lower.radix import DigitSort
from luban.lower.scope import Scope
from luban.lower.trace import Declined, Trace
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr
from luban.tile.ops import Predicate

__all__ = ["lower_ordering", "sort_key", "unordered"]

_SHORT = 256  # a row in which counting beats sorting by digits
_WORK = 1 << 14  # elements that one program should order


def unordered(n: Node) -> str | None:
    """Why a node that orders has no kernel, or None if it has one."""
    if len(n.operands) == 2 and isinstance(n.op, TopK):
        return "top_k whose k is known at run time only is a host operation"
    for operand in n.operands:
        if operand.tensor.dtype.kind in ("complex", "string"):
            return f"values of {operand.tensor.dtype} are for host operations"
    return None


def sort_key(b: FunctionBuilder, x: Expr, descending: bool) -> Expr:
    """An unsigned number that orders as x does: NaN last, both zeros equal; or the reverse."""
    wide = x.dtype.bits > 32
    unsigned, signed = ("u64", "i64") if wide else ("u32", "i32")
    top = b.full((), 1 << (63 if wide else 31), unsigned)
    if x.dtype.is_float:
        x = b.cast(x, "f64" if wide else "f32")
        nan = b.unary("is_nan", x)
        bits = b.bitcast(b.binary("add", x, b.full((), 0.0, x.dtype)), unsigned)
        negative = b.compare("lt", b.bitcast(bits, signed), b.full((), 0, signed))
        key = b.select(negative, b.unary("not", bits), b.binary("or", bits, top))
        key = b.select(nan, b.full((), top.dtype.highest, unsigned), key)
    elif x.dtype.kind == "int":
        key = b.binary("xor", b.bitcast(b.cast(x, signed), unsigned), top)
    else:
        key = b.cast(x, unsigned)
    return b.unary("not", key) if descending else key


def lower_ordering(name: str, body: Graph, registers: Registers) -> Kernel:
    """The kernel of a body that is one sort or top_k. Raises Declined for another body."""
    roots = {r.operands[0] if isinstance(r.op, GetItem) else r for r in body.results}
    root = roots.pop()
    if roots or any(o not in body.parameters for o in root.operands) or unordered(root):
        raise Declined("sorting stands alone in its kernel")
    b = FunctionBuilder(name)
    writer = _Writer(b, Scope(b, body, Nest(Trace({}), [], [])), root, registers)
    return writer.kernel()


@dataclass(frozen=True, slots=True)
class _Row:
    """Where one row starts: in the operands, and in the results."""

    source: Expr
    target: Expr


@dataclass(frozen=True, slots=True)
class _Counted:
    """Scratch memory of a short row: its keys, the ranks of one tile, which one is at each rank."""

    keys: Expr
    ranks: Expr
    order: Expr


class _Writer:
    """Writes the rows of one program."""

    def __init__(self, b: FunctionBuilder, scope: Scope, root: Node, registers: Registers) -> None:
        op = root.op
        assert isinstance(op, (Sort, TopK))
        self.b, self.scope, self.root = b, scope, root
        self.picks = isinstance(op, TopK)
        self.descending = op.largest if isinstance(op, TopK) else op.descending
        given = root.operands[0].tensor
        self.element: DType = given.dtype
        self.length: DimLike = given.shape[op.axis]
        self.kept: DimLike = op.k if isinstance(op, TopK) else self.length
        self.outer = dims.num_elements(given.shape[: op.axis])
        self.inner = dims.num_elements(given.shape[op.axis + 1 :])
        key_bits = 64 if self.element.bits > 32 else 32
        self.key = DTYPES[f"u{key_bits}"]
        self.width = registers.vector_bytes * 8 // key_bits
        self.most = dims.bounds(self.length)[1]
        self.sources = [scope.operand(o) for o in root.operands]

    def kernel(self) -> Kernel:
        """The finished kernel."""
        b, scope = self.b, self.scope
        rows = self.outer * self.inner
        per_program = dims.maximum(dims.floor_div(_WORK, dims.maximum(self.length, 1)), 1)
        short = self.most <= _SHORT
        if short:
            padded = max(-(-self.most // self.width), 1) * self.width
            counted = _Counted(
                b.scratch(self.key, padded),
                b.scratch(self.key, self.width),
                b.scratch("i32", padded),
            )
        else:
            digits = DigitSort(b, scope, self.key, self.length, self.width, picks=self.picks)
        first = b.program_id() * scope.size(per_program)
        last = b.min(first + scope.size(per_program), scope.size(rows))
        with b.for_(first, last, 1) as loop:
            row = self._row(loop.index)
            if short:
                self._count(row, counted)
            else:
                self._digits(row, digits)
            loop.yield_()
        num_programs = dims.ceil_div(rows, per_program)
        note = "counts for each element how many stand before it" if short else "sorts by digits"
        module = b.finish_module()
        return Kernel(
            module, tuple(scope.arguments), num_programs, (f"{self.root.op.name} {note}",)
        )

    def _row(self, number: Expr) -> _Row:
        inner = self.scope.size(self.inner)
        block = number // inner
        place = number - block * inner
        return _Row(
            block * (inner * self.scope.size(self.length)) + place,
            block * (inner * self.scope.size(self.kept)) + place,
        )

    def _elements(
        self, source: Expr, row: _Row, start: Expr, width: int, mask: Expr | None
    ) -> Expr:
        """A tile of elements of a row, from `start` on."""
        inner = self.scope.size(self.inner)
        place = row.source + start * inner
        return self.b.load(source, place, (width,), [inner], mask=mask)

    def _keys(self, row: _Row, start: Expr, width: int, mask: Expr | None) -> Expr:
        elements = self._elements(self.sources[0], row, start, width, mask)
        return sort_key(self.b, elements, self.descending)

    def _count(self, row: _Row, memory: _Counted) -> None:
        """Each element goes to the place that is the number of those that stand before it."""
        b, width = self.b, self.width
        keys, ranks, order = memory.keys, memory.ranks, memory.order
        length = self.scope.size(self.length)
        last = b.full((), self.key.highest, self.key)
        with b.for_(0, length, width) as loop:
            mask = b.arange(width) < length - loop.index
            key = self._keys(row, loop.index, width, mask)
            b.store(keys, loop.index, b.select(mask, key, last))
            loop.yield_()
        with b.for_(0, length, width) as loop:
            start = loop.index
            mine = b.load(keys, start, (width,))
            total = b.full((width,), 0, self.key)
            total = self._before(keys, mine, total, "le", 0, start)
            for lane in range(width):  # of the same tile: equal ones to the left only
                other = b.load(keys, start + lane)
                left = b.compare("eq", other, mine) & (b.arange(width, "i32") > lane)
                total = self._grown(total, b.compare("lt", other, mine) | left)
            total = self._before(keys, mine, total, "lt", start + width, length)
            b.store(ranks, 0, total)
            with b.for_(0, width, 1, unroll=width) as turn:
                where = b.cast(b.load(ranks, turn.index), "i64")
                b.store(order, where, b.cast(start + turn.index, "i32"))
                turn.yield_()
            loop.yield_()
        inner = self.scope.size(self.inner)
        with b.for_(0, self.scope.size(self.kept), 1, unroll=4) as loop:
            place = b.cast(b.load(order, loop.index), "i64")
            values = [b.load(source, row.source + place * inner) for source in self.sources]
            target = row.target + loop.index * inner
            self._stored(target, [*values, *([place] if self.picks else [])], None)
            loop.yield_()

    def _stored(self, target: Expr, values: Sequence[Expr], mask: Expr | None) -> None:
        inner = self.scope.size(self.inner)
        for result, value in zip(self.scope.results, values, strict=True):
            strides = [inner] if value.shape else []
            self.b.store(result, target, value, strides, mask=mask)

    def _before(
        self,
        keys: Expr,
        mine: Expr,
        total: Expr,
        predicate: Predicate,
        lower: Expr | int,
        upper: Expr,
    ) -> Expr:
        with self.b.for_(lower, upper, 1, carried=[total], unroll=8) as turn:
            other = self.b.load(keys, turn.index)
            turn.yield_(self._grown(turn.carried[0], self.b.compare(predicate, other, mine)))
        return turn.results[0]

    def _grown(self, total: Expr, mask: Expr) -> Expr:
        return self.b.select(mask, total + 1, total)

    def _digits(self, row: _Row, digits: DigitSort) -> None:
        b, width = self.b, self.width
        kept = self.scope.size(self.kept)
        start = digits.run(functools.partial(self._keys, row), kept)
        inner = self.scope.size(self.inner)
        with b.for_(0, kept, width) as loop:
            mask = b.arange(width) < kept - loop.index
            place = digits.places_at(start + loop.index, mask)
            where = place * inner + row.source
            values = [b.gather(source, where, mask=mask) for source in self.sources]
            target = row.target + loop.index * inner
            self._stored(target, [*values, *([place] if self.picks else [])], mask)
            loop.yield_()
