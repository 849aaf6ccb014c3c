"""Copies that exchange axes: squares of numbers turn in registers.

So both sides are accessed a vector at a time, and every cache line is used while it is there. A
copy that runs once, when a model is loaded, takes its sizes at run time: one kernel for all sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.dtypes import DType
from luban.core.registers import Registers
from luban.ir.node import Graph
from luban.lower.affine import Linear
from luban.lower.kernel import Argument, Kernel, Operand, Result
from luban.lower.nest import Group, Nest, build_nest
from luban.lower.operands import loaded, offset_of
from luban.lower.scope import Scope
from luban.lower.trace import Declined, Ref
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr
from luban.tile.function import Module

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

    def sizes(self, side: int) -> tuple[DimLike, ...]:
        """All that a kernel has to know: what `_Sizes` holds, in its order."""
        length = self.down.size if isinstance(self.down.size, int) else 64
        each = max(_WORK // max(length * side, 1), 1)
        forms = offset_of(self.source), self.target
        result = [
            forms[0].constant,
            forms[1].constant,
            dims.ceil_div(self.across.size, side * each),
            side * each,
            self.down.size,
            self.across.size,
            forms[0].coefficient(self.down.axis),
            forms[1].coefficient(self.across.axis),
        ]
        for group in self.outer:
            result += [group.size, *(form.coefficient(group.axis) for form in forms)]
        return tuple(result)


class _Sizes:
    """The sizes inside a kernel.

    starts      of the source and of the result
    blocks      programs across, of `length` places each
    down, across, step, stride    places; from one to the next down the source, across the result
    outer       of each outer axis its size and how far a place moves source and result
    """

    def __init__(self, values: Sequence[Expr]) -> None:
        self.starts = values[0], values[1]
        self.blocks, self.length = values[2:4]
        self.down, self.across, self.step, self.stride = values[4:8]
        self.outer = [values[i : i + 3] for i in range(8, len(values), 3)]


def lower_transpose(name: str, body: Graph, registers: Registers, *, once: bool) -> Kernel:
    """The kernel of a fusion that only copies. Raises Declined if a loop nest does as well."""
    nest = build_nest(body)
    plan = _plan(nest)
    dtype = plan.source.dtype
    if dtype.kind == "bool" or dtype.size_bytes < 4:
        raise Declined(f"squares of {dtype} do not go through registers")
    side = registers.vector_bytes // dtype.size_bytes
    sizes = plan.sizes(side)
    arguments: tuple[Argument, ...]
    if once:
        module = _for_all_sizes(name, dtype, side, len(sizes))
        arguments = (Operand(0), Result(0), *sizes)
    else:
        b = FunctionBuilder(name)
        scope = Scope(b, body, nest)
        known = _Sizes([scope.size(size) for size in sizes])
        _Writer(b, side, scope.pointer(plan.source), scope.results[0], known).write()
        module, arguments = b.finish_module(), tuple(scope.arguments)
    grid = dims.num_elements((*(g.size for g in plan.outer), sizes[2]))
    return Kernel(module, arguments, grid, (f"squares of {side} x {side}",))


@functools.cache
def _for_all_sizes(name: str, dtype: DType, side: int, num_sizes: int) -> Module:
    """The program of every copy with this many sizes, each a parameter."""
    b = FunctionBuilder(name)
    source = b.pointer("x0", dtype, access="read")
    target = b.pointer("y0", dtype, access="write")
    sizes = _Sizes([b.scalar(f"n{i}") for i in range(num_sizes)])
    _Writer(b, side, source, target, sizes).write()
    return b.finish_module()


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
        self, b: FunctionBuilder, side: int, source: Expr, target: Expr, sizes: _Sizes
    ) -> None:
        self.b = b
        self.side = side
        self.source = source
        self.target = target
        self.sizes = sizes

    def write(self) -> None:
        """The body. Programs in order: places of the outer axes, blocks across."""
        b, sizes = self.b, self.sizes
        program = b.program_id()
        rest = program // sizes.blocks
        block = program - rest * sizes.blocks
        starts = list(sizes.starts)
        for position, (size, *moves) in reversed(list(enumerate(sizes.outer))):
            place = rest
            if position:
                rest = rest // size
                place = place - rest * size
            starts = [start + place * move for start, move in zip(starts, moves, strict=True)]
        self._block(starts, block)

    def _block(self, starts: Sequence[Expr], block: Expr) -> None:
        """The squares of one program."""
        b, sizes, side = self.b, self.sizes, self.side
        first = block * sizes.length
        last = b.min(first + sizes.length, sizes.across)
        with b.for_(first, last, side) as over:
            with b.for_(0, sizes.down, side) as along:
                across, down = over.index, along.index
                source = starts[0] + across + down * sizes.step
                target = starts[1] + down + across * sizes.stride
                self._square(source, target, (sizes.down - down, sizes.across - across))
                along.yield_()
            over.yield_()

    def _square(self, source: Expr, target: Expr, left: tuple[Expr, Expr]) -> None:
        """One square, from where to where; masks where it sticks out."""
        b, side = self.b, self.side
        with b.if_(b.binary("and", left[0] >= side, left[1] >= side)) as branch:
            with branch.then():
                self._copy(source, target, None, None)
            with branch.otherwise():
                self._copy(source, target, self._inside(*left), self._inside(*reversed(left)))

    def _inside(self, rows: Expr, columns: Expr) -> Expr:
        """Which places of a square are among its first `rows` rows and `columns` columns."""
        b, side = self.b, self.side
        numbers = b.arange(side)
        upright = b.broadcast(b.reshape(numbers, (side, 1)) < rows, (side, side))
        return b.binary("and", upright, b.broadcast(numbers < columns, (side, side)))

    def _copy(self, source: Expr, target: Expr, read: Expr | None, written: Expr | None) -> None:
        b, sizes, side = self.b, self.sizes, self.side
        square = b.load(self.source, source, (side, side), [sizes.step, 1], mask=read)
        turned = b.transpose(square, (1, 0))
        b.store(self.target, target, turned, [sizes.stride, 1], mask=written)
