"""Copies that exchange axes: squares of numbers turn in registers.

So both sides are accessed a vector at a time, and every cache line is used while it is there. A
copy that runs once, when a model is loaded, takes its sizes at run time: one kernel for all sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.registers import Registers
from luban.ir.node import Graph
from luban.lower.affine import Linear
from luban.lower.emit import Scope
from luban.lower.kernel import Kernel
from luban.lower.nest import Group, Nest, build_nest
from luban.lower.operands import loaded, offset_of
from luban.lower.trace import Declined, Ref
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["lower_transpose"]

_WORK = 1 << 14  # numbers that one program should move
_LEAST = 8  # places along an axis that are worth a vector
_NONE = Group(-1, 1)  # the outer axis of a plain matrix, whose kernel is that of several


@dataclass(frozen=True, slots=True)
class _Plan:
    """`across` is contiguous in the source, `down` in the result; `outer` are the other axes."""

    outer: tuple[Group, ...]
    across: Group
    down: Group
    source: Ref
    target: Linear


def lower_transpose(name: str, body: Graph, registers: Registers, *, once: bool) -> Kernel:
    """The kernel of a fusion that only copies. Raises Declined if a loop nest does as well."""
    nest = build_nest(body)
    plan = _plan(nest)
    size_bytes = plan.source.dtype.size_bytes
    if plan.source.dtype.kind == "bool" or size_bytes < 4:
        raise Declined(f"squares of {plan.source.dtype} do not go through registers")
    b = FunctionBuilder(name)
    scope = Scope(b, body, nest)
    size = scope.parameter if once else scope.size
    return _Writer(b, scope, plan, registers.vector_bytes // size_bytes, size).kernel()


def _plan(nest: Nest) -> _Plan:
    if nest.reductions or len(nest.writes) != 1:
        raise Declined("more than a copy")
    (write,) = nest.writes
    source = loaded(write.value)
    if source.args or write.value is not source:
        raise Declined("more than a copy")
    form, target = offset_of(source), write.offset
    across = [g for g in nest.kept if form.coefficient(g.axis) == 1]
    down = [g for g in nest.kept if target.coefficient(g.axis) == 1]
    if len(across) != 1 or len(down) != 1 or across == down:
        raise Declined("the last axis stays the last")
    if any(isinstance(g.size, int) and g.size < _LEAST for g in (*across, *down)):
        raise Declined("an axis is too short for squares")
    outer = [g for g in nest.kept if g not in (*across, *down)] or [_NONE]
    return _Plan(tuple(outer), across[0], down[0], source, target)


class _Writer:
    """Writes the loops of one transpose."""

    def __init__(
        self,
        b: FunctionBuilder,
        scope: Scope,
        plan: _Plan,
        side: int,
        size: Callable[[DimLike], Expr],
    ) -> None:
        self.b = b
        self.scope = scope
        self.plan = plan
        self.side = side
        self.size = size

    def kernel(self) -> Kernel:
        """The finished kernel. Programs in order: places of the outer axes, blocks across."""
        plan, side = self.plan, self.side
        length = plan.down.size if isinstance(plan.down.size, int) else 64
        each = max(_WORK // max(length * side, 1), 1)
        blocks = dims.ceil_div(plan.across.size, side * each)
        place, starts = self._places(blocks)
        self._block(starts, place, self.size(side * each))
        grid = dims.num_elements((*(g.size for g in plan.outer), blocks))
        return Kernel(
            self.b.finish_module(),
            tuple(self.scope.arguments),
            grid,
            (f"squares of {side} x {side}",),
        )

    def _places(self, blocks: DimLike) -> tuple[Expr, tuple[Expr, Expr]]:
        """Which block across this program has; where its source and its target start."""
        b, plan = self.b, self.plan
        forms = offset_of(plan.source), plan.target
        starts = [self.size(form.constant) for form in forms]
        count = self.size(blocks)
        rest = b.program_id() // count
        block = b.program_id() - rest * count
        for position, group in enumerate(reversed(plan.outer)):
            place = rest
            if position + 1 < len(plan.outer):
                size = self.size(group.size)
                rest = rest // size
                place = place - rest * size
            moves = [self.size(form.coefficient(group.axis)) for form in forms]
            starts = [start + place * move for start, move in zip(starts, moves, strict=True)]
        return block, (starts[0], starts[1])

    def _block(self, starts: tuple[Expr, Expr], block: Expr, length: Expr) -> None:
        """The squares of one program: block `block` of `length` places across, all places down."""
        b, scope, plan, side = self.b, self.scope, self.plan, self.side
        sizes = self.size(plan.down.size), self.size(plan.across.size)
        step = self.size(offset_of(plan.source).coefficient(plan.down.axis))
        stride = self.size(plan.target.coefficient(plan.across.axis))
        first = block * length
        last = b.min(first + length, sizes[1])
        with b.for_(first, last, side) as over, scope.inner():
            with b.for_(0, sizes[0], side) as along, scope.inner():
                across, down = over.index, along.index
                source = starts[0] + across + down * step
                target = starts[1] + down + across * stride
                left = sizes[0] - down, sizes[1] - across
                self._square((source, step), (target, stride), left)
                along.yield_()
            over.yield_()

    def _square(
        self, source: tuple[Expr, Expr], target: tuple[Expr, Expr], left: tuple[Expr, Expr]
    ) -> None:
        """One square, from where and to where with which stride; masks where it sticks out."""
        b, scope, side = self.b, self.scope, self.side
        whole = b.binary("and", left[0] >= side, left[1] >= side)
        with b.if_(whole) as branch:
            with branch.then(), scope.inner():
                self._copy(source, target, None, None)
            with branch.otherwise(), scope.inner():
                self._copy(source, target, self._inside(*left), self._inside(*reversed(left)))

    def _inside(self, rows: Expr, columns: Expr) -> Expr:
        """Which places of a square are among its first `rows` rows and `columns` columns."""
        b, side = self.b, self.side
        numbers = b.arange(side)
        upright = b.broadcast(b.reshape(numbers, (side, 1)) < rows, (side, side))
        return b.binary("and", upright, b.broadcast(numbers < columns, (side, side)))

    def _copy(
        self,
        source: tuple[Expr, Expr],
        target: tuple[Expr, Expr],
        read: Expr | None,
        written: Expr | None,
    ) -> None:
        b, scope, side = self.b, self.scope, self.side
        pointer = scope.pointer(self.plan.source)
        square = b.load(pointer, source[0], (side, side), [source[1], 1], mask=read)
        turned = b.transpose(square, (1, 0))
        b.store(scope.results[0], target[0], turned, [target[1], 1], mask=written)
