"""Products with codes in panels: bytes are unpacked in registers and multiplied as integers.

A program owns some rows of one panel. For each block of the summed axis it adds up, in i32, the
products of a tile's digits with the block's codes; then the zero point comes off, digits become one
number, and step and scale bring it into the f32 sum. Codes leave memory once for each tile of rows,
two to a byte. Integers are exact and blocks are summed in order, so a result depends neither on
tiles nor on threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.registers import Registers
from luban.graph.ops.coded import PanelCodedDot, coded_width
from luban.ir.node import Graph, Node
from luban.lower.affine import axis_index
from luban.lower.epilogue import Columns, Epilogue, Rows
from luban.lower.kernel import Kernel
from luban.lower.nest import Group, Nest, Reduction, merged_groups, single_nest
from luban.lower.operands import loaded, offset_of, split_place
from luban.lower.row_tiles import RowTiles, Span, row_tiles
from luban.lower.scope import Scope
from luban.lower.trace import Declined, Ref
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["coded_rows", "lower_panel_coded_dot"]

_WORK = 1 << 19  # products of one program: long beside its claim, short beside the whole
_FEW_SUMS = 8  # vectors of sums that hide the latency of a product
_STRAIGHT = 8  # steps of a block that are written one after the other
_ONE = Group(-1, 1)  # an axis that is not there


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where everything of one product is; `digit`, `block`, `panel`, `inside` are loop axes.

    outer   axes of rows that do not lie like one, outermost first
    row     the axis whose places are the rows of a tile
    """

    op: PanelCodedDot
    outer: tuple[Group, ...]
    row: Group
    column_axis: int
    digit: int
    block: int
    panel: int
    inside: int
    rows: Ref
    steps: Ref
    totals: Ref
    panels: Ref
    scales: Ref
    zeros: Ref | None
    digits: int
    blocks: DimLike
    width: int

    @property
    def operands(self) -> list[Ref]:
        """The loads of all operands."""
        found = [self.rows, self.steps, self.totals, self.panels, self.scales]
        return found if self.zeros is None else [*found, self.zeros]

    @property
    def group(self) -> int:
        """Codes of a column that lie together."""
        return 32 // self.op.bits


