"""Matrix products with panels: a tile of sums in registers, the whole depth at once.

A program owns some rows of one panel. Rows come in tiles of at most `tile_rows`: sizes known at
compile time are cut into tiles of one height or two neighbouring ones; sizes known at run time take
the best of a few heights, and the last tile starts early enough to end in time (its overlap is
computed twice, with the same result). What the fusion does with each sum follows while the tile is
still in registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.registers import Registers
from luban.graph.ops.packed import PanelDot
from luban.ir.node import Graph
from luban.lower.emit import Scope
from luban.lower.epilogue import Columns, Epilogue, Rows
from luban.lower.kernel import Kernel
from luban.lower.nest import Group, Nest, build_nest
from luban.lower.row_tiles import RowTiles
from luban.lower.trace import Declined, Ref
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["lower_panel_dot"]

_WORK = 1 << 18  # multiply-adds of one program: long beside its claim, short beside the whole
_UNROLL = 8


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where everything of one product is.

    outer      axes that pick a matrix or repeat the rows, outermost first
    row        the axis whose neighbours share a tile; None for a single row
    rows       a load of the left operand, at the row axis and the depth axis
    panels     a load of the panels, of which only the batch axes' strides are taken
    """

    outer: tuple[Group, ...]
    row: Group | None
    column_axis: int
    depth_axis: int
    rows: Ref
    panels: Ref
    depth: DimLike
    columns: DimLike
    width: int


def lower_panel_dot(name: str, body: Graph, registers: Registers) -> Kernel:
    """The kernel of a fusion round a `panel_dot`. Raises Declined with a reason if it has none."""
    nest = build_nest(body)
    plan = _plan(nest)
    b = FunctionBuilder(name)
    scope = Scope(b, body, nest)
    (reduction,) = nest.reductions
    size_bytes = reduction.accumulator.size_bytes
    count: DimLike = 1 if plan.row is None else plan.row.size
    tiles = RowTiles(count, registers.tile_rows(plan.width, size_bytes))
    epilogue = Epilogue(scope, nest, reduction, tiles.tallest * plan.width)
    lanes = min(registers.lanes(size_bytes), plan.width)
    return _Writer(b, scope, plan, epilogue, tiles, lanes).kernel()


def _plan(nest: Nest) -> _Plan:
    (reduction,) = nest.reductions
    node = reduction.node
    assert isinstance(node.op, PanelDot)
    assert reduction.factor is not None
    rows, panels = _loaded(reduction.value), _loaded(reduction.factor)
    if rows.args or rows.offset is None or rows.offset.values:
        raise Declined("the left operand of the product is not in memory as it is read")
    if panels.offset is None:
        raise Declined("the panels of the product are not in memory")
    column, depth = node.tensor.rank - 1, node.tensor.rank
    panel_shape = panels.operand.tensor.shape if panels.operand is not None else ()
    width = panel_shape[-1]
    assert isinstance(width, int)
    outer = [g for g in nest.kept if g.axis != column]
    row = None
    if outer and panels.offset.coefficient(outer[-1].axis) == 0:
        row = outer.pop()
    return _Plan(
        tuple(outer),
        row,
        column,
        depth,
        rows,
        panels,
        panel_shape[-2],
        node.op.columns,
        width,
    )


def _loaded(value: Ref) -> Ref:
    """The load under a widening cast. Raises Declined for anything else."""
    if value.kind == "cast":
        value = value.args[0]
    if value.kind != "load":
        raise Declined(f"an operand of the product is computed ({value.kind}), not in memory")
    return value


