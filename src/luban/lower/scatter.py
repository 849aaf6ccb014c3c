"""Scatter: a copy of the operand, then the updates, in order.

Axes along which no two updates can meet (batches, and windows that span the whole operand) run
in parallel, one of them in lanes. Along the others each program applies its updates one after the
other in row-major order, so the result never depends on threads or on the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.dtypes import DTYPES
from luban.core.registers import Registers
from luban.graph.ops.structure import Scatter
from luban.ir.node import Graph, Node
from luban.lower import maths
from luban.lower.affine import Linear, axis_index, fixed, row_major
from luban.lower.emit import Writer
from luban.lower.kernel import Kernel
from luban.lower.nest import Group, Nest, Write, merged_groups
from luban.lower.scope import Scope
from luban.lower.trace import Declined, Ref, Trace
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["lower_scatter"]

_COMBINE = {"add": "add", "multiply": "multiply", "maximum": "maximum", "minimum": "minimum"}


@dataclass(slots=True)
class _Plan:
    """The loops of one scatter over axes of the updates (0 .. rank - 1) and of the operand (after).

    rest    operand axes that the copy runs over besides the parallel ones
    turns   update axes that run one after the other
    guards  true where an update lies inside the operand
    """

    trace: Trace
    parallel: list[Group]
    rest: list[Group]
    turns: list[Group]
    copy: Write
    update: Write
    guards: tuple[Ref, ...]


def lower_scatter(name: str, body: Graph, registers: Registers) -> Kernel:
    """The kernel of a body whose only result is a scatter. Raises Declined for another body."""
    (root,) = body.results
    if not isinstance(root.op, Scatter):
        raise Declined("a scatter is not the result of its kernel")
    plan = _planned(root)
    nest = Nest(plan.trace, plan.parallel, [*plan.rest, *plan.turns], [], [plan.copy, plan.update])
    for ref in (*nest.needed(), *plan.guards):
        if ref.kind not in ("load", "constant", "scalar", "index", "stage"):
            maths.check(ref.kind, tuple(arg.dtype for arg in ref.args))
    b = FunctionBuilder(name)
    scope = Scope(b, body, nest, result_access="read_write")
    return _ScatterWriter(b, scope, nest, registers.vector_bytes, plan, root.op.combine).kernel()


def _planned(root: Node) -> _Plan:
    op = root.op
    assert isinstance(op, Scatter)
    operand, _, updates = root.operands
    rank = updates.tensor.rank
    shape = operand.tensor.shape
    sizes: dict[int, DimLike] = dict(enumerate(updates.tensor.shape))
    sizes.update({rank + axis: size for axis, size in enumerate(shape)})
    trace = Trace(sizes)
    batch = [position for position in range(rank) if position not in op.window_axes]
    dropped = {*op.inserted_axes, *op.operand_batching_axes}
    windows = [axis for axis in range(len(shape)) if axis not in dropped]
    paired = dict(zip(windows, op.window_axes, strict=True))
    for axis, position in zip(op.operand_batching_axes, op.indices_batching_axes, strict=True):
        paired[axis] = batch[position]
    free = {
        axis: position
        for axis, position in paired.items()
        if axis not in op.scatter_axes and updates.tensor.shape[position] == shape[axis]
    }
    place = [axis_index(paired[axis]) if axis in paired else fixed(0) for axis in range(len(shape))]
    guards = _located(trace, root, batch, paired, place)
    copied = tuple(axis_index(free.get(axis, rank + axis)) for axis in range(len(shape)))
    value = trace.value(updates, tuple(axis_index(i) for i in range(rank)))
    copy = Write(0, trace.value(operand, copied), row_major(copied, shape), True)
    update = Write(0, value, row_major(tuple(place), shape), True)
    forms = [ref.offset for ref in trace.refs if ref.offset is not None]
    forms += [copy.offset, update.offset]
    parallel = [Group(position, sizes[position]) for position in sorted(free.values())]
    rest = [Group(rank + axis, size) for axis, size in enumerate(shape) if axis not in free]
    turns = [Group(i, sizes[i]) for i in range(rank) if i not in free.values()]
    parallel, rest, turns = (merged_groups(g, forms) for g in (parallel, rest, turns))
    return _Plan(trace, parallel, rest, turns, copy, update, guards)


def _located(
    trace: Trace, root: Node, batch: Sequence[int], paired: dict[int, int], place: list[Linear]
) -> tuple[Ref, ...]:
    """Add the starts that the indices say to `place`; guards: where a window lies inside."""
    op = root.op
    assert isinstance(op, Scatter)
    operand, indices, updates = root.operands
    integer, boolean = DTYPES["i64"], DTYPES["bool"]
    where = tuple(axis_index(position) for position in batch)
    zero = trace.ref("scalar", integer, value=0)
    guards: list[Ref] = []
    for component, axis in enumerate(op.scatter_axes):
        start = trace.cast(trace.value(indices, (*where, fixed(component))), integer)
        window = updates.tensor.shape[paired[axis]] if axis in paired else 1
        last = trace.ref("scalar", integer, value=operand.tensor.shape[axis] - window)
        guards.append(trace.apply("greater_equal", boolean, start, zero))
        guards.append(trace.apply("less_equal", boolean, start, last))
        place[axis] = place[axis] + Linear(0, (), ((start, 1),))
    return tuple(guards)


class _ScatterWriter(Writer):
    """Writes the copy and the updates of each place of the parallel axes."""

    def __init__(
        self,
        b: FunctionBuilder,
        scope: Scope,
        nest: Nest,
        vector_bytes: int,
        plan: _Plan,
        combine: str,
    ) -> None:
        self.plan = plan
        self.combine = combine
        super().__init__(b, scope, nest, vector_bytes)

    def _lane_group(self) -> Group | None:
        return self.plan.parallel[-1] if self.plan.parallel else None

    def _row(self) -> Sequence[Expr]:
        self._loops(self.plan.rest, lambda: self.scope.store(self.plan.copy))
        self._loops(self.plan.turns, self._update)
        return ()

    def _loops(self, groups: Sequence[Group], body: Callable[[], None]) -> None:
        if not groups:
            with self.scope.inner():
                body()
            return
        group, scope = groups[0], self.scope
        with self.b.for_(0, scope.size(group.size), 1) as loop, scope.inner():
            scope.place[group.axis] = loop.index
            moving = {g.axis for g in (*self.plan.rest, *self.plan.turns)} - set(scope.place)
            scope.hoist(self.needed, frozenset(moving))
            self._loops(groups[1:], body)
            loop.yield_()
        del scope.place[group.axis]

    def _update(self) -> None:
        b, scope, update = self.b, self.scope, self.plan.update
        mask = scope.all_of(self.plan.guards)
        if scope.lanes is not None and scope.lanes.mask is not None:
            mask = scope.lanes.mask if mask is None else b.binary("and", mask, scope.lanes.mask)
        value = scope.value(update.value)
        start, stride, scattered = scope.linear(update.offset)
        pointer = scope.results[0]
        if scattered is not None:
            places = scope.along_offsets(start, stride, scattered)
            old = b.gather(pointer, places, mask=mask) if self.combine in _COMBINE else None
            b.scatter(pointer, places, self._combined(old, value), mask=mask)
            return
        shape = () if scope.lanes is None else (scope.lanes.width,)
        strides = [scope.size(s) for s in (stride,) if shape and not isinstance(s, Expr)]
        old = (
            b.load(pointer, start, shape, strides, mask=mask) if self.combine in _COMBINE else None
        )
        new = b.broadcast(self._combined(old, value), shape)
        b.store(pointer, start, new, strides, shape=shape, mask=mask)

    def _combined(self, old: Expr | None, value: Expr) -> Expr:
        return value if old is None else maths.apply(self.b, _COMBINE[self.combine], (old, value))


def supported(root: Node) -> str | None:
    """Why a scatter has no kernel, or None if it has one."""
    op, dtype = root.op, root.tensor.dtype
    assert isinstance(op, Scatter)
    if op.combine != "replace" and dtype.kind == "bool":
        return f"scatter that combines {dtype} by {op.combine} has no kernel"
    if dims.bounds(root.tensor.num_elements)[1] == 0:
        return "scatter into nothing has no kernel"
    return None
