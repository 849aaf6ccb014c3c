"""Windows that slide over images with channels last: depthwise convolution and pooling.

Vector lanes run along channels. A tile of output pixels is kept in registers; each input pixel is
loaded once and goes to every output pixel whose window covers it, so each output takes its window
in row-major order. Tiles whose windows all lie inside the image load without masks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.registers import Registers
from luban.graph.ops.contract import Convolution
from luban.graph.ops.reduce import ReduceWindow
from luban.ir.node import Graph, Node
from luban.lower import maths
from luban.lower.emit import COMBINE, Scope, empty_value
from luban.lower.epilogue import Columns, Epilogue
from luban.lower.kernel import Kernel
from luban.lower.nest import Reduction, build_nest
from luban.lower.operands import loaded, offset_of, split_place
from luban.lower.row_tiles import RowTiles, Tile, few_heights
from luban.lower.trace import Declined, Ref
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["lower_window"]

_WORK = 1 << 16  # steps of windows that one program should take
# By number of registers: lines and rows of output pixels, and how many weights are kept beside
# them. The weights of larger windows are read where they are used.
_TILES = {32: (2, 4, 12), 16: (1, 4, 0)}


@dataclass(frozen=True, slots=True)
class _Axis:
    """One spatial axis: its loop axes (output place, place in the window) and how windows move."""

    place: int
    tap: int
    count: DimLike = 1
    extent: DimLike = 1
    window: int = 1
    stride: int = 1
    low: DimLike = 0
    high: DimLike = 0
    dilation: int = 1

    def reach(self, count: int) -> int:
        """Input places under the windows of `count` neighbouring output places."""
        return (count - 1) * self.stride + (self.window - 1) * self.dilation + 1


_NO_AXIS = _Axis(-1, -1)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where everything is: loads of the image and of the weights (None for pooling)."""

    line: _Axis
    row: _Axis
    batch: DimLike
    channels: DimLike
    channel_axis: int
    kind: str
    image: Ref
    weights: Ref | None

    @property
    def taps(self) -> int:
        """Places of the window."""
        return self.line.window * self.row.window


def lower_window(name: str, body: Graph, registers: Registers) -> Kernel:
    """The kernel of a fusion round a window. Raises Declined with the reason if it has none."""
    nest = build_nest(body)
    (reduction,) = nest.reductions
    plan = _plan(reduction)
    b = FunctionBuilder(name)
    scope = Scope(b, body, nest)
    most = registers.lanes(reduction.accumulator.size_bytes)
    lanes = most
    if isinstance(plan.channels, int):
        while lanes > 4 and plan.channels % lanes:
            lanes //= 2
        lanes = lanes if plan.channels % lanes == 0 else most
    lines, rows, kept = _TILES[registers.count]
    epilogue = Epilogue(scope, nest, reduction, lines * rows * lanes)
    over_lines = RowTiles(plan.line.count, lines, few_heights(lines))
    over_rows = RowTiles(plan.row.count, rows, few_heights(rows))
    return _Writer(b, scope, plan, epilogue, over_lines, over_rows, lanes, kept).kernel()


def _plan(reduction: Reduction) -> _Plan:
    node = reduction.node
    rank = node.tensor.rank - 2
    if rank not in (1, 2):
        raise Declined(f"windows over {rank} axes go through the plain loop nest")
    axes = _axes(node, rank)
    image = loaded(reduction.value)
    if offset_of(image).coefficient(rank + 1) != 1:
        raise Declined("the channels of the image are not next to each other")
    weights = None
    if reduction.factor is not None:
        weights = loaded(reduction.factor)
        if offset_of(weights).values:
            raise Declined("where the weights lie depends on values that only the run knows")
    line, row = axes if rank == 2 else (_NO_AXIS, axes[0])
    batch, *_, channels = node.tensor.shape
    return _Plan(line, row, batch, channels, rank + 1, reduction.kind, image, weights)


def _axes(node: Node, rank: int) -> list[_Axis]:
    """The spatial axes. Raises Declined for what slides over channels, or is no window at all."""
    op, shape = node.op, node.operands[0].tensor.shape
    out = node.tensor.shape
    if isinstance(op, Convolution):
        depthwise = op.groups == shape[-1] == out[-1] and op.layout == "channels_last"
        if not depthwise or any(d != 1 for d in op.lhs_dilation):
            raise Declined("only depthwise convolutions have a template beside panels")
        window = [k for k in node.operands[1].tensor.shape[:-2] if isinstance(k, int)]
        fields = (window, op.strides, op.low, op.high, op.rhs_dilation)
        first = 0
    else:
        assert isinstance(op, ReduceWindow)
        fields = (list(op.window), op.strides, op.low, op.high, op.dilation)
        still = ((0, 1), (rank + 1, 1))
        if any(op.window[i] != k or op.low[i] != 0 or op.high[i] != 0 for i, k in still):
            raise Declined("the window slides over batch or channels")
        if op.strides[0] != 1 or op.strides[-1] != 1:
            raise Declined("the window skips images or channels")
        first = 1
    return [
        _Axis(
            i + 1,
            rank + 2 + i + first,
            out[i + 1],
            shape[i + 1],
            *(field[i + first] for field in fields),  # type: ignore[arg-type]
        )
        for i in range(rank)
    ]


