"""Products with panels, matrices and convolutions alike: a tile of sums in registers.

The tile's rows are places of the last axis before the columns (pixels of a line, rows of a matrix),
or of the last two when lines are short. Every reduced axis is a loop; since neighbouring reduced
axes that lie contiguously have become one axis, a matrix product has one such loop and a 3 x 3
convolution two. Products of bytes come in groups of four, which one instruction sums. A program
owns some rows of one panel. What the fusion does with each sum follows while the tile is still in
registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.registers import Registers
from luban.graph.ops.packed import PanelConvolution, PanelDot, panel_depth, panel_width
from luban.ir.node import Graph
from luban.lower.ahead import FAR_BYTES, SECOND_CACHE
from luban.lower.epilogue import Columns, Epilogue
from luban.lower.kernel import Kernel
from luban.lower.nest import Group, Nest, Reduction, build_nest
from luban.lower.operands import loaded, offset_of, split_place
from luban.lower.row_tiles import RowTiles, Tile, row_tiles
from luban.lower.scope import Scope
from luban.lower.trace import Declined, Ref
from luban.lower.wide_rows import WideRows, wide_rows
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["lower_panel_product"]

_WORK = 1 << 18  # multiply-adds of one program: long beside its claim, short beside the whole
_SHARE = 2  # vectors of the next panel that a step fetches: more would wait for memory
_LEAST_ROWS = 4  # of a tile that fetches ahead: lower ones have no time to spare
# Steps of the innermost loop in one go. More would make the scheduler hoist and spill; fewer spill
# too where the sums take nearly all registers, for LLVM then places them badly.
_UNROLL = 4
_HALF_BYTES = 32  # of a vector whose second half may be left out
_UNROLL_SMALL = 2  # for tiles that leave registers free: as fast, and half to compile
_FREE_REGISTERS = 9
_ONE = Group(-1, 1)  # an axis that is not there


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where everything of one product is.

    outer           axes that pick a matrix or a line, outermost first
    line, row       the axes whose places are the rows of a tile
    reduced         the summed axes, outermost first
    rows, panels    loads of the operands; of the panels' offset, `panel` has no part
    """

    outer: tuple[Group, ...]
    line: Group
    row: Group
    column_axis: int
    reduced: tuple[Group, ...]
    rows: Ref
    panels: Ref
    depth: DimLike
    columns: DimLike
    width: int
    group: int


def lower_panel_product(name: str, body: Graph, registers: Registers) -> Kernel:
    """The kernel of a fusion round a product with panels. Raises Declined if there is none."""
    nest = build_nest(body)
    (reduction,) = nest.reductions
    plan = _plan(nest, reduction)
    b = FunctionBuilder(name)
    scope = Scope(b, body, nest)
    size_bytes = reduction.accumulator.size_bytes
    limit = registers.tile_rows(plan.width, size_bytes)
    lines = row_tiles(plan.line.size, _lines_of_tile(plan.row.size, limit))
    rows = row_tiles(plan.row.size, limit)
    epilogue = Epilogue(scope, nest, reduction, lines.tallest * rows.tallest * plan.width)
    lanes = min(registers.lanes(size_bytes), plan.width)
    return _Writer(b, scope, plan, epilogue, lines, rows, lanes, registers.count).kernel()


def _lines_of_tile(row: DimLike, limit: int) -> int:
    """How many lines share a tile: several where a line has few places."""
    return limit // row if isinstance(row, int) and 0 < row <= limit // 2 else 1


def _plan(nest: Nest, reduction: Reduction) -> _Plan:
    node = reduction.node
    assert isinstance(node.op, (PanelDot, PanelConvolution))
    assert reduction.factor is not None
    rows, panels = loaded(reduction.value), reduction.factor
    panels = panels.args[0] if panels.kind == "cast" else panels
    if rows.args:
        raise Declined("the left operand of the product is padded as it is read")
    reduced, group = list(nest.reduced), node.op.group
    if group != 1:
        inside = reduced.pop()
        if offset_of(rows).coefficient(inside.axis) != 1:
            raise Declined(f"the rows of a product in groups of {group} are not contiguous")
    column = node.tensor.rank - 1
    outer = [g for g in nest.kept if g.axis != column]

    def popped() -> Group:
        shared = outer and offset_of(panels).coefficient(outer[-1].axis) == 0
        return outer.pop() if shared else _ONE

    row = popped()
    line = popped() if row is not _ONE else _ONE
    return _Plan(
        tuple(outer),
        line,
        row,
        column,
        tuple(reduced),
        rows,
        panels,
        panel_depth(node),
        node.op.columns,
        panel_width(node),
        group,
    )


