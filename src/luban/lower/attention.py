"""Attention as one kernel: scores, softmax and weighted values of some queries stay in cache.

A program owns a block of queries of one head. It turns keys, some at a time, into panels; then a
tile of queries at a time goes through scores (a product over panels), softmax (whole rows of
scores) and weighted values (a product whose right operand, the values, is read as it lies). With
more keys than a block of scores holds, the maximum, the sum and the weighted values so far are
carried from block to block and rescaled (online softmax, Milakov and Gimelshein 2018; tiling as in
FlashAttention, Dao et al. 2022). A single query reads each key once, without panels.

What the model does with a score (scale, bias, mask) is the loop nest's maths. A query that sees no
key (all scores -inf) gives NaN, as softmax does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from luban.core import dims
from luban.core.registers import Registers
from luban.ir.node import Graph
from luban.lower.attention_plan import attention_plan, needed
from luban.lower.attention_products import Keys, Products, Sizes, Tile, sizes_of
from luban.lower.kernel import Kernel
from luban.lower.operands import split_place
from luban.lower.scope import Lanes, Scope
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["lower_attention"]

_UNROLL = 2


def lower_attention(name: str, body: Graph, registers: Registers) -> Kernel:
    """The kernel of an attention. Raises Declined if the template cannot do it."""
    plan = attention_plan(body)
    sizes = sizes_of(plan, registers)
    b = FunctionBuilder(name)
    scope = Scope(b, body, plan.nest)
    return _Writer(scope, Products(scope, plan, sizes), sizes).kernel()


class _Writer:
    """Writes the loops of one attention."""

    def __init__(self, scope: Scope, products: Products, sizes: Sizes) -> None:
        self.scope, self.b = scope, scope.b
        self.products, self.plan, self.sizes = products, products.plan, sizes
        self.score_values = needed(self.plan.nest.trace, self.plan.score)
        if self.plan.blind not in (None, self.plan.weights):
            self.score_values = [*self.score_values, *needed(self.plan.nest.trace, self.plan.blind)]

    def kernel(self) -> Kernel:
        """The finished kernel. Programs in order: heads, blocks of queries."""
        b, scope, plan, sizes = self.b, self.scope, self.plan, self.sizes
        blocks = dims.ceil_div(plan.row.size, sizes.height * sizes.tiles)
        rest, block = split_place(scope, b.program_id(), blocks)
        for group in reversed(plan.outer[1:]):
            rest, scope.place[group.axis] = split_place(scope, rest, group.size)
        if plan.outer:
            scope.place[plan.outer[0].axis] = rest
        moving = frozenset({plan.row.axis, plan.keys, plan.inner, plan.column})
        every = [*needed(plan.nest.trace, plan.query), *self.score_values]
        scope.hoist(every, moving)
        self.products.start()
        if isinstance(plan.row.size, int):
            self._queries(block, sizes.height)
        else:
            with b.if_(scope.size(plan.row.size).eq(1)) as branch:
                with branch.then(), scope.inner():
                    self._queries(block, 1)
                with branch.otherwise(), scope.inner():
                    self._queries(block, sizes.height)
        grid = dims.num_elements((*(g.size for g in plan.outer), blocks))
        note = (
            f"tiles of {sizes.height} queries, {sizes.tiles} a program, {sizes.block} keys at once"
        )
        return Kernel(b.finish_module(), tuple(scope.arguments), grid, (note,))

    def _queries(self, block: Expr, height: int) -> None:
        """All that a program does, in tiles of `height` queries."""
        b, scope, sizes, products = self.b, self.scope, self.sizes, self.products
        num_keys = scope.size(self.plan.num_keys)
        if sizes.whole:
            keys = Keys(b.constant(0), num_keys)
            self._pack(keys, height)
            with self._tiles(block, height) as tile:
                self._tile(tile, keys)
            return
        with self._tiles(block, height) as tile:
            self._begin(tile)
        with b.for_(0, num_keys, sizes.block) as loop, scope.inner():
            keys = Keys(loop.index, b.min(num_keys - loop.index, sizes.block))
            self._pack(keys, height)
            with self._tiles(block, height) as tile:
                self._tile(tile, keys)
            loop.yield_()
        with self._tiles(block, height) as tile:
            products.finish(tile)

    def _pack(self, keys: Keys, height: int) -> None:
        if height > 1:
            self.products.pack(keys)

    @contextmanager
    def _tiles(self, block: Expr, height: int) -> Iterator[Tile]:
        """A loop over the tiles of a program."""
        b, scope, sizes = self.b, self.scope, self.sizes
        last = scope.size(self.plan.row.size) - 1
        if height == 1:
            with scope.inner():
                yield Tile(block, last, b.constant(0), 1)
            return
        first = block * sizes.tiles
        total = scope.size(dims.ceil_div(self.plan.row.size, height))
        with b.for_(0, b.min(total - first, sizes.tiles), 1) as loop, scope.inner():
            yield Tile((first + loop.index) * height, last, loop.index * height, height)
            loop.yield_()

    def _tile(self, tile: Tile, keys: Keys) -> None:
        """One tile of queries against one block of keys."""
        self.products.gather_queries(tile)
        self.products.score(tile, keys)
        self._soften(tile, keys)
        self.products.weigh(tile, keys)

    # Softmax

    def _begin(self, tile: Tile) -> None:
        """No keys so far."""
        b, products, lanes = self.b, self.products, self.sizes.lanes
        with b.for_(0, tile.height, 1) as rows, self.scope.inner():
            place = tile.local + rows.index
            b.store(products.top, place, b.constant(-math.inf, "f32"))
            b.store(products.total, place, b.constant(0.0, "f32"))
            zero = b.full((lanes,), 0.0, "f32")
            for column in range(0, products.columns, lanes):
                b.store(products.carried, place * products.columns + column, zero)
            rows.yield_()

    def _soften(self, tile: Tile, keys: Keys) -> None:
        """Scores become weights, not yet divided by their sum."""
        b, scope, plan, products = self.b, self.scope, self.plan, self.products
        with b.for_(0, tile.height, 1) as rows, scope.inner():
            scope.place[plan.row.axis] = tile.place(scope, rows.index)
            scope.hoist(self.score_values, frozenset({plan.keys}))
            begin = rows.index * self.sizes.block
            highest = self._highest(begin, keys)
            place = tile.local + rows.index
            if self.sizes.whole:
                total = self._weights(begin, keys, highest)
                b.store(products.total, place, total)
                if plan.blind is not None:
                    with b.if_(products.is_blind(total)) as branch, branch.then(), scope.inner():
                        self._see_nothing(begin, keys)
                        b.store(products.total, place, b.constant(1.0, "f32"))
            else:
                before = b.load(products.top, place)
                top = self._higher(highest, before)
                # A row of -inf so far has weights of 0: a later block may hold a key that it sees.
                base = b.select(top.eq(-math.inf), 0.0, top)
                scale = b.unary("exp", before - base)
                total = b.load(products.total, place) * scale + self._weights(begin, keys, base)
                b.store(products.top, place, top)
                b.store(products.total, place, total)
                b.store(products.scale, place, scale)
            rows.yield_()

    def _see_nothing(self, begin: Expr, keys: Keys) -> None:
        """Weights of 0 for a query."""
        b, lanes = self.b, self.sizes.lanes
        zero = b.full((lanes,), 0.0, "f32")
        with b.for_(0, keys.count, lanes) as loop:
            b.store(self.products.scores, begin + loop.index, zero)
            loop.yield_()

    def _highest(self, begin: Expr, keys: Keys) -> Expr:
        """The model's maths on a row of scores, in place; the highest of them."""
        b, scope, plan, lanes = self.b, self.scope, self.plan, self.sizes.lanes

        def step(lane: Lanes, place: Expr, carried: Sequence[Expr]) -> list[Expr]:
            scope.set(plan.raw, b.load(self.products.scores, place, (lanes,)))
            scope.lanes = lane
            score = b.broadcast(scope.value(plan.score), (lanes,))
            scope.lanes = None
            if lane.mask is not None:
                score = b.select(lane.mask, score, -math.inf)
            b.store(self.products.scores, place, score)
            return [self._higher(score, carried[0])]

        lowest = b.full((lanes,), -math.inf, "f32")
        (highest,) = self._over_keys(begin, keys, [lowest], step)
        return b.reduce("max", highest, 0)

    def _higher(self, score: Expr, before: Expr) -> Expr:
        """The maximum, leaving out NaN: a weight of NaN makes its whole row NaN by itself."""
        return self.b.select(score > before, score, before)

    def _weights(self, begin: Expr, keys: Keys, base: Expr) -> Expr:
        """exp(score - base) of a row, in place; their sum."""
        b, lanes = self.b, self.sizes.lanes

        def step(_lane: Lanes, place: Expr, carried: Sequence[Expr]) -> list[Expr]:
            score = b.load(self.products.scores, place, (lanes,))
            weight = b.unary("exp", score - base)
            b.store(self.products.scores, place, weight)
            return [carried[0] + weight]

        (total,) = self._over_keys(begin, keys, [b.full((lanes,), 0.0, "f32")], step)
        return b.reduce("sum", total, 0)

    def _over_keys(
        self,
        begin: Expr,
        keys: Keys,
        carried: Sequence[Expr],
        step: Callable[[Lanes, Expr, Sequence[Expr]], Sequence[Expr]],
    ) -> Sequence[Expr]:
        """A row of scores, `lanes` at a time, the last ones with a mask."""
        b, scope, lanes = self.b, self.scope, self.sizes.lanes
        whole = keys.count // lanes * lanes

        def lane(index: Expr, mask: Expr | None) -> Lanes:
            return Lanes(self.plan.keys, keys.first + index, lanes, mask)

        with b.for_(0, whole, lanes, carried=carried, unroll=_UNROLL) as loop, scope.inner():
            loop.yield_(*step(lane(loop.index, None), begin + loop.index, loop.carried))
        with b.if_(whole < keys.count) as branch:
            with branch.then(), scope.inner():
                mask = b.arange(lanes) < keys.count - whole
                branch.yield_(*step(lane(whole, mask), begin + whole, loop.results))
            with branch.otherwise():
                branch.yield_(*loop.results)
        return branch.results