class _Writer:
    """Writes the loops of one window."""

    def __init__(
        self,
        b: FunctionBuilder,
        scope: Scope,
        plan: _Plan,
        epilogue: Epilogue,
        lines: RowTiles,
        rows: RowTiles,
        lanes: int,
        kept_weights: int,
    ) -> None:
        self.b = b
        self.scope = scope
        self.plan = plan
        self.epilogue = epilogue
        self.lanes = lanes
        self.kept_weights = kept_weights
        self.ragged = not isinstance(plan.channels, int) or plan.channels % lanes != 0
        self.lines = lines
        self.rows = rows
        self.vectors = dims.ceil_div(plan.channels, lanes)

    def kernel(self) -> Kernel:
        """The finished kernel. Programs in order: images, blocks of channels, of lines."""
        b, scope, plan = self.b, self.scope, self.plan
        vectors_each, lines_each = self._grain()
        line_blocks = dims.maximum(dims.ceil_div(self.lines.num_tiles, lines_each), 1)
        channel_blocks = dims.ceil_div(self.vectors, vectors_each)
        rest, line_block = split_place(scope, b.program_id(), line_blocks)
        image, channel_block = split_place(scope, rest, channel_blocks)
        scope.place[0] = image
        start, _, _ = scope.linear(offset_of(plan.image))
        first = channel_block * vectors_each
        last = b.min(first + vectors_each, scope.size(self.vectors))
        zero = b.constant(0)
        for lines in self.lines.spans(scope, line_block, lines_each):
            with b.for_(lines.first, lines.last, 1) as over_lines, scope.inner():
                line = lines.row(over_lines.index)
                for rows in self.rows.spans(scope, zero, 1 << 30):
                    with b.for_(rows.first, rows.last, 1) as over_rows, scope.inner():
                        row = rows.row(over_rows.index)
                        tile = Tile(line, row, lines.height, rows.height)
                        self._tile(start, tile, first, last)
                        over_rows.yield_()
                over_lines.yield_()
        grid = dims.num_elements((plan.batch, channel_blocks, line_blocks))
        note = f"tiles of {self.lines.tallest} x {self.rows.tallest} pixels, {self.lanes} channels"
        return Kernel(b.finish_module(), tuple(scope.arguments), grid, (note,))

    def _grain(self) -> tuple[int, int]:
        """Vectors of channels and tiles of lines of one program."""
        count = self.plan.row.count
        one = (count if isinstance(count, int) else 32) * self.lines.tallest * self.plan.taps
        wanted = max(_WORK // max(one * self.lanes, 1), 1)
        if not isinstance(self.vectors, int):
            return wanted, 1
        return min(wanted, max(self.vectors, 1)), max(wanted // max(self.vectors, 1), 1)

    def _tile(self, start: Expr, tile: Tile, first: Expr, last: Expr) -> None:
        """All channels of one tile, with masks only if its windows leave the image."""
        b, scope, plan = self.b, self.scope, self.plan
        corner = [
            place * axis.stride - scope.size(axis.low)
            for place, axis in ((tile.line, plan.line), (tile.row, plan.row))
        ]
        inside = b.constant(True, "bool")
        for begin, axis, count in zip(
            corner, (plan.line, plan.row), (tile.num_lines, tile.num_rows), strict=True
        ):
            if axis.low != 0:
                inside = b.binary("and", inside, begin >= 0)
            if axis.low != 0 or axis.high != 0:
                end = begin + axis.reach(count)
                inside = b.binary("and", inside, end <= scope.size(axis.extent))
        with b.if_(inside) as branch:
            with branch.then(), scope.inner():
                self._channels(start, tile, first, last, None)
            with branch.otherwise(), scope.inner():
                self._channels(start, tile, first, last, corner)

    def _channels(
        self, start: Expr, tile: Tile, first: Expr, last: Expr, corner: list[Expr] | None
    ) -> None:
        b, scope, plan = self.b, self.scope, self.plan
        form = offset_of(plan.image)
        start = start + tile.line * scope.size(form.coefficient(plan.line.place))
        start = start + tile.row * scope.size(form.coefficient(plan.row.place))
        guards = None if corner is None else self._guards(tile, corner)
        with b.for_(first, last, 1) as loop, scope.inner():
            channel = loop.index * self.lanes
            mask = b.arange(self.lanes) < scope.size(plan.channels) - channel
            sums = self._sums(start + channel, channel, tile, guards, mask if self.ragged else None)
            columns = Columns(
                plan.channel_axis, channel, self.lanes, 1, plan.channels,
                None if self.ragged else True,
            )  # fmt: skip
            rows = tile.rows(scope, plan.line.place, plan.row.place)
            self.epilogue.store([[total] for total in sums], rows, columns)
            loop.yield_()

    def _guards(self, tile: Tile, corner: list[Expr]) -> dict[tuple[int, int], Expr]:
        """Whether each input pixel under the tile is in the image."""
        b, scope, plan = self.b, self.scope, self.plan
        inside: list[dict[int, Expr]] = []
        for begin, axis, count in zip(
            corner, (plan.line, plan.row), (tile.num_lines, tile.num_rows), strict=True
        ):
            known: dict[int, Expr] = {}
            for place in range(axis.reach(count)):
                here = begin + place
                known[place] = b.binary("and", here >= 0, here < scope.size(axis.extent))
            inside.append(known)
        return {
            (y, x): b.binary("and", inside[0][y], inside[1][x])
            for y in inside[0]
            for x in inside[1]
        }

    def _sums(
        self,
        start: Expr,
        channel: Expr,
        tile: Tile,
        guards: Mapping[tuple[int, int], Expr] | None,
        mask: Expr | None,
    ) -> list[Expr]:
        """What the windows of each output pixel of the tile add up to (or their extreme)."""
        b, plan, wide = self.b, self.plan, self.epilogue.accumulator
        empty = empty_value(plan.kind, wide)
        sums = [b.full((self.lanes,), empty, wide)] * (tile.num_lines * tile.num_rows)
        line_step, row_step = self._step(plan.line), self._step(plan.row)
        held: dict[tuple[int, int], Expr] = {}
        for (y, x), users in self._uses(tile).items():
            guard = mask
            if guards is not None:
                inside = b.broadcast(guards[y, x], (self.lanes,))
                guard = inside if mask is None else b.binary("and", inside, mask)
            place = start + line_step * y + row_step * x
            pointer = self.scope.pointer(plan.image)
            other = None if guard is None or empty == 0 else empty
            pixel = b.cast(b.load(pointer, place, (self.lanes,), mask=guard, other=other), wide)
            for number, tap in users:
                if plan.weights is None:
                    sums[number] = maths.apply(b, COMBINE[plan.kind], (sums[number], pixel))
                    continue
                weight = held.get(tap)
                if weight is None:
                    weight = self._weight(plan.weights, tap, channel, mask)
                    if plan.taps <= self.kept_weights:
                        held[tap] = weight
                sums[number] = b.fma(pixel, weight, sums[number])
        return sums

    def _uses(self, tile: Tile) -> dict[tuple[int, int], list[tuple[int, tuple[int, int]]]]:
        """For each input pixel in row-major order: (output pixel, place in its window)."""
        line, row = self.plan.line, self.plan.row
        uses: dict[tuple[int, int], list[tuple[int, tuple[int, int]]]] = {}
        for number, (i, j) in enumerate(tile.places()):
            for ky in range(line.window):
                for kx in range(row.window):
                    pixel = (i * line.stride + ky * line.dilation,
                             j * row.stride + kx * row.dilation)  # fmt: skip
                    uses.setdefault(pixel, []).append((number, (ky, kx)))
        return dict(sorted(uses.items()))

    def _step(self, axis: _Axis) -> Expr:
        """Elements from one input place to the next along an axis."""
        if axis is _NO_AXIS:
            return self.b.constant(0)
        along = offset_of(self.plan.image).coefficient(axis.tap)
        return self.scope.size(dims.floor_div(along, axis.dilation))

    def _weight(self, load: Ref, tap: tuple[int, int], channel: Expr, mask: Expr | None) -> Expr:
        b, scope, plan = self.b, self.scope, self.plan
        form = offset_of(load)
        place = scope.size(form.constant) + channel * scope.size(
            form.coefficient(plan.channel_axis)
        )
        for axis, step in zip((plan.line, plan.row), tap, strict=True):
            place = place + scope.size(form.coefficient(axis.tap)) * step
        strides = [scope.size(form.coefficient(plan.channel_axis))]
        found = b.load(scope.pointer(load), place, (self.lanes,), strides, mask=mask)
        return b.cast(found, self.epilogue.accumulator)
