"""The meaning of control flow and fusions: operations that hold sub-graphs."""

from __future__ import annotations

import numpy as np

from luban.core import dims
from luban.core.errors import LubanError
from luban.core.types import TensorType, TupleType
from luban.graph.meaning.context import Array, Context, Meaning, Value, storage
from luban.graph.ops.control import If, Loop, Scan
from luban.graph.ops.fusion import Fusion, Once
from luban.ir.node import Op

__all__ = ["MEANING"]


def _if(op: If, operands: list[Value], context: Context) -> tuple[Value, ...]:
    predicate, *rest = operands
    return context.run(op.then if predicate else op.otherwise, rest)


def _loop(op: Loop, operands: list[Value], context: Context) -> tuple[Value, ...]:
    limit, condition = int(operands[0]), operands[1]
    carried = operands[2 : 2 + op.num_carried]
    captured = operands[2 + op.num_carried :]
    turns: list[tuple[Value, ...]] = []
    iteration = 0
    while condition and (limit < 0 or iteration < limit):
        index = np.asarray(iteration, np.int64)
        condition, *results = context.run(op.body, [index, condition, *carried, *captured])
        carried = results[: op.num_carried]
        turns.append(tuple(results[op.num_carried :]))
        iteration += 1
    stacked = [
        _stacked([turn[i] for turn in turns], 0, type_, context)
        for i, type_ in enumerate(op.result_types[op.num_carried :])
    ]
    return (*carried, *stacked)


def _scan(op: Scan, operands: list[Value], context: Context) -> tuple[Value, ...]:
    num_scanned = len(op.scan_axes)
    carried: list[Value] = operands[: op.num_carried]
    scanned = operands[op.num_carried :][:num_scanned]
    captured = operands[op.num_carried + num_scanned :]
    moved = [
        np.moveaxis(np.flip(x, axis) if reverse else x, axis, 0)
        for x, axis, reverse in zip(scanned, op.scan_axes, op.scan_reverse, strict=True)
    ]
    turns: list[tuple[Value, ...]] = []
    for i in range(len(moved[0])):
        results = context.run(op.body, [*carried, *(x[i] for x in moved), *captured])
        carried = list(results[: op.num_carried])
        turns.append(results[op.num_carried :])
    assert isinstance(context.result_type, TupleType)
    stacked = []
    for i, type_ in enumerate(context.result_type.items[op.num_carried :]):
        rows = [turn[i] for turn in turns]
        if op.stack_reverse[i]:
            rows.reverse()
        stacked.append(_stacked(rows, op.stack_axes[i], type_, context))
    return (*carried, *stacked)


def _stacked(rows: list[Value], axis: int, type_: object, context: Context) -> Array:
    if rows:
        return np.stack(rows, axis)
    assert isinstance(type_, TensorType)
    # No turn was taken, so a symbol that only the body would have settled has no size: 0.
    shape = []
    for size in type_.shape:
        try:
            shape.append(dims.evaluate(size, context.sizes))
        except LubanError:
            shape.append(0)
    shape[axis] = 0
    return np.zeros(shape, storage(type_.dtype, context.precision))


def _fusion(op: Fusion | Once, operands: list[Value], context: Context) -> Value:
    results = context.run(op.body, operands)
    return results[0] if len(results) == 1 else results


MEANING: dict[type[Op], Meaning] = {
    If: _if,
    Loop: _loop,
    Scan: _scan,
    Fusion: _fusion,
    Once: _fusion,
}
