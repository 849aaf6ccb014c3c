"""What the values of a block program are computed from, at what cost, and which ones are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from luban.tile.block_ops import Dot, Take
from luban.tile.function import Operation, Region, Value
from luban.tile.memory_ops import AtomicCas, AtomicRmw, For, Gather, Scatter, While
from luban.tile.ops import (
    Arange,
    Binary,
    Bitcast,
    Broadcast,
    Cast,
    Compare,
    Concat,
    ExtractSlice,
    Fma,
    Reshape,
    Select,
    Transpose,
    Unary,
)

__all__ = ["DEFERRED", "ELEMENTWISE", "WRITERS", "Plan", "make_plan", "same_elements"]

ELEMENTWISE = (Unary, Binary, Compare, Select, Fma, Cast, Bitcast)
# Ops that are computed where their elements are needed. Everything else runs in program order.
DEFERRED = (
    *ELEMENTWISE, Arange, Broadcast, Reshape, Transpose, ExtractSlice, Concat, Take, Gather,
)  # fmt: skip
WRITERS = (Scatter, AtomicRmw, AtomicCas)

_DEAR = 8  # what costs this much is computed once and kept, when several ask for it
_DEAR_IN_LOOP = 3  # the same for what each iteration of a loop would compute again
_COSTS = {"div": 4, "rem": 4, "pow": 30, "atan2": 30, "sqrt": 3, "rsqrt": 4}
_CHEAP = frozenset(
    ("neg", "abs", "sign", "not", "floor", "ceil", "round", "trunc", "is_nan", "is_inf")
)


def same_elements(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a reshape only adds or drops axes of extent 1.

    >>> same_elements((4, 1, 8), (4, 8)), same_elements((32,), (4, 8))
    (True, False)
    """
    return [n for n in given if n != 1] == [n for n in wanted if n != 1]


def _needs_memory(operation: Operation) -> Value | None:
    """The operand of a deferred op that has to lie in memory before an element can be found."""
    match operation.op:
        case Take():
            return operation.operands[0]
        case Reshape(shape=shape):
            given = operation.operands[0].type.shape
            line = sum(extent != 1 for extent in given) == 1
            return None if line or same_elements(given, shape) else operation.operands[0]
    return None


def _step_cost(operation: Operation) -> int:
    match operation.op:
        case Unary(kind=kind) if kind not in _CHEAP:
            return _COSTS.get(kind, 10)
        case Binary(kind=kind):
            return _COSTS.get(kind, 1)
        case Gather():
            return 2 + (len(operation.operands) > 2)
        case Take():
            return 5
        case Arange() | Broadcast() | Reshape() | Transpose() | ExtractSlice():
            return 0
    return 1


def _inputs(operation: Operation) -> Iterator[Value]:
    return (value for value in operation.operands if value.type.shape)


