"""From a block program to a register program: operations in order, clusters of them at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from luban.core.errors import InternalError
from luban.core.registers import Registers
from luban.lower.blocks.clusters import Clusters
from luban.lower.blocks.control import branch, loop, while_loop
from luban.lower.blocks.nests import FoldRoot, StoreRoot
from luban.lower.blocks.places import PENDING, Frame, Pending, Position
from luban.lower.blocks.recipes import DEFERRED, make_plan
from luban.lower.blocks.steps import dot, scan, update
from luban.lower.blocks.strips import at
from luban.lower.trace import Declined
from luban.tile.block_ops import Dot, Fold, Print, Scan
from luban.tile.expr import Expr
from luban.tile.function import Function, Operation, Region, Value
from luban.tile.memory_ops import Assert, AtomicCas, AtomicRmw, For, Gather, If, Scatter, While
from luban.tile.op import TileOp
from luban.tile.ops import Binary, Constant

__all__ = ["Walker", "lower_function"]


def lower_function(function: Function, registers: Registers) -> Function:
    """The register program of a block program. Raises Declined for what cannot be lowered yet."""
    f = Frame(function.name, registers, make_plan(function.body))
    for param in function.params:
        made = f.b._add(replace(param, value=Value(param.type, param.name)))
        f.places[param.value] = made
        if param.is_pointer:
            f.params[param.value] = param
    walker = Walker(f)
    walker.region(function.body)
    walker.flush()
    f.place_scratch()
    return f.b.finish()


class Walker(Clusters):
    """Runs over the operations of a function in order."""

    def region(self, region: Region) -> None:
        """Every operation of a region, up to its end."""
        outer = self.gathers
        self.gathers = list(outer)
        for operation in region.body:
            self.now = self.plan.number[operation]
            self.operation(operation)
        self.now = self.plan.number[region]
        self.gathers = outer

    def operation(self, operation: Operation) -> None:
        """One operation."""
        op = operation.op
        block = bool(operation.results) and bool(operation.results[0].type.shape)
        if block and isinstance(op, DEFERRED):
            self.f.places[operation.result] = operation
            if isinstance(op, Gather):
                self.gathers.append(operation.result)
            return
        handler = _HANDLERS.get(type(op))
        if handler is not None:
            handler(self, operation)
        elif op.pure and op.in_registers and not operation.regions:
            self._scalar(operation)
        else:
            raise Declined(f"{op.mnemonic} has no lowering in lower/blocks/walk.py")

    def scalar(self, value: Value) -> Expr:
        """A number that must be there."""
        if isinstance(self.f.places.get(value), Pending):
            self.flush()
        place = self.f.places[value]
        if not isinstance(place, Expr):
            raise InternalError(f"{value!r} is no scalar of the register program: {place!r}")
        return place

    def _scalar(self, operation: Operation) -> None:
        op = operation.op
        if any(value.type.shape for value in operation.operands):
            # a block of one element read as a number
            self.prepare(operation.operands)
            self.flush()
            (source,) = operation.operands
            zero = Position(self.f.b.constant(0))
            with self.f.scope():
                found = at(self.f, source, tuple(zero for _ in source.type.shape))
            self.f.places[operation.result] = found
            return
        operands = [self.scalar(value) for value in operation.operands]
        if isinstance(op, Constant):
            self.f.places[operation.result] = self.f.b.constant(op.value, op.dtype)
        elif isinstance(op, Binary):
            self.f.places[operation.result] = self.f.b.binary(op.kind, *operands)
        else:
            (found,) = self.f.b.emit(op, *[x.value for x in operands])
            self.f.places[operation.result] = found

    def gather_scalar(self, operation: Operation) -> None:
        """A number from memory."""
        pointer = operation.operands[0]
        if any(self.f.may_alias(pointer, other) for other, _ in self.writers):
            self.flush()
        base, index, *rest = [self.scalar(value) for value in operation.operands]
        mask = rest[0] if rest else None
        other = rest[1] if len(rest) > 1 else None
        self.f.places[operation.result] = self.f.b.load(base, index, mask=mask, other=other)

    def scatter(self, operation: Operation) -> None:
        """A block or a number to memory."""
        pointer, offsets, *_ = operation.operands
        root = StoreRoot(operation)
        if not root.shape:
            self.before_write(pointer, (), offsets)
            self.flush()
            base, index, value, *rest = [self.scalar(v) for v in operation.operands]
            self.f.b.store(base, index, value, mask=rest[0] if rest else None)
            return
        self.before_write(pointer, root.inputs, offsets)
        self.add(root)
        self.writers.append((pointer, self.now))

    def fold(self, operation: Operation) -> None:
        """A fold joins a cluster; its results are there after the next flush."""
        slots = [
            self.f.slot(value.type.dtype, value.type.shape)
            for value in operation.results
            if value.type.shape
        ]
        self.add(FoldRoot(operation, slots))
        for value in operation.results:
            self.f.places[value] = PENDING

    def atomic(self, operation: Operation) -> None:
        """An update of memory: of one number here, of a block in a nest of its own."""
        pointer, offsets, *_ = operation.operands
        self.before_write(pointer, operation.operands[1:], offsets)
        if offsets.type.shape:
            update(self, operation, self.scalar(pointer))
            return
        self.flush()
        operands = [self.scalar(v).value for v in operation.operands]
        (self.f.places[operation.result],) = self.f.b.emit(operation.op, *operands)


def _nothing(_walker: Walker, _operation: Operation) -> None:
    """What only the evaluator acts on."""


_HANDLERS: dict[type[TileOp], Callable[[Walker, Operation], None]] = {
    Gather: Walker.gather_scalar,
    Scatter: Walker.scatter,
    Fold: Walker.fold,
    Scan: scan,
    Dot: dot,
    AtomicRmw: Walker.atomic,
    AtomicCas: Walker.atomic,
    If: branch,
    For: loop,
    While: while_loop,
    Assert: _nothing,
    Print: _nothing,
}
