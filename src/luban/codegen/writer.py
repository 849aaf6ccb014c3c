"""Text of one LLVM function: SSA instructions, blocks and phi nodes written directly, in order.

Nothing here knows the tile IR. Values carry their type, so an instruction needs no type arguments.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from luban.native.target import Target

__all__ = ["Lines", "Phi", "Value", "Writer", "float_text", "suffix", "type_text"]

# Lines of a function; a list inside is a slot that may still grow (see `Writer.slot`).
Lines = list["str | Lines"]

# Bits of each element; `half` and `bfloat` occur only in memory and in conversions.
BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
BITS |= {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}
_SUFFIX = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}
FLOATS = frozenset({"half", "bfloat", "float", "double"})


@functools.cache
def type_text(elem: str, lanes: int) -> str:
    """LLVM's spelling of a type; 0 lanes is a scalar.

    >>> type_text("float", 16), type_text("i64", 0)
    ('<16 x float>', 'i64')
    """
    return f"<{lanes} x {elem}>" if lanes else elem


@functools.cache
def suffix(elem: str, lanes: int) -> str:
    """A type as it stands in the name of an intrinsic.

    >>> suffix("float", 8), suffix("i32", 0)
    ('v8f32', 'i32')
    """
    short = _SUFFIX.get(elem, elem)
    return f"v{lanes}{short}" if lanes else short


def float_text(elem: str, bits: int) -> str:
    """A float constant given by its 32 or 64 bits, in LLVM's exact hexadecimal form.

    >>> float_text("float", 0x3F800000)
    '0x3FF0000000000000'
    """
    if elem == "double":
        return f"0x{bits:016X}"
    exponent, fraction = bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent == 0xFF:  # by hand: Python's float() would quiet a signalling NaN
        wide = (bits >> 31) << 63 | 0x7FF << 52 | fraction << 29
    else:
        (value,) = struct.unpack("<f", struct.pack("<I", bits))
        (wide,) = struct.unpack("<Q", struct.pack("<d", value))
    return f"0x{wide:016X}"


def float_bits(elem: str, value: float) -> int:
    """The bits of `value` rounded to "float" or "double"; too large is infinity."""
    if elem == "double":
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    try:
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    except OverflowError:
        return 0x7F800000 if value > 0 else 0xFF800000


class Value(NamedTuple):
    """A register or a constant. `text` is what stands after the type; 0 lanes is a scalar."""

    text: str
    elem: str
    lanes: int = 0

    @property
    def type(self) -> str:
        """LLVM's spelling of the type."""
        return type_text(self.elem, self.lanes)

    @property
    def typed(self) -> str:
        """Type and text, as an operand of a call or return."""
        return f"{type_text(self.elem, self.lanes)} {self.text}"

    @property
    def is_constant(self) -> bool:
        """Whether no instruction computes it."""
        return self.text[0] != "%"


class Phi(NamedTuple):
    """A phi node whose second incoming value is not known yet; see `Writer.phi`."""

    value: Value
    lines: Lines
    line: int
    incoming: tuple[Value, str]


