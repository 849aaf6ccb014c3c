"""A loop nest as a tile program: rows of kept axes over the grid, one axis in vector lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.dtypes import DTYPES, DType
from luban.graph.ops.reduce import ArgReduce
from luban.ir.node import Graph
from luban.lower import maths
from luban.lower.kernel import Kernel
from luban.lower.nest import Group, Nest, Reduction, Write, build_nest
from luban.lower.scope import Lanes, Scope
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["COMBINE", "Writer", "empty_value", "lower_nest"]

_WORK = 16384  # elements that one program should touch: long enough to pay for its claim
_TINY = 8  # lanes that are not worth a vector
_LANE_CHUNK = 4096  # a longer row is cut over several programs
_SUM_BLOCK = 256  # terms that are added one after the other; then the next block starts from 0
_REDUCE_TILE = {
    "sum": "sum",
    "product": "prod",
    "maximum": "max",
    "minimum": "min",
    "and": "and",
    "or": "or",
}
COMBINE = {"sum": "add", "product": "multiply", "maximum": "maximum", "minimum": "minimum",
            "and": "bitwise_and", "or": "bitwise_or"}  # fmt: skip


def lower_nest(name: str, body: Graph, vector_bytes: int) -> Kernel:
    """The kernel of a fusion body. Raises Declined if it has no loop form."""
    nest = build_nest(body)
    b = FunctionBuilder(name)
    return Writer(b, Scope(b, body, nest), nest, vector_bytes).kernel()


class Writer:
    """Writes the loops of one nest."""

    def __init__(self, b: FunctionBuilder, scope: Scope, nest: Nest, vector_bytes: int) -> None:
        self.b = b
        self.scope = scope
        self.nest = nest
        self.needed = nest.needed()
        lane = self._lane_group()
        self.lane = lane
        self.lane_reduced = lane is not None and lane in nest.reduced
        self.width = self._width(vector_bytes)

    def _lane_group(self) -> Group | None:
        """The axis with the cheapest accesses: contiguous or repeated, and not tiny.

        Where the last axis is tiny (colours of a pixel), the one before it may be better.
        """
        tiny = any(isinstance(g.size, int) and g.size < _TINY for g in self.nest.kept[-1:])
        candidates = [*self.nest.kept[-1:], *self.nest.reduced[-1:]]
        candidates += self.nest.kept[-2:-1] if tiny and not self.nest.reduced else []
        forms = [r.offset for r in self.needed if r.kind == "load" and r.offset is not None]
        stores = [w.offset for w in self.nest.writes]

        def score(group: Group) -> tuple[int, int]:
            steps = [f.coefficient(group.axis) for f in (*forms, *stores)]
            good = sum(1 if step in (0, 1) else -2 for step in steps)
            wide = 0 if isinstance(group.size, int) and group.size < _TINY else 1
            return wide, good

        return max(candidates, key=score, default=None)

    def _width(self, vector_bytes: int) -> int:
        heavy = sum(ref.kind in maths.HEAVY for ref in self.needed)
        floats = [ref.dtype for ref in self.needed if ref.dtype.is_numeric]
        widest = max((dtype.size_bytes for dtype in floats), default=1)
        lanes = max(vector_bytes // min(max(widest, 1), 4), 1)
        width = lanes if heavy or len(self.needed) > 24 else 4 * lanes
        size = self.lane.size if self.lane is not None else 1
        if isinstance(size, int):
            while width > 1 and width // 2 >= size:
                width //= 2
        return width

    def kernel(self) -> Kernel:
        """The finished kernel."""
        self.write(self.b.program_id())
        module = self.b.finish_module()
        return Kernel(module, tuple(self.scope.arguments), self.num_programs)

    @property
    def num_programs(self) -> DimLike:
        """How many programs the nest takes."""
        return dims.ceil_div(self._rows, self._per_program) * self._chunks

    @property
    def _kept(self) -> list[Group]:
        """The kept axes that do not run along lanes."""
        return [g for g in self.nest.kept if g is not self.lane]

    @property
    def _rows(self) -> DimLike:
        return dims.num_elements(g.size for g in self._kept)

    @property
    def _lane_size(self) -> DimLike:
        return 1 if self.lane is None or self.lane_reduced else self.lane.size

    @property
    def _chunks(self) -> DimLike:
        """Programs that share a long row."""
        return dims.ceil_div(self._lane_size, _LANE_CHUNK)

    @property
    def _per_program(self) -> DimLike:
        """Rows of one program."""
        inner = dims.num_elements(g.size for g in self.nest.reduced)
        work = dims.minimum(self._lane_size, _LANE_CHUNK) * dims.maximum(inner, 1)
        return dims.maximum(dims.floor_div(_WORK, dims.maximum(work, 1)), 1)

    def write(self, program: Expr) -> None:
        """What program number `program` does."""
        b, scope = self.b, self.scope
        kept, rows, per_program, chunks = self._kept, self._rows, self._per_program, self._chunks
        block, chunk = program, b.constant(0)
        if chunks != 1:
            count = scope.size(chunks)
            block = program // count
            chunk = program - block * count
        scope.hoist(self.needed, frozenset(scope.nest.trace.sizes))
        first = block * scope.size(per_program)
        last = b.min(first + scope.size(per_program), scope.size(rows))
        with b.for_(first, last, 1) as loop, scope.inner():
            rest = loop.index
            for group in reversed(kept[1:]):
                size = scope.size(group.size)
                above = rest // size
                scope.place[group.axis] = rest - above * size
                rest = above
            if kept:
                scope.place[kept[0].axis] = rest
            moving = {g.axis for g in (*self.nest.reduced, *([self.lane] if self.lane else []))}
            scope.hoist(self.needed, frozenset(moving))
            if self.lane is None or self.lane_reduced:
                self._row()
            else:
                self._lane_blocks(chunk)
            loop.yield_()

    def _lane_blocks(self, chunk: Expr) -> None:
        assert self.lane is not None
        size = self.scope.size(self.lane.size)
        if isinstance(self.lane.size, int) and self.lane.size <= _LANE_CHUNK:
            start, stop = self.b.constant(0), size
        else:
            start = chunk * _LANE_CHUNK
            stop = self.b.min(start + _LANE_CHUNK, size)
        exact = isinstance(self.lane.size, int) and self.lane.size % self.width == 0
        self._over_lanes(self.lane, start, stop, exact, (), lambda _: self._row())

    def _over_lanes(
        self,
        group: Group,
        start: Expr,
        stop: Expr,
        exact: bool,
        carried: Sequence[Expr],
        body: Callable[[Sequence[Expr]], Sequence[Expr]],
    ) -> Sequence[Expr]:
        """Full tiles from start to stop, then a masked rest unless `exact`."""
        b, scope, width = self.b, self.scope, self.width
        whole = stop if exact else start + (stop - start) // width * width
        with b.for_(start, whole, width, carried=carried) as loop, scope.inner():
            scope.lanes = Lanes(group.axis, loop.index, width, None)
            loop.yield_(*body(loop.carried))
        scope.lanes = None
        if exact:
            return loop.results
        with b.if_(whole < stop) as branch:
            with branch.then(), scope.inner():
                mask = b.arange(width) < stop - whole
                scope.lanes = Lanes(group.axis, whole, width, mask)
                results = body(loop.results)
                if carried:
                    branch.yield_(*results)
                scope.lanes = None
            if carried:
                with branch.otherwise():
                    branch.yield_(*loop.results)
        return branch.results

    def _stored(self, writes: Sequence[Write]) -> Sequence[Expr]:
        for write in writes:
            self.scope.store(write)
        return ()

    def _row(self) -> Sequence[Expr]:
        """Everything that happens at one place of the kept axes (or one tile of places)."""
        moving = frozenset(g.axis for g in self.nest.reduced)
        for reduction in self.nest.reductions:
            self.scope.hoist(self.needed, moving)
            arg = reduction.kind.startswith("arg_")
            result = self._arg_reduce(reduction) if arg else self._reduce(reduction)
            self.scope.set(reduction.result, result)
        self.scope.hoist(self.needed, moving)
        for write in self.nest.writes:
            if not write.per_element:
                self.scope.store(write)
        each = [write for write in self.nest.writes if write.per_element]
        if each:
            self._over_reduced((), lambda _: self._stored(each))
        return ()

    def _over_reduced(
        self,
        carried: Sequence[Expr],
        body: Callable[[Sequence[Expr]], Sequence[Expr]],
        depth: int = 0,
        empty: Expr | None = None,
    ) -> Sequence[Expr]:
        """Loops over the reduced axes, the last one in lanes if it is the lane axis.

        empty   what a sum of floats starts from: long ones are taken in blocks
        """
        groups = self.nest.reduced
        if depth == len(groups):
            return body(carried)
        group, scope = groups[depth], self.scope
        size = scope.size(group.size)
        if group is self.lane:
            exact = isinstance(group.size, int) and group.size % self.width == 0
            zero = self.b.constant(0)
            return self._over_lanes(group, zero, size, exact, carried, body)

        def steps(first: Expr, last: Expr, carried: Sequence[Expr]) -> Sequence[Expr]:
            with self.b.for_(first, last, 1, carried=carried) as loop, scope.inner():
                scope.place[group.axis] = loop.index
                scope.hoist(self.needed, frozenset(g.axis for g in groups[depth + 1 :]))
                loop.yield_(*self._over_reduced(loop.carried, body, depth + 1, empty))
            return loop.results

        block = 0 if empty is None else self._steps_of_block(depth)
        if empty is None or block == 0:
            return steps(self.b.constant(0), size, carried)
        with self.b.for_(0, size, block, carried=carried) as blocks, scope.inner():
            last = self.b.min(blocks.index + block, size)
            (part,) = steps(blocks.index, last, [empty])
            blocks.yield_(blocks.carried[0] + part)
        return blocks.results

    def _steps_of_block(self, depth: int) -> int:
        """Steps of a reduced axis that are summed from zero; 0 where one sum takes them all.

        The rounding error of one long chain of additions grows with its length; so it grows with
        the length of a block and the number of blocks.
        """
        group, *inner = self.nest.reduced[depth:]
        each = dims.num_elements([1 if g is self.lane else g.size for g in inner])
        if not isinstance(each, int):
            return 1
        short = isinstance(group.size, int) and each * group.size <= _SUM_BLOCK
        return 0 if short else max(_SUM_BLOCK // max(each, 1), 1)

    def _reduce(self, reduction: Reduction) -> Expr:
        b, scope = self.b, self.scope
        dtype = reduction.accumulator
        shape = (self.width,) if self.lane is not None else ()
        empty = empty_value(reduction.kind, dtype)

        def step(carried: Sequence[Expr]) -> Sequence[Expr]:
            (total,) = carried
            value = b.cast(scope.value(reduction.value), dtype)
            mask = scope.all_of(reduction.guards)
            if self.lane_reduced and scope.lanes is not None and scope.lanes.mask is not None:
                lane_mask = scope.lanes.mask
                mask = lane_mask if mask is None else b.binary("and", mask, lane_mask)
            if reduction.factor is not None:
                factor = scope.value(reduction.factor)
                if mask is not None:
                    value = b.select(mask, value, b.full((), empty, dtype))
                if dtype.is_float:
                    return (b.fma(*_aligned(b, total, value, factor)),)
                return (
                    maths.apply(b, "add", (total, maths.apply(b, "multiply", (value, factor)))),
                )
            if mask is not None:
                value = b.select(mask, value, b.full((), empty, dtype))
            return (maths.apply(b, COMBINE[reduction.kind], (total, value)),)

        start = b.full(shape, empty, dtype)
        sums = dtype.is_float and COMBINE[reduction.kind] == "add"
        (total,) = self._over_reduced([start], step, empty=start if sums else None)
        if self.lane_reduced and total.shape:
            total = b.reduce(_REDUCE_TILE[reduction.kind], total, 0)  # type: ignore[arg-type]
        return b.cast(total, reduction.result.dtype)

    def _arg_reduce(self, reduction: Reduction) -> Expr:
        """Index of the extreme: per lane the best value and its place, then the best lane."""
        b, scope = self.b, self.scope
        dtype = reduction.accumulator
        op = reduction.node.op
        assert isinstance(op, ArgReduce)
        largest = op.kind == "maximum"
        shape = (self.width,) if self.lane is not None else ()
        axis = self.nest.reduced[-1].axis if self.nest.reduced else -1

        def step(carried: Sequence[Expr]) -> Sequence[Expr]:
            best, where = carried
            value = b.broadcast(scope.value(reduction.value), shape)
            beyond = ("ge" if op.last else "gt") if largest else ("le" if op.last else "lt")
            take = b.compare(beyond, value, best)  # type: ignore[arg-type]
            if dtype.is_float:
                first_nan = b.unary("is_nan", value) & ~b.unary("is_nan", best)
                take = (take & ~b.unary("is_nan", best)) | first_nan
            if self.lane_reduced and scope.lanes is not None and scope.lanes.mask is not None:
                take = take & scope.lanes.mask
            index = scope.along(axis) if axis >= 0 else b.constant(0)
            return b.select(take, value, best), b.select(take, index, where)

        empty = dtype.lowest if largest else dtype.highest
        start = [b.full(shape, float(empty) if dtype.is_float else empty, dtype)]
        best, where = self._over_reduced([*start, b.full(shape, 0, "i64")], step)
        if not self.lane_reduced or not where.shape:
            return where
        top = b.reduce("max" if largest else "min", best, 0)
        same = b.compare("eq", best, top)
        if dtype.is_float:
            same = same | (b.unary("is_nan", best) & b.unary("is_nan", top))
        lowest = b.reduce("min", b.select(same, where, DTYPES["i64"].highest), 0)
        if not op.last:
            return lowest
        highest = b.reduce("max", b.select(same, where, -1), 0)
        return b.select(b.unary("is_nan", top), lowest, highest) if dtype.is_float else highest


def _aligned(b: FunctionBuilder, total: Expr, value: Expr, factor: Expr) -> tuple[Expr, Expr, Expr]:
    shape = total.shape
    return b.broadcast(value, shape), b.broadcast(factor, shape), total


def empty_value(kind: str, dtype: DType) -> bool | int | float:
    """What a reduction over nothing gives."""
    match kind:
        case "sum" | "or":
            value: bool | int | float = 0
        case "product":
            value = 1
        case "maximum":
            value = dtype.lowest
        case "minimum":
            value = dtype.highest
        case _:
            value = dtype.kind == "bool" or (-1 if dtype.kind == "int" else dtype.highest)
    if dtype.kind == "bool":
        return bool(value)
    return float(value) if dtype.is_float else int(value)