@dataclass(slots=True)
class Plan:
    """What is known of a function's values before any of it is lowered.

    number     program order of operations, and of the ends of regions
    makers     the deferred operation that computes a value
    keep       values that are computed once, to lie in memory
    forced     those among them whose readers cannot compute single elements
    last_use   the number of the last operation or region end that may ask for a value
    maker_of   the operation of any value
    users      what reads a value directly: operations, and regions that yield it
    """

    number: dict[Operation | Region, int] = field(default_factory=dict)
    makers: dict[Value, Operation] = field(default_factory=dict)
    keep: set[Value] = field(default_factory=set)
    forced: set[Value] = field(default_factory=set)
    last_use: dict[Value, int] = field(default_factory=dict)
    users: dict[Value, list[Operation | Region]] = field(default_factory=dict)
    maker_of: dict[Value, Operation] = field(default_factory=dict)
    _costs: dict[Value, int] = field(default_factory=dict)
    _depths: dict[Value, int] = field(default_factory=dict)
    _readers: set[Value] = field(default_factory=set)

    def reach(
        self, values: Iterable[Value], there: Callable[[Value], bool] = lambda _: False
    ) -> Iterator[Value]:
        """The deferred values that these are computed from, those first that others need.

        there   says which need not be computed
        """
        seen: set[Value] = set()
        stack = [(value, False) for value in values]
        while stack:
            value, done = stack.pop()
            if done:
                yield value
            elif value not in seen and value in self.makers and not there(value):
                seen.add(value)
                stack.append((value, True))
                stack.extend((operand, False) for operand in _inputs(self.makers[value]))

    def cost(self, value: Value) -> int:
        """Roughly what an element costs, in additions."""
        return self._costs.get(value, 0)

    def visit(self, region: Region, depth: int) -> None:
        """Take in a region that lies in `depth` loops."""
        for operation in region.body:
            self.number[operation] = len(self.number)
            self.maker_of.update(dict.fromkeys(operation.results, operation))
            for value in operation.operands:
                self.users.setdefault(value, []).append(operation)
            if isinstance(operation.op, DEFERRED) and operation.result.type.shape:
                self._defer(operation, depth)
            else:
                self._ask(operation, _inputs(operation), depth)
            inner = depth + isinstance(operation.op, (For, While))
            for part in operation.regions:
                self.visit(part, inner)
        self.number[region] = len(self.number)
        for value in region.yields:
            self.users.setdefault(value, []).append(region)
        self._ask(region, (value for value in region.yields if value.type.shape), depth)

    def _defer(self, operation: Operation, depth: int) -> None:
        result = operation.result
        self.makers[result] = operation
        self._depths[result] = depth
        inputs = list(_inputs(operation))
        self._costs[result] = _step_cost(operation) + sum(map(self.cost, inputs))
        if isinstance(operation.op, (Gather, Take, Unary)) or any(map(self.reads, inputs)):
            self._readers.add(result)
        if isinstance(operation.op, Concat):
            self.forced.add(result)
        needed = _needs_memory(operation)
        if needed is not None and needed in self.makers:
            self.forced.add(needed)
        dear = bool(inputs) and self.cost(inputs[0]) >= _DEAR and self.reads(inputs[0])
        if isinstance(operation.op, Broadcast) and dear:
            self.keep.add(inputs[0])  # each element would be computed again for every repetition
            self._costs[result] = 1

    def _ask(self, reader: Operation | Region, values: Iterable[Value], depth: int) -> None:
        number = self.number[reader]
        factors = isinstance(reader, Operation) and isinstance(reader.op, Dot)
        values = list(values)
        reached = list(self.reach(values))
        before = set(self.last_use)
        for value in (*values, *(v for r in reached for v in self.makers[r].operands)):
            self.last_use[value] = number
        for value in reached:
            first = value not in before
            in_loop = depth > self._depths[value]
            if not self.reads(value):
                continue  # index arithmetic is computed anew: kept, it would hide what it steps by
            if not first and self.cost(value) >= _DEAR:
                self.keep.add(value)
            if in_loop and (factors or self.cost(value) >= _DEAR_IN_LOOP):
                self.keep.add(value)

    def in_place(self, value: Value, block: Value) -> bool:
        """Whether each element of a value needs no element of `block` but the one in its place."""
        stack = [value]
        while stack:
            found = stack.pop()
            maker = self.makers.get(found)
            if found is block or maker is None:
                continue
            if isinstance(maker.op, ELEMENTWISE):
                stack.extend(maker.operands)
            elif self.asks_for(found, block):
                return False
        return True

    def asks_for(self, value: Value, block: Value) -> bool:
        """Whether a value is computed from `block`."""
        return value is block or any(
            block in self.makers[found].operands for found in self.reach((value,))
        )

    def reads(self, value: Value) -> bool:
        """Whether a value is more than index arithmetic."""
        maker = self.makers.get(value)
        return value.type.dtype.is_float if maker is None else value in self._readers


def make_plan(body: Region) -> Plan:
    """Look at a whole function: see `Plan`."""
    plan = Plan()
    plan.visit(body, 0)
    plan.keep |= plan.forced
    return plan
