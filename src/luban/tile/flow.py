"""Where values come from: the data flow of a function, through loops and branches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from luban.tile.function import Function, Operation, Region, Value
from luban.tile.memory_ops import (
    AtomicCas,
    AtomicRmw,
    Call,
    For,
    Gather,
    If,
    Load,
    Prefetch,
    Scatter,
    Store,
    While,
)
from luban.tile.ops import Select
from luban.tile.types import I64

__all__ = ["address_operands", "index_values", "sources"]


def sources(function: Function) -> dict[Value, tuple[Value, ...]]:
    """For each value, the values that it is computed from; nothing for loads and parameters."""
    found: dict[Value, tuple[Value, ...]] = {}
    for operation in function.operations():
        match operation.op:
            case For():
                lower, upper, step, *carried = operation.operands
                (body,) = operation.regions
                found[body.params[0]] = (lower, upper, step)
                _carry(found, operation, carried, body.params[1:], body)
            case While():
                condition, body = operation.regions
                for region in (condition, body):
                    _carry(found, operation, operation.operands, region.params, body)
            case If():
                for place, result in enumerate(operation.results):
                    found[result] = tuple(region.yields[place] for region in operation.regions)
            case Select():
                found[operation.result] = operation.operands[1:]
            case op:
                for result in operation.results:
                    found[result] = operation.operands if op.pure else ()
    return found


def _carry(
    found: dict[Value, tuple[Value, ...]],
    operation: Operation,
    start: Iterable[Value],
    params: Iterable[Value],
    body: Region,
) -> None:
    rows = zip(start, params, body.yields, operation.results, strict=True)
    for first, param, again, result in rows:
        found[param] = found[result] = (first, again)


def address_operands(operation: Operation) -> Iterator[Value]:
    """The operands that make up an address, or that count iterations."""
    match operation.op:
        case Load(num_dynamic_strides=dynamic):
            yield from operation.operands[1 : 2 + dynamic]
        case Store(num_dynamic_strides=dynamic):
            yield operation.operands[1]
            yield from operation.operands[3 : 3 + dynamic]
        case Gather() | Scatter() | AtomicRmw() | AtomicCas() | Prefetch():
            yield operation.operands[1]
        case For():
            yield from operation.operands[:3]
        case Call():
            yield from (value for value in operation.operands if value.type == I64)


def index_values(function: Function) -> frozenset[Value]:
    """Every i64 value that some address or trip count is computed from."""
    seeds = (value for operation in function.operations() for value in address_operands(operation))
    reached = _closure(seeds, sources(function))
    return frozenset(value for value in reached if value.type.elem is I64.elem)


def _closure(seeds: Iterable[Value], edges: Mapping[Value, tuple[Value, ...]]) -> set[Value]:
    reached: set[Value] = set()
    stack = list(seeds)
    while stack:
        value = stack.pop()
        if value not in reached:
            reached.add(value)
            stack.extend(edges.get(value, ()))
    return reached
