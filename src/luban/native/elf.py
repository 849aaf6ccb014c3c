"""A linker for the ELF objects of our own kernels: several objects in, one image out, no LLVM.

Generated code needs little of what linkers do: functions, their constants, calls between objects
and of named imports, all of it position-independent. That is what is understood here, for x86-64
and 64-bit Arm; everything else is refused, and LLVM's own linker takes it. The formats are those of
the System V ABI (gABI, x86-64 psABI, AAELF64).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from luban.core.errors import InternalError
from luban.native.image import Image
from luban.native.relocations import ARCHITECTURES, Architecture, Patch

__all__ = ["NotUnderstoodError", "link_objects"]

_FUNCTION_ALIGNMENT: Final = 64  # a kernel starts on a cache line, as it would alone
_RELOCATABLE: Final = 1
_SYMBOL_TABLE, _RELOCATIONS, _NO_BITS, _UNWIND = 2, 4, 8, 0x70000001
_RELOCATIONS_WITHOUT_ADDEND: Final = 9
_WRITE, _ALLOCATE, _EXECUTE, _THREAD_LOCAL = 0x1, 0x2, 0x4, 0x400
_LOCAL_BINDING: Final = 0
_UNDEFINED, _RESERVED = 0, 0xFF00

_HEADER = struct.Struct("<4sBBB9xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")


class NotUnderstoodError(Exception):
    """An object holds something that this linker does not know; the text says what."""


class _Section(NamedTuple):
    """One section header of the gABI; `name` is an offset into a table of strings."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


