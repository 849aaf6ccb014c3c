"""Running sums, products and extremes: one walk along the axis that carries the value so far.

The order is the order of the definition, element by element, so a float sum rounds as its meaning
does. Several rows run side by side in lanes.
"""

from __future__ import annotations

from collections.abc import Sequence

from luban.core.dims import DimLike
from luban.core.dtypes import DTYPES
from luban.core.registers import Registers
from luban.graph.ops.reduce import Cumulative
from luban.ir.node import Graph, Node
from luban.lower import maths
from luban.lower.affine import axis_index, row_major
from luban.lower.emit import COMBINE, Writer, empty_value
from luban.lower.kernel import Kernel
from luban.lower.nest import Group, Nest, Reduction, Write, merged_groups
from luban.lower.scope import Scope
from luban.lower.trace import Declined, Index, Ref, Trace
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["lower_cumulative"]

_STREAMS = 4


def lower_cumulative(name: str, body: Graph, registers: Registers) -> Kernel:
    """The kernel of a body with one cumulative operation. Raises Declined for another body."""
    root = next(n for n in body.nodes() if isinstance(n.op, Cumulative))
    assert isinstance(root.op, Cumulative)
    nest = _nest(body, root)
    for ref in nest.needed():
        if ref.kind not in ("load", "constant", "scalar", "index", "stage"):
            maths.check(ref.kind, tuple(arg.dtype for arg in ref.args))
    b = FunctionBuilder(name)
    scope = Scope(b, body, nest)
    return _RunningWriter(b, scope, nest, registers.vector_bytes, root.op).kernel()


def _nest(body: Graph, root: Node) -> Nest:
    """The loops; the one reduction is what runs along the axis, its result what stands there."""
    op, shape = root.op, root.tensor.shape
    assert isinstance(op, Cumulative)
    sizes: dict[int, DimLike] = dict(enumerate(shape))
    place = [axis_index(axis) for axis in sizes]
    if op.reverse:
        place[op.axis] = place[op.axis].scaled(-1).shifted(shape[op.axis] - 1)
    here: Index = tuple(place)

    def at(index: Index) -> Ref:
        if index != here:
            raise Declined("cumulative is used at another place than it is computed")
        return running

    trace = Trace(sizes, {root: at})
    running = trace.ref("stage", root.tensor.dtype, value=root)
    source = trace.value(root.operands[0], here)
    writes: list[Write] = []
    for position, result in enumerate(body.results):
        if result.tensor.shape != shape:
            raise Declined(f"result {list(result.tensor.shape)} beside running {list(shape)}")
        offset = row_major(here, shape)
        writes.append(Write(position, trace.value(result, here), offset, True))
    forms = [ref.offset for ref in trace.refs if ref.offset is not None]
    forms += [write.offset for write in writes]
    kept = [Group(axis, size) for axis, size in sizes.items() if axis != op.axis]
    along = Group(op.axis, shape[op.axis])
    accumulator = (
        DTYPES["f32"] if source.dtype.is_float and source.dtype.bits < 32 else source.dtype
    )
    walk = Reduction(root, op.kind, source, None, (), accumulator, running)
    return Nest(trace, merged_groups(kept, forms), [along], [walk], writes)


class _RunningWriter(Writer):
    """Writes the walk along the axis for each row, or for a tile of rows."""

    def __init__(
        self, b: FunctionBuilder, scope: Scope, nest: Nest, vector_bytes: int, op: Cumulative
    ) -> None:
        self.op = op
        super().__init__(b, scope, nest, vector_bytes)

    def _lane_group(self) -> Group | None:
        return self.nest.kept[-1] if self.nest.kept else None

    def _width(self, vector_bytes: int) -> int:
        """Few rows side by side where each is a stream of its own: caches hold so many."""
        width = super()._width(vector_bytes)
        along = self.nest.reduced[0].axis
        streams = any(step in (1, -1) for step in self._steps(along))
        return min(width, _STREAMS) if streams else width

    def _steps(self, axis: int) -> list[DimLike]:
        forms = [ref.offset for ref in self.needed if ref.kind == "load" and ref.offset is not None]
        forms += [write.offset for write in self.nest.writes]
        return [form.coefficient(axis) for form in forms]

    def _row(self) -> Sequence[Expr]:
        b, scope, op = self.b, self.scope, self.op
        (walk,) = self.nest.reductions
        dtype = walk.accumulator
        shape = () if scope.lanes is None else (scope.lanes.width,)
        empty = b.full(shape, empty_value(op.kind, dtype), dtype)
        # -0.0 + x is x for every x, so that the first element goes in as it is.
        minus = op.kind == "sum" and dtype.is_float
        start = b.full(shape, -0.0, dtype) if minus else empty

        def step(carried: Sequence[Expr]) -> Sequence[Expr]:
            (before,) = carried
            value = b.broadcast(b.cast(scope.value(walk.value), dtype), shape)
            after = maths.apply(b, COMBINE[op.kind], (before, value))
            shown = after
            if op.exclusive:
                shown = before
                if minus:
                    shown = b.select(b.compare("eq", scope.along(op.axis), 0), empty, before)
            scope.set(walk.result, b.cast(shown, walk.result.dtype))
            self._stored(self.nest.writes)
            return (after,)

        self._over_reduced([start], step)
        return ()
