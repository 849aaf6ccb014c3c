"""Dot4 and DotPair: small products, with the instructions that hardware has for them.

x86 with VNNI has u8 times i8; i8 times i8 becomes that with 128 added to a and 128 times the sum of
b taken away again. Elsewhere the factors are widened. DotPair is `vdpbf16ps` with AVX-512 BF16,
which takes subnormal numbers for zero as `DotPair` allows, and two f32 steps elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from luban.codegen.emitter import Emitter
from luban.codegen.narrow import to_memory
from luban.codegen.registers import Lane, RegisterTile, concat, gather_lanes, lanes_of, rechunk
from luban.codegen.table import emits
from luban.codegen.writer import Value, type_text
from luban.tile.function import Operation
from luban.tile.ops import Dot4, DotPair

__all__: list[str] = []


@emits(Dot4)
def emit_dot4(_op: Dot4, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """One chunk of acc takes four times as many bytes of b, and one row's four bytes of a."""
    acc, a, b = operation.operands
    lanes = f.lanes(operation.result)
    total = f.tile_in(acc, lanes)
    bytes_of_b = lanes_of(f.tile(b))
    groups = rechunk(f.w, f.tile(a), 4)
    signed = a.type.dtype.kind == "int"
    chunks_of_b = _groups(f, bytes_of_b, total, 4)
    sums = _sums(f, chunks_of_b) if signed else None
    parts = []
    for row in range(total.rows):
        for number, part in enumerate(total.row(row)):
            factor = chunks_of_b[number]
            parts.append(_dot4(f, part, groups.parts[row], factor, sums))
    return f.result(operation, parts)


def _groups(
    f: Emitter, elements: Sequence[tuple[Value, int]], total: RegisterTile, count: int
) -> list[Value]:
    """The elements of b that belong to each chunk of a row of acc."""
    return [
        gather_lanes(f.w, elements[start * count : (start + size) * count])
        for start, size in total.chunks
    ]


def _sums(f: Emitter, chunks: Sequence[Value]) -> dict[Value, Value]:
    """128 times the sum of each four of b, for the chunks that VNNI multiplies."""
    w = f.w
    result = {}
    for b in chunks:
        size = b.lanes // 4
        if _has_vnni(f, size):
            zero, unsigned = w.integer(0, "i32", size), w.integer(-128, "i8", b.lanes)
            result[b] = _vnni(f, zero, unsigned, b)
    return result


def _dot4(f: Emitter, acc: Value, a: Value, b: Value, sums: dict[Value, Value] | None) -> Value:
    """One row of one chunk; `sums` is None for unsigned a."""
    w = f.w
    signed = sums is not None
    size = max(acc.lanes, 1)
    repeated = w.bitcast(w.splat(w.bitcast(a, "i32", 0), size), "i8", 4 * size)
    if _has_vnni(f, size):
        if sums is None:
            return _vnni(f, acc, repeated, b)
        # (a + 128) b - 128 b, where -128 as an unsigned byte is 128.
        raised = w.binary("xor", repeated, w.integer(-128, "i8", 4 * size))
        return w.binary("sub", _vnni(f, acc, raised, b), sums[b])
    wide_a = w.convert("sext" if signed else "zext", repeated, "i32")
    products = w.binary("mul", wide_a, w.convert("sext", b, "i32"))
    result = acc
    for j in range(4):
        picked = gather_lanes(w, [(products, 4 * i + j) for i in range(size)])
        result = w.binary("add", result, picked)
    return result


def _has_vnni(f: Emitter, size: int) -> bool:
    """The form with the same rounding and width: EVEX for every width, VEX up to 256 bits."""
    if size == 16:
        return f.target.has("avx512vnni")
    wide_forms = f.target.has("avx512vnni") and f.target.has("avx512vl")
    return size in (4, 8) and (wide_forms or f.target.has("avxvnni"))


def _vnni(f: Emitter, acc: Value, unsigned: Value, signed: Value) -> Value:
    w = f.w
    bits = 32 * acc.lanes
    kind = acc.type
    name = f"llvm.x86.avx512.vpdpbusd.{bits}"
    bytes_kind = type_text("i8", 4 * acc.lanes)
    w.declarations[name] = f"declare {kind} @{name}({kind}, {bytes_kind}, {bytes_kind})"
    call = f"call {kind} @{name}({acc.typed}, {unsigned.typed}, {signed.typed})"
    return w.result(call, acc.elem, acc.lanes)


@emits(DotPair)
def emit_dot_pair(_op: DotPair, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """Two fused steps in f32: the odd element of each pair, then the even one."""
    acc, a, b = operation.operands
    lanes = f.lanes(operation.result)
    total = f.tile_in(acc, lanes)
    pairs = lanes_of(f.tile(b))
    factors = lanes_of(f.tile(a))
    w = f.w
    if all(_has_bf16(f, size) for _, size in total.chunks):
        return f.result(operation, _dot_pairs(f, operation, total, pairs, factors))
    columns = [
        [
            gather_lanes(w, pairs[2 * start + j : 2 * (start + size) : 2])
            for start, size in total.chunks
        ]
        for j in (0, 1)
    ]
    parts = []
    for row in range(total.rows):
        for number, part in enumerate(total.row(row)):
            for j in (1, 0):
                left = w.splat(gather_lanes(w, [factors[2 * row + j]]), part.lanes)
                part = w.fma(left, columns[j][number], part)
            parts.append(part)
    return f.result(operation, parts)


def _has_bf16(f: Emitter, size: int) -> bool:
    if size == 16:
        return f.target.has("avx512bf16")
    return size in (4, 8) and f.target.has("avx512bf16") and f.target.has("avx512vl")


def _dot_pairs(
    f: Emitter,
    operation: Operation,
    total: RegisterTile,
    pairs: Sequence[Lane],
    factors: Sequence[Lane],
) -> list[Value]:
    """Every part of the result by one instruction; the factors go back to their 16 bits."""
    w = f.w
    dtype = operation.operands[1].type.dtype

    def stored(elements: Sequence[Lane]) -> Value:
        return to_memory(w, dtype, gather_lanes(w, elements))

    panels = []
    for start, size in total.chunks:
        halves = [stored(pairs[2 * start + h : 2 * start + h + size]) for h in (0, size)]
        panels.append(w.bitcast(concat(w, *halves), "bfloat", 2 * size))
    parts = []
    for row in range(total.rows):
        factor = w.bitcast(stored(factors[2 * row : 2 * row + 2]), "i32", 0)
        for part, panel in zip(total.row(row), panels, strict=True):
            repeated = w.bitcast(w.splat(factor, part.lanes), "bfloat", 2 * part.lanes)
            name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * part.lanes}"
            parts.append(w.call(name, "float", part.lanes, part, repeated, panel))
    return parts