class _Writer:
    """Writes the loops of one product."""

    def __init__(
        self,
        b: FunctionBuilder,
        scope: Scope,
        plan: _Plan,
        epilogue: Epilogue,
        tiles: RowTiles,
        lanes: int,
    ) -> None:
        self.b = b
        self.scope = scope
        self.plan = plan
        self.epilogue = epilogue
        self.tiles = tiles
        self.lanes = lanes
        self.vectors = plan.width // lanes

    def kernel(self) -> Kernel:
        """The finished kernel. Programs in order: matrices, panels, blocks of rows."""
        b, scope, plan = self.b, self.scope, self.plan
        depth = plan.depth if isinstance(plan.depth, int) else 256
        one_tile = max(depth * plan.width * self.tiles.tallest, 1)
        per_block = max(_WORK // one_tile, 1)
        blocks = dims.maximum(dims.ceil_div(self.tiles.num_tiles, per_block), 1)
        num_panels = dims.ceil_div(plan.columns, plan.width)
        rest, block = _split(scope, b.program_id(), blocks)
        rest, panel = _split(scope, rest, num_panels)
        for group in reversed(plan.outer[1:]):
            rest, scope.place[group.axis] = _split(scope, rest, group.size)
        if plan.outer:
            scope.place[plan.outer[0].axis] = rest
        row_start, panel_start = self._starts(panel)
        for span in self.tiles.spans(scope, block, per_block, blocks):
            with b.for_(span.first, span.last, 1) as loop, scope.inner():
                row = span.row(loop.index)
                sums = self._sums(row_start, panel_start, row, span.height)
                self.epilogue.store(sums, self._rows(row), self._columns(panel))
                loop.yield_()
        grid = dims.num_elements((*(g.size for g in plan.outer), num_panels, blocks))
        note = f"tiles of {self.tiles.tallest} x {plan.width} sums, {per_block} a program"
        return Kernel(b.finish_module(), tuple(scope.arguments), grid, (note,))

    def _starts(self, panel: Expr) -> tuple[Expr, Expr]:
        """Where the matrix of this program starts, and where its panel does."""
        scope, plan = self.scope, self.plan
        assert plan.rows.offset is not None
        assert plan.panels.offset is not None
        row_start, _, _ = scope.linear(plan.rows.offset)
        start = panel * (scope.size(plan.depth) * plan.width)
        for axis, coefficient in plan.panels.offset.axes:
            if axis in scope.place:
                start = start + scope.place[axis] * scope.size(coefficient)
        return row_start, start

    def _sums(self, row_start: Expr, panel_start: Expr, row: Expr, height: int) -> list[list[Expr]]:
        """Products of `height` rows with the panel, summed in order of depth."""
        b, scope, plan, lanes = self.b, self.scope, self.plan, self.lanes
        assert plan.rows.offset is not None
        wide = self.epilogue.accumulator
        step = scope.size(plan.rows.offset.coefficient(plan.depth_axis))
        stride = scope.size(0 if plan.row is None else plan.rows.offset.coefficient(plan.row.axis))
        first = row_start + row * stride
        starts = [first + stride * r for r in range(height)]
        zero = b.full((lanes,), 0.0, wide)
        carried = [zero] * (height * self.vectors)
        rows, panels = scope.pointer(plan.rows), scope.pointer(plan.panels)
        with b.for_(0, scope.size(plan.depth), 1, carried=carried, unroll=_UNROLL) as loop:
            here = panel_start + loop.index * plan.width
            right = [
                b.cast(b.load(panels, here + v * lanes, (lanes,)), wide)
                for v in range(self.vectors)
            ]
            sums = []
            for r, start in enumerate(starts):
                left = b.cast(b.load(rows, start + loop.index * step), wide)
                for v, column in enumerate(right):
                    sums.append(b.fma(left, column, loop.carried[r * self.vectors + v]))
            loop.yield_(*sums)
        flat = loop.results
        return [list(flat[r * self.vectors :][: self.vectors]) for r in range(height)]

    def _rows(self, row: Expr) -> Rows:
        if self.plan.row is None:
            return Rows(frozenset(), lambda _: {})
        axis = self.plan.row.axis
        return Rows(frozenset({axis}), lambda r: {axis: row + r})

    def _columns(self, panel: Expr) -> Columns:
        plan = self.plan
        limit, width = plan.columns, plan.width
        full = None
        if isinstance(limit, int) and (limit % width == 0 or limit < width):
            full = limit % width == 0
        start = panel * width
        return Columns(plan.column_axis, start, self.lanes, self.vectors, limit, full)


def _split(scope: Scope, value: Expr, size: DimLike) -> tuple[Expr, Expr]:
    """(value // size, value % size)"""
    if size == 1:
        return value, scope.b.constant(0)
    count = scope.size(size)
    quotient = value // count
    return quotient, value - quotient * count
