from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from luban.core.dtypes import dtype
from luban.core.errors import CheckError, InputError
from luban.core.loc import Loc
from luban.tile import Expr, Function, FunctionBuilder, parse, run, to_text, verify
from luban.tile.memory import (
    AssertionFailed,
    BrokenPromise,
    IndexOverflow,
    Misaligned,
    OutOfBounds,
    Race,
    UninitialisedRead,
)
from tests.tile.programs import BUFFER_ELEMENTS, NAMES, functions

Array = NDArray[Any]


def fill(name: str, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    elem = dtype(name)
    if elem.kind == "bool":
        return rng.integers(0, 2, BUFFER_ELEMENTS).astype(np.bool_)
    if elem.is_integer:
        low, high = max(elem.lowest, -100), min(elem.highest, 100)
        return rng.integers(low, high, BUFFER_ELEMENTS).astype(elem.numpy)
    return rng.normal(size=BUFFER_ELEMENTS).astype(np.float32).astype(elem.numpy)


@given(functions(), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_parsed_programs_compute_the_same(function: Function, count: int) -> None:
    first, second = ([fill(name, 7) for name in NAMES] for _ in range(2))
    run(function, [*first, count], 2)
    run(parse(to_text(function)), [*second, count], 2)
    assert [x.tobytes() for x in first] == [x.tobytes() for x in second]


OPERATORS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("add", np.add),
    ("sub", np.subtract),
    ("mul", np.multiply),
    ("div", np.divide),
    ("rem", np.fmod),
]


@given(
    st.lists(st.sampled_from(OPERATORS), min_size=1, max_size=6),
    st.sampled_from(["f32", "f64"]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=50, deadline=None)
def test_elementwise_programs_equal_numpy(
    chain: list[tuple[str, Callable[[Any, Any], Any]]], name: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(2, 37)).astype(dtype(name).numpy)
    b = FunctionBuilder("chain")
    x, y, out = (b.pointer(key, name) for key in ("x", "y", "out"))
    n = b.scalar("n")
    start = b.program_id() * 8
    inside = b.arange(8) < n - start
    value: Expr = b.load(x, start, (8,), mask=inside)
    other = b.load(y, start, (8,), mask=inside)
    expected, right = data[0], data[1]
    with np.errstate(all="ignore"):
        for kind, function in chain:
            value = b.binary(kind, value, other)  # type: ignore[arg-type]
            expected = function(expected, right)
    b.store(out, start, value, mask=inside)
    got = np.full(37, 9.0, data.dtype)
    run(b.finish(), [data[0].copy(), data[1].copy(), got, 37], 5, check=True)
    np.testing.assert_array_equal(got, expected)


def test_matrix_product_with_loops_strides_and_masks() -> None:
    rows, columns, depth = 5, 7, 9
    b = FunctionBuilder("matmul")
    a = b.pointer("a", "f32", access="read", extent="m*k")
    w = b.pointer("w", "f32", access="read", extent="k*n")
    c = b.pointer("c", "f32", access="write", extent="m*n")
    m, n, k = (b.scalar(name) for name in "mnk")
    top = b.program_id() * 2
    row_mask = b.reshape(b.arange(2) < m - top, (2, 1))
    column_mask = b.arange(8) < n
    zero = b.full((2, 8), 0.0, "f32")
    with b.for_(0, k, carried=[zero], unroll=4) as loop:
        left = b.load(a, top * k + loop.index, (2, 1), [k, 0], mask=row_mask)
        right = b.load(w, loop.index * n, (8,), mask=column_mask)
        loop.yield_(b.fma(left, right, loop.carried[0]))
    mask = b.broadcast(row_mask, (2, 8)) & b.broadcast(column_mask, (2, 8))
    b.store(c, top * n, loop.results[0], [n, 1], mask=mask)
    function = b.finish()
    verify(function)
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (rows, depth)).astype(np.float32)
    y = rng.integers(-4, 5, (depth, columns)).astype(np.float32)
    out = np.empty((rows, columns), np.float32)
    run(function, [x, y, out, rows, columns, depth], 3, check=True)
    np.testing.assert_array_equal(out, x @ y)


def test_strides_repeats_and_row_offsets() -> None:
    b = FunctionBuilder("layouts")
    x, out = b.pointer("x", "i32"), b.pointer("out", "i32")
    step = b.scalar("step")
    b.store(out, 0, b.load(x, 1, (2, 3), [step, 2]))
    b.store(out, 6, b.load(x, 5, (4,), [0]))
    b.store(out, 10, b.load(x, 2, (2, 3), [0, 1], row_offsets=[(8, -1), None]))
    b.store(out, 16, b.load(x, 9, (3,), [-1]))
    function = b.finish()
    verify(function)
    x_data = np.arange(20, dtype=np.int32)
    result = np.zeros(19, np.int32)
    run(function, [x_data, result, 10], check=True)
    assert result.tolist() == [1, 3, 5, 11, 13, 15, 5, 5, 5, 5, 10, 11, 12, 1, 2, 3, 9, 8, 7]


def test_masked_elements_do_not_touch_memory() -> None:
    b = FunctionBuilder("masked")
    x = b.pointer("x", "bf16")
    inside = b.arange(8) < 3
    b.store(x, 0, b.load(x, 0, (8,), mask=inside, other=7.0) + 1.0, mask=inside)
    picked = b.gather(x, b.arange(8) * 1000, mask=b.arange(8) < 1, other=5.0)
    b.scatter(x, b.arange(8) - 4, picked, mask=(b.arange(8) > 4) & (b.arange(8) < 7))
    data = np.array([1, 2, 3], ml_dtypes.bfloat16)
    run(b.finish(), [data], check=True)
    assert data.tolist() == [2, 5, 5]


def test_masked_load_gives_other_or_zero() -> None:
    b = FunctionBuilder("other")
    x, out = b.pointer("x", "f32"), b.pointer("out", "f32")
    never = b.full((2,), False, "bool")
    b.store(out, 0, b.load(x, 100, (2,), mask=never))
    b.store(out, 2, b.load(x, 100, (2,), mask=never, other=3.0))
    result = np.ones(4, np.float32)
    run(b.finish(), [np.zeros(1, np.float32), result], check=True)
    assert result.tolist() == [0, 0, 3, 3]


def test_control_flow() -> None:
    b = FunctionBuilder("collatz")
    out = b.pointer("out", "i64")
    start = b.program_id() + 1
    with b.while_([start, b.constant(0)]) as loop:
        with loop.condition() as (value, _):
            loop.test(value > 1)
        with loop.body() as (value, steps):
            with b.if_((value % 2).eq(0)) as branch:
                with branch.then():
                    branch.yield_(value // 2)
                with branch.otherwise():
                    branch.yield_(value * 3 + 1)
            loop.yield_(branch.results[0], steps + 1)
    b.store(out, b.program_id(), loop.results[1])
    result = np.zeros(9, np.int64)
    run(b.finish(), [result], 9, check=True)
    assert result.tolist() == [0, 1, 7, 2, 5, 8, 16, 3, 19]


def test_calls_share_memory_and_return_values() -> None:
    inner = FunctionBuilder("inner", noinline=True)
    p = inner.pointer("p", "f32")
    at = inner.scalar("at")
    old = inner.load(p, at)
    inner.store(p, at, old + 1.0)
    callee = inner.finish(old)
    b = FunctionBuilder("outer")
    x, out = b.pointer("x", "f32"), b.pointer("out", "f32")
    for place in (0, 1, 0):
        (value,) = b.call(callee, x, place)
        b.store(out, 0, b.load(out, 0) * 10.0 + value)
    data, total = np.array([3, 5], np.float32), np.zeros(1, np.float32)
    run(b.finish_module(), [data, total], check=True)
    assert data.tolist() == [5, 6]
    assert total.tolist() == [354]


def test_atomics_add_up_over_programs() -> None:
    b = FunctionBuilder("histogram")
    x, counts = b.pointer("x", "i64", access="read"), b.pointer("counts", "i32")
    b.atomic_rmw("add", counts, b.load(x, b.program_id() * 4, (4,)), 1)
    counts_data = np.zeros(3, np.int32)
    run(b.finish(), [np.array([0, 2, 2, 1, 2, 2, 0, 0]), counts_data], 2, check=True)
    assert counts_data.tolist() == [3, 1, 4]


@pytest.mark.parametrize(
    ("kind", "wanted", "final"),
    [("exchange", [5, 1], 2), ("max", [5, 5], 5), ("min", [5, 1], 1), ("and", [5, 1], 0)],
)
def test_atomic_kinds_in_order_of_elements(kind: str, wanted: list[int], final: int) -> None:
    b = FunctionBuilder("atomic")
    x, old = b.pointer("x", "u8"), b.pointer("old", "u8")
    places = b.arange(2) * 0
    values = b.cast(b.arange(2) + 1, "u8")
    b.store(old, 0, b.atomic_rmw(kind, x, places, values))  # type: ignore[arg-type]
    data, olds = np.array([5], np.uint8), np.zeros(2, np.uint8)
    run(b.finish(), [data, olds], check=True)
    assert olds.tolist() == wanted
    assert data[0] == final


def test_per_thread_areas_and_scratch() -> None:
    b = FunctionBuilder("areas")
    area = b.pointer("area", "i64", per_thread=True)
    out = b.pointer("out", "i64", access="write")
    local = b.scratch("i64", 4)
    mine = b.thread_id() * 4
    b.store(area, mine, b.program_id())
    b.store(local, 1, b.load(area, mine) + 1)
    b.store(out, b.program_id(), b.load(local, 1))
    function = b.finish()
    verify(function)
    result = np.zeros(6, np.int64)
    run(function, [np.zeros(8, np.int64), result], 6, check=True, num_threads=2)
    assert result.tolist() == [1, 2, 3, 4, 5, 6]


# Planted bugs: each must be found, with the element, the parameter and the operation named.


def kernel(build: Callable[[FunctionBuilder, Expr], None], **promises: Any) -> Function:
    b = FunctionBuilder("bug")
    x = b.pointer("x", "f32", **promises)
    build(b, x)
    return b.finish()


def fails(
    error: type[CheckError],
    build: Callable[[FunctionBuilder, Expr], None],
    *messages: str,
    programs: int = 2,
    check: bool = True,
    **promises: Any,
) -> str:
    with pytest.raises(error) as caught:
        run(kernel(build, **promises), [np.zeros(8, np.float32)], programs, check=check)
    for message in messages:
        assert message in str(caught.value)
    return str(caught.value)


def test_finds_an_element_out_of_bounds() -> None:
    def build(b: FunctionBuilder, x: Expr) -> None:
        b.load(x, b.program_id() * 6, (4,))

    text = fails(OutOfBounds, build, "element 8 of %x, expected 0 to 7")
    assert text.startswith("bug, program 1: %3 = load{shape=[4], strides=[1]} %x, %2 : tile<4xf32>")
    fails(OutOfBounds, build, "element 8 of %x", check=False)


def test_finds_an_element_below_the_start() -> None:
    def build(b: FunctionBuilder, x: Expr) -> None:
        b.store(x, b.program_id() - 1, 1.0)

    fails(OutOfBounds, build, "element -1 of %x", check=False)


def test_finds_an_element_beyond_the_declared_extent() -> None:
    def build(b: FunctionBuilder, x: Expr) -> None:
        b.load(x, 6)

    fails(OutOfBounds, build, "element 6 of %x, expected 0 to 5", extent=6)
    run(kernel(build, extent=7), [np.zeros(8, np.float32)], check=True)


def test_finds_a_gather_out_of_bounds() -> None:
    def build(b: FunctionBuilder, x: Expr) -> None:
        b.gather(x, b.arange(4) * 3)

    fails(OutOfBounds, build, "element 9 of %x", "gather %x")


def test_finds_a_read_of_scratch_before_a_write() -> None:
    def build(b: FunctionBuilder, _x: Expr) -> None:
        area = b.scratch("f32", 4)
        b.store(area, 0, b.full((3,), 1.0, "f32"))
        b.load(area, 0, (4,))

    fails(UninitialisedRead, build, "element 3 of %0 was never written")


def test_scratch_is_empty_again_in_the_next_program() -> None:
    def build(b: FunctionBuilder, _x: Expr) -> None:
        area = b.scratch("f32", 1)
        with b.if_(b.program_id().eq(0)) as branch, branch.then():
            b.store(area, 0, 1.0)
        b.load(area, 0)

    fails(UninitialisedRead, build, "program 1")


def test_finds_a_read_of_an_output_before_a_write() -> None:
    def build(b: FunctionBuilder, x: Expr) -> None:
        b.load(x, 5)

    fails(UninitialisedRead, build, "element 5 of %x was never written", access="write")
    run(kernel(build), [np.zeros(8, np.float32)], check=True)


def test_finds_stale_per_thread_memory() -> None:
    def build(b: FunctionBuilder, x: Expr) -> None:
        with b.if_(b.program_id().eq(0)) as branch, branch.then():
            b.store(x, b.thread_id(), 1.0)
        b.load(x, b.thread_id())

    fails(UninitialisedRead, build, "program 1", "element 0 of %x", per_thread=True)


def test_finds_two_programs_that_write_one_element() -> None:
    def build(b: FunctionBuilder, x: Expr) -> None:
        b.store(x, b.program_id() * 3, b.full((4,), 1.0, "f32"))

    fails(Race, build, "program 1 writes element 3 of %x, program 0 wrote it")


def test_finds_a_program_that_reads_what_another_writes() -> None:
    def after(b: FunctionBuilder, x: Expr) -> None:
        b.store(x, b.program_id() + 1, b.load(x, b.program_id()))

    def before(b: FunctionBuilder, x: Expr) -> None:
        b.store(x, b.program_id(), b.load(x, b.program_id() + 1))

    fails(Race, after, "program 1 reads element 1 of %x, program 0 wrote it")
    fails(Race, before, "program 1 writes element 1 of %x, program 0 read it")


def test_finds_a_write_of_what_several_read() -> None:
    def build(b: FunctionBuilder, x: Expr) -> None:
        b.load(x, 7)
        with b.if_(b.program_id().eq(2)) as branch, branch.then():
            b.store(x, 7, 1.0)

    fails(Race, build, "program 2 writes element 7 of %x, other programs read it", programs=3)


def test_finds_plain_accesses_beside_atomics() -> None:
    def build(b: FunctionBuilder, x: Expr) -> None:
        b.atomic_rmw("add", x, 0, 1.0)
        b.load(x, 0)

    fails(Race, build, "atomics wrote it")


def test_finds_races_through_shared_memory_of_two_types() -> None:
    b = FunctionBuilder("alias")
    bytes_, words = b.pointer("bytes", "u8"), b.pointer("words", "i32")
    with b.if_(b.program_id().eq(0)) as branch:
        with branch.then():
            b.store(words, 1, 5)
        with branch.otherwise():
            b.store(bytes_, 6, 1)
    data = np.zeros(4, np.int32)
    with pytest.raises(Race, match="program 1 writes element 6 of %bytes, program 0 wrote it"):
        run(b.finish(), [data.view(np.uint8), data], 2, check=True)


def test_per_thread_areas_that_overlap_are_a_race() -> None:
    def build(b: FunctionBuilder, x: Expr) -> None:
        b.store(x, b.thread_id() * 2, b.full((3,), 1.0, "f32"))

    function = kernel(build, per_thread=True)
    with pytest.raises(Race, match="thread 1 writes element 2 of %x, thread 0 wrote it"):
        run(function, [np.zeros(8, np.float32)], 2, check=True, num_threads=2)


def test_finds_index_arithmetic_that_wraps() -> None:
    def build(b: FunctionBuilder, x: Expr) -> None:
        far = (b.program_id() + (1 << 40)) * (1 << 30)
        b.load(x, far - far)

    fails(IndexOverflow, build, "index arithmetic gives 1180591620717411303424, beyond i64")
    run(kernel(build), [np.zeros(8, np.float32)])


def test_data_arithmetic_may_wrap() -> None:
    b = FunctionBuilder("hash")
    x = b.pointer("x", "i64")
    b.store(x, 0, b.load(x, 0) * 0x1234567890ABCDEF)
    data = np.array([1 << 40])
    run(b.finish(), [data], check=True)
    assert int(data[0]) % (1 << 64) == (0x1234567890ABCDEF << 40) % (1 << 64)


def test_finds_rows_that_are_not_aligned() -> None:
    def build(b: FunctionBuilder, x: Expr) -> None:
        b.load(x, b.program_id() * 2, (2, 2), [4, 1], align=16)

    fails(
        Misaligned, build, "a row starts at element 2 of %x, not at a multiple of 16", alignment=16
    )
    fails(Misaligned, build, "the address is a multiple of 4", programs=1)
    run(kernel(build, alignment=64), [np.zeros(8, np.float32)], 1, check=True)


def test_rows_that_are_masked_off_need_no_alignment() -> None:
    def build(b: FunctionBuilder, x: Expr) -> None:
        mask = b.reshape(b.arange(2) < 1, (2, 1))
        b.load(x, 0, (2, 2), [3, 1], align=16, mask=mask)

    run(kernel(build, alignment=16), [np.zeros(8, np.float32)], check=True)


def test_assertions_stop_in_checked_mode_only() -> None:
    def build(b: FunctionBuilder, _x: Expr) -> None:
        b.require(b.program_id() < 1, "one program only")

    fails(AssertionFailed, build, "assertion failed: one program only", "program 1")
    run(kernel(build), [np.zeros(8, np.float32)], 2)


def test_a_step_below_one_is_refused_always() -> None:
    b = FunctionBuilder("backwards")
    step = b.scalar("step")
    with b.for_(0, 5, step):
        pass
    with pytest.raises(CheckError, match="step is 0, expected at least 1"):
        run(b.finish(), [0])


def test_errors_carry_the_location() -> None:
    b = FunctionBuilder("located")
    x = b.pointer("x", "f32")
    b.loc = Loc("kernel.py", line=12)
    b.load(x, 9)
    with pytest.raises(OutOfBounds) as caught:
        run(b.finish(), [np.zeros(8, np.float32)])
    assert str(caught.value).endswith("at kernel.py:12")


def test_an_error_in_a_called_function_names_its_operation() -> None:
    inner = FunctionBuilder("inner")
    inner.load(inner.pointer("p", "f32"), 50)
    b = FunctionBuilder("outer")
    b.call(inner.finish(), b.pointer("x", "f32"))
    with pytest.raises(OutOfBounds, match=r"^inner, program 0: %1 = load") as caught:
        run(b.finish_module(), [np.zeros(8, np.float32)])
    assert "element 50 of %x" in str(caught.value)


# Arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([np.zeros(4, np.float32)], "got 1 arguments, expected 2"),
        ([np.zeros(4), 1], "%x is float64, expected an array of f32"),
        ([3, 1], "%x is int, expected an array of f32"),
        ([np.zeros((4, 4), np.float32).T, 1], "expected C order"),
        ([np.zeros(4, np.float32), 1.5], "%n is 1.5, expected i32"),
        ([np.zeros(4, np.float32), 2**31], "%n is 2147483648, expected i32"),
        ([np.zeros(4, np.float32), [1, 2]], "%n is [1, 2], expected i32"),
    ],
)
def test_arguments_that_do_not_fit(arguments: list[Any], message: str) -> None:
    b = FunctionBuilder("launch")
    b.pointer("x", "f32")
    b.scalar("n", "i32")
    with pytest.raises(InputError) as caught:
        run(b.finish(), arguments)
    assert message in str(caught.value)


def test_memory_that_cannot_be_written_is_for_reading() -> None:
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    for access in ("read", "read_write"):
        b = FunctionBuilder("launch")
        b.pointer("x", "f32", access=access)
        if access == "read":
            run(b.finish(), [frozen])
        else:
            with pytest.raises(InputError, match="%x is read-only"):
                run(b.finish(), [frozen])


def test_broken_promises_are_found_in_checked_mode() -> None:
    b = FunctionBuilder("promises")
    b.pointer("x", "f32", noalias="a", extent="n * 2 + 1")
    b.pointer("y", "f32", noalias="b")
    b.scalar("n", multiple_of=4)
    function = b.finish()
    data, other = np.zeros(17, np.float32), np.zeros(4, np.float32)
    run(function, [data, other, 8], check=True)
    with pytest.raises(BrokenPromise, match="%n is 7, expected a multiple of 4"):
        run(function, [data, other, 7], check=True)
    with pytest.raises(BrokenPromise, match=r"%x has 17 elements, its extent n \* 2 \+ 1 is 25"):
        run(function, [data, other, 12], check=True)
    with pytest.raises(BrokenPromise, match="%x and %y share memory"):
        run(function, [data, data[3:5], 8], check=True)
    run(function, [data, data[3:5], 7])
