"""Convolutions by Winograd's algorithm: transform, products, transform back, all near the core.

A program takes a block of tiles of the result, and some panels of its columns. It transforms the
image under its tiles (channels in lanes) into scratch memory: one matrix [tiles, channels] for each
pair of points. For each panel it multiplies all these matrices with theirs of the filters, and
transforms the sums back while they are in the second cache; the fusion's epilogue follows each line
of places in registers. Filters that are transformed along one axis only are brought to the points
of the other in scratch memory, for some channels at a time. Each place's sums run over the channels
in order, so a result depends neither on blocks nor on threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.dtypes import DTYPES, DType
from luban.core.registers import Registers
from luban.graph.ops.winograd import TAPS, Transforms, WinogradConvolution, transforms
from luban.ir.node import Graph
from luban.lower.affine import axis_index
from luban.lower.ahead import FAR_BYTES, SECOND_CACHE
from luban.lower.epilogue import Columns, Epilogue, Rows
from luban.lower.kernel import Kernel
from luban.lower.nest import single_nest
from luban.lower.operands import loaded, offset_of, split_place
from luban.lower.row_tiles import split_rows
from luban.lower.scope import Scope
from luban.lower.trace import Declined, Ref
from luban.lower.winograd_blocks import Blocks, choose_blocks
from luban.lower.winograd_passes import filter_pass, image_pass, result_pass
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["lower_winograd"]

_BATCH, _LINE, _ROW, _COLUMN, _POINT_LINE, _POINT_ROW, _CHANNEL, _PANEL, _MATRIX, _INSIDE = range(
    10
)
_UNROLL = 4
_PART = 256  # channels whose filters at six points fit a part of the second cache


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where everything of one convolution is.

    image, filters  loads of the operands
    space           sizes of the image
    low             zeros before it
    places          sizes of the result
    tiles           of the result, along its axes
    """

    matrices: Transforms
    tile: int
    image: Ref
    filters: Ref
    batch: DimLike
    space: tuple[DimLike, DimLike]
    low: tuple[DimLike, DimLike]
    places: tuple[DimLike, DimLike]
    channels: int
    columns: int
    width: int
    filter_axes: int
    group: int

    @property
    def factor(self) -> DType:
        """What the image at the points and the filters are multiplied in."""
        return DTYPES["f32" if self.group == 1 else "bf16"]

    @property
    def size(self) -> int:
        """Places of the image under a tile, along an axis."""
        return self.tile + TAPS - 1

    @property
    def tiles(self) -> tuple[DimLike, DimLike]:
        """Tiles along the axes."""
        line, row = (dims.ceil_div(places, self.tile) for places in self.places)
        return line, row


def lower_winograd(name: str, body: Graph, registers: Registers) -> Kernel:
    """The kernel of a fusion round a convolution in tiles. Raises Declined if there is none."""
    (node,) = [n for n in body.nodes() if isinstance(n.op, WinogradConvolution)]
    op, (image, panels) = node.op, node.operands
    assert isinstance(op, WinogradConvolution)
    nest, reduction = single_nest(body, node)
    if node.tensor.dtype is not DTYPES["f32"] or op.magnitudes:
        raise Declined("tiles of a convolution have a kernel for f32 only")
    trace = nest.trace
    batch, line, row, *_ = (axis_index(i) for i in range(node.tensor.rank))
    places = (line + axis_index(_POINT_LINE), row + axis_index(_POINT_ROW))
    channel, panel = axis_index(_CHANNEL), axis_index(_PANEL)
    matrix, column = axis_index(_MATRIX), axis_index(_COLUMN)
    x = loaded(trace.value(image, (batch, *places, channel)))
    inside = (axis_index(_INSIDE),) * (op.group > 1)
    w = loaded(trace.value(panels, (matrix, panel, channel, column, *inside)))
    if x.args or offset_of(x).coefficient(_CHANNEL) != 1:
        raise Declined("the channels of the image are not next to each other")
    _, height, length, channels = image.tensor.shape
    width = panels.tensor.shape[3]
    if not all(isinstance(size, int) for size in (channels, width, op.columns)):
        raise Declined("the channels are known at run time only")
    plan = _Plan(
        transforms(op.tile),
        op.tile,
        x,
        w,
        node.tensor.shape[0],
        (height, length),
        op.low,
        (node.tensor.shape[1], node.tensor.shape[2]),
        int(channels),  # type: ignore[arg-type]
        int(op.columns),  # type: ignore[arg-type]
        int(width),  # type: ignore[arg-type]
        op.filter_axes,
        op.group,
    )
    b = FunctionBuilder(name)
    scope = Scope(b, body, nest)
    lanes = min(registers.lanes(4), plan.width)
    epilogue = Epilogue(scope, nest, reduction, plan.tile * lanes)
    limit = registers.tile_rows(plan.width, 4)
    count = plan.batch * plan.tiles[0] * plan.tiles[1]
    blocks = choose_blocks(
        count,
        limit,
        plan.size**2,
        plan.channels,
        plan.columns,
        plan.width,
        plan.factor.size_bytes,
    )
    return _Writer(b, scope, plan, epilogue, blocks, limit, lanes).kernel()


