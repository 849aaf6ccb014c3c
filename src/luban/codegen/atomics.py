"""AtomicRmw: one hardware read-modify-write an element."""

from __future__ import annotations

from collections.abc import Sequence

from luban.codegen.blocks import Address, gather_addresses
from luban.codegen.emitter import Emitter
from luban.codegen.narrow import from_memory, to_memory
from luban.codegen.registers import RegisterTile, lanes_of, memory_elem
from luban.codegen.table import emits
from luban.codegen.writer import Value
from luban.core.dtypes import DType
from luban.tile.function import Operation
from luban.tile.memory_ops import AtomicRmw

__all__: list[str] = []

_SAME = {"and": "and", "or": "or", "xor": "xor", "exchange": "xchg"}
_FLOAT = {"add": "fadd", "min": "fminimum", "max": "fmaximum"}


@emits(AtomicRmw)
def emit_atomic_rmw(op: AtomicRmw, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """In row-major order; a masked-off element is jumped over and gives 0."""
    dtype = operation.result.type.dtype
    addresses = gather_addresses(f, operation)
    values = _scalars(f, f.tile(operation.operands[2]))
    masks: list[Value] | None = None
    if len(operation.operands) > 3:
        masks = _scalars(f, f.tile(operation.operands[3]))
    results = []
    for number, (address, value) in enumerate(zip(addresses, values, strict=True)):
        mask = masks[number] if masks else None
        results.append(_element(f, op.kind, dtype, address, value, mask))
    return f.result(operation, results, lanes=1)


def _scalars(f: Emitter, tile: RegisterTile) -> list[Value]:
    return [f.w.extract(part, lane) if part.lanes else part for part, lane in lanes_of(tile)]


def _element(
    f: Emitter, kind: str, dtype: DType, address: Address, value: Value, mask: Value | None
) -> Value:
    w = f.w
    pointer = f.addresses.displace(*address)
    if mask is None:
        return _update(f, kind, dtype, pointer, value)
    before = w.block
    inside, end = w.label("then"), w.label("end")
    w.branch(mask, inside, end)
    f.start_block(inside)
    old = _update(f, kind, dtype, pointer, value)
    after = w.block
    w.jump(end)
    f.start_block(end)
    return w.merge(w.number(0, old), before, old, after)


def _update(f: Emitter, kind: str, dtype: DType, pointer: Value, value: Value) -> Value:
    w = f.w
    elem = "bfloat" if dtype.name == "bf16" else memory_elem(dtype)
    stored = w.bitcast(to_memory(w, dtype, value), elem)
    if dtype.is_float:
        opcode = _FLOAT.get(kind) or _SAME[kind]
    elif kind in ("min", "max"):
        opcode = ("" if dtype.kind == "int" else "u") + kind
    else:
        opcode = _SAME.get(kind, kind)
    w.write_deferred()
    old = w.result(
        f"atomicrmw {opcode} ptr {pointer.text}, {stored.typed} monotonic, "
        f"align {dtype.size_bytes}",
        elem,
    )
    return from_memory(w, dtype, w.bitcast(old, memory_elem(dtype)))
