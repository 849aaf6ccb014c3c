"""Copies that exchange axes: squares of numbers turn in registers.

So both sides are accessed a vector at a time, and every cache line is used while it is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from luban.core import dims
from luban.core.registers import Registers
from luban.ir.node import Graph
from luban.lower.affine import Linear
from luban.lower.emit import Scope
from luban.lower.kernel import Kernel
from luban.lower.nest import Group, Nest, build_nest
from luban.lower.operands import loaded, offset_of, split_place
from luban.lower.trace import Declined, Ref
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["lower_transpose"]

_WORK = 1 << 14  # numbers that one program should move
_LEAST = 8  # places along an axis that are worth a vector


@dataclass(frozen=True, slots=True)
class _Plan:
    """`across` is contiguous in the source, `down` in the result; `outer` are the other axes."""

    outer: tuple[Group, ...]
    across: Group
    down: Group
    source: Ref
    target: Linear


def lower_transpose(name: str, body: Graph, registers: Registers) -> Kernel:
    """The kernel of a fusion that only copies. Raises Declined if a loop nest does as well."""
    nest = build_nest(body)
    plan = _plan(nest)
    size_bytes = plan.source.dtype.size_bytes
    if plan.source.dtype.kind == "bool" or size_bytes < 4:
        raise Declined(f"squares of {plan.source.dtype} do not go through registers")
    b = FunctionBuilder(name)
    return _Writer(b, Scope(b, body, nest), plan, registers.vector_bytes // size_bytes).kernel()


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
    outer = [g for g in nest.kept if g not in (*across, *down)]
    return _Plan(tuple(outer), across[0], down[0], source, target)


class _Writer:
    """Writes the loops of one transpose."""

    def __init__(self, b: FunctionBuilder, scope: Scope, plan: _Plan, side: int) -> None:
        self.b = b
        self.scope = scope
        self.plan = plan
        self.side = side

    def kernel(self) -> Kernel:
        """The finished kernel. Programs in order: places of the outer axes, blocks across."""
        b, scope, plan, side = self.b, self.scope, self.plan, self.side
        length = plan.down.size if isinstance(plan.down.size, int) else 64
        each = max(_WORK // max(length * side, 1), 1)
        blocks = dims.ceil_div(plan.across.size, side * each)
        rest, block = split_place(scope, b.program_id(), blocks)
        for group in reversed(plan.outer[1:]):
            rest, scope.place[group.axis] = split_place(scope, rest, group.size)
        if plan.outer:
            scope.place[plan.outer[0].axis] = rest
        starts = scope.linear(offset_of(plan.source))[0], scope.linear(plan.target)[0]
        first = block * (side * each)
        last = b.min(first + side * each, scope.size(plan.across.size))
        with b.for_(first, last, side) as over, scope.inner():
            with b.for_(0, scope.size(plan.down.size), side) as along, scope.inner():
                self._square(starts, over.index, along.index)
                along.yield_()
            over.yield_()
        grid = dims.num_elements((*(g.size for g in plan.outer), blocks))
        return Kernel(
            b.finish_module(), tuple(scope.arguments), grid, (f"squares of {side} x {side}",)
        )

    def _square(self, starts: tuple[Expr, Expr], across: Expr, down: Expr) -> None:
        """One square, with masks where it sticks out."""
        b, scope, plan, side = self.b, self.scope, self.plan, self.side
        left = [scope.size(plan.down.size) - down, scope.size(plan.across.size) - across]
        whole = b.binary("and", left[0] >= side, left[1] >= side)
        with b.if_(whole) as branch:
            with branch.then(), scope.inner():
                self._copy(starts, across, down, None)
            with branch.otherwise(), scope.inner():
                rows, columns = (b.arange(side) < count for count in left)
                upright = b.broadcast(b.reshape(rows, (side, 1)), (side, side))
                mask = b.binary("and", upright, b.broadcast(columns, (side, side)))
                self._copy(starts, across, down, mask)

    def _copy(self, starts: tuple[Expr, Expr], across: Expr, down: Expr, mask: Expr | None) -> None:
        b, scope, plan, side = self.b, self.scope, self.plan, self.side
        step = scope.size(offset_of(plan.source).coefficient(plan.down.axis))
        stride = scope.size(plan.target.coefficient(plan.across.axis))
        pointer = scope.pointer(plan.source)
        begin = starts[0] + across + down * step
        square = b.load(pointer, begin, (side, side), [step, 1], mask=mask)
        turned = b.transpose(square, (1, 0))
        if mask is not None:
            mask = b.transpose(mask, (1, 0))
        b.store(
            scope.results[0], starts[1] + down + across * stride, turned, [stride, 1], mask=mask
        )
