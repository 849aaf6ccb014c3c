"""AtomicRmw and AtomicCas: one hardware read-modify-write an element."""

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
from luban.tile.memory_ops import AtomicCas, AtomicRmw

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


def _order(kind: str) -> str:
    """Sums need no order; an exchange may end a lock, so what was written before is seen."""
    return "acq_rel" if kind == "exchange" else "monotonic"


@emits(AtomicCas)
def emit_atomic_cas(_op: AtomicCas, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """In row-major order; floats are compared by their bits."""
    w = f.w
    dtype = operation.result.type.dtype
    elem = f"i{8 * dtype.size_bytes}"
    wanted, given = (_scalars(f, f.tile(value)) for value in operation.operands[2:])
    results = []
    for address, old, new in zip(gather_addresses(f, operation), wanted, given, strict=True):
        pointer = f.addresses.displace(*address)
        before, after = (w.bitcast(to_memory(w, dtype, value), elem) for value in (old, new))
        w.write_deferred()
        pair = w.result(
            f"cmpxchg ptr {pointer.text}, {before.typed}, {after.typed} acq_rel monotonic, "
            f"align {dtype.size_bytes}",
            f"{{ {elem}, i1 }}",
        )
        found = w.result(f"extractvalue {{ {elem}, i1 }} {pair.text}, 0", elem)
        results.append(from_memory(w, dtype, w.bitcast(found, memory_elem(dtype))))
    return f.result(operation, results, lanes=1)


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
        f"atomicrmw {opcode} ptr {pointer.text}, {stored.typed} {_order(kind)}, "
        f"align {dtype.size_bytes}",
        elem,
    )
    return from_memory(w, dtype, w.bitcast(old, memory_elem(dtype)))
