"""Our linker: where things lie, which bits change, what it refuses."""

import struct
from dataclasses import replace
from itertools import pairwise

import pytest

from luban.core.errors import InternalError
from luban.native import elf
from luban.native.compile import compile_object
from luban.native.elf import NotUnderstoodError, link_objects
from luban.native.image import Image
from luban.native.relocations import ARCHITECTURES
from luban.native.target import named_target

TABLE = (
    "@table = internal constant [3 x i64] [i64 7, i64 8, i64 9], align 64\n"
    "define i64 @f(i64 %i) {\n  %p = getelementptr i64, ptr @table, i64 %i\n"
    "  %v = load i64, ptr %p\n  ret i64 %v\n}\n"
)
CALL = (
    "declare i64 @f(i64)\ndeclare i64 @outside(i64)\n"
    "define i64 @g(i64 %x) {\n  %y = call i64 @f(i64 %x)\n  %z = call i64 @outside(i64 %y)\n"
    "  %w = add i64 %z, 1\n  ret i64 %w\n}\n"
)
NAMES = {"avx2": "x86_64", "neon": "aarch64"}


def linked(target: str, *texts: str) -> Image:
    objects = [compile_object(text, named_target(target)) for text in texts]
    return link_objects(objects, NAMES[target])


def refusal(target: str, text: str) -> str:
    with pytest.raises(NotUnderstoodError) as error:
        linked(target, text)
    return str(error.value)


def table_of(image: Image) -> int:
    """Where the constants of TABLE lie."""
    return bytes(image.content).index(struct.pack("<3q", 7, 8, 9))


def words(image: Image, symbol: str) -> list[int]:
    """The 32-bit instructions from a symbol on."""
    start = image.symbols[symbol]
    return [word for (word,) in struct.iter_unpack("<I", image.content[start : start + 48])]


@pytest.mark.parametrize("target", ["avx2", "neon"])
def test_functions_start_on_cache_lines_and_constants_keep_their_alignment(target: str) -> None:
    image = linked(target, CALL, TABLE)
    assert sorted(image.symbols) == ["f", "g"]  # what is internal has no name outside
    assert [offset % 64 for offset in image.symbols.values()] == [0, 0]
    assert table_of(image) % 64 == 0
    assert image.imports == ("outside",)
    assert image.table_offset % 8 == 0
    assert image.table_offset >= len(image.content)


def test_no_object_is_an_empty_image() -> None:
    image = link_objects([], "x86_64")
    assert (image.content, image.symbols, image.imports) == (b"", {}, ())


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def branch_targets(image: Image, symbol: str) -> list[int]:
    """Where the bl instructions from a symbol on lead."""
    start = image.symbols[symbol]
    return [
        start + 4 * number + 4 * signed(word & 0x3FFFFFF, 26)
        for number, word in enumerate(words(image, symbol))
        if word >> 26 == 0b100101
    ]


def page_address(word: int, place: int) -> int:
    """What an adrp instruction gives for an image at address 0."""
    assert word & 0x9F000000 == 0x90000000
    pages = signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)
    return (place >> 12) + pages << 12


def test_arm_calls_lead_to_the_function_and_to_a_stub_for_the_import() -> None:
    image = linked("neon", CALL, TABLE)
    inner, stub = branch_targets(image, "g")
    assert inner == image.symbols["f"]
    adrp, load, jump = struct.unpack_from("<3I", image.content, stub)
    assert load & 0xFFC003FF == 0xF9400210  # ldr x16, [x16, ...]
    assert jump == 0xD61F0200  # br x16
    assert page_address(adrp, stub) + 8 * (load >> 10 & 0xFFF) == image.table_offset


def test_arm_reaches_constants_by_page_and_place_in_the_page() -> None:
    image = linked("neon", TABLE)
    start, code = image.symbols["f"], words(image, "f")
    found = [
        page_address(word, start + 4 * number) + (after >> 10 & 0xFFF)
        for number, (word, after) in enumerate(pairwise(code))
        if word & 0x9F000000 == 0x90000000 and after & 0xFFC00000 == 0x91000000  # adrp, add
    ]
    assert found == [table_of(image)]