def coded_rows(registers: Registers, digits: int, vectors: int) -> int:
    """Rows of a tile: sums of every digit and in f32, the unpacked codes, and a few more fit.

    >>> coded_rows(Registers(64, 32), 1, 2), coded_rows(Registers(64, 32), 4, 2)
    (6, 2)
    """
    free = registers.count - 2 * vectors - 3
    return max(free // ((digits + 1) * vectors), 1)


def lower_panel_coded_dot(name: str, body: Graph, registers: Registers) -> Kernel:
    """The kernel of a fusion round a product with codes. Raises Declined if there is none."""
    (node,) = [n for n in body.nodes() if isinstance(n.op, PanelCodedDot)]
    nest, reduction = single_nest(body, node)
    plan = _plan(nest, node)
    b = FunctionBuilder(name)
    scope = Scope(b, body, nest)
    lanes = min(registers.lanes(4), plan.width)
    limit = coded_rows(registers, plan.digits, plan.width // lanes)
    return _Writer(
        b, scope, plan, (nest, reduction), row_tiles(plan.row.size, limit), lanes
    ).kernel()


def _plan(nest: Nest, node: Node) -> _Plan:
    op, trace, rank = node.op, nest.trace, node.tensor.rank
    assert isinstance(op, PanelCodedDot)
    x, steps, totals, panels, scales, *zeros = node.operands
    digit, block, panel, place, inside = range(rank, rank + 5)
    rows = tuple(axis_index(i) for i in range(rank - 1))
    d, k, p, w, j = map(axis_index, (digit, block, panel, place, inside))
    by_panel = (p, k, w)
    refs = [
        loaded(trace.value(x, (*rows, d, j))),
        loaded(trace.value(steps, (*rows, k))),
        loaded(trace.value(totals, (*rows, d, k))),
        loaded(trace.value(panels, (p, k, w, j))),
        loaded(trace.value(scales, by_panel)),
        *(loaded(trace.value(z, by_panel)) for z in zeros),
    ]
    streams = offset_of(refs[0]).coefficient(inside) == offset_of(refs[3]).coefficient(inside) == 1
    if not streams or any(ref.args for ref in refs):
        raise Declined("an operand of the product is padded, or not contiguous, as it is read")
    forms = [ref.offset for ref in (*nest.needed(), *refs) if ref.offset is not None]
    forms += [write.offset for write in nest.writes]
    kept = [g for g in merged_groups(nest.kept, forms) if g.axis != rank - 1]
    row = kept.pop() if kept else _ONE
    digits = x.tensor.shape[-2]
    assert isinstance(digits, int)
    width = coded_width(node)
    blocks = steps.tensor.shape[-1]
    first, *_ = refs
    return _Plan(
        op,
        tuple(kept),
        row,
        rank - 1,
        digit,
        block,
        panel,
        inside,
        first,
        refs[1],
        refs[2],
        refs[3],
        refs[4],
        refs[5] if zeros else None,
        digits,
        blocks,
        width,
    )


@dataclass(frozen=True, slots=True)
class _Tile:
    """Offsets of a tile's rows in their operands, for the first block and digit."""

    rows: Sequence[Expr]
    steps: Sequence[Expr]
    totals: Sequence[Expr]

    @property
    def height(self) -> int:
        """How many rows there are."""
        return len(self.rows)


class _Writer:
    """Writes the loops of one product."""

    def __init__(
        self,
        b: FunctionBuilder,
        scope: Scope,
        plan: _Plan,
        nest: tuple[Nest, Reduction],
        rows: RowTiles,
        lanes: int,
    ) -> None:
        self.b = b
        self.scope = scope
        self.plan = plan
        self.epilogue = Epilogue(scope, *nest, rows.tallest * plan.width)
        self.rows = rows
        self.lanes = lanes
        self.vectors = plan.width // lanes
        self.starts: dict[Ref, Expr] = {}

    def kernel(self) -> Kernel:
        """The finished kernel. Programs in order: outer rows, panels, blocks of rows."""
        b, scope, plan = self.b, self.scope, self.plan
        each = self._grain()
        row_blocks = dims.maximum(dims.ceil_div(self.rows.num_tiles, each), 1)
        num_panels = dims.ceil_div(plan.op.columns, plan.width)
        rest, row_block = split_place(scope, b.program_id(), row_blocks)
        rest, panel = split_place(scope, rest, num_panels)
        for group in reversed(plan.outer[1:]):
            rest, scope.place[group.axis] = split_place(scope, rest, group.size)
        if plan.outer:
            scope.place[plan.outer[0].axis] = rest
        columns = self._columns(panel, num_panels)
        # Before any tile: the epilogue leaves the row axis where the last row is.
        self.starts = {ref: self._start(ref, panel) for ref in plan.operands}
        for span in self.rows.spans(scope, row_block, each):
            with b.for_(span.first, span.last, 1) as loop, scope.inner():
                self._tile(span, loop.index, columns)
                loop.yield_()
        grid = dims.num_elements((*(g.size for g in plan.outer), num_panels, row_blocks))
        digits = f" of {plan.digits} digits" if plan.digits > 1 else ""
        note = (
            f"codes of {plan.op.bits} bits; tiles of {self.rows.tallest} x {plan.width} "
            f"sums{digits}, {each} a program"
        )
        return Kernel(b.finish_module(), tuple(scope.arguments), grid, (note,))

    def _grain(self) -> int:
        """Tiles of one program."""
        depth = self.plan.blocks * self.plan.op.block
        one = (depth if isinstance(depth, int) else 1 << 12) * self.plan.width * self.rows.tallest
        wanted = max(_WORK // max(one, 1), 1)
        along = self.rows.num_tiles
        return min(wanted, max(along, 1)) if isinstance(along, int) else wanted

    def _columns(self, panel: Expr, num_panels: DimLike) -> Columns:
        plan = self.plan
        limit, full, rest = plan.op.columns, None, None
        if isinstance(limit, int):
            rest = limit % plan.width
            full = rest == 0 or (None if num_panels != 1 else False)
        start = panel * plan.width
        return Columns(plan.column_axis, start, self.lanes, self.vectors, limit, full, rest or None)

    def _start(self, ref: Ref, panel: Expr) -> Expr:
        """Where an operand starts for this program: its outer rows, or its panel."""
        form = offset_of(ref)
        start, _, _ = self.scope.linear(form)
        return start + panel * self.scope.size(form.coefficient(self.plan.panel))

    def _tile(self, span: Span, number: Expr, columns: Columns) -> None:
        """The sums of one tile of rows, and what becomes of them."""
        b, scope, plan, row = self.b, self.scope, self.plan, span.row(number)
        axis = plan.row.axis

        def rows_of(ref: Ref) -> list[Expr]:
            along = scope.size(offset_of(ref).coefficient(axis))
            return [self.starts[ref] + (row + r) * along for r in range(span.height)]

        tile = _Tile(rows_of(plan.rows), rows_of(plan.steps), rows_of(plan.totals))
        zero = b.full((self.lanes,), 0.0, "f32")
        flat: Sequence[Expr] = [zero] * (span.height * self.vectors)
        with b.for_(0, scope.size(plan.blocks), 1, carried=flat) as loop, scope.inner():
            loop.yield_(*self._block(tile, loop.index, loop.carried))
        sums = [list(loop.results[r * self.vectors :][: self.vectors]) for r in range(span.height)]
        self.epilogue.store(sums, Rows(frozenset({axis}), lambda r: {axis: row + r}), columns)

    def _block(self, tile: _Tile, block: Expr, carried: Sequence[Expr]) -> list[Expr]:
        """The f32 sums of a tile with one more block added."""
        b, scope, plan = self.b, self.scope, self.plan
        along = [scope.size(offset_of(r).coefficient(plan.digit)) for r in (plan.rows, plan.totals)]
        rows = [
            start + along[0] * d + block * plan.op.block
            for start in tile.rows
            for d in range(plan.digits)
        ]
        totals = [
            b.load(scope.pointer(plan.totals), start + along[1] * d + block)
            for start in tile.totals
            for d in range(plan.digits)
        ]
        if plan.zeros is None:
            middle = 1 << (plan.op.bits - 1)
            begin = [self._splat(total * -middle) for total in totals]
        else:
            begin = [self._splat(b.constant(0, "i32"))] * len(totals)
        bytes_each = plan.op.block // plan.group * 4 * plan.width
        sums = self._products(rows, self.starts[plan.panels] + block * bytes_each, begin)
        return self._scaled(tile, block, totals, sums, carried)

    def _splat(self, value: Expr) -> Expr:
        return self.b.broadcast(value, (1, self.lanes))

    def _products(
        self, rows: Sequence[Expr], panel: Expr, begin: Sequence[Expr]
    ) -> list[list[Expr]]:
        """Sums of a block in i32, [row and digit][vector], from `begin` for each row on."""
        b, plan, vectors = self.b, self.plan, self.vectors
        parts = 8 // plan.op.bits  # of a byte
        own = parts if len(rows) * vectors < _FEW_SUMS else 1  # sums of their own for each part
        zero = self._splat(b.constant(0, "i32"))
        flat = [first for first in begin for _ in range(vectors)]
        carried: Sequence[Expr] = [*flat, *[zero] * (len(flat) * (own - 1))]
        count = plan.op.block // plan.group
        if count <= _STRAIGHT:
            for step in range(count):
                carried = self._step(rows, panel, b.constant(step), carried, own)
        else:
            unroll = next(u for u in (4, 3, 2, 1) if count % u == 0)
            with b.for_(0, count, 1, carried=carried, unroll=unroll) as loop:
                loop.yield_(*self._step(rows, panel, loop.index, loop.carried, own))
            carried = loop.results
        sums = list(carried[: len(flat)])
        for part in range(1, own):
            sums = [a + c for a, c in zip(sums, carried[part * len(flat) :], strict=False)]
        return [sums[r * vectors :][:vectors] for r in range(len(rows))]

    def _step(
        self, rows: Sequence[Expr], panel: Expr, step: Expr, carried: Sequence[Expr], own: int
    ) -> list[Expr]:
        """Four codes of every column, or eight where two share a byte."""
        b, plan, vectors, lanes = self.b, self.plan, self.vectors, self.lanes
        panels, pointer = self.scope.pointer(plan.panels), self.scope.pointer(plan.rows)
        here = panel + step * (4 * plan.width)
        codes = [b.load(panels, here + 4 * v * lanes, (4 * lanes,)) for v in range(vectors)]
        parts = [codes]
        if plan.op.bits == 4:
            low, four = b.constant(15, "u8"), b.constant(4, "u8")
            parts = [
                [b.binary("and", c, b.broadcast(low, c.shape)) for c in codes],
                [b.binary("shr_logical", c, b.broadcast(four, c.shape)) for c in codes],
            ]
        sums = list(carried)
        for number, part in enumerate(parts):
            base = (number % own) * len(rows) * vectors
            for r, row in enumerate(rows):
                left = b.load(pointer, row + step * plan.group + 4 * number, (1, 4))
                for v, column in enumerate(part):
                    at = base + r * vectors + v
                    sums[at] = b.dot4(sums[at], left, column)
        return sums

    def _scaled(
        self,
        tile: _Tile,
        block: Expr,
        totals: Sequence[Expr],
        sums: Sequence[Sequence[Expr]],
        carried: Sequence[Expr],
    ) -> list[Expr]:
        """carried + scale * step * (sums of digits - zero * totals of digits)"""
        b, scope, plan, lanes = self.b, self.scope, self.plan, self.lanes
        steps = [b.load(scope.pointer(plan.steps), start + block) for start in tile.steps]
        result = list(carried)
        for v in range(self.vectors):
            at = block * plan.width + v * lanes
            scale = b.cast(
                b.load(scope.pointer(plan.scales), self.starts[plan.scales] + at, (lanes,)), "f32"
            )
            zero: Expr | None = None
            if plan.zeros is not None:
                zero = b.load(scope.pointer(plan.zeros), self.starts[plan.zeros] + at, (lanes,))
                zero = b.unary("neg", b.cast(zero, "f32"))
            for r in range(tile.height):
                own = slice(r * plan.digits, (r + 1) * plan.digits)
                digits = [b.reshape(row[v], (lanes,)) for row in sums[own]]
                whole = self._whole(digits, zero, totals[own]) * steps[r]
                place = r * self.vectors + v
                result[place] = b.fma(whole, scale, result[place])
        return result

    def _whole(self, digits: Sequence[Expr], zero: Expr | None, totals: Sequence[Expr]) -> Expr:
        """The sums of all digits as one f32: sum over d of 256**d * (digits[d] - zero * totals[d]).

        zero   negative, or None if it has come off already
        """
        b, op = self.b, self.plan.op
        if zero is None and len(digits) % 2 == 0 and _pairs_fit(op.bits, op.block):
            pairs = [low + high * 256 for low, high in zip(digits[::2], digits[1::2], strict=True)]
            values, weight = [b.cast(pair, "f32") for pair in pairs], 2.0**16
        else:
            values, weight = [b.cast(digit, "f32") for digit in digits], 2.0**8
            if zero is not None:
                values = [
                    b.fma(zero, b.cast(total, "f32"), value)
                    for value, total in zip(values, totals, strict=True)
                ]
        whole = values[-1]
        for value in reversed(values[:-1]):
            whole = b.fma(whole, weight, value)
        return whole


def _pairs_fit(bits: int, block: int) -> bool:
    """True if an i32 holds two digits' sums of a block as one number.

    >>> _pairs_fit(8, 256), _pairs_fit(8, 512)
    (True, False)
    """
    return 128 * ((1 << bits) - 1) * block * 257 < 1 << 31