@dataclass(frozen=True, slots=True)
class _Object:
    """One parsed object; `places` is filled with where its sections lie in the image."""

    data: bytes
    sections: list[_Section]
    places: dict[int, int]

    def text(self, table: int, offset: int) -> str:
        """The string at an offset of a table of strings."""
        start = self.sections[table].offset + offset
        return self.data[start : self.data.index(b"\0", start)].decode()

    def entries(self, section: _Section, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
        """The section's content, entry by entry."""
        content = memoryview(self.data)[section.offset : section.offset + section.size]
        return layout.iter_unpack(content)


def _parsed(data: bytes, architecture: str) -> _Object:
    """Raises NotUnderstoodError if it is no 64-bit little-endian ELF object for this machine."""
    if len(data) < _HEADER.size:
        raise NotUnderstoodError("it is too short for an ELF object")
    magic, bits, order, _, kind, machine, *_, at, _, _, _, _, size, count, _ = _HEADER.unpack_from(
        data
    )
    if (magic, bits, order, kind) != (b"\x7fELF", 2, 1, _RELOCATABLE) or size != _SECTION.size:
        raise NotUnderstoodError("it is not a 64-bit little-endian ELF object")
    if machine != ARCHITECTURES[architecture].machine:
        raise NotUnderstoodError(f"it is for ELF machine {machine}, not for {architecture}")
    if at + count * size > len(data):
        raise NotUnderstoodError("its section table lies beyond its end")
    sections = [_Section(*_SECTION.unpack_from(data, at + i * size)) for i in range(count)]
    return _Object(data, sections, {})


def _goes_in(section: _Section) -> bool:
    """Whether it is part of the running code: not notes, debug information or unwind tables."""
    return bool(section.flags & _ALLOCATE) and section.kind != _UNWIND and section.size > 0


class _Layout:
    """The image while it grows: code of all objects first, then their constants."""

    def __init__(self, objects: Sequence[_Object], architecture: Architecture) -> None:
        self.objects = objects
        self.architecture = architecture
        self.content = bytearray()
        self.symbols: dict[str, int] = {}
        self.imports: dict[str, int] = {}  # name -> number of its word in the table
        self._stubs: dict[str, int] = {}

    def place(self) -> None:
        """Lay the sections out one after the other."""
        for executable in (_EXECUTE, 0):
            for found in self.objects:
                for number, section in enumerate(found.sections):
                    if not _goes_in(section) or section.flags & _EXECUTE != executable:
                        continue
                    if section.flags & (_WRITE | _THREAD_LOCAL) or section.kind == _NO_BITS:
                        raise NotUnderstoodError("it has variables; code and constants only")
                    least = _FUNCTION_ALIGNMENT if executable else 1
                    self._pad(max(section.alignment, least))
                    found.places[number] = len(self.content)
                    self.content += found.data[section.offset : section.offset + section.size]

    def name_symbols(self) -> None:
        """Find every global name. Raises InternalError if two objects define the same."""
        for found in self.objects:
            for section in found.sections:
                if section.kind != _SYMBOL_TABLE:
                    continue
                for name, info, _, home, value, _ in found.entries(section, _SYMBOL):
                    if info >> 4 == _LOCAL_BINDING or home == _UNDEFINED:
                        continue
                    text = found.text(section.link, name)
                    if home >= _RESERVED or home not in found.places:
                        raise NotUnderstoodError(f"{text!r} is neither code nor a constant")
                    if text in self.symbols:
                        raise InternalError(f"two objects define the symbol {text!r}")
                    self.symbols[text] = found.places[home] + value

    def relocate(self) -> None:
        """Apply every relocation of the sections that are part of the image."""
        waiting: list[tuple[Patch, int, str, int]] = []
        for found in self.objects:
            for section in found.sections:
                if section.info not in found.places:
                    continue
                if section.kind == _RELOCATIONS_WITHOUT_ADDEND:
                    raise NotUnderstoodError("it has relocations without addends")
                if section.kind == _RELOCATIONS:
                    waiting += self._of_section(found, section)
        # Imports are all known only now: their table lies behind everything else.
        self._write_stubs(waiting)
        start = self.table_offset
        for patch, place, name, addend in waiting:
            if patch.through_table:
                target = start + 8 * self.imports[name]
            else:
                target = self._stubs[name] if name in self.imports else self.symbols[name]
            self._patch(patch, place, target + addend)

    @property
    def table_offset(self) -> int:
        """Where the table of imports goes: behind all code, once that is complete."""
        return len(self.content) + -len(self.content) % 8

    def _of_section(
        self, found: _Object, section: _Section
    ) -> Iterator[tuple[Patch, int, str, int]]:
        """Patch what lies in the same object; what has a name elsewhere is for later."""
        start = found.places[section.info]
        table = found.sections[section.link]
        symbols = list(found.entries(table, _SYMBOL))
        for offset, kind, number, addend in found.entries(section, _RELOCATION):
            patch = self.architecture.patches.get(kind)
            if patch is None:
                raise NotUnderstoodError(f"relocation type {kind} is not known")
            name, _, _, home, value, _ = symbols[number]
            if home == _UNDEFINED:
                text = found.text(table.link, name)
                if text not in self.symbols:
                    self.imports.setdefault(text, len(self.imports))
                elif patch.through_table:
                    raise NotUnderstoodError(f"{text!r} is reached through a table of addresses")
                yield patch, start + offset, text, addend
            elif home not in found.places or patch.through_table:
                raise NotUnderstoodError("a relocation names neither code nor a constant")
            else:
                self._patch(patch, start + offset, found.places[home] + value + addend)

    def _write_stubs(self, waiting: Sequence[tuple[Patch, int, str, int]]) -> None:
        """For each import that is called: code that jumps to the address in its word."""
        stub = self.architecture.stub
        called = dict.fromkeys(
            name
            for patch, _, name, _ in waiting
            if name in self.imports and not patch.through_table
        )
        if not called:
            return
        self._pad(16)
        for number, name in enumerate(called):
            self._stubs[name] = len(self.content) + number * stub.size_bytes
        self.content += bytes(len(called) * stub.size_bytes)
        start = self.table_offset
        for name in called:
            at = self._stubs[name]
            code = stub.code(at, start + 8 * self.imports[name])
            self.content[at : at + stub.size_bytes] = code

    def _patch(self, patch: Patch, place: int, target: int) -> None:
        (before,) = struct.unpack_from(patch.word, self.content, place)
        try:
            struct.pack_into(patch.word, self.content, place, patch.value(before, target, place))
        except (struct.error, OverflowError) as error:
            raise NotUnderstoodError(f"a distance of {target - place} bytes is too far") from error

    def _pad(self, alignment: int) -> None:
        self.content += bytes(-len(self.content) % alignment)


def link_objects(objects: Sequence[bytes], architecture: str) -> Image:
    """One image of all objects, which are for `architecture` as Target names it.

    Its imports are the names that no object defines. Raises NotUnderstoodError for what this linker
    does not know, InternalError if two objects define the same name.
    """
    known = [_parsed(data, architecture) for data in objects]
    layout = _Layout(known, ARCHITECTURES[architecture])
    layout.place()
    layout.name_symbols()
    layout.relocate()
    content = bytes(layout.content)
    return Image(content, layout.symbols, tuple(layout.imports), layout.table_offset)
