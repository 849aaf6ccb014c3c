"""The module around a kernel: entry points, the table of emit functions, targets, register
pressure.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from luban import tile
from luban.codegen import emit, scratch_bytes
from luban.codegen.emitter import Emitter
from luban.codegen.llvm import emit_named
from luban.codegen.registers import RegisterTile
from luban.codegen.table import EMITTERS, emits
from luban.core.dtypes import DTYPES
from luban.core.errors import InternalError
from luban.native.compile import assembly, compile_object
from luban.native.link import link
from luban.native.target import host_target, named_target
from luban.tile import Function, FunctionBuilder, Operation, TileOp, TileType, tile_type
from tests.codegen.harness import check, interesting, run_compiled, spills
from tests.codegen.test_elementwise import COMPUTED, binary_program, kinds_of, unary_program

STORED = [d.name for d in DTYPES.values() if d.kind not in ("complex", "string")]


def scaling(name: str = "scale") -> Function:
    b = FunctionBuilder(name)
    x = b.pointer("x", "f32")
    factor = b.scalar("factor", "f32")
    at = b.program_id() * 8
    b.store(x, at, b.load(x, at, (8,)) * factor)
    return b.finish()


# The table


def test_every_op_has_code() -> None:
    ops = {
        found
        for found in vars(tile).values()
        if isinstance(found, type) and issubclass(found, TileOp) and found is not TileOp
        if found.in_registers
    }
    assert ops == set(EMITTERS)


def test_block_programs_are_refused() -> None:
    b = FunctionBuilder("total")
    x = b.pointer("x", "f32")
    (total,) = b.fold("sum", [b.gather(x, b.arange(128))], 0)
    b.scatter(x, 0, total)
    with pytest.raises(InternalError, match=r"fold is an op of block programs: lower it first"):
        emit(b.finish(), named_target("avx2"))


def test_a_second_emit_function_is_refused() -> None:
    with pytest.raises(InternalError, match=r"Load is emitted twice: by emit_load and by .*again"):

        @emits(tile.Load)
        def again(_op: tile.Load, _f: Emitter, _operation: Operation) -> Sequence[RegisterTile]:
            return []

    assert EMITTERS[tile.Load].__name__ == "emit_load"


@dataclass(frozen=True, slots=True)
class Unknown(TileOp):
    """An op that nobody wrote code for."""

    name: ClassVar[str] = "unknown"

    def infer(self, *types: TileType) -> tuple[TileType, ...]:
        return types


def test_an_op_without_code_says_which_file_to_edit() -> None:
    program = Function("bad", (), tile.Region(body=(Operation(Unknown()),)))
    with pytest.raises(InternalError, match=r"no LLVM code for tile op Unknown: .*codegen/"):
        emit(program, host_target())


def test_a_kernel_with_a_tile_parameter_is_refused() -> None:
    b = FunctionBuilder("bad")
    b.tile_param("block", tile_type("f32", 4))
    with pytest.raises(InternalError, match=r"bad has a tile parameter block"):
        emit(b.finish(), host_target())


# Entry points


def test_both_entry_points() -> None:
    program = scaling()
    assert "scale_range" not in emit(program, host_target())
    text = emit(program, host_target(), range_entry=True)
    library = link([compile_object(text, host_target())], ["scale", "scale_range"])
    data = np.arange(32, dtype=np.float32)
    factor = int(np.float32(3.0).view(np.uint32)) | 0xDEAD << 32  # only the low bytes count
    slots = (ctypes.c_uint64 * 2)(data.ctypes.data, factor)
    address = ctypes.addressof(slots)
    one = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    one(library.address("scale"))(address, 2, 0)
    expected = np.arange(32, dtype=np.float32)
    expected[16:24] *= 3
    np.testing.assert_array_equal(data, expected)
    several = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] + [ctypes.c_int64] * 3)
    several(library.address("scale_range"))(address, 1, 3, 0)
    expected[8:24] *= 3
    np.testing.assert_array_equal(data, expected)
    several(library.address("scale_range"))(address, 3, 3, 0)
    np.testing.assert_array_equal(data, expected)
    library.close()


@pytest.mark.parametrize(
    "name", [d.name for d in DTYPES.values() if d.kind not in ("complex", "string")]
)
def test_scalar_parameters(name: str) -> None:
    b = FunctionBuilder("scalar")
    x, given = b.pointer("x", name), b.scalar("given", name)
    b.store(x, 0, b.broadcast(given, (5,)))
    for value in interesting(name, 4):
        check(b.finish(), [np.zeros(5, DTYPES[name].numpy), value])


def test_scratch_is_zero_without_scratch() -> None:
    assert scratch_bytes(scaling()) == 0


def test_a_symbol_made_of_the_content() -> None:
    symbol, text = emit_named(scaling("a"), host_target(), "loop")
    assert re.fullmatch("loop_[0-9a-f]{16}", symbol)
    assert text == emit(scaling(symbol), host_target())
    assert emit_named(scaling("a"), host_target(), "loop") == (symbol, text)
    assert emit_named(scaling("a"), named_target("neon"), "loop")[0] != symbol


def test_functions_whose_names_begin_alike_keep_theirs() -> None:
    inner = FunctionBuilder("kernel2")
    b = FunctionBuilder("kernel")
    y = b.pointer("y", "i64")
    (one_more,) = b.call(inner.finish(inner.scalar("x") + 1), b.program_id())
    b.store(y, b.program_id(), one_more)
    _, text = emit_named(b.finish_module(), host_target(), "loop")
    assert "@kernel2.program(" in text
    assert "@kernel(" not in text


def test_text_depends_on_program_and_target_only() -> None:
    assert emit(scaling(), host_target()) == emit(scaling(), host_target())
    assert emit(scaling(), named_target("avx2")) != emit(scaling("other"), named_target("avx2"))


# Targets


@pytest.mark.parametrize("name", [d.name for d in COMPUTED])
def test_elementwise_compiles_for_neon(name: str) -> None:
    target = named_target("neon")
    assert compile_object(emit(unary_program(name, kinds_of(tile.UNARY, name)), target), target)
    assert compile_object(emit(binary_program(name, kinds_of(tile.BINARY, name)), target), target)


def matrix_tile(rows: int, columns: int, *, static: bool, epilogue: bool = False) -> Function:
    """The register tile of a matrix product; with static strides or strides known at run time.

    Every row whose stride is not known needs an address register: half the unrolling then.
    """
    b = FunctionBuilder("product")
    x = b.pointer("x", "f32", noalias="x")
    panel = b.pointer("panel", "f32", noalias="panel")
    y = b.pointer("y", "f32", noalias="y")
    k, stride, out = b.scalar("k"), b.scalar("stride"), b.scalar("out")
    x_stride, y_stride = (256, 4096) if static else (stride, out)
    start = b.full((rows, columns), 0.0, "f32")
    with b.for_(0, 256 if static else k, 1, carried=[start], unroll=8 if static else 4) as loop:
        left = b.load(x, loop.index, (rows, 1), (x_stride, 1))
        right = b.load(panel, loop.index * columns, (columns,))
        loop.yield_(b.fma(left, right, loop.carried[0]))
    total = loop.results[0]
    if epilogue:
        total = b.max(total + b.load(panel, 0, (columns,)), 0.0)
    b.store(y, 0, total, (y_stride, 1))
    return b.finish()


@pytest.mark.parametrize(
    ("target_name", "rows", "columns"),
    [
        ("avx512", 6, 64),
        ("avx512", 8, 48),
        ("avx2", 6, 16),
        ("avx2", 4, 24),
        ("neon", 4, 16),
    ],
)
@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("epilogue", [True, False])
def test_matrix_tiles_do_not_spill(
    target_name: str, rows: int, columns: int, static: bool, epilogue: bool
) -> None:
    program = matrix_tile(rows, columns, static=static, epilogue=epilogue)
    assert spills(program, named_target(target_name)) == 0


def test_many_parts_share_one_copy_of_a_function() -> None:
    def text(rows: int) -> str:
        b = FunctionBuilder("activation")
        x = b.pointer("x", "f32")
        b.store(x, 0, b.unary("tanh", b.load(x, 0, (rows, 16))))
        return emit(b.finish(), named_target("avx512"))

    assert "@luban.tanh" not in text(8)
    assert text(9).count("call <16 x float> @luban.tanh.v16f32(") == 9
    assert text(9).count("define internal <16 x float> @luban.tanh") == 1


@pytest.mark.parametrize("static", [True, False])
def test_matrix_tile_is_right(static: bool) -> None:
    rng = np.random.default_rng(0)
    x, panel = (rng.standard_normal(n).astype(np.float32) for n in (6 * 256, 256 * 64))
    program = matrix_tile(6, 64, static=static, epilogue=True)
    k, stride, out = 250, 251, 70
    check(program, [x, panel, np.zeros(6 * 4096, np.float32), k, stride, out])


def test_constant_offsets_become_displacements() -> None:
    """Unrolled copies differ by constants only: one address, not one addition each."""
    text = emit(matrix_tile(6, 64, static=True), named_target("avx512"))
    assert text.count("mul i64") == 1
    assert text.count("getelementptr i32") == 2


def test_without_fma_a_product_and_a_sum() -> None:
    """Never a call of the C library's fma, which is some hundred times slower."""
    plain = replace(named_target("avx2"), features="+sse2,+sse4.1,+avx", has_fma=False)
    b = FunctionBuilder("fused")
    x, y = b.pointer("x", "f32"), b.pointer("y", "f32")
    value = b.load(x, 0, (16,))
    b.store(y, 0, b.fma(value, value, value))
    b.store(y, 16, b.unary("exp", value))
    text = emit(b.finish(), plain)
    assert "llvm.fma" not in text
    assert "fma" not in assembly(text, plain)
    if plain.runs_here:
        data, result = np.linspace(-3, 3, 16, dtype=np.float32), np.zeros(32, np.float32)
        run_compiled(b.finish(), [data, result], 1, plain)
        np.testing.assert_array_equal(result[:16], data * data + data)
        np.testing.assert_allclose(result[16:], np.exp(data), rtol=3e-7)


def test_index_sums_that_become_displacements_need_no_addition() -> None:
    b = FunctionBuilder("offsets")
    x, y, n = b.pointer("x", "f32"), b.pointer("y", "f32"), b.scalar("n")
    for i in range(5):
        b.store(y, n + i, b.load(x, (n + i) * 3))
    text = emit(b.finish(), host_target())
    body = text[: text.index("\n}")]
    assert " add " not in body
    assert body.count("mul i64") == 1


@pytest.mark.parametrize("name", ["conv/1:0", "größe", "a b", '"', "back\\slash", "1st", "x.y"])
def test_any_name_is_a_symbol(name: str) -> None:
    b = FunctionBuilder(name)
    x = b.pointer("x", "f32")
    b.store(x, b.program_id(), 2.0)
    data = np.zeros(3, np.float32)
    run_compiled(b.finish(), [data], 3)
    np.testing.assert_array_equal(data, 2.0)
