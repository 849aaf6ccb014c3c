"""How a word of code or data comes to name another place: the relocations of our generated code.

Every one is relative: it depends on the distance between two places of an image, or on places
within their pages, and an image is mapped on a page boundary. So an image runs anywhere, unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["ARCHITECTURES", "Architecture", "Patch", "Stub"]


@dataclass(frozen=True, slots=True)
class Patch:
    """One type of relocation.

    word           the struct format of the word that changes
    value          (the word before, target with addend, place of the word) -> the word after;
                   raises OverflowError if the target is too far
    through_table  the target is the word that holds an import's address, not the import
    """

    word: str
    value: Callable[[int, int, int], int]
    through_table: bool = False


@dataclass(frozen=True, slots=True)
class Stub:
    """Code that jumps to the address in a word. code(its place, the word's place) -> bytes."""

    size_bytes: int
    code: Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class Architecture:
    """What the linker knows of one machine; `machine` is ELF's number of it."""

    machine: int
    patches: Mapping[int, Patch]
    stub: Stub


def _distance(_: int, target: int, place: int) -> int:
    return target - place


_X86_STUB_BYTES: Final = 8


def _x86_stub(place: int, word: int) -> bytes:
    """jmp *(word - end)(%rip), which is 6 bytes long, then int3."""
    return b"\xff\x25" + struct.pack("<i", word - place - 6) + b"\xcc\xcc"


_X86_64 = Architecture(
    62,
    {
        2: Patch("<i", _distance),  # R_X86_64_PC32
        4: Patch("<i", _distance),  # R_X86_64_PLT32
        24: Patch("<q", _distance),  # R_X86_64_PC64
        9: Patch("<i", _distance, through_table=True),  # R_X86_64_GOTPCREL
        41: Patch("<i", _distance, through_table=True),  # R_X86_64_GOTPCRELX
        42: Patch("<i", _distance, through_table=True),  # R_X86_64_REX_GOTPCRELX
    },
    Stub(_X86_STUB_BYTES, _x86_stub),
)


def _field(word: int, value: int, shift: int, bits: int) -> int:
    """`word` with `bits` bits from `shift` on replaced by those of a signed number."""
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise OverflowError
    mask = (1 << bits) - 1
    return word & ~(mask << shift) | (value & mask) << shift


def _branch(word: int, target: int, place: int) -> int:
    """b, bl: 26 bits of words."""
    return _field(word, target - place >> 2, 0, 26)


def _split(word: int, value: int) -> int:
    """adr, adrp: 21 bits, the lowest two at bit 29, the others at bit 5."""
    if not -(1 << 20) <= value < 1 << 20:
        raise OverflowError
    cleared = word & ~(0x3 << 29 | 0x7FFFF << 5)
    return cleared | (value & 0x3) << 29 | (value >> 2 & 0x7FFFF) << 5


def _page(word: int, target: int, place: int) -> int:
    return _split(word, (target >> 12) - (place >> 12))


def _near(word: int, target: int, place: int) -> int:
    return _split(word, target - place)


def _within_page(scale: int) -> Callable[[int, int, int], int]:
    """add, ldr, str: the place within its page, in units of 2**scale bytes, 12 bits at bit 10."""

    def value(word: int, target: int, _: int) -> int:
        inside = target & 0xFFF
        if inside & (1 << scale) - 1:
            raise OverflowError
        return word & ~(0xFFF << 10) | inside >> scale << 10

    return value


def _arm_stub(place: int, word: int) -> bytes:
    """adrp x16, word; ldr x16, [x16, word]; br x16."""
    return struct.pack(
        "<III", _page(0x90000010, word, place), _within_page(3)(0xF9400210, word, 0), 0xD61F0200
    )


_AARCH64 = Architecture(
    183,
    {
        260: Patch("<q", _distance),  # R_AARCH64_PREL64
        261: Patch("<i", _distance),  # R_AARCH64_PREL32
        274: Patch("<I", _near),  # R_AARCH64_ADR_PREL_LO21
        275: Patch("<I", _page),  # R_AARCH64_ADR_PREL_PG_HI21
        277: Patch("<I", _within_page(0)),  # R_AARCH64_ADD_ABS_LO12_NC
        278: Patch("<I", _within_page(0)),  # R_AARCH64_LDST8_ABS_LO12_NC
        282: Patch("<I", _branch),  # R_AARCH64_JUMP26
        283: Patch("<I", _branch),  # R_AARCH64_CALL26
        284: Patch("<I", _within_page(1)),  # R_AARCH64_LDST16_ABS_LO12_NC
        285: Patch("<I", _within_page(2)),  # R_AARCH64_LDST32_ABS_LO12_NC
        286: Patch("<I", _within_page(3)),  # R_AARCH64_LDST64_ABS_LO12_NC
        299: Patch("<I", _within_page(4)),  # R_AARCH64_LDST128_ABS_LO12_NC
        311: Patch("<I", _page, through_table=True),  # R_AARCH64_ADR_GOT_PAGE
        312: Patch("<I", _within_page(3), through_table=True),  # R_AARCH64_LD64_GOT_LO12_NC
    },
    Stub(12, _arm_stub),
)

# By the names that Target uses.
ARCHITECTURES: Final[Mapping[str, Architecture]] = {"x86_64": _X86_64, "aarch64": _AARCH64}
