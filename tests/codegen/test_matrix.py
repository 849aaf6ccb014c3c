"""The small matrix products against the evaluator, with and without their instructions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from luban.codegen import emit
from luban.core.dtypes import DTYPES
from luban.native.compile import assembly
from luban.native.target import host_target, named_target
from luban.tile import Function, FunctionBuilder
from tests.codegen.harness import check, interesting


def product_program(
    name: str, rows: int, columns: int, group: int, acc: str, right: str
) -> Function:
    b = FunctionBuilder("product")
    x, z, y = b.pointer("x", name), b.pointer("z", right), b.pointer("y", acc)
    total = b.load(y, 0, (rows, columns))
    left, panel = b.load(x, 0, (rows, group)), b.load(z, 0, (group * columns,))
    dot = b.dot4 if group == 4 else b.dot_pair
    b.store(y, 0, dot(total, left, panel))
    return b.finish()


# Each way of multiplying: VNNI, pairs at 512 and at 256 bits, widened products.
WAYS = [
    target
    for target in (
        host_target(),
        named_target("avx512"),
        named_target("avx2"),
        replace(named_target("avx2"), features=""),
    )
    if target.runs_here
]


@pytest.mark.parametrize("columns", [1, 4, 16, 28, 32])
@pytest.mark.parametrize(("name", "right"), [("i8", "i8"), ("u8", "i8"), ("i8", "u8")])
def test_dot4(name: str, right: str, columns: int) -> None:
    program = product_program(name, 3, columns, 4, "i32", right)
    x, z = interesting(name, 12), interesting(right, 4 * columns)
    check(program, [x, z, interesting("i32", 3 * columns)], targets=WAYS)


def test_dot4_of_the_largest_products_does_not_saturate() -> None:
    program = product_program("u8", 1, 16, 4, "i32", "i8")
    x, z = np.full(4, 255, np.uint8), np.full(64, -128, np.int8)
    y = np.full(16, -(2**31), np.int32)
    check(program, [x, z, y])


@pytest.mark.skipif(not host_target().has("avx512vnni"), reason="needs AVX-512 VNNI")
@pytest.mark.parametrize(("name", "right"), [("u8", "i8"), ("i8", "u8")])
def test_dot4_is_one_instruction(name: str, right: str) -> None:
    program = product_program(name, 2, 32, 4, "i32", right)
    assert assembly(emit(program, host_target()), host_target()).count("vpdpbusd") == 4


@pytest.mark.parametrize("columns", [1, 8, 16, 20])
def test_dot_pair(columns: int) -> None:
    program = product_program("bf16", 3, columns, 2, "f32", "bf16")
    rng = np.random.default_rng(0)
    x, z = (rng.standard_normal(n).astype(DTYPES["bf16"].numpy) for n in (6, 2 * columns))
    check(program, [x, z, rng.standard_normal(3 * columns).astype(np.float32)])


@pytest.mark.parametrize(
    ("target_name", "instruction"), [("avx512", "vpmaddwd"), ("avx2", "vpmaddwd"), ("neon", "sdot")]
)
@pytest.mark.parametrize("name", ["i8", "u8"])
def test_dot4_uses_what_the_target_has(name: str, target_name: str, instruction: str) -> None:
    target = named_target(target_name)
    program = product_program(name, 2, target.lanes(32), 4, "i32", "i8")
    assert instruction in assembly(emit(program, target), target)


@pytest.mark.parametrize("group", [4, 2])
def test_products_compile_for_neon(group: int) -> None:
    names = ("i8", "i32", "i8") if group == 4 else ("bf16", "f32", "bf16")
    program = product_program(names[0], 2, 16, group, names[1], names[2])
    target = named_target("neon")
    assert assembly(emit(program, target), target)


@pytest.mark.skipif(not host_target().has("avx512bf16"), reason="needs AVX-512 BF16")
def test_dot_pair_is_one_instruction_on_the_bits_in_memory() -> None:
    program = product_program("bf16", 2, 32, 2, "f32", "bf16")
    text = assembly(emit(program, host_target()), host_target())
    assert text.count("vdpbf16ps") == 4
    assert "vpmovzx" not in text  # the panel is not widened and narrowed again
    assert "vpmovdw" not in text
