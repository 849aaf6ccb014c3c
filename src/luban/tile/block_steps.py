"""What the evaluator does for the ops of block programs; their orders are stated in `block_ops`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from luban.core.dtypes import DType
from luban.tile.block_ops import FOLD_PARTIALS, Fold, Print, Scan, Take
from luban.tile.function import Operation
from luban.tile.meaning import binary
from luban.tile.memory import OutOfBounds
from luban.tile.rounding import fma

if TYPE_CHECKING:
    from luban.tile.evaluate import Interpreter

__all__ = ["atomic_cas", "dot", "fold", "print_values", "scan", "take"]

Array = NDArray[Any]
Combine = Callable[[Sequence[Array], Sequence[Array]], Sequence[Array]]
_STEP = {"sum": "add", "prod": "mul"}


def _combine(machine: Interpreter, operation: Operation) -> Combine:
    """One step of a fold or scan, on arrays of any one shape."""
    op = operation.op
    assert isinstance(op, (Fold, Scan))
    if operation.regions:
        (region,) = operation.regions
        return lambda so_far, new: machine.run_region(region, [*so_far, *new])
    elem = operation.operands[0].type.dtype
    kind = _STEP.get(op.kind, op.kind)
    return lambda so_far, new: [binary(kind, so_far[0], new[0], elem)]


def _in_order(rows: Sequence[Array], combine: Combine) -> list[Array]:
    """Fold the first axis, one element after the other."""
    found = [part[0] for part in rows]
    for i in range(1, len(rows[0])):
        found = list(combine(found, [part[i] for part in rows]))
    return found


def _halving(parts: list[Array], combine: Combine) -> list[Array]:
    """Fold the first axis as `Reduce` does."""
    count = len(parts[0])
    half = 1 << (count.bit_length() - 1)
    if half < count:
        rest = count - half
        head = combine([part[:rest] for part in parts], [part[half:] for part in parts])
        parts = [np.concatenate([h, p[rest:half]]) for h, p in zip(head, parts, strict=True)]
    while half > 1:
        half //= 2
        parts = list(combine([p[:half] for p in parts], [p[half : 2 * half] for p in parts]))
    return [np.asarray(part[0]) for part in parts]


def fold(machine: Interpreter, operation: Operation, operands: list[Array]) -> Sequence[Array]:
    """`Fold`."""
    op = operation.op
    assert isinstance(op, Fold)
    combine = _combine(machine, operation)
    rows = [np.moveaxis(x, op.axis, 0) for x in operands]
    if op.axis != operands[0].ndim - 1:
        return _in_order(rows, combine)
    count = len(rows[0])
    partials = min(FOLD_PARTIALS, count)
    found = [part[:partials] for part in rows]
    for start in range(partials, count, partials):
        stop = min(start + partials, count)
        head = combine([f[: stop - start] for f in found], [part[start:stop] for part in rows])
        found = [np.concatenate([h, f[stop - start :]]) for h, f in zip(head, found, strict=True)]
    return _halving(found, combine)


def scan(machine: Interpreter, operation: Operation, operands: list[Array]) -> Sequence[Array]:
    """`Scan`."""
    op = operation.op
    assert isinstance(op, Scan)
    combine = _combine(machine, operation)
    rows = [np.moveaxis(x, op.axis, 0) for x in operands]
    order = range(len(rows[0]))[::-1] if op.reverse else range(len(rows[0]))
    results = [np.empty_like(part) for part in rows]
    so_far: list[Array] = []
    for i in order:
        new = [part[i] for part in rows]
        so_far = list(combine(so_far, new)) if so_far else new
        for result, value in zip(results, so_far, strict=True):
            result[i] = value
    return [np.moveaxis(result, 0, op.axis) for result in results]


def dot(_machine: Interpreter, operation: Operation, operands: list[Array]) -> Sequence[Array]:
    """`Dot`: a fused multiply-add for each k in turn."""
    elem: DType = operation.result.type.dtype
    acc = operands[2]
    a, b = (x.astype(elem.numpy) for x in operands[:2])
    for k in range(a.shape[-1]):
        left, right = np.broadcast_arrays(a[..., :, k : k + 1], b[..., k : k + 1, :])
        if elem.is_float:
            acc = fma(left, right, acc, elem)
        else:
            with np.errstate(over="ignore"):
                acc = acc + left * right
    return (acc,)


def take(machine: Interpreter, operation: Operation, operands: list[Array]) -> Sequence[Array]:
    """`Take`."""
    op = operation.op
    assert isinstance(op, Take)
    x, index = operands
    extent = x.shape[op.axis]
    where = index.astype(np.int64)
    inside = (where >= 0) & (where < extent)
    if machine.check and not inside.all():
        raise OutOfBounds(
            f"index {where[~inside].flat[0]} along axis {op.axis}, expected 0 to {extent - 1}",
            hint="correct the index",
        )
    return (np.take_along_axis(x, np.clip(where, 0, extent - 1), op.axis),)


def atomic_cas(machine: Interpreter, _operation: Operation, operands: list[Any]) -> Sequence[Array]:
    """`AtomicCas`, element by element in row-major order."""
    buffer, where, compare, value = operands
    buffer.begin_update(where.reshape(-1), machine.owner(buffer))
    bits = f"u{value.dtype.itemsize}"
    memory, wanted = buffer.data.view(bits), np.ascontiguousarray(compare).view(bits)
    old = np.zeros(where.shape, value.dtype)
    for place in np.ndindex(where.shape):
        at = where[place]
        old[place] = buffer.data[at]
        if memory[at] == wanted.reshape(where.shape)[place]:
            buffer.data[at] = value[place]
    return (old,)


def print_values(
    machine: Interpreter, operation: Operation, operands: list[Array]
) -> Sequence[Array]:
    """`Print`: a line for each operand on stdout, with the program that says it."""
    op = operation.op
    assert isinstance(op, Print)
    values = operands[1:] if op.masked else operands
    where = f"program {machine.program_id}: {op.prefix}"
    lines = [where] if not values else []
    for value in values:
        shown = value[operands[0]] if op.masked and value.shape == operands[0].shape else value
        text = _hexadecimal(shown) if op.hexadecimal else np.array2string(shown, threshold=64)
        lines.append(f"{where}{text}")
    sys.stdout.write("\n".join(lines) + "\n")
    return ()


def _hexadecimal(values: Array) -> str:
    bits = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").reshape(-1)
    return "[" + " ".join(f"0x{int(bit):0{2 * values.dtype.itemsize}x}" for bit in bits) + "]"
