"""Cast and Bitcast between all element types."""

from __future__ import annotations

from collections.abc import Sequence

from luban.codegen import narrow
from luban.codegen.elementwise import elementwise
from luban.codegen.emitter import Emitter
from luban.codegen.integers import clamp
from luban.codegen.matrix import has_bf16
from luban.codegen.registers import RegisterTile, memory_elem, register_elem
from luban.codegen.table import emits
from luban.codegen.writer import BITS, Value, Writer
from luban.core.dtypes import DTYPES, DType
from luban.tile.function import Operation
from luban.tile.ops import Bitcast, Cast

__all__ = ["cast"]


@emits(Cast)
def emit_cast(op: Cast, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """Part by part: the layout gives both sides the same chunks."""
    source = operation.operands[0].type.dtype
    if op.flush and (source.name, op.dtype.name) == ("f32", "bf16"):
        return elementwise(f, operation, lambda x: _to_pairs(f, x))
    return elementwise(f, operation, lambda x: cast(f.w, source, op.dtype, x, op.saturate))


def _to_pairs(f: Emitter, x: Value) -> Value:
    """f32 as the f32 that carries a bf16, by the instruction that goes with bf16 products."""
    if not has_bf16(f, x.lanes):
        return narrow.round_carrier(f.w, DTYPES["bf16"], x)
    name = f"llvm.x86.avx512bf16.cvtneps2bf16.{32 * x.lanes}"
    bits = f.w.bitcast(f.w.call(name, "bfloat", x.lanes, x), "i16", x.lanes)
    return narrow.from_memory(f.w, DTYPES["bf16"], bits)


@emits(Bitcast)
def emit_bitcast(op: Bitcast, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """Through the form in memory, which is the one that has the bits."""
    source, to = operation.operands[0].type.dtype, op.dtype
    w = f.w

    def convert(x: Value) -> Value:
        stored = narrow.to_memory(w, source, x)
        return narrow.from_memory(w, to, w.bitcast(stored, memory_elem(to)))

    return elementwise(f, operation, convert)


def cast(w: Writer, source: DType, to: DType, x: Value, saturate: bool) -> Value:
    """One part converted, as `Cast` says; each rounding happens once."""
    if source is to:
        return x
    if narrow.is_stored_float(source):
        x, source = narrow.decode(w, source, x), DTYPES["f32"]
    if source.bits == 16 and source.is_float:
        source = DTYPES["f32"]  # a carrier is an f32 already
        if to is source:
            return x
    if to.kind == "bool":
        return w.compare("une" if source.is_float else "ne", x, w.number(0, x))
    if source.kind == "bool":
        if not to.is_float:
            return w.convert("zext", x, register_elem(to))
        x, source = w.convert("zext", x, "i32"), DTYPES["i32"]
    if to.is_float:
        return _to_float(w, source, to, x, saturate)
    if source.is_float:
        return _float_to_integer(w, to, x, saturate)
    return _integer_to_integer(w, source, to, x, saturate)


def _to_float(w: Writer, source: DType, to: DType, x: Value, saturate: bool) -> Value:
    if to.bits >= 32:
        if source.is_float:
            opcode = "fptrunc" if to.bits < source.bits else "fpext"
            return w.convert(opcode, x, register_elem(to))
        return w.convert("sitofp" if source.kind == "int" else "uitofp", x, register_elem(to))
    if source.is_integer:
        x = _exact_or_odd(w, source, x)
    if x.elem == "double":
        x = narrow.odd_f32(w, x)
    if narrow.is_stored_float(to):
        return narrow.encode(w, to, x, saturate)
    return narrow.round_carrier(w, to, x)


def _exact_or_odd(w: Writer, source: DType, x: Value) -> Value:
    """An integer as a float that holds it exactly, or rounded to odd where none does."""
    opcode = "sitofp" if source.kind == "int" else "uitofp"
    if source.bits <= 16:
        return w.convert(opcode, x, "float")
    if source.bits == 32:
        return w.convert(opcode, x, "double")
    # Beyond 53 bits, fold the low 11 bits into one sticky bit: what is left fits f64 exactly.
    low = w.binary("and", x, w.number(0x7FF, x))
    lost = w.compare("ne", low, w.number(0, x))
    sticky = w.select(lost, w.number(0x800, x), w.number(0, x))
    high = w.binary("or", w.binary("sub", x, low), sticky)
    bound = w.number(1 << 52, x)
    if source.kind == "int":
        small = w.compare("ult", w.binary("add", x, bound), w.number(1 << 53, x))
    else:
        small = w.compare("ult", x, bound)
    return w.convert(opcode, w.select(small, x, high), "double")


def _integer_to_integer(w: Writer, source: DType, to: DType, x: Value, saturate: bool) -> Value:
    if saturate:
        low = to.lowest if to.lowest > source.lowest else None
        high = to.highest if to.highest < source.highest else None
        x = clamp(w, x, source.kind == "int", low, high)
    elem = register_elem(to)
    if BITS[elem] < BITS[x.elem]:
        x = w.convert("trunc", x, elem)
    elif BITS[elem] > BITS[x.elem]:
        x = w.convert("sext" if source.kind == "int" else "zext", x, elem)
    return narrow.wrap_small(w, to, x) if to.bits < 8 and not saturate else x


def _float_to_integer(w: Writer, to: DType, x: Value, saturate: bool) -> Value:
    """Truncate; NaN is 0. Clamped to `to`, or clamped to 64 bits and wrapped."""
    if saturate:
        return _saturating(w, to, x)
    wide = DTYPES["u64" if to.name == "u64" else "i64"]
    return _integer_to_integer(w, wide, to, _saturating(w, wide, x), saturate=False)


def _saturating(w: Writer, to: DType, x: Value) -> Value:
    """Cut to the range first, in floats that stand for its ends, then convert what surely fits."""
    signed = to.kind == "int"
    middle = "i32" if to.bits < 32 else register_elem(to)
    low, high = w.number(float(to.lowest), x), w.number(float(to.highest), x)
    if signed:
        number = w.select(w.compare("uno", x, x), w.number(0.0, x), x)
        number = w.select(w.compare("olt", number, low), low, number)
    else:  # what is not above 0 is 0, NaN too
        number = w.select(w.compare("ogt", x, low), x, low)
    opcode = "fptosi" if signed or to.bits < 32 else "fptoui"
    mantissa = 53 if x.elem == "double" else 24
    if to.bits - signed <= mantissa:  # the upper end is exact
        number = w.select(w.compare("ogt", number, high), high, number)
        converted = w.convert(opcode, number, middle)
    else:
        # float(highest) is 2**n, one too many: convert 0 instead and put the end in afterwards.
        above = w.compare("oge", number, high)
        inside = w.select(above, w.number(0.0, x), number)
        end = w.integer(to.highest, middle, x.lanes)
        converted = w.select(above, end, w.convert(opcode, inside, middle))
    elem = register_elem(to)
    return converted if elem == middle else w.convert("trunc", converted, elem)
