"""The two products of an attention: scores of queries and keys, and weighted sums of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.registers import Registers
from luban.lower.attention_plan import AttentionPlan
from luban.lower.operands import offset_of
from luban.lower.scope import Lanes, Scope
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["Keys", "Products", "Sizes", "Tile", "sizes_of"]

_ONE_BLOCK = 512  # keys that are scored at once where their number is known
_BLOCK = 256  # keys of a block otherwise
_PANEL_NUMBERS = 1 << 16  # of the keys in panels: they share the second cache with the values
_TILES = 16  # of a program: the keys' panels are made for each program anew
_CARRIED_NUMBERS = 1 << 13  # weighted values of a program that go from block to block
_UNROLL = 4


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers that shape the kernel.

    height      queries of a tile
    vectors     vectors of sums beside each other, of `lanes` numbers; panels are that wide
    block       keys that are scored at once
    whole       True if that is all keys
    tiles       tiles of a program
    """

    lanes: int
    height: int
    vectors: int
    block: int
    whole: bool
    tiles: int

    @property
    def width(self) -> int:
        """Keys of a panel."""
        return self.lanes * self.vectors


def sizes_of(plan: AttentionPlan, registers: Registers) -> Sizes:
    """The sizes that suit the registers and the plan."""
    lanes = registers.lanes(4)
    limit, vectors = next((r, v) for r, v in registers.tiles if v in (2, 4))
    width, rows = lanes * vectors, plan.row.size
    height = _height(rows, limit)
    limit_keys = min(_ONE_BLOCK, max(_PANEL_NUMBERS // plan.depth, width))
    whole = isinstance(plan.num_keys, int) and plan.num_keys <= limit_keys
    block = min(_BLOCK, max(_PANEL_NUMBERS // plan.depth // width * width, width))
    if isinstance(plan.num_keys, int) and whole:
        block = max(-(-plan.num_keys // width), 1) * width
    columns = -(-plan.columns // lanes) * lanes
    tiles = _TILES if whole else max(min(_TILES, _CARRIED_NUMBERS // (columns * height)), 1)
    total = dims.ceil_div(rows, height)
    if isinstance(total, int):
        tiles = -(-total // max(-(-total // tiles), 1)) or 1
    return Sizes(lanes, height, vectors, block, whole, tiles)


def _height(rows: DimLike, limit: int) -> int:
    """Queries of a tile: as high as registers allow, with few rows computed twice at the end."""
    if not isinstance(rows, int) or rows <= 1:
        return limit if not isinstance(rows, int) else 1
    return min(range(limit, max(limit // 2, 1) - 1, -1), key=lambda h: -(-rows // h) * h)


@dataclass(frozen=True, slots=True)
class Keys:
    """`count` keys from key `first` on."""

    first: Expr
    count: Expr


@dataclass(frozen=True, slots=True)
class Tile:
    """`height` queries: number i is `rows + i` of the row axis, `local + i` of the program."""

    rows: Expr
    last: Expr
    local: Expr
    height: int

    def place(self, scope: Scope, number: int | Expr) -> Expr:
        """Where a query is; those behind the last one are the last one again."""
        if self.height == 1:
            return self.rows
        return scope.b.min(self.rows + number, self.last)


class Products:
    """Writes the products of one attention; owns the scratch memory between them.

    keys      panels [panel][depth][width] of the present block; zeros fill the last vector
    queries   [query][depth] of the present tile
    scores    [query][key] of the present tile and block: scores, then weights
    top, total, scale, carried
              of each query of the program: the highest score so far, the sum of weights, what the
              block before is worth now, weighted values so far; there for several blocks only
    """

    def __init__(self, scope: Scope, plan: AttentionPlan, sizes: Sizes) -> None:
        self.scope, self.b = scope, scope.b
        self.plan, self.sizes = plan, sizes
        b, queries = scope.b, sizes.height * sizes.tiles
        self.columns = -(-plan.columns // sizes.lanes) * sizes.lanes
        self.queries = b.scratch("f32", sizes.height * plan.depth)
        self.scores = b.scratch("f32", sizes.height * sizes.block)
        self.total = b.scratch("f32", queries)
        self.keys = b.scratch("f32", plan.depth * sizes.block) if sizes.height > 1 else self.scores
        if not sizes.whole:
            self.top = b.scratch("f32", queries)
            self.scale = b.scratch("f32", queries)
            self.carried = b.scratch("f32", queries * self.columns)

    def start(self) -> None:
        """Where this program's keys and values start, and how far apart they are."""
        scope, plan = self.scope, self.plan
        key, value = offset_of(plan.key), offset_of(plan.value)
        self.key_start, _, _ = scope.linear(key)
        self.value_start, _, _ = scope.linear(value)
        self.key_step = scope.size(key.coefficient(plan.keys))
        self.key_inner = scope.size(key.coefficient(plan.inner))
        self.value_step = scope.size(value.coefficient(plan.keys))
        self.value_inner = scope.size(value.coefficient(plan.column))

    # Keys as panels

    def pack(self, keys: Keys) -> None:
        """Turn a block of keys into panels, with zeros behind the last key."""
        b, lanes = self.b, self.sizes.lanes
        with b.for_(0, keys.count, lanes) as loop, self.scope.inner():
            left = keys.count - loop.index
            source = self.key_start + (keys.first + loop.index) * self.key_step
            with b.if_(left >= lanes) as branch:
                with branch.then(), self.scope.inner():
                    self._squares(source, self._in_panels(loop.index), None)
                with branch.otherwise(), self.scope.inner():
                    self._squares(source, self._in_panels(loop.index), left)
            loop.yield_()

    def _in_panels(self, key: Expr) -> Expr:
        """Where the first number of a block's key is."""
        width = self.sizes.width
        panel = key // width
        return panel * ((self.plan.depth - 1) * width) + key

    def _squares(self, source: Expr, target: Expr, left: Expr | None) -> None:
        """`lanes` keys, a square at a time."""
        b, lanes, depth = self.b, self.sizes.lanes, self.plan.depth
        if depth >= lanes:
            with b.for_(0, depth // lanes, 1) as loop, self.scope.inner():
                self._square(source, target, loop.index * lanes, lanes, left)
                loop.yield_()
        done, size = depth // lanes * lanes, lanes
        while done < depth:
            size = size // 2
            if done + size <= depth:
                self._square(source, target, b.constant(done), size, left)
                done += size

    def _square(
        self, source: Expr, target: Expr, inner: Expr, size: int, left: Expr | None
    ) -> None:
        """`size` numbers of each of `lanes` keys."""
        b, lanes, width = self.b, self.sizes.lanes, self.sizes.width
        pointer, begin = self.scope.pointer(self.plan.key), source + inner * self.key_inner
        inside = None if left is None else b.arange(lanes) < left
        if self.key_step.known == 1:
            strides, shape = [self.key_inner, self.key_step], (size, lanes)
            turned = b.load(pointer, begin, shape, strides, mask=inside)
        else:
            strides, shape = [self.key_step, self.key_inner], (lanes, size)
            if inside is not None:
                inside = b.broadcast(b.reshape(inside, (lanes, 1)), shape)
            turned = b.transpose(b.load(pointer, begin, shape, strides, mask=inside), (1, 0))
        b.store(self.keys, target + inner * width, turned, [width, 1])

    # Scores

    def gather_queries(self, tile: Tile) -> None:
        """Copy the queries of a tile, with the maths on them done."""
        b, scope, plan, lanes = self.b, self.scope, self.plan, self.sizes.lanes
        whole = plan.depth // lanes * lanes
        with b.for_(0, tile.height, 1) as rows, scope.inner():
            scope.place[plan.row.axis] = tile.place(scope, rows.index)
            if whole:
                with b.for_(0, whole, lanes) as loop, scope.inner():
                    self._gather(rows.index, loop.index, None)
                    loop.yield_()
            if whole < plan.depth:
                mask = b.arange(lanes) < plan.depth - whole
                with scope.inner():
                    self._gather(rows.index, b.constant(whole), mask)
            rows.yield_()

    def _gather(self, row: Expr, inner: Expr, mask: Expr | None) -> None:
        scope, plan, lanes = self.scope, self.plan, self.sizes.lanes
        scope.lanes = Lanes(plan.inner, inner, lanes, mask)
        value = scope.value(plan.query)
        scope.lanes = None
        place = row * plan.depth + inner
        self.b.store(self.queries, place, value, [1], shape=(lanes,), mask=mask)

    def score(self, tile: Tile, keys: Keys) -> None:
        """Products of the tile's queries with a block of keys."""
        if tile.height == 1:
            self._score_one(keys)
            return
        sizes = self.sizes
        full = keys.count // sizes.width * sizes.width
        self._score_columns(tile, self.b.constant(0), full, sizes.vectors)
        self._score_columns(tile, full, keys.count, 1)

    def _score_columns(self, tile: Tile, first: Expr, stop: Expr, vectors: int) -> None:
        """Scores of the block's keys from `first` on, `vectors` vectors of them at a time."""
        b, scope, sizes, depth = self.b, self.scope, self.sizes, self.plan.depth
        zero = b.full((sizes.lanes,), 0.0, "f32")
        carried: Sequence[Expr] = [zero] * (tile.height * vectors)
        with b.for_(first, stop, vectors * sizes.lanes) as columns, scope.inner():
            begin = self._in_panels(columns.index)
            unroll = _UNROLL if depth % _UNROLL == 0 else 1
            with b.for_(0, depth, 1, carried=carried, unroll=unroll) as loop, scope.inner():
                here = begin + loop.index * sizes.width
                right = [self._key_vector(here, v) for v in range(vectors)]
                left = [b.load(self.queries, loop.index + r * depth) for r in range(tile.height)]
                loop.yield_(*_multiplied(b, left, right, loop.carried))
            for number, sums in enumerate(loop.results):
                row, vector = divmod(number, vectors)
                place = columns.index + (row * sizes.block + vector * sizes.lanes)
                b.store(self.scores, place, sums)
            columns.yield_()

    def _key_vector(self, begin: Expr, vector: int) -> Expr:
        lanes = self.sizes.lanes
        return self.b.load(self.keys, begin + vector * lanes, (lanes,), align=4 * lanes)

    def _score_one(self, keys: Keys) -> None:
        """Products of a lone query with keys as they lie: `lanes` keys at a time."""
        b, scope, lanes = self.b, self.scope, self.sizes.lanes
        with b.for_(0, keys.count, lanes) as loop, scope.inner():
            left = keys.count - loop.index
            source = self.key_start + (keys.first + loop.index) * self.key_step
            with b.if_(left >= lanes) as branch:
                with branch.then(), scope.inner():
                    branch.yield_(self._dots(source, None))
                with branch.otherwise(), scope.inner():
                    branch.yield_(self._dots(source, left))
            b.store(self.scores, loop.index, branch.results[0])
            loop.yield_()

    def _dots(self, source: Expr, left: Expr | None) -> Expr:
        """The query times each of `lanes` keys."""
        b, lanes, depth = self.b, self.sizes.lanes, self.plan.depth
        pointer = self.scope.pointer(self.plan.key)
        keys = None if left is None else b.arange(lanes) < left
        if self.key_inner.known != 1:  # keys lie side by side
            sums = b.full((lanes,), 0.0, "f32")
            with b.for_(0, depth, 1, carried=[sums]) as loop, self.scope.inner():
                begin = source + loop.index * self.key_inner
                column = b.load(pointer, begin, (lanes,), [self.key_step], mask=keys)
                loop.yield_(b.fma(b.load(self.queries, loop.index), column, loop.carried[0]))
            return loop.results[0]
        square = (lanes, lanes)
        upright = None if keys is None else b.broadcast(b.reshape(keys, (lanes, 1)), square)
        total = b.full(square, 0.0, "f32")
        for inner in range(0, depth, lanes):
            mask, part = upright, None
            if inner + lanes > depth:
                part = b.arange(lanes) < depth - inner
                wide = b.broadcast(part, square)
                mask = wide if mask is None else b.binary("and", wide, mask)
            strides = [self.key_step, self.key_inner]
            block = b.load(pointer, source + inner, square, strides, mask=mask)
            query = b.load(self.queries, inner, (lanes,), mask=part)
            total = b.fma(block, b.broadcast(query, square), total)
        return b.reduce("sum", b.transpose(total, (1, 0)), 0)

    # Values

    def weigh(self, tile: Tile, keys: Keys) -> None:
        """Sums of a block's values times the tile's weights: results, or carried to the next."""
        sizes = self.sizes
        for start in range(0, self.columns, sizes.width):
            vectors = min(sizes.vectors, (self.columns - start) // sizes.lanes)
            with self.scope.inner():
                self._weigh_columns(tile, keys, start, vectors)

    def _weigh_columns(self, tile: Tile, keys: Keys, start: int, vectors: int) -> None:
        b, scope, sizes = self.b, self.scope, self.sizes
        places = [(r, start + v * sizes.lanes) for r in range(tile.height) for v in range(vectors)]
        carried = [self._before(tile, row, column) for row, column in places]
        first = self.value_start + keys.first * self.value_step
        with b.for_(0, keys.count, 1, carried=carried, unroll=_UNROLL) as loop, scope.inner():
            here = first + loop.index * self.value_step
            columns = [start + v * sizes.lanes for v in range(vectors)]
            right = [self._value_vector(here + self.value_inner * c, c) for c in columns]
            left = [b.load(self.scores, loop.index + r * sizes.block) for r in range(tile.height)]
            loop.yield_(*_multiplied(b, left, right, loop.carried))
        for (row, column), sums in zip(places, loop.results, strict=True):
            if sizes.whole:
                self.store(tile.place(scope, row), column, sums / self.row_total(tile, row))
            else:
                b.store(self.carried, self._carried_place(tile, row, column), sums)

    def _before(self, tile: Tile, row: int, column: int) -> Expr:
        """What the blocks before have left of a vector of weighted values."""
        b, lanes = self.b, self.sizes.lanes
        if self.sizes.whole:
            return b.full((lanes,), 0.0, "f32")
        scale = b.load(self.scale, tile.local + row)
        return b.load(self.carried, self._carried_place(tile, row, column), (lanes,)) * scale

    def _carried_place(self, tile: Tile, row: int | Expr, column: int | Expr) -> Expr:
        return (tile.local + row) * self.columns + column

    def row_total(self, tile: Tile, row: int | Expr) -> Expr:
        """The sum of a query's weights; 1 where there are no keys, so that the result is 0."""
        b = self.b
        total = b.load(self.total, tile.local + row)
        if isinstance(self.plan.num_keys, int):
            return total if self.plan.num_keys else b.constant(1.0, "f32")
        return b.select(self.scope.size(self.plan.num_keys).eq(0), 1.0, total)

    def inside(self, column: int) -> Expr | None:
        """Which lanes from a column on are columns; None for all."""
        left = self.plan.columns - column
        return None if left >= self.sizes.lanes else self.b.arange(self.sizes.lanes) < left

    def store(self, row: Expr, column: int, value: Expr) -> None:
        """Write one vector of results."""
        scope, plan, b = self.scope, self.plan, self.b
        mask = self.inside(column)
        with scope.inner():
            scope.place[plan.row.axis] = row
            scope.lanes = Lanes(plan.column, b.constant(column), self.sizes.lanes, mask)
            start, stride, _ = scope.linear(plan.target)
            scope.lanes = None
            assert not isinstance(stride, Expr)
            strides = [stride if isinstance(stride, int) else scope.size(stride)]
            b.store(scope.results[0], start, value, strides, mask=mask)

    def is_blind(self, total: Expr) -> Expr:
        """True if the present query, whose weights add up to `total`, is to see nothing."""
        blind = self.plan.blind
        assert blind is not None
        if blind is not self.plan.weights:
            return self.scope.value(blind)
        return self.b.binary("or", self.b.unary("is_nan", total), total.eq(0.0))

    def finish(self, tile: Tile) -> None:
        """The results of a tile of queries, once all blocks have been."""
        b, scope = self.b, self.scope
        with b.for_(0, tile.height, 1) as rows, scope.inner():
            total = self.row_total(tile, rows.index)
            if self.plan.blind is None:
                self._finish_row(tile, rows.index, total)
            else:
                scope.place[self.plan.row.axis] = tile.place(scope, rows.index)
                with b.if_(self.is_blind(total)) as branch:
                    with branch.then(), scope.inner():
                        self._weigh_nothing(tile, rows.index)
                    with branch.otherwise(), scope.inner():
                        self._finish_row(tile, rows.index, total)
            rows.yield_()

    def _finish_row(self, tile: Tile, row: Expr, total: Expr) -> None:
        for column in range(0, self.columns, self.sizes.lanes):
            place = self._carried_place(tile, row, column)
            value = self.b.load(self.carried, place, (self.sizes.lanes,)) / total
            self.store(tile.place(self.scope, row), column, value)

    def _weigh_nothing(self, tile: Tile, row: Expr) -> None:
        """The result of a query whose weights are all 0: 0, but NaN where a value is not finite."""
        b, scope, lanes = self.b, self.scope, self.sizes.lanes
        zero = b.full((lanes,), 0.0, "f32")
        for column in range(0, self.columns, lanes):
            first = self.value_start + self.value_inner * column
            num_keys = scope.size(self.plan.num_keys)
            with b.for_(0, num_keys, 1, carried=[zero]) as loop, scope.inner():
                value = self._value_vector(first + loop.index * self.value_step, column)
                loop.yield_(b.fma(zero, value, loop.carried[0]))
            self.store(tile.place(scope, row), column, loop.results[0])

    def _value_vector(self, begin: Expr, column: int) -> Expr:
        """The numbers of one value from a column on."""
        pointer, lanes = self.scope.pointer(self.plan.value), self.sizes.lanes
        return self.b.load(pointer, begin, (lanes,), [self.value_inner], mask=self.inside(column))


def _multiplied(
    b: FunctionBuilder, left: Sequence[Expr], right: Sequence[Expr], sums: Sequence[Expr]
) -> list[Expr]:
    """sums[row][vector] + left[row] * right[vector]"""
    width = len(right)
    return [
        b.fma(left[number // width], right[number % width], total)
        for number, total in enumerate(sums)
    ]