class _Writer:
    """Writes the loops of one product."""

    def __init__(
        self,
        b: FunctionBuilder,
        scope: Scope,
        plan: _Plan,
        epilogue: Epilogue,
        lines: RowTiles,
        rows: RowTiles,
        lanes: int,
        num_registers: int,
    ) -> None:
        self.b = b
        self.scope = scope
        self.plan = plan
        self.epilogue = epilogue
        self.lines = lines
        self.rows = rows
        self.lanes = lanes
        self.vectors = plan.width // lanes
        self.most_rows = lines.tallest * rows.tallest
        self.ahead: list[Expr] = []
        self.num_registers = num_registers
        self.wide: WideRows | None = None
        if plan.group == 1:
            wide = epilogue.accumulator
            self.wide = wide_rows(b, plan.rows, plan.reduced, wide, self.most_rows, lanes)

    def kernel(self) -> Kernel:
        """The finished kernel. Programs in order: matrices, panels, blocks of lines, of rows."""
        b, scope, plan = self.b, self.scope, self.plan
        rows_each, lines_each = self._grain()
        row_blocks = dims.maximum(dims.ceil_div(self.rows.num_tiles, rows_each), 1)
        line_blocks = dims.maximum(dims.ceil_div(self.lines.num_tiles, lines_each), 1)
        num_panels = dims.ceil_div(plan.columns, plan.width)
        rest, row_block = split_place(scope, b.program_id(), row_blocks)
        rest, line_block = split_place(scope, rest, line_blocks)
        rest, panel = split_place(scope, rest, num_panels)
        for group in reversed(plan.outer[1:]):
            rest, scope.place[group.axis] = split_place(scope, rest, group.size)
        if plan.outer:
            scope.place[plan.outer[0].axis] = rest
        starts = self._starts(panel)
        self._by_columns(panel, num_panels, partial(self._block, starts, line_block, row_block))
        sizes = [g.size for g in plan.outer]
        grid = dims.num_elements((*sizes, num_panels, line_blocks, row_blocks))
        tile_rows = self.lines.tallest * self.rows.tallest
        note = f"tiles of {tile_rows} x {plan.width} sums, {rows_each * lines_each} a program"
        return Kernel(b.finish_module(), tuple(scope.arguments), grid, (note,))

    def _by_columns(
        self, panel: Expr, num_panels: DimLike, block: Callable[[Columns], None]
    ) -> None:
        """The work of a program, with fewer vectors where its panel is the last, half empty one."""
        b, plan, lanes = self.b, self.plan, self.lanes
        start = panel * plan.width

        def columns(vectors: int, full: bool | None, rest: int | None) -> Columns:
            last = self._last_lanes(vectors, rest) if full is False else None
            if last is not None:
                full = rest == (vectors - 1) * lanes + last
            return Columns(plan.column_axis, start, lanes, vectors, plan.columns, full, rest, last)

        if not isinstance(plan.columns, int):
            block(columns(self.vectors, None, None))
            return
        rest = plan.columns % plan.width
        used = -(-rest // lanes)
        if rest == 0:
            block(columns(self.vectors, True, None))
        elif num_panels == 1:
            block(columns(used, rest == used * lanes, rest))
        elif used == self.vectors:
            block(columns(used, None, rest))
        else:
            with b.if_(panel.eq(self.scope.size(num_panels) - 1)) as branch:
                with branch.then(), self.scope.inner():
                    block(columns(used, rest == used * lanes, rest))
                with branch.otherwise(), self.scope.inner():
                    block(columns(self.vectors, True, None))

    def _last_lanes(self, vectors: int, rest: int | None) -> int | None:
        """Lanes of the last vector of sums where half a vector holds the columns that are left.

        Many CPUs take two steps for a vector of 64 bytes, and one for half of it.
        """
        half = self.lanes // 2
        whole = self.epilogue.scratch is not None or self.plan.group != 1
        if rest is None or whole or half * self.epilogue.accumulator.size_bytes != _HALF_BYTES:
            return None
        return half if rest - (vectors - 1) * self.lanes <= half else None

    def _block(
        self, starts: tuple[Expr, Expr], line_block: Expr, row_block: Expr, columns: Columns
    ) -> None:
        """The tiles of one program."""
        b, scope, plan = self.b, self.scope, self.plan
        rows_each, lines_each = self._grain()
        for lines in self.lines.spans(scope, line_block, lines_each):
            with b.for_(lines.first, lines.last, 1) as over_lines, scope.inner():
                line = lines.row(over_lines.index)
                for rows in self.rows.spans(scope, row_block, rows_each):
                    with b.for_(rows.first, rows.last, 1) as over_rows, scope.inner():
                        row = rows.row(over_rows.index)
                        tile = Tile(line, row, lines.height, rows.height)
                        height = lines.height * rows.height
                        number = over_lines.index * scope.size(self.rows.num_tiles)
                        self.ahead = self._ahead(number + over_rows.index, height)
                        places = tile.rows(scope, plan.line.axis, plan.row.axis)
                        self.epilogue.fetch(height, places, columns)
                        sums = self._sums(starts, tile, columns)
                        self.epilogue.store(sums, places, columns)
                        over_rows.yield_()
                over_lines.yield_()

    def _ahead(self, number: Expr, rows: int) -> list[Expr]:
        """How far from a panel's row tile number `number` fetches ahead, for each fetch of a step.

        Where panels are far, the first tiles of a panel fetch some vectors of every row of the next
        panel, which would else come from memory while the first tile waits.
        """
        plan = self.plan
        if not isinstance(plan.depth, int) or not isinstance(plan.columns, int):
            return []
        if plan.depth * plan.columns * 4 // plan.group < FAR_BYTES:
            return []
        num_tiles = self.rows.num_tiles * self.lines.num_tiles
        least, share = max(self.most_rows, _LEAST_ROWS), _SHARE
        if isinstance(num_tiles, int):
            least, share = _LEAST_ROWS, min(-(-self.vectors // max(num_tiles, 1)), _SHARE)
        if rows < least:
            return []
        line = self.lanes * plan.group
        first = number * share
        start = self.b.select(first < self.vectors, first * line + plan.depth * plan.width, 0)
        return [start + i * line for i in range(share)]

    def _grain(self) -> tuple[int, int]:
        """Tiles of one program: along the rows, along the lines."""
        plan = self.plan
        depth = plan.depth if isinstance(plan.depth, int) else 256
        one = max(depth * plan.width * self.rows.tallest * self.lines.tallest, 1)
        along = self.rows.num_tiles
        wanted = max(_WORK * plan.group // one, 1)
        if not isinstance(along, int):
            return wanted, 1
        return min(wanted, max(along, 1)), max(wanted // max(along, 1), 1)

    def _starts(self, panel: Expr) -> tuple[Expr, Expr]:
        """Where the first row of this program's matrix starts, and where its panel does."""
        scope, plan = self.scope, self.plan
        row_start, _, _ = scope.linear(offset_of(plan.rows))
        start = panel * (scope.size(plan.depth) * plan.width)
        for axis, coefficient in offset_of(plan.panels).axes:
            if axis in scope.place:
                start = start + scope.place[axis] * scope.size(coefficient)
        return row_start, start

    def _sums(self, starts: tuple[Expr, Expr], tile: Tile, columns: Columns) -> list[list[Expr]]:
        """Products of the tile's rows with the panel, summed in the order of the reduced axes."""
        scope, plan = self.scope, self.plan
        form = offset_of(plan.rows)
        along_line = scope.size(form.coefficient(plan.line.axis))
        along_row = scope.size(form.coefficient(plan.row.axis))
        first = starts[0] + tile.line * along_line + tile.row * along_row
        begins = [first + along_line * i + along_row * j for i, j in tile.places()]
        if self.wide is not None:
            begins = self.wide.widened(scope, plan.rows, begins)
        wide = self.epilogue.accumulator
        vectors = columns.vectors
        ones = () if plan.group == 1 else (1,)
        zeros = [
            self.b.full((*ones, columns.lanes_of(v)), 0.0 if wide.is_float else 0, wide)
            for v in range(vectors)
        ]
        carried: Sequence[Expr] = zeros * len(begins)
        flat = self._reduce(begins, starts[1], carried, plan.reduced)
        if plan.group != 1:
            flat = [self.b.reshape(total, (self.lanes,)) for total in flat]
        return [list(flat[r * vectors :][:vectors]) for r in range(len(begins))]

    def _reduce(
        self, begins: Sequence[Expr], panel: Expr, carried: Sequence[Expr], left: Sequence[Group]
    ) -> Sequence[Expr]:
        """The loops over the reduced axes `left`, from where the ones before them have led."""
        if not left:
            return self._products(begins, panel, carried)
        b, scope, plan = self.b, self.scope, self.plan
        group, *further = left
        along = scope.size(offset_of(plan.rows).coefficient(group.axis))
        down = scope.size(offset_of(plan.panels).coefficient(group.axis))
        fair = _unroll(group.size, self._steps(len(carried)))
        unroll = 1 if further else min(fair, self._steps_apart(group))
        size = scope.size(group.size)
        with b.for_(0, size, 1, carried=carried, unroll=unroll) as loop, scope.inner():
            moved = [begin + loop.index * along for begin in begins]
            here = panel + loop.index * down
            loop.yield_(*self._reduce(moved, here, loop.carried, further))
        return loop.results

    def _steps(self, num_sums: int) -> int:
        """How many steps of the innermost loop pay for a tile of so many vectors of sums."""
        return _UNROLL if num_sums + _FREE_REGISTERS > self.num_registers else _UNROLL_SMALL

    def _steps_apart(self, group: Group) -> int:
        """After how many steps along an axis a row of the tile reads what its neighbour has read.

        In one go, these would be the same loads: LLVM would keep them all in registers, and spill.
        """
        form = offset_of(self.plan.rows)
        step, apart = (form.coefficient(axis) for axis in (group.axis, self.plan.row.axis))
        if not isinstance(step, int) or not isinstance(apart, int) or step < 1 or apart < step:
            return _UNROLL
        return apart // step if apart % step == 0 else _UNROLL

    def _products(self, begins: Sequence[Expr], panel: Expr, carried: Sequence[Expr]) -> list[Expr]:
        b, scope, plan, lanes = self.b, self.scope, self.plan, self.lanes
        wide, vectors = self.epilogue.accumulator, len(carried) // len(begins)
        panels = scope.pointer(plan.panels)
        rows = scope.pointer(plan.rows) if self.wide is None else self.wide.scratch
        for far in self.ahead:
            b.prefetch(panels, panel + far, locality=SECOND_CACHE)
        if plan.group != 1:
            dot, size = (b.dot4 if plan.group == 4 else b.dot_pair), plan.group * lanes
            groups = [b.load(panels, panel + v * size, (size,)) for v in range(vectors)]
            lefts = [b.load(rows, begin, (1, plan.group)) for begin in begins]
            return [
                dot(carried[r * vectors + v], left, right)
                for r, left in enumerate(lefts)
                for v, right in enumerate(groups)
            ]
        right = [
            b.cast(b.load(panels, panel + v * lanes, carried[v].shape), wide)
            for v in range(vectors)
        ]
        sums = []
        for r, begin in enumerate(begins):
            left = b.cast(b.load(rows, begin), wide)
            for v, column in enumerate(right):
                sums.append(_multiply_add(b, left, column, carried[r * vectors + v]))
        return sums


def _multiply_add(b: FunctionBuilder, left: Expr, right: Expr, total: Expr) -> Expr:
    """One rounding for floats; integers wrap."""
    return b.fma(left, right, total) if total.dtype.is_float else total + left * right


def _unroll(size: DimLike, most: int) -> int:
    """Steps in one go: a divisor of a known size where there is one, so that none are left.

    >>> _unroll(64, 4), _unroll(27, 4), _unroll(27, 2), _unroll(25, 2)
    (4, 3, 3, 2)
    """
    if not isinstance(size, int):
        return most
    fair = [u for u in (most, 3, 2) if size % u == 0]
    return fair[0] if fair else most
