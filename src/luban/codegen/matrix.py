"""Dot4 and DotPair: small products, with the instructions that hardware has for them.

Dot4 is `vpdpbusd` (u8 times i8, in either order) with VNNI, `sdot` (i8 times i8) on Arm, two
`pmaddwd` of widened pairs on other x86, and widened products elsewhere. Where the instruction has
the wrong sign for a, 128 is added to or taken from a, and 128 times the sum of b put right
afterwards. DotPair is
`vdpbf16ps` with AVX-512 BF16, which takes subnormal numbers for zero as `DotPair` allows, and two
f32 steps elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from luban.codegen.emitter import Emitter
from luban.codegen.narrow import to_memory
from luban.codegen.registers import RegisterTile, concat, gather_lanes, lanes_of, rechunk
from luban.codegen.table import emits
from luban.codegen.writer import Value
from luban.tile.function import Operation
from luban.tile.ops import Dot4, DotPair

__all__ = ["has_bf16"]

# (acc, a) -> acc: adds the products of one row's four bytes with the panel it was made for
Step = Callable[[Value, Value], Value]


@emits(Dot4)
def emit_dot4(_op: Dot4, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """One chunk of acc takes four times as many bytes of b, and one row's four bytes of a."""
    acc, a, b = operation.operands
    total = f.tile_in(acc, f.lanes(operation.result))
    elements = lanes_of(f.tile(b))
    rows = rechunk(f.w, f.tile(a), 4).parts
    signs = (a.type.dtype.kind == "int", b.type.dtype.kind == "int")
    steps = []
    for start, size in total.chunks:
        panel = gather_lanes(f.w, elements[4 * start : 4 * (start + size)])
        steps.append(_step(f, size, signs, panel))
    parts = [
        step(part, rows[row])
        for row in range(total.rows)
        for step, part in zip(steps, total.row(row), strict=True)
    ]
    return f.result(operation, parts)


def _step(f: Emitter, size: int, signs: tuple[bool, bool], panel: Value) -> Step:
    """The best way for this target; what depends on the panel alone is written here, once.

    signs   whether a has a sign, whether b has
    """
    signed, panel_signed = signs
    if _has_vnni(f, size):
        name = f"x86.avx512.vpdpbusd.{32 * size}"
        if not panel_signed:
            return _turned(f, panel, name)
        return _instruction(f, panel, name, signed, wants_signed=False)
    if size == 4 and f.target.has("dotprod") and panel_signed:
        return _instruction(f, panel, "aarch64.neon.sdot.v4i32.v16i8", signed, wants_signed=True)
    if size in _PAIR_PRODUCTS and f.target.has(_PAIR_PRODUCTS[size][0]):
        return _pair_products(f, panel, _PAIR_PRODUCTS[size][1], signs)
    return _widened(f, panel, signs)


def _has_vnni(f: Emitter, size: int) -> bool:
    if size == 16:
        return f.target.has("avx512vnni")
    wide_forms = f.target.has("avx512vnni") and f.target.has("avx512vl")
    return size in (4, 8) and (wide_forms or f.target.has("avxvnni"))


def _repeated(f: Emitter, a: Value, size: int) -> Value:
    """The four bytes of a row, `size` times."""
    return f.w.bitcast(f.w.splat(f.w.bitcast(a, "i32", 0), size), "i8", 4 * size)


def _turned(f: Emitter, panel: Value, name: str) -> Step:
    """The panel without a sign in the place of the row, which has one."""
    size = panel.lanes // 4

    def step(acc: Value, a: Value) -> Value:
        return f.w.call(f"llvm.{name}", "i32", size, acc, panel, _repeated(f, a, size))

    return step


def _instruction(f: Emitter, panel: Value, name: str, signed: bool, wants_signed: bool) -> Step:
    """One instruction for four products, which takes a as signed or as unsigned bytes."""
    w = f.w
    size = panel.lanes // 4

    def dot(acc: Value, a: Value) -> Value:
        return w.call(f"llvm.{name}", "i32", size, acc, a, panel)

    if signed == wants_signed:
        return lambda acc, a: dot(acc, _repeated(f, a, size))
    # Flipping the top bit moves a by 128 into the other range; 128 sum(b) comes off or on again.
    flip = w.integer(-128, "i8", 4 * size)
    zero, ones = w.integer(0, "i32", size), w.integer(1, "i8", 4 * size)
    sums = w.binary("shl", dot(zero, ones), w.integer(7, "i32", size))
    correct = "add" if wants_signed else "sub"

    def step(acc: Value, a: Value) -> Value:
        moved = w.binary("xor", _repeated(f, a, size), flip)
        return w.binary(correct, dot(acc, moved), sums)

    return step