@dataclass(frozen=True, slots=True)
class _Filters:
    """Rows of one panel of filters at a pair of points, and what is fetched ahead meanwhile.

    start     of the row of channel 0
    channels  of these rows: all, or a part
    next      in the weights, what comes next; None if it is near
    lines     vectors of it to fetch at each channel
    """

    pointer: Expr
    start: Expr
    channels: tuple[int | Expr, int | Expr]
    next: Expr | None
    lines: int


class _Writer:
    """Writes the three steps of one convolution."""

    def __init__(
        self,
        b: FunctionBuilder,
        scope: Scope,
        plan: _Plan,
        epilogue: Epilogue,
        blocks: Blocks,
        limit: int,
        lanes: int,
    ) -> None:
        self.b = b
        self.scope = scope
        self.plan = plan
        self.epilogue = epilogue
        self.blocks = blocks
        self.limit = limit
        self.lanes = lanes
        self.vectors = plan.width // lanes
        f32, size = DTYPES["f32"], plan.size
        # Rows of whole vectors; a vector between matrices, or they would share few cache sets.
        self.depth = -(-plan.channels // lanes) * lanes
        self.image_step = blocks.tiles * self.depth + lanes * plan.group
        self.sums_step = blocks.tiles * plan.width + lanes
        self.points = b.scratch(plan.factor, size * size * self.image_step)
        self.sums = b.scratch(f32, size * size * self.sums_step)
        self.held = b.scratch(f32, size * size * lanes)
        self.filters = scope.pointer(plan.filters)
        self.step = scope.size(offset_of(plan.filters).coefficient(_MATRIX))
        self.part = min(plan.channels, _PART)
        if plan.filter_axes == 1:  # of a line of points, for some of the channels
            self.taps_step = self.part * plan.width + lanes
            self.taps = b.scratch(f32, size * self.taps_step)

    def kernel(self) -> Kernel:
        """The finished kernel. Programs in order: blocks of tiles, groups of panels."""
        b, scope, plan, blocks = self.b, self.scope, self.plan, self.blocks
        num_panels = -(-plan.columns // plan.width)
        block, group = split_place(scope, b.program_id(), blocks.groups)
        first = block * blocks.tiles
        count = b.min(scope.size(blocks.count) - first, blocks.tiles)
        self._image(first)
        each = scope.size(dims.ceil_div(num_panels, blocks.groups))
        begin = group * each
        with b.for_(begin, b.min(begin + each, num_panels)) as over_panels, scope.inner():
            self._panel(over_panels.index, count)
            self._result(over_panels.index, first, count)
            over_panels.yield_()
        grid = dims.ceil_div(blocks.count, blocks.tiles) * blocks.groups
        note = (
            f"Winograd tiles of {plan.tile} x {plan.tile}, {blocks.tiles} a program; "
            f"sums of {min(self.limit, blocks.tiles)} x {plan.width}"
        )
        return Kernel(b.finish_module(), tuple(scope.arguments), grid, (note,))

    @contextmanager
    def _over_tiles(self, count: int | Expr, first: Expr) -> Iterator[tuple[Expr, Expr, Expr]]:
        """A loop over tiles of the block: (number in the block, first line, first row).

        Numbers behind the last tile of all stand for that tile again.
        """
        b, scope, plan = self.b, self.scope, self.plan
        with b.for_(0, count) as loop, scope.inner():
            last = scope.size(self.blocks.count) - 1
            rest, row = split_place(scope, b.min(first + loop.index, last), plan.tiles[1])
            batch, line = split_place(scope, rest, plan.tiles[0])
            scope.place[_BATCH] = batch
            yield loop.index, line * plan.tile, row * plan.tile
            loop.yield_()

    def _image(self, first: Expr) -> None:
        """The image under each tile of the block at the points."""
        b, scope, plan = self.b, self.scope, self.plan
        form = offset_of(plan.image)
        steps = [scope.size(form.coefficient(axis)) for axis in (_LINE, _ROW)]
        with self._over_tiles(self.blocks.tiles, first) as (number, line, row):
            corner = (line - scope.size(plan.low[0]), row - scope.size(plan.low[1]))
            start = scope.size(form.constant) + corner[0] * steps[0] + corner[1] * steps[1]
            start = start + scope.place[_BATCH] * scope.size(form.coefficient(_BATCH))
            inside = self._is_inside(corner)
            with b.if_(inside) as branch:
                with branch.then(), scope.inner():
                    self._image_tile(start, steps, number, None)
                with branch.otherwise(), scope.inner():
                    self._image_tile(start, steps, number, corner)

    def _is_inside(self, corner: tuple[Expr, Expr]) -> Expr:
        """True if all places under a tile are in the image."""
        b, scope, plan = self.b, self.scope, self.plan
        inside = b.constant(True, "bool")
        ends = zip(corner, plan.space, plan.low, plan.places, plan.tiles, strict=True)
        for place, extent, low, places, tiles in ends:
            if low != 0:
                inside = inside & (place >= 0)
            if tiles * plan.tile != places or places + TAPS - 1 != extent + low:
                inside = inside & (place + plan.size <= scope.size(extent))
        return inside

    def _image_tile(
        self,
        start: Expr,
        steps: Sequence[Expr],
        number: Expr,
        corner: tuple[Expr, Expr] | None,
    ) -> None:
        """One tile at the points; the part of it that is outside the image is 0."""
        b, scope, plan, lanes, size = self.b, self.scope, self.plan, self.lanes, self.plan.size
        pointer = scope.pointer(plan.image)
        ragged = plan.channels % lanes != 0
        rows = [] if corner is None else [self._within(corner[1] + j, 1) for j in range(size)]
        with b.for_(0, self.depth, lanes) as over_channels, scope.inner():
            channel = over_channels.index
            channels = b.arange(lanes) < plan.channels - channel if ragged else None
            with b.for_(0, size) as over_lines, scope.inner():
                here = start + channel + over_lines.index * steps[0]
                line = None if corner is None else self._within(corner[0] + over_lines.index, 0)
                given = []
                for j in range(size):
                    place, mask = here + steps[1] * j, channels
                    if line is not None:
                        here_inside = line & rows[j]
                        place = b.select(here_inside, place, 0)
                        mask = here_inside if mask is None else here_inside & mask
                    given.append(b.load(pointer, place, (lanes,), mask=mask))
                self._hold(over_lines.index * (size * lanes), given)
                over_lines.yield_()
            with b.for_(0, size) as over_rows, scope.inner():
                row = over_rows.index
                given = [self._held(row * lanes + i * (size * lanes)) for i in range(size)]
                begin = row * self.image_step + number * self.depth + channel
                for i, value in enumerate(image_pass(b, given, plan.matrices)):
                    place = begin + i * (size * self.image_step)
                    rounded = b.cast(value, plan.factor, flush=True)
                    b.store(self.points, place, rounded, align=4 * lanes // plan.group)
                over_rows.yield_()
            over_channels.yield_()

    def _within(self, place: Expr, axis: int) -> Expr:
        return (place >= 0) & (place < self.scope.size(self.plan.space[axis]))

    def _hold(self, start: Expr, given: Sequence[Expr]) -> None:
        for j, value in enumerate(image_pass(self.b, given, self.plan.matrices)):
            self.b.store(self.held, start + j * self.lanes, value, align=4 * self.lanes)

    def _held(self, place: Expr) -> Expr:
        return self.b.load(self.held, place, (self.lanes,), align=4 * self.lanes)

    def _panel(self, panel: Expr, count: Expr) -> None:
        """The products of one panel, for all pairs of points."""
        b, scope, plan = self.b, self.scope, self.plan
        form = offset_of(plan.filters)
        start = scope.size(form.constant) + panel * scope.size(form.coefficient(_PANEL))
        used = -(-(plan.columns % plan.width) // self.lanes) or self.vectors
        last = -(-plan.columns // plan.width) - 1
        if used == self.vectors:
            self._products(start, count, used)
            return
        with b.if_(panel.eq(last)) as branch:
            with branch.then(), scope.inner():
                self._products(start, count, used)
            with branch.otherwise(), scope.inner():
                self._products(start, count, self.vectors)

    def _products(self, start: Expr, count: Expr, vectors: int) -> None:
        """The same for the first vectors of each row of the panel."""
        b, scope, plan = self.b, self.scope, self.plan
        if plan.filter_axes == 1:
            self._transformed_products(start, count, vectors)
            return
        with b.for_(0, plan.size**2) as over_matrices, scope.inner():
            matrix = over_matrices.index
            here = start + matrix * self.step
            ahead = self._ahead(matrix)
            then = None if ahead is None else here + ahead
            every = (0, -(-plan.channels // plan.group))
            filters = _Filters(self.filters, here, every, then, vectors)
            self._product(matrix, filters, count, vectors)
            over_matrices.yield_()

    def _ahead(self, matrix: Expr) -> Expr | None:
        """How far the filters that are multiplied next are from the present; None if near."""
        b, scope, plan = self.b, self.scope, self.plan
        num_matrices = plan.size**2
        if num_matrices * plan.channels * plan.columns * plan.factor.size_bytes <= FAR_BYTES:
            return None
        panel_step = scope.size(offset_of(plan.filters).coefficient(_PANEL))
        back = panel_step - self.step * (num_matrices - 1)
        return b.select(matrix.eq(num_matrices - 1), back, self.step)

    def _transformed_products(self, start: Expr, count: Expr, vectors: int) -> None:
        """Filters along the second axis, for a part of the channels at a time, and products."""
        b, scope, plan, size = self.b, self.scope, self.plan, self.plan.size
        parts = -(-plan.channels // self.part)
        lines = -(-vectors // 2)
        self._clear_sums(vectors)
        panel_step = scope.size(offset_of(plan.filters).coefficient(_PANEL))
        with b.for_(0, size) as over_lines, scope.inner():
            line = start + over_lines.index * (TAPS * self.step)
            below = b.select(
                over_lines.index.eq(size - 1), start + panel_step, line + TAPS * self.step
            )
            with b.for_(0, parts) as over_parts, scope.inner():
                begin = over_parts.index * self.part
                end = b.min(begin + self.part, plan.channels)
                taps = line + begin * plan.width
                last = over_parts.index.eq(parts - 1)
                then = b.select(last, below, taps + self.part * plan.width)
                self._filters_at_points(taps, end - begin, vectors)
                with b.for_(0, size) as over_points, scope.inner():
                    j = over_points.index
                    far = then + (j // 2) * self.step + (j % 2) * (self.part * plan.width // 2)
                    here = j * self.taps_step - begin * plan.width
                    filters = _Filters(self.taps, here, (begin, end), far, lines)
                    self._product(over_lines.index * size + j, filters, count, vectors)
                    over_points.yield_()
                over_parts.yield_()
            over_lines.yield_()

    def _clear_sums(self, vectors: int) -> None:
        b, plan, lanes = self.b, self.plan, self.lanes
        zero = b.full((lanes,), 0.0, "f32")
        with b.for_(0, plan.size**2) as over_matrices, self.scope.inner():
            with b.for_(0, self.blocks.tiles) as over_tiles:
                row = over_matrices.index * self.sums_step + over_tiles.index * plan.width
                for v in range(vectors):
                    b.store(self.sums, row + v * lanes, zero, align=4 * lanes)
                over_tiles.yield_()
            over_matrices.yield_()

    def _filters_at_points(self, taps: Expr, channels: Expr, vectors: int) -> None:
        """Some rows of the panel's filters, of one line of points, at all points along it."""
        b, plan, lanes = self.b, self.plan, self.lanes
        with b.for_(0, channels) as over_channels:
            row = over_channels.index * plan.width
            for v in range(vectors):
                place = taps + row + v * lanes
                given = [b.load(self.filters, place + self.step * x, (lanes,)) for x in range(TAPS)]
                for j, value in enumerate(filter_pass(b, given, plan.matrices)):
                    place = row + (j * self.taps_step + v * lanes)
                    b.store(self.taps, place, value, align=4 * lanes)
            over_channels.yield_()

    def _product(self, matrix: Expr, filters: _Filters, count: Expr, vectors: int) -> None:
        """One matrix of the image times rows of one panel of the filters."""
        b, plan, wide = self.b, self.plan, self.lanes * self.plan.group
        image, sums = matrix * self.image_step, matrix * self.sums_step
        row = number = 0
        parts = split_rows(self.blocks.tiles, self.limit)
        share = -(-filters.lines // sum(tiles for _, tiles in parts))
        for height, tiles in parts:
            end: int | Expr = tiles
            if not isinstance(self.blocks.count, int):  # rows behind the last tile are left out
                end = b.min(b.max(count - row + (height - 1), 0) // height, tiles)
            with b.for_(0, end) as over_rows, self.scope.inner():
                begin = over_rows.index * height + row
                ahead: list[Expr] = []
                if filters.next is not None:
                    line = (over_rows.index + number) * share
                    first = b.select(line < filters.lines, line, 0) * wide + filters.next
                    ahead = [first + v * wide for v in range(share)]
                places = [
                    sums + (begin + r) * plan.width + v * self.lanes
                    for r in range(height)
                    for v in range(vectors)
                ]
                totals = self._sums(image + begin * self.depth, filters, places, vectors, ahead)
                for place, total in zip(places, totals, strict=True):
                    b.store(self.sums, place, total, align=4 * self.lanes)
                over_rows.yield_()
            row += height * tiles
            number += tiles

    def _sums(
        self,
        image: Expr,
        filters: _Filters,
        places: Sequence[Expr],
        vectors: int,
        ahead: Sequence[Expr],
    ) -> Sequence[Expr]:
        """The products' sums; added to those at `places` where the filters are a part."""
        b, plan, lanes, group = self.b, self.plan, self.lanes, self.plan.group
        wide = lanes * group
        if plan.filter_axes == 1:
            carried = [b.load(self.sums, place, (lanes,), align=4 * lanes) for place in places]
        else:
            shape = (lanes,) if group == 1 else (1, lanes)
            carried = [b.full(shape, 0.0, "f32")] * len(places)
        steps = self.part if plan.filter_axes == 1 else -(-plan.channels // group)
        unroll = next((u for u in (_UNROLL, 3) if steps % u == 0), _UNROLL)
        step = filters.lines * lanes if plan.filter_axes == 1 else plan.width * group
        with b.for_(*filters.channels, 1, carried=carried, unroll=unroll) as loop:
            row = filters.start + loop.index * (plan.width * group)
            right = [b.load(filters.pointer, row + v * wide, (wide,)) for v in range(vectors)]
            for far in ahead:
                number = loop.index if plan.filter_axes == 2 else loop.index - filters.channels[0]
                place = far + number * step
                b.prefetch(self.filters, place, locality=SECOND_CACHE)
            totals = []
            for r in range(len(places) // vectors):
                place = image + loop.index * group + r * self.depth
                left = b.load(self.points, place, () if group == 1 else (1, group))
                for v, column in enumerate(right):
                    total = loop.carried[r * vectors + v]
                    if group == 1:
                        totals.append(b.fma(left, column, total))
                    else:
                        totals.append(b.dot_pair(total, left, column))
            loop.yield_(*totals)
        if group == 1:
            return loop.results
        return [b.reshape(total, (self.lanes,)) for total in loop.results]

    def _result(self, panel: Expr, first: Expr, count: Expr) -> None:
        """The sums of one panel as places of the result, and what becomes of them."""
        b, scope, plan, lanes = self.b, self.scope, self.plan, self.lanes
        start = panel * plan.width
        vectors: int | Expr = self.vectors
        if plan.columns % plan.width:
            left = (plan.columns - start + (lanes - 1)) // lanes
            vectors = b.min(left, self.vectors)
        with b.for_(0, vectors) as over_vectors, scope.inner():
            vector = over_vectors.index * lanes
            full = True if plan.columns % lanes == 0 else None
            columns = Columns(_COLUMN, start + vector, lanes, 1, plan.columns, full)
            with self._over_tiles(count, first) as (number, line, row):
                self._to_lines(number * plan.width + vector)
                stop = self._left(line, 0)
                with b.for_(0, stop) as over_lines, scope.inner():
                    scope.place[_LINE] = line + over_lines.index
                    begin = over_lines.index * (plan.size * lanes)
                    given = [self._held(begin + j * lanes) for j in range(plan.size)]
                    self._store_line(result_pass(b, given, plan.matrices), row, columns)
                    over_lines.yield_()
            over_vectors.yield_()

    def _to_lines(self, begin: Expr) -> None:
        """Sums from points to lines of places, along the first axis."""
        b, plan, lanes, size = self.b, self.plan, self.lanes, self.plan.size
        with b.for_(0, size) as over_rows:
            here = begin + over_rows.index * self.sums_step
            given = [
                b.load(self.sums, here + i * (size * self.sums_step), (lanes,), align=4 * lanes)
                for i in range(size)
            ]
            for i, value in enumerate(result_pass(b, given, plan.matrices)):
                place = over_rows.index * lanes + i * (size * lanes)
                b.store(self.held, place, value, align=4 * lanes)
            over_rows.yield_()

    def _left(self, place: Expr, axis: int) -> int | Expr:
        """How many places of a tile are in the result."""
        plan = self.plan
        if plan.tiles[axis] * plan.tile == plan.places[axis]:
            return plan.tile
        return self.b.min(self.scope.size(plan.places[axis]) - place, plan.tile)

    def _store_line(self, places: Sequence[Expr], row: Expr, columns: Columns) -> None:
        b, scope, plan = self.b, self.scope, self.plan
        left = self._left(row, 1)
        if isinstance(left, int):
            self._store(places, row, columns)
            return
        if isinstance(plan.places[1], int):
            with b.if_(left.eq(plan.tile)) as branch:
                with branch.then(), scope.inner():
                    self._store(places, row, columns)
                with branch.otherwise(), scope.inner():
                    self._store(places[: plan.places[1] % plan.tile], row, columns)
            return
        for number, place in enumerate(places):
            with b.if_(left > number) as branch, branch.then(), scope.inner():
                self._store([place], row + number, columns)

    def _store(self, places: Sequence[Expr], row: Expr, columns: Columns) -> None:
        rows = Rows(frozenset({_ROW}), lambda r: {_ROW: row + r})
        self.epilogue.store([[place] for place in places], rows, columns)
