"""Load, Store, Gather, Scatter, Prefetch, Scratch.

A chunk whose elements follow each other in memory is one vector access; a short stride is a few and
a shuffle; other chunks go lane by lane, or by a masked gather or scatter under a mask that is not
known.
"""

from __future__ import annotations

from collections.abc import Sequence

from luban.codegen.blocks import Address, Chunk, Run, block_rows, chunked, gather_rows
from luban.codegen.emitter import Emitter
from luban.codegen.narrow import from_memory, to_memory
from luban.codegen.registers import (
    DeferredParts,
    RegisterTile,
    gather_lanes,
    memory_elem,
    register_elem,
)
from luban.codegen.table import emits
from luban.codegen.writer import Value, type_text
from luban.core.dtypes import DType
from luban.tile.function import Operation
from luban.tile.memory_ops import (
    Gather,
    Load,
    Prefetch,
    Scatter,
    Scratch,
    Store,
)

__all__: list[str] = []

# Loading


@emits(Load)
def emit_load(op: Load, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """A strided block."""
    dynamic = op.num_dynamic_strides
    pointer, index, *strides = (f.scalar(v) for v in operation.operands[: 2 + dynamic])
    rows = block_rows(f, op, pointer, index, strides, operation.operands[0].type.pointee.size_bytes)
    return _load(f, operation, rows, 2 + dynamic, op.align or 1)


@emits(Gather)
def emit_gather(_op: Gather, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """Elements anywhere; offsets of the form scalar + constants load like a block."""
    return _load(f, operation, gather_rows(f, operation), 2, 1)


def _load(
    f: Emitter, operation: Operation, rows: Sequence[Run], first: int, align: int
) -> tuple[RegisterTile]:
    """Load elements; operands from `first` on are the mask and what masked-off elements give."""
    kind = operation.result.type
    dtype = kind.dtype
    lanes = f.lanes(operation.result)
    rest = [f.tile_in(value, lanes) for value in operation.operands[first:]]
    mask = rest[0] if rest else None
    pieces = chunked(rows, lanes, mask, align, dtype.size_bytes)
    small = len(pieces) == len(rows) > 1 and rows[0].size * dtype.size_bytes <= 8
    if mask is None and small:  # a column of numbers, or of the few bytes that `Dot4` takes
        column = DeferredParts(f.w, len(pieces), lambda i: _load_chunk(f, dtype, pieces[i], None))
        return (RegisterTile(register_elem(dtype), kind.shape, lanes, column),)
    done: dict[tuple[object, ...], Value] = {}
    parts = []
    for number, piece in enumerate(pieces):
        other = rest[1].parts[number] if len(rest) > 1 else None
        key = (
            piece.run.first,
            piece.run.step_bytes,
            tuple(piece.run.listed),
            piece.size,
            piece.mask,
            other,
        )
        if key not in done:
            done[key] = _load_chunk(f, dtype, piece, other)
        parts.append(done[key])
    return f.result(operation, parts)


def _load_chunk(f: Emitter, dtype: DType, piece: Chunk, other: Value | None) -> Value:
    w = f.w
    elem, elem_bytes = memory_elem(dtype), dtype.size_bytes
    lanes = piece.size if piece.size > 1 else 0
    missing = other or w.number(0, Value("", register_elem(dtype), lanes))
    if piece.mask is not None:
        if piece.mask.text in ("false", "splat (i1 false)"):
            return missing
        return _masked_load(f, dtype, piece, missing)
    if lanes >= 4 and _window_step(piece.run, elem_bytes) in _WINDOW_STEPS:
        loaded = _load_windows(f, elem, elem_bytes, piece.run)
    elif lanes and not piece.is_vector(elem_bytes):
        shared: dict[Address, Value] = {}
        for address in piece.run.addresses():
            if address not in shared:
                pointer = f.addresses.displace(*address)
                shared[address] = w.load(pointer, elem, 0, f.load_alignment(elem_bytes))
        loaded = gather_lanes(w, [(shared[address], 0) for address in piece.run.addresses()])
    else:
        where = f.addresses.displace(*piece.run.first)
        loaded = w.load(where, elem, lanes, f.load_alignment(piece.align))
    return from_memory(w, dtype, loaded)


# Strides, in elements, that vector loads and a shuffle serve best: on Zen 4, for stride 2, 0.11 ns
# an element beside 0.15 with scalars and 0.36 with the gather. Beyond them lane by lane,
# which beats the gather too (0.28 and 0.38); a mask that is not known needs the gather.
_WINDOW_STEPS = frozenset({-4, -3, -2, -1, 2, 3, 4})


def _window_step(run: Run, elem_bytes: int) -> int | None:
    """The stride of a run in elements."""
    return None if run.step_bytes is None else run.step_bytes // elem_bytes


def _load_windows(f: Emitter, elem: str, elem_bytes: int, run: Run) -> Value:
    """Whole vectors from the first to the last element, and the wanted lanes of them.

    What lies between two elements of one array is memory of that array too.
    """
    step = (run.step_bytes or 0) // elem_bytes
    size = run.size
    span = (size - 1) * abs(step) + 1
    low = run.first.offset_bytes + min(step, 0) * (size - 1) * elem_bytes
    starts = sorted({min(i * size, span - size) for i in range(-(-span // size))})
    windows = [
        f.w.load(
            f.addresses.displace(run.first.pointer, low + start * elem_bytes),
            elem,
            size,
            f.load_alignment(elem_bytes),
        )
        for start in starts
    ]
    wanted = []
    for i in range(size):
        place = i * step if step > 0 else span - 1 + i * step
        number = max(n for n, start in enumerate(starts) if start <= place)
        wanted.append((windows[number], place - starts[number]))
    return gather_lanes(f.w, wanted)


def _masked_load(f: Emitter, dtype: DType, piece: Chunk, missing: Value) -> Value:
    """Masked-off lanes touch nothing. A scalar is a vector of one, which LLVM makes a branch."""
    w = f.w
    elem, elem_bytes = memory_elem(dtype), dtype.size_bytes
    lanes = piece.size
    mask = _as_vector(f, piece.mask)
    kind = type_text(elem, lanes)
    tail = f"{mask.typed}, {kind} zeroinitializer"
    align = f.load_alignment(piece.align)
    if piece.is_vector(elem_bytes):
        pointer = f.addresses.displace(*piece.run.first)
        name = f"llvm.masked.load.v{lanes}{_short(elem)}.p0"
        w.declarations[name] = f"declare {kind} @{name}(ptr, <{lanes} x i1>, {kind})"

        def masked() -> Value:
            call = f"call {kind} @{name}(ptr align {align} {pointer.text}, {tail})"
            return w.result(call, elem, lanes)

        if lanes == 1 or _masks_in_hardware(f, elem_bytes):
            loaded = masked()
        else:
            whole, partial = _branch_on_full(f, mask)
            plain = w.load(pointer, elem, lanes, align)
            end = _other_way(f, partial)
            loaded = masked()
            w.jump(end)
            f.start_block(end)
            loaded = w.merge(plain, whole, loaded, partial)
    else:
        pointers = _pointer_vector(f, piece.run.addresses())
        name = f"llvm.masked.gather.v{lanes}{_short(elem)}.v{lanes}p0"
        w.declarations[name] = f"declare {kind} @{name}(<{lanes} x ptr>, <{lanes} x i1>, {kind})"
        align = f.load_alignment(elem_bytes)
        loaded = w.result(
            f"call {kind} @{name}(<{lanes} x ptr> align {align} {pointers.text}, {tail})",
            elem,
            lanes,
        )
    if lanes == 1:
        loaded = w.extract(loaded, 0)
    value = from_memory(w, dtype, loaded)
    if _is_zero(missing):
        return value
    assert piece.mask is not None
    return w.select(piece.mask, value, missing)


def _masks_in_hardware(f: Emitter, elem_bytes: int) -> bool:
    """Whether a masked access is an instruction. LLVM makes a branch for every lane otherwise."""
    return f.target.has("avx512bw") or (elem_bytes >= 4 and f.target.has("avx"))


def _branch_on_full(f: Emitter, mask: Value) -> tuple[str, str]:
    """Start the way for a mask without gaps, the usual case of a bounds check; both labels."""
    w = f.w
    whole, partial = w.label("whole"), w.label("partial")
    w.branch(w.reduce_and(mask), whole, partial)
    f.start_block(whole)
    return whole, partial


def _other_way(f: Emitter, label: str) -> str:
    """End the first way, start the second; the label where both will meet."""
    end = f.w.label("end")
    f.w.jump(end)
    f.start_block(label)
    return end


def _is_zero(value: Value) -> bool:
    text = value.text.removesuffix(")").rsplit(" ", 1)[-1]
    plain = not value.lanes or value.text.startswith("splat (")
    return plain and text in ("0", "false", f"0x{0:016X}")


def _as_vector(f: Emitter, mask: Value | None) -> Value:
    assert mask is not None
    if mask.lanes:
        return mask
    return f.w.insert(Value("poison", "i1", 1), mask, 0)


def _pointer_vector(f: Emitter, addresses: Sequence[Address]) -> Value:
    """The addresses of one chunk as a vector of pointers."""
    w = f.w
    lanes = len(addresses)
    if len({address.pointer for address in addresses}) == 1:
        offsets = w.vector([str(address.offset_bytes) for address in addresses], "i64")
        return w.result(
            f"getelementptr i8, ptr {addresses[0].pointer.text}, {offsets.typed}", "ptr", lanes
        )
    result = Value("poison", "ptr", lanes)
    for lane, address in enumerate(addresses):
        result = w.insert(result, f.addresses.displace(*address), lane)
    return result


_SHORT = {"half": "f16", "float": "f32", "double": "f64"}


def _short(elem: str) -> str:
    return _SHORT.get(elem, elem)


# Storing


@emits(Store)
def emit_store(op: Store, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """A strided block, in row-major order."""
    dynamic = op.num_dynamic_strides
    pointer, index = (f.scalar(v) for v in operation.operands[:2])
    strides = [f.scalar(v) for v in operation.operands[3 : 3 + dynamic]]
    rows = block_rows(f, op, pointer, index, strides, operation.operands[0].type.pointee.size_bytes)
    return _store(f, operation, rows, 3 + dynamic, op.align or 1)


@emits(Scatter)
def emit_scatter(_op: Scatter, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """Elements anywhere; the last one stays where addresses repeat."""
    return _store(f, operation, gather_rows(f, operation), 3, 1)


def _store(
    f: Emitter, operation: Operation, rows: Sequence[Run], first: int, align: int
) -> tuple[()]:
    value = operation.operands[2]
    kind = value.type
    dtype = kind.dtype
    lanes = f.lanes(value)
    source = f.tile_in(value, lanes)
    mask = f.tile_in(operation.operands[first], lanes) if len(operation.operands) > first else None
    pieces = chunked(rows, lanes, mask, align, dtype.size_bytes)
    stored: dict[Value, Value] = {}
    for piece, part in zip(pieces, source.parts, strict=True):
        if piece.mask is not None and piece.mask.text in ("false", "splat (i1 false)"):
            continue
        if part not in stored:
            stored[part] = to_memory(f.w, dtype, part)
        _store_chunk(f, dtype, piece, stored[part])
    return ()


def _store_chunk(f: Emitter, dtype: DType, piece: Chunk, value: Value) -> None:
    w = f.w
    elem_bytes = dtype.size_bytes
    lanes = piece.size
    run = piece.is_vector(elem_bytes)
    if piece.mask is None:
        if run:
            w.store(value, f.addresses.displace(*piece.run.first), piece.align)
            return
        last = {address: lane for lane, address in enumerate(piece.run.addresses())}
        for address, lane in last.items():
            pointer = f.addresses.displace(*address)
            w.store(w.extract(value, lane), pointer, elem_bytes)
        return
    mask = _as_vector(f, piece.mask)
    if not value.lanes:
        value = w.insert(Value("poison", value.elem, 1), value, 0)
    kind = value.type
    if run:
        pointer = f.addresses.displace(*piece.run.first)
        name = f"llvm.masked.store.v{lanes}{_short(value.elem)}.p0"
        w.declarations[name] = f"declare void @{name}({kind}, ptr, <{lanes} x i1>)"
        where = f"ptr align {piece.align} {pointer.text}"
        masked = f"call void @{name}({value.typed}, {where}, {mask.typed})"
        if lanes == 1 or _masks_in_hardware(f, elem_bytes):
            w.line(masked)
            return
        _, partial = _branch_on_full(f, mask)
        w.store(value, pointer, piece.align)
        end = _other_way(f, partial)
        w.line(masked)
        w.jump(end)
        f.start_block(end)
        return
    pointers = _pointer_vector(f, piece.run.addresses())
    name = f"llvm.masked.scatter.v{lanes}{_short(value.elem)}.v{lanes}p0"
    w.declarations[name] = f"declare void @{name}({kind}, <{lanes} x ptr>, <{lanes} x i1>)"
    w.line(
        f"call void @{name}({value.typed}, <{lanes} x ptr> align {elem_bytes} {pointers.text}, "
        f"{mask.typed})"
    )


# The rest


@emits(Prefetch)
def emit_prefetch(op: Prefetch, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """A hint for one cache line."""
    pointer, index = (f.scalar(value) for value in operation.operands)
    size_bytes = operation.operands[0].type.pointee.size_bytes
    where = f.addresses.displace(*f.addresses.advance(pointer, index, size_bytes))
    f.w.call_void(
        "llvm.prefetch.p0", where, tail=f", i32 {int(op.write)}, i32 {op.locality}, i32 1"
    )
    return []


@emits(Scratch)
def emit_scratch(_op: Scratch, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """A fixed place in the thread's scratch memory."""
    offset = f.context.scratch_offsets[operation]
    pointer = f.addresses.displace(f.scratch, offset)
    return [RegisterTile("ptr", (), 1, (pointer,), None, pointer)]
