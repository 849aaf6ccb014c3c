"""Loads, stores, gathers, scatters, scratch and atomics against the evaluator."""

from __future__ import annotations

import ctypes
import mmap
import re
import sys

import numpy as np
import pytest

from luban.codegen import emit, scratch_bytes
from luban.core.dtypes import DTYPES
from luban.native.target import host_target, named_target
from luban.tile import FunctionBuilder
from tests.codegen.harness import TARGETS, check, interesting, run_compiled

NAMES = [d.name for d in DTYPES.values() if d.kind not in ("complex", "string")]


@pytest.mark.parametrize("name", NAMES)
def test_copy_with_a_tail_mask(name: str) -> None:
    b = FunctionBuilder("copy")
    x, y, n = b.pointer("x", name), b.pointer("y", name), b.scalar("n")
    with b.for_(0, n, 16) as loop:
        inside = b.arange(16) < n - loop.index
        b.store(y, loop.index, b.load(x, loop.index, (16,), mask=inside), mask=inside)
    data = interesting(name, 64)
    for count in (0, 1, 16, 37, 64):
        check(b.finish(), [data, np.zeros(64, data.dtype), count])


@pytest.mark.parametrize("name", ["f32", "bf16", "i8", "i64", "bool"])
@pytest.mark.parametrize("extent", [1, 2, 3, 5, 7, 15, 17, 33])
def test_odd_extents(name: str, extent: int) -> None:
    b = FunctionBuilder("odd")
    x, y = b.pointer("x", name), b.pointer("y", name)
    b.store(y, 1, b.load(x, 2, (2, extent)))
    data = interesting(name, 2 * extent + 4)
    check(b.finish(), [data, np.zeros(2 * extent + 4, data.dtype)])


def test_strides() -> None:
    b = FunctionBuilder("strided")
    x, y, row = b.pointer("x", "f32"), b.pointer("y", "f32"), b.scalar("row")
    b.store(y, 0, b.load(x, 1, (3, 8), (row, 1)))
    b.store(y, 24, b.load(x, 0, (3, 8), (row, 2)))
    b.store(y, 48, b.load(x, 0, (3, 8), (row, row)))
    b.store(y, 72, b.load(x, 5, (3, 8), (row, 0)))
    b.store(y, 96, b.load(x, 7, (3, 8), (0, 1)))
    b.store(y, 120, b.load(x, 40, (3, 8), (row, -1)))
    b.store(y, 144, b.load(x, 0, (4,)), (row,))
    b.store(y, 200, b.load(x, 0, (2, 4)), (1, 2))
    check(b.finish(), [interesting("f32", 400), np.zeros(300, np.float32), 19])


@pytest.mark.parametrize("name", ["f32", "i8", "bf16", "f64"])
@pytest.mark.parametrize("stride", [-5, -4, -3, -2, -1, 2, 3, 4, 5])
def test_short_strides(name: str, stride: int) -> None:
    count = 23
    b = FunctionBuilder("short")
    x, y = b.pointer("x", name), b.pointer("y", name)
    first = 0 if stride > 0 else -stride * (count - 1)
    b.store(y, 0, b.load(x, first, (count,), (stride,)))
    data = interesting(name, abs(stride) * (count - 1) + 1)
    check(b.finish(), [data, np.zeros(count, data.dtype)])


@pytest.mark.skipif(sys.platform != "linux", reason="guards a page with Linux's mprotect")
@pytest.mark.parametrize("stride", [-4, -3, -2, -1, 1, 2, 3, 4])
def test_loads_stay_between_the_first_and_the_last_element(stride: int) -> None:
    """The elements end where a page ends, or start where one starts; the next page is closed."""
    page, count = mmap.PAGESIZE, 23
    area = mmap.mmap(-1, 3 * page)
    memory = np.frombuffer(area, np.float32)
    start = memory.ctypes.data
    libc = ctypes.CDLL(None)
    for closed in (start, start + 2 * page):
        assert libc.mprotect(ctypes.c_void_p(closed), page, 0) == 0
    span = abs(stride) * (count - 1) + 1
    b = FunctionBuilder("guarded")
    x, y = b.pointer("x", "f32"), b.pointer("y", "f32")
    first = 0 if stride > 0 else span - 1
    b.store(y, 0, b.load(x, first, (count,), (stride,)))
    result = np.ones(count, np.float32)
    for where in (start + page, start + 2 * page - 4 * span):
        run_compiled(b.finish(), [where, result])
    np.testing.assert_array_equal(result, np.zeros(count, np.float32))