@pytest.mark.parametrize(
    ("kind", "target", "place", "before", "after"),
    [
        (260, 0x5000, 0x1008, 0, 0x3FF8),  # PREL64
        (261, 0x1000, 0x1008, 0, -8),  # PREL32
        (274, 0x1003, 0x1000, 0x10000000, 0x70000000),  # adr x0, #3
        (275, 0x5123, 0x1000, 0x90000001, 0x90000021),  # adrp x1, 4 pages on
        (275, 0x0123, 0x1000, 0x90000001, 0xF0FFFFE1),  # adrp x1, 1 page back
        (277, 0x5123, 0, 0x91000021, 0x91048C21),  # add x1, x1, #0x123
        (278, 0x5123, 0, 0x39400020, 0x39448C20),  # ldrb w0, [x1, #0x123]
        (284, 0x5122, 0, 0x79400020, 0x79424420),  # ldrh w0, [x1, #0x122]
        (285, 0x5124, 0, 0xB9400020, 0xB9412420),  # ldr w0, [x1, #0x124]
        (286, 0x5128, 0, 0xF9400020, 0xF9409420),  # ldr x0, [x1, #0x128]
        (299, 0x5120, 0, 0x3DC00020, 0x3DC04820),  # ldr q0, [x1, #0x120]
        (282, 0x1000, 0x1008, 0x14000000, 0x17FFFFFE),  # b, 2 instructions back
        (283, 0x1010, 0x1008, 0x94000000, 0x94000002),  # bl, 2 instructions on
    ],
)
def test_arm_instructions_are_patched_as_an_assembler_writes_them(
    kind: int, target: int, place: int, before: int, after: int
) -> None:
    assert ARCHITECTURES["aarch64"].patches[kind].value(before, target, place) == after


@pytest.mark.parametrize(
    ("kind", "target", "place"), [(275, 1 << 40, 0), (283, 1 << 30, 0), (286, 0x5124, 0)]
)
def test_arm_distances_that_do_not_fit_are_refused(kind: int, target: int, place: int) -> None:
    with pytest.raises(OverflowError):
        ARCHITECTURES["aarch64"].patches[kind].value(0, target, place)


def test_the_same_name_in_two_objects_is_our_bug() -> None:
    with pytest.raises(InternalError, match="two objects define the symbol 'f'"):
        linked("avx2", TABLE, TABLE)


def test_what_it_does_not_understand_is_refused() -> None:
    variable = "@v = global i64 1\ndefine i64 @f() {\n  %x = load i64, ptr @v\n  ret i64 %x\n}"
    assert refusal("avx2", variable) == "it has variables; code and constants only"
    assert refusal("avx2", variable.replace("i64 1", "i64 0")).startswith("it has variables")
    address = "define void @f() {\n  ret void\n}\n@p = constant ptr @f"
    assert refusal("avx2", address).startswith("it has variables")  # a constant once relocated
    visible = TABLE.replace("internal constant", "constant")
    assert "a relocation names neither code nor a constant" in refusal("avx2", visible)
    common = "@v = common global i64 0\ndefine void @f() {\n  ret void\n}"
    assert "'v' is neither code nor a constant" in refusal("avx2", common)


def test_what_is_no_object_for_this_machine_is_refused() -> None:
    neon = compile_object(TABLE, named_target("neon"))
    for data, reason in [
        (b"garbage", "it is too short for an ELF object"),
        (bytes(100), "it is not a 64-bit little-endian ELF object"),
        (neon, "it is for ELF machine 183, not for x86_64"),
    ]:
        with pytest.raises(NotUnderstoodError, match=reason):
            link_objects([data], "x86_64")
    cut = compile_object(TABLE, named_target("avx2"))[:-64]
    with pytest.raises(NotUnderstoodError, match="its section table lies beyond its end"):
        link_objects([cut], "x86_64")


def test_an_unknown_relocation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    unpatched = replace(ARCHITECTURES["x86_64"], patches={})
    monkeypatch.setattr(elf, "ARCHITECTURES", {"x86_64": unpatched})
    assert "relocation type 2 is not known" in refusal("avx2", TABLE)