class Writer:
    """One function. Every method that computes appends one instruction and returns its value.

    >>> from luban.native.target import named_target
    >>> w = Writer(named_target("avx2"))
    >>> x = w.argument("x", "float", 8)
    >>> w.binary("fadd", x, w.number(1.5, x)).text
    '%v1'
    >>> print(w.lines[-1])
      %v1 = fadd <8 x float> %x, splat (float 0x3FF8000000000000)
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.lines: Lines = ["entry:"]
        self.block = "entry"
        self.arguments: list[Value] = []
        self.declarations: dict[str, str] = {}
        self.tables: dict[str, str] = {}
        self.deferred: list[Callable[[], None]] = []
        self._count = 0

    # Structure

    def argument(self, name: str, elem: str, lanes: int = 0) -> Value:
        """Declare the next argument of the function."""
        value = Value(f"%{name}", elem, lanes)
        self.arguments.append(value)
        return value

    def label(self, hint: str) -> str:
        """A fresh block name; the block starts with `start_block`."""
        self._count += 1
        return f"{hint}{self._count}"

    def start_block(self, label: str) -> None:
        """Instructions from here on belong to block `label`."""
        self.lines.append(f"{label}:")
        self.block = label

    def write_deferred(self) -> None:
        """Append what waits for its first use: memory may change now, or the block ends."""
        waiting, self.deferred = self.deferred, []
        for write in waiting:
            write()

    def line(self, text: str) -> None:
        """Append an instruction without a result: a store, a branch, a call."""
        if self.deferred:
            self.write_deferred()
        self.lines.append(f"  {text}")

    def result(self, right: str, elem: str, lanes: int = 0) -> Value:
        """Append `%vN = right` and return %vN."""
        self._count += 1
        text = f"%v{self._count}"
        self.lines.append(f"  {text} = {right}")
        return Value(text, elem, lanes)

    def slot(self) -> Lines:
        """A place here that `writing_to` can fill later."""
        slot: Lines = []
        self.lines.append(slot)
        return slot

    @contextmanager
    def writing_to(self, slot: Lines) -> Iterator[None]:
        """Append to `slot` instead of the end of the function."""
        self.lines, held = slot, self.lines
        try:
            yield
        finally:
            self.lines = held

    def text(self, header: str) -> str:
        """The whole function; `header` is everything before its brace."""
        return "\n".join([f"{header} {{", *_flatten(self.lines), "}"])

    def jump(self, label: str) -> None:
        """Unconditional branch."""
        self.line(f"br label %{label}")

    def branch(self, condition: Value, yes: str, no: str) -> None:
        """Branch on an i1 scalar."""
        self.line(f"br i1 {condition.text}, label %{yes}, label %{no}")

    def phi(self, initial: Value, source: str) -> Phi:
        """A phi node with one incoming value; `close_phi` adds the other once it is known."""
        value = self.result("phi", initial.elem, initial.lanes)
        return Phi(value, self.lines, len(self.lines) - 1, (initial, source))

    def close_phi(self, phi: Phi, value: Value, source: str) -> None:
        """Give an open phi node its second incoming value."""
        (first, where), (name, elem, lanes) = phi.incoming, phi.value
        phi.lines[phi.line] = (
            f"  {name} = phi {type_text(elem, lanes)} "
            f"[ {first.text}, %{where} ], [ {value.text}, %{source} ]"
        )

    def merge(self, first: Value, source: str, second: Value, other: str) -> Value:
        """A phi node with both incoming values."""
        return self.result(
            f"phi {first.type} [ {first.text}, %{source} ], [ {second.text}, %{other} ]",
            first.elem,
            first.lanes,
        )

    # Constants

    def constant(self, text: str, elem: str, lanes: int = 0) -> Value:
        """The scalar constant `text` in every lane."""
        return Value(f"splat ({elem} {text})" if lanes else text, elem, lanes)

    def number(self, value: float, like: Value) -> Value:
        """`value` rounded to the element type of `like`, in every lane."""
        if like.elem in FLOATS:
            return _float_constant(value, math.copysign(1.0, value), like.elem, like.lanes)
        if like.elem == "i1":
            return self.constant("true" if value else "false", "i1", like.lanes)
        return self.constant(str(int(value)), like.elem, like.lanes)

    def bits(self, bits: int, elem: str, lanes: int = 0) -> Value:
        """The float constant with these bits, in every lane."""
        return self.constant(float_text(elem, bits), elem, lanes)

    def integer(self, value: int, elem: str, lanes: int = 0) -> Value:
        """An integer constant, in every lane."""
        return self.constant(str(value), elem, lanes)

    def vector(self, texts: Sequence[str], elem: str) -> Value:
        """A constant vector of these scalar constants."""
        if len(set(texts)) == 1:
            return self.constant(texts[0], elem, len(texts))
        return Value("<" + ", ".join(f"{elem} {t}" for t in texts) + ">", elem, len(texts))

    # Instructions

    def binary(self, opcode: str, a: Value, b: Value) -> Value:
        """`opcode a, b`, result of the same type."""
        return self.result(f"{opcode} {a.type} {a.text}, {b.text}", a.elem, a.lanes)

    def unary(self, opcode: str, a: Value) -> Value:
        """`opcode a`, result of the same type."""
        return self.result(f"{opcode} {a.type} {a.text}", a.elem, a.lanes)

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        """icmp or fcmp, by the element type; i1 in every lane."""
        opcode = "fcmp" if a.elem in FLOATS else "icmp"
        return self.result(f"{opcode} {predicate} {a.type} {a.text}, {b.text}", "i1", a.lanes)

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """Lane by lane, `yes` where the condition holds."""
        if condition.is_constant:
            if condition.text in {"true", "splat (i1 true)"}:
                return yes
            if condition.text in {"false", "splat (i1 false)"}:
                return no
        return self.result(
            f"select {condition.typed}, {yes.typed}, {no.typed}", yes.elem, yes.lanes
        )

    def convert(self, opcode: str, a: Value, elem: str) -> Value:
        """trunc, zext, sext, fptosi, sitofp, ...: lane by lane."""
        if a.elem == elem:
            return a
        return self.result(f"{opcode} {a.typed} to {type_text(elem, a.lanes)}", elem, a.lanes)

    def bitcast(self, a: Value, elem: str, lanes: int | None = None) -> Value:
        """The same bits as another type."""
        lanes = a.lanes if lanes is None else lanes
        if (a.elem, a.lanes) == (elem, lanes):
            return a
        return self.result(f"bitcast {a.typed} to {type_text(elem, lanes)}", elem, lanes)

    def call(self, name: str, elem: str, lanes: int, *args: Value, tail: str = "") -> Value:
        """Call an intrinsic or function, declared at its first use; `tail` is appended as it is."""
        kind = type_text(elem, lanes)
        self.declare(name, kind, args, tail)
        return self.result(f"call {kind} @{name}({_operands(args)}{tail})", elem, lanes)

    def call_void(self, name: str, *args: Value, tail: str = "") -> None:
        """Call an intrinsic without a result."""
        self.declare(name, "void", args, tail)
        self.line(f"call void @{name}({_operands(args)}{tail})")

    def declare(self, name: str, kind: str, args: Sequence[Value], tail: str = "") -> None:
        """Note that the module must declare `name`."""
        if name not in self.declarations:
            types = [a.type for a in args]
            types += [part.rsplit(" ", 1)[0].strip() for part in tail.split(",") if part.strip()]
            self.declarations[name] = f"declare {kind} @{name}({', '.join(types)})"

    def intrinsic(self, name: str, *args: Value) -> Value:
        """`llvm.name` on operands of one type, which is also the result's."""
        _, elem, lanes = args[0]
        full, kind = _overloaded(name, elem, lanes)
        if full not in self.declarations:
            self.declare(full, kind, args, "")
        operands = ", ".join([f"{kind} {arg.text}" for arg in args])
        return self.result(f"call {kind} @{full}({operands})", elem, lanes)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c: one rounding where the target can, else two."""
        if self.target.has_fma:
            return self.intrinsic("fma", a, b, c)
        return self.binary("fadd", self.binary("fmul", a, b), c)

    # Vectors

    def extract(self, a: Value, lane: int) -> Value:
        """One lane as a scalar."""
        return self.result(f"extractelement {a.typed}, i64 {lane}", a.elem)

    def insert(self, a: Value, scalar: Value, lane: int) -> Value:
        """`a` with one lane replaced."""
        return self.result(f"insertelement {a.typed}, {scalar.typed}, i64 {lane}", a.elem, a.lanes)

    def splat(self, scalar: Value, lanes: int) -> Value:
        """A scalar in every lane; itself for 0 lanes."""
        if not lanes:
            return scalar
        if scalar.is_constant:
            return self.constant(scalar.text, scalar.elem, lanes)
        kind = type_text(scalar.elem, lanes)
        first = self.result(
            f"insertelement {kind} poison, {scalar.typed}, i64 0", scalar.elem, lanes
        )
        return self.shuffle(first, None, [0] * lanes)

    def reduce_and(self, mask: Value) -> Value:
        """Whether every lane of a mask is true."""
        return self.call(f"llvm.vector.reduce.and.v{mask.lanes}i1", "i1", 0, mask)

    def reduce_or(self, mask: Value) -> Value:
        """Whether any lane of a mask is true."""
        if not mask.lanes:
            return mask
        return self.call(f"llvm.vector.reduce.or.v{mask.lanes}i1", "i1", 0, mask)

    def shuffle(self, a: Value, b: Value | None, lanes: Sequence[int]) -> Value:
        """Lanes of `a` (0..n-1) and `b` (n..2n-1) in the order given; -1 is any value."""
        other = b.text if b else "poison"
        if not any(lanes):
            mask = "zeroinitializer"
        else:
            mask = "<" + ", ".join(f"i32 {i if i >= 0 else 'poison'}" for i in lanes) + ">"
        return self.result(
            f"shufflevector {a.typed}, {a.type} {other}, <{len(lanes)} x i32> {mask}",
            a.elem,
            len(lanes),
        )

    # Memory

    def offset(self, pointer: Value, offset_bytes: int | Value) -> Value:
        """pointer + offset_bytes."""
        if isinstance(offset_bytes, int):
            if offset_bytes == 0:
                return pointer
            text = str(offset_bytes)
        else:
            text = offset_bytes.text
        return self.result(f"getelementptr i8, ptr {pointer.text}, i64 {text}", "ptr")

    def gather_table(self, symbol: str, elem: str, index: Value) -> Value:
        """Elements of a constant table of the module, one for each lane of `index`."""
        lanes = index.lanes
        pointers = self.result(f"getelementptr {elem}, ptr @{symbol}, {index.typed}", "ptr", lanes)
        every = self.constant("true", "i1", lanes)
        missing = Value("zeroinitializer", elem, lanes)
        name = f"llvm.masked.gather.{suffix(elem, lanes)}.v{lanes}p0"
        kind = type_text(elem, lanes)
        self.declarations[name] = f"declare {kind} @{name}(<{lanes} x ptr>, <{lanes} x i1>, {kind})"
        call = f"call {kind} @{name}({pointers.typed}, {every.typed}, {missing.typed})"
        return self.result(call, elem, lanes)

    def load(self, pointer: Value, elem: str, lanes: int, align: int) -> Value:
        """Load a scalar or vector."""
        kind = type_text(elem, lanes)
        return self.result(f"load {kind}, ptr {pointer.text}, align {align}", elem, lanes)

    def store(self, value: Value, pointer: Value, align: int) -> None:
        """Store a scalar or vector."""
        self.line(f"store {value.typed}, ptr {pointer.text}, align {align}")


@functools.cache
def _overloaded(name: str, elem: str, lanes: int) -> tuple[str, str]:
    """The full name of an intrinsic and its type."""
    return f"llvm.{name}.{suffix(elem, lanes)}", type_text(elem, lanes)


@functools.cache
def _float_constant(value: float, _sign: float, elem: str, lanes: int) -> Value:
    """A float constant in every lane. The sign is part of the key because 0.0 equals -0.0."""
    text = float_text(elem, float_bits(elem, value))
    return Value(f"splat ({elem} {text})" if lanes else text, elem, lanes)


def _flatten(lines: Lines) -> Iterator[str]:
    for line in lines:
        if isinstance(line, str):
            yield line
        else:
            yield from _flatten(line)


def _operands(args: Sequence[Value]) -> str:
    return ", ".join(a.typed for a in args)