def test_stride_two_takes_two_loads_and_a_shuffle() -> None:
    b = FunctionBuilder("pairs")
    x, y = b.pointer("x", "f32"), b.pointer("y", "f32")
    b.store(y, 0, b.load(x, 0, (8,), (2,)))
    text = emit(b.finish(), named_target("avx2"))
    assert text.count("load <8 x float>") == 2
    assert text.count("shufflevector") == 1
    assert text.count("load float") == 0


def test_row_offsets() -> None:
    b = FunctionBuilder("rows")
    x, y = b.pointer("x", "f32"), b.pointer("y", "f32")
    rows = [[3, 40, 80, 7], None]
    tile = b.load(x, b.program_id(), (4, 16), row_offsets=rows)
    b.store(y, 0, tile, row_offsets=[[0, 100, 16, 48], None])
    check(b.finish(), [interesting("f32", 128), np.zeros(128, np.float32)])


def test_masked_off_lanes_touch_nothing_and_give_other() -> None:
    b = FunctionBuilder("masked")
    x, flags, y = b.pointer("x", "f32"), b.pointer("flags", "bool"), b.pointer("y", "f32")
    mask = b.load(flags, 0, (20,))
    b.store(y, 0, b.load(x, 0, (20,), mask=mask, other=7.0))
    b.store(y, 20, b.load(x, 0, (20,), (3,), mask=mask))
    b.store(y, 40, b.load(x, 0, (20,), (0,), mask=mask))
    b.store(y, 60, b.load(x, 0, (20,)), mask=mask)
    b.store(y, 80, b.load(x, 0, (20,)), (2,), mask=mask)
    check(b.finish(), [interesting("f32", 60), interesting("bool", 20), np.zeros(130, np.float32)])


def test_masked_off_lanes_may_have_no_memory() -> None:
    """Nothing is at address 16: only a load that keeps away from masked-off lanes survives."""
    b = FunctionBuilder("absent")
    x, y, n = b.pointer("x", "f32"), b.pointer("y", "f32"), b.scalar("n")
    inside = b.arange(16) < n
    b.store(y, 0, b.load(x, 0, (16,), mask=inside, other=3.0))
    b.store(x, 0, b.full((16,), 1.0, "f32"), mask=inside)
    y_data = np.zeros(16, np.float32)
    run_compiled(b.finish(), [16, y_data, 0])
    np.testing.assert_array_equal(y_data, np.full(16, 3.0, np.float32))


def test_constant_masks_disappear() -> None:
    b = FunctionBuilder("constant_mask")
    x, y = b.pointer("x", "f32"), b.pointer("y", "f32")
    b.store(y, 0, b.load(x, 0, (16,), mask=b.arange(16) < 16), mask=b.arange(16) < 99)
    b.store(y, 0, b.load(x, 0, (16,)), mask=b.arange(16) < 0)
    text = emit(b.finish(), named_target("avx2"))
    assert "masked" not in text
    assert len(re.findall(r"store <8 x float>", text)) == 2


def test_a_bounds_mask_is_one_compare() -> None:
    b = FunctionBuilder("bounds")
    x, y, n = b.pointer("x", "f32"), b.pointer("y", "f32"), b.scalar("n")
    at = b.program_id() * 16
    inside = at + b.arange(16) < n
    b.store(y, at, b.load(x, at, (16,), mask=inside), mask=inside)
    program = b.finish()
    text = emit(program, named_target("avx512"))
    assert len(re.findall(r"icmp slt <16 x i32>", text)) == 1
    assert "icmp slt <8 x i64>" not in text
    check(program, [interesting("f32", 64), np.zeros(64, np.float32), 41], 4)