# chunk size: (feature, intrinsic that adds up products of neighbouring i16)
_PAIR_PRODUCTS = {
    4: ("sse2", "llvm.x86.sse2.pmadd.wd"),
    8: ("avx2", "llvm.x86.avx2.pmadd.wd"),
    16: ("avx512bw", "llvm.x86.avx512.pmaddw.d.512"),
}


def _extension(signed: bool) -> str:
    return "sext" if signed else "zext"


def _pair_products(f: Emitter, panel: Value, name: str, signs: tuple[bool, bool]) -> Step:
    """Bytes 0, 1 and bytes 2, 3 of each four as i16 pairs; their products cannot overflow i32."""
    w = f.w
    size = panel.lanes // 4

    def pairs(source: Value, first: int, opcode: str) -> Value:
        count = source.lanes // 4
        lanes = [4 * i + first + j for i in range(count) for j in (0, 1)]
        return w.convert(opcode, w.shuffle(source, None, lanes), "i16")

    panels = [pairs(panel, first, _extension(signs[1])) for first in (0, 2)]

    def step(acc: Value, a: Value) -> Value:
        for first, half in zip((0, 2), panels, strict=True):
            pair = w.bitcast(pairs(a, first, _extension(signs[0])), "i32", 0)
            repeated = w.bitcast(w.splat(pair, size), "i16", 2 * size)
            acc = w.binary("add", acc, w.call(name, "i32", size, repeated, half))
        return acc

    return step


def _widened(f: Emitter, panel: Value, signs: tuple[bool, bool]) -> Step:
    """Products in i32, and four lanes added up into one."""
    w = f.w
    size = panel.lanes // 4
    wide_panel = w.convert(_extension(signs[1]), panel, "i32")

    def step(acc: Value, a: Value) -> Value:
        wide_a = w.convert(_extension(signs[0]), _repeated(f, a, size), "i32")
        products = w.binary("mul", wide_a, wide_panel)
        for j in range(4):
            picked = gather_lanes(w, [(products, 4 * i + j) for i in range(size)])
            acc = w.binary("add", acc, picked)
        return acc

    return step


@emits(DotPair)
def emit_dot_pair(_op: DotPair, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """Two fused steps in f32: the odd element of each pair, then the even one.

    The factors go back to their 16 bits, which is what was loaded, so nothing is widened.
    """
    acc, a, b = operation.operands
    w = f.w
    total = f.tile_in(acc, f.lanes(operation.result))
    elements = lanes_of(f.tile(b))
    rows = rechunk(w, f.tile(a), 2).parts

    def stored(part: Value) -> Value:
        return to_memory(w, b.type.dtype, part)

    steps = []
    for start, size in total.chunks:
        halves = [
            stored(gather_lanes(w, elements[at : at + size]))
            for at in (2 * start, 2 * start + size)
        ]
        panel = w.bitcast(concat(w, *halves), "i32", size if size > 1 else 0)
        steps.append(_pair_step(f, size, panel))
    parts = []
    for row in range(total.rows):
        pair = w.bitcast(stored(rows[row]), "i32", 0)
        parts += [step(part, pair) for step, part in zip(steps, total.row(row), strict=True)]
    return f.result(operation, parts)


def has_bf16(f: Emitter, size: int) -> bool:
    """Whether the target has the instructions for bf16 in vectors of `size` f32."""
    if not f.target.has("avx512bf16"):
        return False
    return size == 16 or (size in (4, 8) and f.target.has("avx512vl"))


def _pair_step(f: Emitter, size: int, panel: Value) -> Step:
    """Adds the products of one row's pair, two bf16 in an i32, with a panel of pairs."""
    w = f.w
    if has_bf16(f, size):
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * size}"
        bits = w.bitcast(panel, "bfloat", 2 * size)

        def dot(acc: Value, pair: Value) -> Value:
            repeated = w.bitcast(w.splat(pair, size), "bfloat", 2 * size)
            return w.call(name, "float", size, acc, repeated, bits)

        return dot

    def halves(pairs: Value) -> tuple[Value, Value]:
        """The odd and the even elements as f32."""
        odd = w.binary("and", pairs, w.integer(-0x10000, "i32", pairs.lanes))
        even = w.binary("shl", pairs, w.number(16, pairs))
        return w.bitcast(odd, "float"), w.bitcast(even, "float")

    factors = halves(panel)

    def step(acc: Value, pair: Value) -> Value:
        for left, factor in zip(halves(pair), factors, strict=True):
            acc = w.fma(w.splat(left, panel.lanes), factor, acc)
        return acc

    return step
