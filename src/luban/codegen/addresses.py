"""Scalar i64 arithmetic and addresses: constants kept apart, loop invariants in front of the loop.

LLVM's IR passes do not run on our text, so what they would do for addresses happens here: `base +
constant` is remembered, so that a constant becomes the displacement of an instruction, and a sum or
product of loop-invariant scalars is written to a slot in front of the loop.

On x86, where an access takes any displacement, an address inside a loop is frozen. That costs no
instruction, and LLVM's loop strength reduction then sees one moving pointer in place of a sum of
every index of the nest: its search for ways to split such sums was two fifths of the time that a
contraction compiled, and its choice cost registers. Where displacements are short, as on aarch64,
the search finds the pointers that keep them short.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from luban.codegen.writer import Lines, Value, Writer

__all__ = ["Addresses"]

_WRAP = 1 << 64


class Sum(Value):
    """base + constant, an i64 whose addition is written only where its text is asked for.

    Most sums end up as the displacement of an address and need no instruction. What outlives its
    block (a value that flows into a phi node) must go through `Addresses.plain` first.
    """

    addresses: Addresses
    base: Value
    constant: int

    @staticmethod
    def of(addresses: Addresses, base: Value, constant: int) -> Sum:
        """base + constant."""
        result = Sum(f"{base.text}+{constant}", "i64", 0)
        result.addresses, result.base, result.constant = addresses, base, constant
        return result

    @property
    def text(self) -> str:
        """The register that holds the sum here."""
        return self.addresses.plain(self).text

    @property
    def is_constant(self) -> bool:
        """Never: a sum has a register in it."""
        return False


class Addresses:
    """Writes index arithmetic of one function.

    >>> from luban.native.target import named_target
    >>> w = Writer(named_target("avx2"))
    >>> addresses = Addresses(w)
    >>> i = w.argument("i", "i64")
    >>> j = addresses.multiply(addresses.add(i, Value("3", "i64")), Value("8", "i64"))
    >>> addresses.split(j)
    (Value(text='%v1', elem='i64', lanes=0), 24)
    >>> j.text, w.lines
    ('%v2', ['entry:', '  %v1 = mul i64 %i, 8', '  %v2 = add i64 %v1, 24'])
    """

    def __init__(self, writer: Writer) -> None:
        self.w = writer
        self._depths: dict[str, int] = {}
        self._slots: list[Lines] = []  # one in front of each open loop
        self._known: list[dict[tuple[str, ...], Value]] = [{}]  # one a loop depth
        self._freezes = writer.target.architecture == "x86_64"
        self._moved: set[str] = set()  # pointers that `advance` made
        self._alone: set[str] = set()  # pointers that reach memory which no other one reaches

    # Loops

    @contextmanager
    def loop(self, slot: Lines) -> Iterator[None]:
        """Everything inside is in a loop; `slot` is in the block in front of it."""
        self._slots.append(slot)
        self._known.append({})
        # What was computed in the block before the loop is still there inside it: keep it. What is
        # hoisted to `slot` goes there too.
        yield
        self._slots.pop()
        self._known.pop()

    def start_block(self) -> None:
        """Forget what was computed in the block that ended."""
        self._known[-1] = {}

    def note(self, value: Value) -> None:
        """Remember at what loop depth a scalar is computed."""
        if isinstance(value, Sum):
            return
        self._depths.setdefault(value.text, len(self._slots))

    def note_alone(self, pointer: Value) -> None:
        """Remember that nothing else reaches a pointer's memory: its addresses keep saying so."""
        self._alone.add(pointer.text)

    def _depth(self, value: Value) -> int:
        if isinstance(value, Sum):
            value = value.base
        text = value.text
        if text[0] != "%":
            return 0
        here = len(self._slots)
        return min(self._depths.get(text, here), here)  # a loop's results are seen outside it

    def _once(self, opcode: str, elem: str, first: Value, second: Value | None = None) -> Value:
        """One instruction, at the outermost loop depth that has its operands, shared."""
        depth, other = self._depth(first), ""
        if second is not None:
            depth, other = max(depth, self._depth(second)), second.text
        key = (opcode, first.text, other)
        known = self._known[depth]
        found = known.get(key)
        if found is None:
            right = f"{opcode} {first.typed}"
            if second is not None:
                right += f", {second.typed if elem == 'ptr' else other}"
            if depth < len(self._slots):
                with self.w.writing_to(self._slots[depth]):
                    found = self.w.result(right, elem)
            else:
                found = self.w.result(right, elem)
            known[key] = found
            self._depths[found.text] = depth
        return found

    # Arithmetic

    def split(self, value: Value) -> tuple[Value | None, int]:
        """(base, constant) with value = base + constant; base is None for a constant."""
        if isinstance(value, Sum):
            return value.base, value.constant
        if value.text[0] != "%":
            return None, int(value.text)
        return value, 0

    def join(self, base: Value | None, constant: int) -> Value:
        """base + constant as a value."""
        if base is not None and constant == 0:
            return base
        constant = (constant + _WRAP // 2) % _WRAP - _WRAP // 2
        if base is None:
            return Value(str(constant), "i64")
        return Sum.of(self, base, constant)

    def plain(self, value: Value) -> Value:
        """The value as a register or constant, its addition written here if it was not yet."""
        if not isinstance(value, Sum):
            return value
        return self._once("add", "i64", value.base, Value(str(value.constant), "i64"))

    def add(self, a: Value, b: Value) -> Value:
        """a + b."""
        (base_a, constant_a), (base_b, constant_b) = self.split(a), self.split(b)
        if base_a is None or base_b is None:
            base = base_b if base_a is None else base_a
        else:
            base = self._once("add", "i64", base_a, base_b)
        return self.join(base, constant_a + constant_b)

    def subtract(self, a: Value, b: Value) -> Value:
        """a - b."""
        (base_a, constant_a), (base_b, constant_b) = self.split(a), self.split(b)
        if base_b is None:
            base = base_a
        elif base_a == base_b:
            base = None
        else:
            base = self._once("sub", "i64", base_a or Value("0", "i64"), base_b)
        return self.join(base, constant_a - constant_b)

    def multiply(self, a: Value, b: Value) -> Value:
        """a * b."""
        (base_a, constant_a), (base_b, constant_b) = self.split(a), self.split(b)
        if base_a is None and base_b is None:
            return self.join(None, constant_a * constant_b)
        if base_a is None or base_b is None:
            base, offset = (base_a, constant_a) if base_b is None else (base_b, constant_b)
            factor = constant_b if base_b is None else constant_a
            if factor == 0 or base is None:
                return Value("0", "i64")
            if factor == 1:
                return a if base_b is None else b
            scaled = self._once("mul", "i64", base, Value(str(factor), "i64"))
            return self.join(scaled, offset * factor)
        return self._once("mul", "i64", a, b)

    # Addresses

    def advance(self, pointer: Value, index: Value, size_bytes: int) -> tuple[Value, int]:
        """(pointer, constant bytes) of element `index`, whose constant part stays apart."""
        base, constant = self.split(index)
        if base is not None:
            pointer = self._move(pointer, base, size_bytes)
        return pointer, constant * size_bytes

    def _move(self, pointer: Value, index: Value, size_bytes: int) -> Value:
        """pointer + index, frozen in a loop."""
        freeze = self._freezes and bool(self._slots)
        alone = pointer.text in self._alone
        # Rows that have own starts and share an index keep both apart: the two registers of one
        # address. Memory that is a pointer's alone is known by that pointer.
        apart = alone or pointer.text in self._moved
        if freeze and apart:
            index = self._once("freeze", "i64", index)
        moved = self._once(f"getelementptr i{8 * size_bytes},", "ptr", pointer, index)
        if freeze and not apart:
            moved = self._once("freeze", "ptr", moved)
        self._moved.add(moved.text)
        if alone:
            self._alone.add(moved.text)
        return moved

    def displace(self, pointer: Value, offset_bytes: int) -> Value:
        """pointer + constant bytes."""
        if offset_bytes == 0:
            return pointer
        return self._once("getelementptr i8,", "ptr", pointer, Value(str(offset_bytes), "i64"))