@pytest.mark.parametrize("predicate", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_affine_comparisons(predicate: str) -> None:
    b = FunctionBuilder("affine")
    y, n, m = b.pointer("y", "bool"), b.scalar("n"), b.scalar("m")
    lanes = b.arange(20) * 3 - m
    limit = b.broadcast(n, (20,))
    b.store(y, 0, b.compare(predicate, lanes, limit))  # type: ignore[arg-type]
    b.store(y, 20, b.compare(predicate, limit, lanes + n))  # type: ignore[arg-type]
    for given in ((0, 0), (30, 0), (-7, 40), (10**12, 5), (-(10**12), 5), (57, -3)):
        check(b.finish(), [np.zeros(40, np.bool_), *given])


def test_comparing_numbers_far_apart() -> None:
    """Their difference does not fit i64; the comparison is right all the same."""
    b = FunctionBuilder("far")
    y, n, m = b.pointer("y", "bool"), b.scalar("n"), b.scalar("m")
    b.store(y, 0, b.compare("lt", b.broadcast(n, (20,)), b.broadcast(m, (20,))))
    b.store(y, 20, b.compare("lt", b.arange(20) + n, b.broadcast(m, (20,))))
    b.store(y, 40, b.compare("lt", b.broadcast(m, (20,)), b.arange(20)))
    low, high = -(2**63), 2**63 - 1
    for given in (
        (low, high),
        (low, low + 7),
        (high - 30, low),
        (-5, high),
        (high - 30, high - 25),
    ):
        check(b.finish(), [np.zeros(60, np.bool_), *given])


@pytest.mark.parametrize("name", ["f32", "i8", "f16", "f64"])
def test_gather_and_scatter(name: str) -> None:
    b = FunctionBuilder("permute")
    x, order, flags = b.pointer("x", name), b.pointer("order", "i64"), b.pointer("flags", "bool")
    y = b.pointer("y", name)
    where, mask = b.load(order, 0, (20,)), b.load(flags, 0, (20,))
    b.store(y, 0, b.gather(x, where))
    b.store(y, 20, b.gather(x, where, mask=mask, other=1))
    b.scatter(y, where + 40, b.load(x, 0, (20,)))
    b.scatter(y, where + 80, b.load(x, 0, (20,)), mask=mask)
    b.store(y, 120, b.gather(x, b.arange(20) * 2 + 3))
    b.scatter(y, b.arange(20) + 150, b.load(x, 0, (20,)))
    order_data = np.random.default_rng(0).integers(0, 30, 20)  # with repeats
    data = interesting(name, 64)
    check(b.finish(), [data, order_data, interesting("bool", 20), np.zeros(180, data.dtype)])


def test_contiguous_offsets_load_as_a_block() -> None:
    b = FunctionBuilder("block")
    x, y = b.pointer("x", "f32"), b.pointer("y", "f32")
    b.store(y, 0, b.gather(x, b.arange(8) + b.program_id() * 8))
    text = emit(b.finish(), named_target("avx2"))
    assert "load <8 x float>" in text
    assert "gather" not in text


def test_scratch_belongs_to_the_thread() -> None:
    b = FunctionBuilder("stage")
    x, y = b.pointer("x", "f32"), b.pointer("y", "f32")
    first, second = b.scratch("f32", 20), b.scratch("i8", 3)
    b.store(first, 0, b.load(x, 0, (20,)) * 2.0)
    b.store(second, 0, b.full((3,), 5, "i8"))
    b.store(y, 0, b.load(first, 0, (20,)))
    b.store(y, 20, b.cast(b.load(second, 0, (3,)), "f32"))
    program = b.finish()
    assert scratch_bytes(program) == 192
    check(program, [interesting("f32", 20), np.zeros(23, np.float32)])
    result = np.zeros(23, np.float32)
    run_compiled(program, [np.ones(20, np.float32), result], thread=3)
    np.testing.assert_array_equal(result, [2.0] * 20 + [5.0] * 3)


@pytest.mark.parametrize("name", ["i32", "u64", "f32", "f64"])
def test_atomics(name: str) -> None:
    kinds = ["add", "min", "max", "exchange"]
    kinds += ["and", "or", "xor"] if DTYPES[name].is_integer else []
    b = FunctionBuilder("atomics")
    x, order, y, old = (
        b.pointer("x", name),
        b.pointer("order", "i64"),
        b.pointer("y", name),
        b.pointer("old", name),
    )
    where = b.load(order, 0, (6,))
    mask = b.arange(6) < b.scalar("n")
    for number, kind in enumerate(kinds):
        value = b.load(x, 6 * number, (6,))
        b.store(old, 12 * number, b.atomic_rmw(kind, y, where + 4 * number, value))  # type: ignore[arg-type]
        masked = b.atomic_rmw(kind, y, where + 4 * number, value, mask=mask)  # type: ignore[arg-type]
        b.store(old, 12 * number + 6, masked)
    data = (np.random.default_rng(0).random(6 * len(kinds)) * 100).astype(DTYPES[name].numpy)
    order_data = np.array([0, 1, 0, 2, 3, 1])
    outputs = [np.full(4 * len(kinds), 9, data.dtype), np.zeros(12 * len(kinds), data.dtype)]
    check(b.finish(), [data, order_data, *outputs, 4])


def test_prefetch_and_alignment_reach_the_text() -> None:
    b = FunctionBuilder("hints")
    x = b.pointer("x", "f32", alignment=64, noalias="x")
    y = b.pointer("y", "f32", noalias="y")
    b.prefetch(x, 64, locality=2)
    b.store(y, 0, b.load(x, 0, (32,), align=64))
    text = emit(b.finish(), host_target())
    assert "call void @llvm.prefetch.p0(ptr %v1, i32 0, i32 2, i32 1)" in text
    assert re.search(r"load <\d+ x float>, ptr %p0, align 64", text)
    assert "ptr noalias align 64 %p0, ptr noalias %p1" in text


@pytest.mark.parametrize("groups", [(None, None), ("a", "a"), ("a", None)])
def test_pointers_that_may_overlap_are_not_noalias(groups: tuple[str | None, str | None]) -> None:
    b = FunctionBuilder("overlap")
    x, y = (b.pointer(n, "f32", noalias=g) for n, g in zip("xy", groups, strict=True))
    b.store(y, 0, b.load(x, 0, (8,)))
    assert "noalias" not in emit(b.finish(), host_target())


@pytest.mark.parametrize(
    ("target_name", "name", "branches"),
    [("avx512", "i8", False), ("avx2", "f32", False), ("avx2", "i8", True), ("neon", "f32", True)],
)
def test_full_masks_skip_the_lanes_where_masks_are_branches(
    target_name: str, name: str, branches: bool
) -> None:
    b = FunctionBuilder("tail")
    x, y, n = b.pointer("x", name), b.pointer("y", name), b.scalar("n")
    inside = b.arange(16) < n
    b.store(y, 0, b.load(x, 0, (16,), mask=inside), mask=inside)
    text = emit(b.finish(), named_target(target_name))
    assert ("vector.reduce.and" in text) == branches


@pytest.mark.parametrize("name", ["f32", "i16", "f64"])
def test_a_pointer_that_promises_nothing_is_read_at_any_address(name: str) -> None:
    """Blocks, short strides, tails and gathers; on AVX-512 and AVX2."""
    b = FunctionBuilder("anywhere")
    x, y = b.pointer("x", name, access="read", alignment=1), b.pointer("y", name)
    n = b.scalar("n")
    b.store(y, 0, b.load(x, 0, (16,)))
    b.store(y, 16, b.load(x, 1, (8,), (2,)))
    b.store(y, 24, b.load(x, 0, (8,), mask=b.arange(8) < n))
    b.store(y, 32, b.gather(x, b.arange(8) * n))
    program = b.finish()
    for target in TARGETS:
        text = emit(program, target)
        loads = re.findall(r"(?:= load .*|@llvm.masked.(?:load|gather)\S*\().*align (\d+)", text)
        assert loads
        assert set(loads) <= {"1", "8"}  # 8: of the argument slots
    data = interesting(name, 64)
    (_, wanted) = check(program, [data, np.zeros(40, data.dtype), 5])
    raw = np.zeros(data.nbytes + 1, np.uint8)
    raw[1:] = data.view(np.uint8)
    shifted = raw[1:].view(data.dtype)
    for target in TARGETS:
        found = np.zeros(40, data.dtype)
        run_compiled(program, [shifted, found, 5], target=target)
        np.testing.assert_array_equal(found, wanted)
