"""Branches and loops of block programs: numbers are carried, blocks lie in slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from luban.lower.blocks.places import Moved, Slot
from luban.lower.blocks.recipes import WRITERS, Plan
from luban.tile.block_ops import Dot
from luban.tile.expr import Expr
from luban.tile.function import Operation, Value, walk
from luban.tile.memory_ops import For
from luban.tile.ops import Binary, Broadcast

if TYPE_CHECKING:
    from luban.lower.blocks.walk import Walker

__all__ = ["branch", "loop", "while_loop"]


def _enter(w: Walker, operation: Operation) -> None:
    """Before a region: nothing is pending, and what it will read is safe."""
    written = {
        inner.operands[0]
        for region in operation.regions
        for inner in walk(region)
        if isinstance(inner.op, WRITERS)
    }
    inside = {
        value
        for region in operation.regions
        for inner in walk(region)
        for value in inner.operands
        if value.type.shape
    } | {v for region in operation.regions for v in region.yields if v.type.shape}
    for value in w.f.reach(inside):
        outside = w.plan.number[w.plan.makers[value]] < w.now
        if outside and value in w.plan.keep:
            w.prepare((value,))
    for value in list(w.gathers):
        maker = w.plan.makers[value]
        if not isinstance(w.f.places.get(value), Operation):
            continue
        aliased = any(w.f.may_alias(pointer, maker.operands[0]) for pointer in written)
        if aliased and w.plan.last_use.get(value, -1) > w.now:
            w.in_memory(value)
    w.flush()


def branch(w: Walker, operation: Operation) -> None:
    """If: blocks that it gives lie in slots that both ways write."""
    _enter(w, operation)
    condition = w.scalar(operation.operands[0])
    slots = {
        place: w.f.slot(value.type.dtype, value.type.shape)
        for place, value in enumerate(operation.results)
        if value.type.shape
    }
    with w.f.b.if_(condition) as branch:
        for way, region in zip((branch.then, branch.otherwise), operation.regions, strict=True):
            with way(), w.f.scope():
                w.region(region)
                _write_results(w, region.yields, slots)
                numbers = [w.scalar(v) for v in region.yields if not v.type.shape]
                branch.yield_(*numbers)
    _take_results(w, operation, branch.results, slots)


def _write_results(w: Walker, yields: Sequence[Value], slots: dict[int, Slot]) -> None:
    """Put blocks into the slots that outlive a region."""
    w.prepare([yields[place] for place in slots])
    w.flush()
    for place, slot in slots.items():
        w.put(yields[place], slot)


def _take_results(
    w: Walker, operation: Operation, numbers: Sequence[Expr], slots: dict[int, Slot]
) -> None:
    remaining = iter(numbers)
    for place, value in enumerate(operation.results):
        w.f.places[value] = slots[place] if place in slots else next(remaining)


def loop(w: Walker, operation: Operation) -> None:
    """For: numbers are carried, blocks lie in slots or move by a number."""
    _enter(w, operation)
    lower, upper, step = (w.scalar(v) for v in operation.operands[:3])
    (region,) = operation.regions
    carried = _Carried(w, operation.operands[3:], region.params[1:], region.yields)
    carried.start()
    op = operation.op
    assert isinstance(op, For)
    with w.f.b.for_(lower, upper, step, carried=carried.numbers) as loop, w.f.scope():
        w.f.places[region.params[0]] = loop.index
        carried.enter(loop.carried)
        w.region(region)
        loop.yield_(*carried.leave())
    carried.finish(operation.results, loop.results)


def while_loop(w: Walker, operation: Operation) -> None:
    """While: as For, with a condition that is a number."""
    _enter(w, operation)
    condition, body = operation.regions
    carried = _Carried(w, operation.operands, body.params, body.yields)
    carried.start()
    with w.f.b.while_(carried.numbers) as loop:
        with loop.condition() as numbers, w.f.scope():
            carried.enter(numbers, condition.params)
            w.region(condition)
            w.flush()
            loop.test(w.scalar(condition.yields[0]))
        with loop.body() as numbers, w.f.scope():
            carried.enter(numbers)
            w.region(body)
            loop.yield_(*carried.leave())
    carried.finish(operation.results, loop.results)


class _Carried:
    """The carried values of a loop: numbers, blocks that move by a number, blocks in slots."""

    def __init__(
        self,
        walker: Walker,
        starts: Sequence[Value],
        params: Sequence[Value],
        yields: Sequence[Value],
    ) -> None:
        self.walker = walker
        self.starts, self.params, self.yields = starts, params, yields
        self.slots: dict[int, Slot] = {}
        self.steps: dict[int, Value] = {}  # the scalar that a moving block takes in each turn
        self.distances: dict[int, Expr] = {}  # how far it has moved
        self.numbers: list[Expr] = []

    def start(self) -> None:
        """Before the loop: numbers to carry, blocks in their slots."""
        w = self.walker
        for place, (start, param, end) in enumerate(
            zip(self.starts, self.params, self.yields, strict=True)
        ):
            if not start.type.shape:
                self.numbers.append(w.scalar(start))
                continue
            step = _step_of(w.plan, param, end)
            if step is not None:
                self.steps[place] = step
                if w.plan.reads(start):
                    w.in_memory(start)
                w.prepare((start,))
                w.flush()
                self.numbers.append(w.f.b.constant(0, start.type.dtype))
                continue
            slot = w.f.slot(start.type.dtype, start.type.shape)
            self.slots[place] = slot
            w.prepare((start,))
            w.flush()
            w.put(start, slot)

    def enter(self, numbers: Sequence[Expr], params: Sequence[Value] | None = None) -> None:
        """At the start of a turn."""
        given = iter(numbers)
        f = self.walker.f
        for place, param in enumerate(params or self.params):
            if place in self.slots:
                f.places[param] = self.slots[place]
            elif place in self.steps:
                distance = next(given)
                self.distances[place] = distance
                f.places[param] = Moved(self.starts[place], distance)
            else:
                f.places[param] = next(given)
        self._choose_targets()

    def _choose_targets(self) -> None:
        """Let a product write straight to the slot, when nobody asks for the old block later."""
        w = self.walker
        for place, slot in self.slots.items():
            value, param = self.yields[place], self.params[place]
            maker = w.plan.maker_of.get(value)
            if maker is None or not isinstance(maker.op, Dot):
                continue
            alone = len(w.plan.users.get(value, ())) == 1
            last = w.plan.last_use.get(param, -1) <= w.plan.number[maker]
            if alone and last and w.plan.in_place(maker.operands[2], param):
                w.targets[value] = slot

    def leave(self) -> list[Expr]:
        """At the end of a turn: blocks to their slots; gives the numbers to carry on."""
        w = self.walker
        blocks = [p for p in self.slots if self.yields[p] is not self.params[p]]
        w.prepare([self.yields[place] for place in blocks])
        w.flush()
        moving = [p for p in blocks if w.f.places.get(self.yields[p]) != self.slots[p]]
        clash = any(self._disturbs(p, q) for p in moving for q in moving)
        if clash:
            kept = [
                (p, w.f.slot(self.yields[p].type.dtype, self.yields[p].type.shape)) for p in moving
            ]
            for place, slot in kept:
                w.copy(self.yields[place], slot)
            w.flush()
            for place, _ in kept:
                w.put(self.yields[place], self.slots[place])
        else:
            before = {p: w.f.places.get(self.yields[p]) for p in moving}
            for place in moving:
                w.copy(self.yields[place], self.slots[place])
            w.flush()
            for place, found in before.items():
                if found is not None:
                    w.f.places[self.yields[place]] = found
        numbers = []
        for place, value in enumerate(self.yields):
            if place in self.slots:
                continue
            if place in self.steps:
                numbers.append(self.distances[place] + w.scalar(self.steps[place]))
            else:
                numbers.append(w.scalar(value))
        return numbers

    def _disturbs(self, writes: int, other: int) -> bool:
        """Whether writing one slot first spoils what another turn's value is computed from."""
        plan = self.walker.plan
        value, block = self.yields[other], self.params[writes]
        if not plan.asks_for(value, block):
            return False
        same = value.type.shape == block.type.shape
        return not (same and plan.in_place(value, block))

    def finish(self, results: Sequence[Value], numbers: Sequence[Expr]) -> None:
        """After the loop."""
        given = iter(numbers)
        f = self.walker.f
        for place, value in enumerate(results):
            if place in self.slots:
                f.places[value] = self.slots[place]
            elif place in self.steps:
                f.places[value] = Moved(self.starts[place], next(given))
            else:
                f.places[value] = next(given)


def _step_of(plan: Plan, param: Value, end: Value) -> Value | None:
    """The scalar x when `end` is param + x, element by element."""
    maker = plan.makers.get(end)
    if maker is None or not isinstance(maker.op, Binary) or maker.op.kind != "add":
        return None
    if not param.type.dtype.is_integer:
        return None
    left, right = maker.operands
    other = right if left is param else left if right is param else None
    source = plan.makers.get(other) if other is not None else None
    if source is None or not isinstance(source.op, Broadcast):
        return None
    (scalar,) = source.operands
    return None if scalar.type.shape else scalar
