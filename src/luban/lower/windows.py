"""Windows that slide over images with channels last: depthwise convolution and pooling.

Vector lanes run along channels. A tile is some output pixels of one line, with their sums in
registers: for each line of the window (those outside the image are left out) each input pixel is
loaded once and goes to every output pixel whose window covers it. So each output takes its window
in row-major order. Where a tile's windows leave the image sideways, straight code that leaves out
the pixels outside takes its place: nothing is masked, and padding is never multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.registers import Registers
from luban.graph.ops.contract import Convolution
from luban.graph.ops.reduce import ReduceWindow
from luban.ir.node import Graph, Node
from luban.lower import maths
from luban.lower.emit import COMBINE, empty_value
from luban.lower.epilogue import Columns, Epilogue
from luban.lower.kernel import Kernel
from luban.lower.nest import Reduction, build_nest
from luban.lower.operands import loaded, offset_of, split_place
from luban.lower.row_tiles import RowTiles, Tile, row_tiles, split_rows
from luban.lower.scope import Scope
from luban.lower.trace import Declined, Ref
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["lower_window"]

_WORK = 1 << 16  # steps of windows that one program should take
_PIXELS = 8  # of a line whose sums are in registers
_WEIGHTS = 5  # of a line of the window that are kept beside them; more are read where they are used
_WAYS = 6  # in which tiles leave the image that get straight code


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
    epilogue = Epilogue(scope, nest, reduction, _PIXELS * lanes)
    return _Writer(b, scope, plan, epilogue, lanes).kernel()


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
        self, b: FunctionBuilder, scope: Scope, plan: _Plan, epilogue: Epilogue, lanes: int
    ) -> None:
        self.b = b
        self.scope = scope
        self.plan = plan
        self.epilogue = epilogue
        self.lanes = lanes
        self.ragged = not isinstance(plan.channels, int) or plan.channels % lanes != 0
        self.lines = RowTiles(plan.line.count, 1)
        self.rows = row_tiles(plan.row.count, _PIXELS)
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
        channels = (first, b.min(first + vectors_each, scope.size(self.vectors)))
        zero = b.constant(0)
        for lines in self.lines.spans(scope, line_block, lines_each):
            with b.for_(lines.first, lines.last, 1) as over_lines, scope.inner():
                line = lines.row(over_lines.index)
                here = start + line * scope.size(offset_of(plan.image).coefficient(plan.line.place))
                taps = self._inside(plan.line, line)
                for rows in self.rows.spans(scope, zero, 1 << 30):
                    with b.for_(rows.first, rows.last, 1) as over_rows, scope.inner():
                        tile = Tile(line, rows.row(over_rows.index), 1, rows.height)
                        self._tile(here, tile, taps, channels)
                        over_rows.yield_()
                over_lines.yield_()
        grid = dims.num_elements((plan.batch, channel_blocks, line_blocks))
        note = f"tiles of {self.rows.tallest} pixels, {self.lanes} channels"
        return Kernel(b.finish_module(), tuple(scope.arguments), grid, (note,))

    def _grain(self) -> tuple[int, int]:
        """Vectors of channels, and lines, of one program."""
        count = self.plan.row.count
        one = (count if isinstance(count, int) else 32) * self.plan.taps * self.lanes
        wanted = max(_WORK // max(one, 1), 1)
        if not isinstance(self.vectors, int):
            return wanted, 1
        return min(wanted, max(self.vectors, 1)), max(wanted // max(self.vectors, 1), 1)

    def _inside(self, axis: _Axis, place: Expr) -> _Taps:
        """The places of the window at an output place that lie in the image."""
        b, scope, step = self.b, self.scope, axis.dilation
        if axis.low == 0 and axis.high == 0:
            return b.constant(0), b.constant(axis.window)
        begin = place * axis.stride - scope.size(axis.low)
        lower = (b.max(0 - begin, 0) + (step - 1)) // step
        upper = (b.max(scope.size(axis.extent) - begin, 0) + (step - 1)) // step
        return b.min(lower, axis.window), b.min(upper, axis.window)

    def _tile(self, start: Expr, tile: Tile, lines: _Taps, channels: tuple[Expr, Expr]) -> None:
        """All channels of one tile: straight code for each way in which it leaves the image."""
        b, scope, axis = self.b, self.scope, self.plan.row
        form = offset_of(self.plan.image)
        start = start + tile.row * scope.size(form.coefficient(axis.place))
        borders, every = _borders(axis, self.rows, tile.num_rows)
        begin = tile.row * axis.stride - scope.size(axis.low)
        before = b.max(0 - begin, 0)
        after = b.max(begin + axis.reach(tile.num_rows) - scope.size(axis.extent), 0)

        def choose(left: Sequence[tuple[int, int]]) -> None:
            if not left:
                self._pixel_by_pixel(start, tile, lines, channels)
                return
            (missing, behind), *others = left
            if every and not others:
                self._channels(start, tile, lines, channels, missing, behind)
                return
            same = b.binary("and", before.eq(missing), after.eq(behind))
            with b.if_(same) as branch:
                with branch.then(), scope.inner():
                    self._channels(start, tile, lines, channels, missing, behind)
                with branch.otherwise(), scope.inner():
                    choose(others)

        choose(borders)

    def _channels(
        self,
        start: Expr,
        tile: Tile,
        lines: _Taps,
        channels: tuple[Expr, Expr],
        before: int,
        after: int,
    ) -> None:
        """A tile of whose input pixels the first `before` and the last `after` are outside."""
        pixels = range(before, self.plan.row.reach(tile.num_rows) - after)
        with self._over_channels(channels) as (channel, mask):
            sums = [self._empty()] * tile.num_rows
            with self.b.for_(*lines, 1, carried=sums) as loop, self.scope.inner():
                here = start + channel + self._step(self.plan.line, loop.index)
                totals = list(loop.carried)
                self._line(totals, here, self._weights(channel, loop.index, mask), pixels, mask)
                loop.yield_(*totals)
            self._store(list(loop.results), tile, channel)

    def _line(
        self,
        totals: list[Expr],
        start: Expr,
        weights: _Weights,
        pixels: Iterable[int],
        mask: Expr | None,
    ) -> None:
        """Add what one line of the window covers: each input pixel goes to all its windows."""
        axis = self.plan.row
        step = self._element(axis)
        for place in pixels:
            users = [
                (number, tap)
                for number in range(len(totals))
                for tap in range(axis.window)
                if number * axis.stride + tap * axis.dilation == place
            ]
            if users:
                pixel = self._pixel(start + step * place, mask)
                for number, tap in users:
                    totals[number] = self._combined(totals[number], pixel, weights(tap))

    def _pixel_by_pixel(
        self, start: Expr, tile: Tile, lines: _Taps, channels: tuple[Expr, Expr]
    ) -> None:
        """Any tile: one output pixel after the other, over the part of its window inside."""
        b, scope, plan = self.b, self.scope, self.plan
        along = scope.size(offset_of(plan.image).coefficient(plan.row.place))
        with b.for_(0, tile.num_rows, 1) as over_pixels, scope.inner():
            one = Tile(tile.line, tile.row + over_pixels.index, 1, 1)
            taps = self._inside(plan.row, one.row)
            with self._over_channels(channels) as (channel, mask):
                begin = start + channel + over_pixels.index * along
                with b.for_(*lines, 1, carried=[self._empty()]) as down, scope.inner():
                    here = begin + self._step(plan.line, down.index)
                    weights = self._weights(channel, down.index, mask)
                    with b.for_(*taps, 1, carried=down.carried) as across:
                        pixel = self._pixel(here + self._step(plan.row, across.index), mask)
                        weight = weights(across.index)
                        across.yield_(self._combined(across.carried[0], pixel, weight))
                    down.yield_(*across.results)
                self._store(list(down.results), one, channel)
            over_pixels.yield_()

    @contextmanager
    def _over_channels(self, channels: tuple[Expr, Expr]) -> Iterator[tuple[Expr, Expr | None]]:
        """A loop over vectors of channels: (first channel, which lanes are channels)."""
        b = self.b
        with b.for_(*channels, 1) as loop, self.scope.inner():
            channel = loop.index * self.lanes
            mask = None
            if self.ragged:
                mask = b.arange(self.lanes) < self.scope.size(self.plan.channels) - channel
            yield channel, mask
            loop.yield_()

    def _store(self, sums: list[Expr], tile: Tile, channel: Expr) -> None:
        plan = self.plan
        full = None if self.ragged else True
        columns = Columns(plan.channel_axis, channel, self.lanes, 1, plan.channels, full)
        rows = tile.rows(self.scope, plan.line.place, plan.row.place)
        self.epilogue.store([[total] for total in sums], rows, columns)

    def _empty(self) -> Expr:
        wide = self.epilogue.accumulator
        return self.b.full((self.lanes,), empty_value(self.plan.kind, wide), wide)

    def _combined(self, total: Expr, pixel: Expr, weight: Expr | None) -> Expr:
        if weight is not None:
            return self.b.fma(pixel, weight, total)
        return maths.apply(self.b, COMBINE[self.plan.kind], (total, pixel))

    def _pixel(self, place: Expr, mask: Expr | None) -> Expr:
        pointer = self.scope.pointer(self.plan.image)
        found = self.b.load(pointer, place, (self.lanes,), mask=mask)
        return self.b.cast(found, self.epilogue.accumulator)

    def _element(self, axis: _Axis) -> Expr:
        """Elements from one input place to the next along an axis."""
        along = offset_of(self.plan.image).coefficient(axis.tap)
        return self.scope.size(dims.floor_div(along, axis.dilation))

    def _step(self, axis: _Axis, tap: Expr) -> Expr:
        """Elements to a place in the window."""
        return tap * self.scope.size(offset_of(self.plan.image).coefficient(axis.tap))

    def _weights(self, channel: Expr, line: Expr, mask: Expr | None) -> _Weights:
        """The weights of one line of the window; each that is known by number is loaded once."""
        load = self.plan.weights
        if load is None:
            return lambda _: None
        b, scope, form = self.b, self.scope, offset_of(load)
        stride = scope.size(form.coefficient(self.plan.channel_axis))
        start = channel * stride + line * scope.size(form.coefficient(self.plan.line.tap))
        start = start + scope.size(form.constant)
        along = scope.size(form.coefficient(self.plan.row.tap))
        held: dict[int, Expr] = {}

        def weight(tap: int | Expr) -> Expr:
            if isinstance(tap, int) and tap in held:
                return held[tap]
            place = start + along * tap
            found = b.load(scope.pointer(load), place, (self.lanes,), [stride], mask=mask)
            found = b.cast(found, self.epilogue.accumulator)
            if isinstance(tap, int) and self.plan.row.window <= _WEIGHTS:
                held[tap] = found
            return found

        return weight


_Taps = tuple[Expr, Expr]  # first place of the window inside, and the one behind the last
_Weights = Callable[[int | Expr], Expr | None]


def _borders(axis: _Axis, rows: RowTiles, height: int) -> tuple[list[tuple[int, int]], bool]:
    """((pixels outside before, after) of tiles of this height, the commonest first; all of them?).

    A tile of known place leaves the image in a known way. Places known at run time only get the
    ways that are usual; windows of tiles that leave the image in another way go pixel by pixel.
    """
    if isinstance(axis.count, int) and isinstance(axis.extent, int) and isinstance(axis.low, int):
        found: dict[tuple[int, int], int] = {}
        row = 0
        for tall, tiles in split_rows(axis.count, rows.limit):
            for _ in range(tiles):
                begin = row * axis.stride - axis.low
                after = begin + axis.reach(tall) - axis.extent
                if tall == height:
                    key = (max(-begin, 0), max(after, 0))
                    found[key] = found.get(key, 0) + 1
                row += tall
        ways = sorted(found, key=lambda key: -found[key])
        return [w for w in ways if sum(w) < axis.reach(height)][:_WAYS], len(ways) <= _WAYS
    ends = {0, *(high - i for i in range(axis.stride) if isinstance(high := axis.high, int))}
    starts = {0, axis.low} if isinstance(axis.low, int) else {0}
    usual = [(a, b) for a in starts for b in ends if min(a, b) == 0 and max(a, b) >= 0]
    return sorted(usual, key=sum), False
