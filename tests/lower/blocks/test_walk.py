"""Clusters, memory order, loops and branches of block programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from luban.core.registers import Registers
from luban.lower.blocks import lower_blocks
from luban.tile import Expr, FunctionBuilder, Module
from tests.lower.blocks.programs import check_lowering, grid, numbers

Make = Callable[[FunctionBuilder, Expr], Sequence[Expr]]


def _run(make: Make, x: np.ndarray, *, exact: bool = True) -> list[np.ndarray]:
    """What `make` gives for a block of x's shape."""
    b = FunctionBuilder("blocks")
    source = b.pointer("x", str(_name(x)), access="read")
    block = b.gather(source, b.reshape(b.arange(x.size), x.shape))
    outputs = []
    for number, result in enumerate(make(b, block)):
        target = b.pointer(f"y{number}", result.dtype, access="write")
        where = b.reshape(b.arange(max(result.type.num_elements, 1)), result.shape or (1,))
        b.scatter(target, where, b.broadcast(result, where.shape))
        outputs.append(np.zeros(where.type.num_elements, result.dtype.numpy))
    _, *found = check_lowering(b.finish(), [x.reshape(-1), *outputs], exact=exact)
    return found


def _name(x: np.ndarray) -> str:
    return {"float32": "f32", "int32": "i32", "float64": "f64", "int64": "i64"}[x.dtype.name]


# Folds and scans


@pytest.mark.parametrize("shape", [(64,), (256,), (4,), (8, 128), (3, 16), (128, 2), (2, 4, 64)])
@pytest.mark.parametrize("kind", ["sum", "max", "maxnum", "prod"])
def test_folds_along_every_axis(shape: tuple[int, ...], kind: str) -> None:
    x = numbers(*shape)
    for axis in range(len(shape)):
        _run(lambda b, t, axis=axis: b.fold(kind, [t], axis), x)  # type: ignore[misc]


def test_folds_of_one_block_share_a_nest() -> None:
    def moments(b: FunctionBuilder, x: Expr) -> Sequence[Expr]:
        return *b.fold("sum", [x], 1), *b.fold("sum", [x * x], 1)

    x = numbers(16, 64)
    total, squares = _run(moments, x)
    np.testing.assert_allclose(total, x.sum(axis=1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(squares, (x * x).sum(axis=1), rtol=1e-4)


def test_a_fold_of_a_fold() -> None:
    def variance(b: FunctionBuilder, x: Expr) -> Sequence[Expr]:
        (total,) = b.fold("sum", [x], 1)
        centred = x - b.reshape(total * (1 / 64), (16, 1))
        (spread,) = b.fold("sum", [centred * centred], 1)
        return spread, centred * b.reshape(b.unary("rsqrt", spread), (16, 1))

    _run(variance, numbers(16, 64), exact=False)


@pytest.mark.parametrize("shape", [(128,), (4, 64), (64, 4), (16,)])
def test_the_place_of_the_largest(shape: tuple[int, ...]) -> None:
    def largest(b: FunctionBuilder, x: Expr) -> Sequence[Expr]:
        index = b.broadcast(b.arange(shape[-1], "i32"), shape)

        def combine(v: Expr, i: Expr, w: Expr, j: Expr) -> Sequence[Expr]:
            better = (w > v) | (w.eq(v) & (j < i))
            return b.select(better, w, v), b.select(better, j, i)

        return b.fold("region", [x, index], len(shape) - 1, combine)

    x = np.round(numbers(*shape) * 2)
    _, index = _run(largest, x)
    np.testing.assert_array_equal(index, x.argmax(axis=-1).reshape(-1))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans(axis: int, reverse: bool) -> None:
    _run(lambda b, t: b.scan("sum", [t * 2.0], axis, reverse=reverse), numbers(8, 64))


def test_a_scan_feeds_a_fold() -> None:
    def make(b: FunctionBuilder, x: Expr) -> Sequence[Expr]:
        (running,) = b.scan("sum", [x], 0)
        return b.fold("max", [running], 0)

    x = numbers(128)
    (found,) = _run(make, x)
    assert found[0] == np.add.accumulate(x).max()


# Shapes


def test_shapes() -> None:
    def make(b: FunctionBuilder, x: Expr) -> Sequence[Expr]:
        turned = b.transpose(x, (1, 0))
        flat = b.reshape(turned * 2.0, (x.type.num_elements,))
        halves = b.reshape(x, (2, x.type.num_elements // 2))
        low = b.extract_slice(x, (0, 0), (8, 32))
        joined = b.concat([b.reshape(x, (16, 64, 1)), b.reshape(x * 3.0, (16, 64, 1))], 2)
        return turned, flat, halves + 1.0, low, joined

    x = numbers(16, 64)
    turned, flat, halves, low, joined = _run(make, x)
    np.testing.assert_array_equal(turned, x.T.reshape(-1))
    np.testing.assert_array_equal(flat, x.T.reshape(-1) * 2)
    np.testing.assert_array_equal(halves, x.reshape(-1) + 1)
    np.testing.assert_array_equal(low, x[:8, :32].reshape(-1))
    np.testing.assert_array_equal(joined.reshape(16, 64, 2), np.stack([x, x * 3], -1))


def test_take_and_columns() -> None:
    def make(b: FunctionBuilder, x: Expr) -> Sequence[Expr]:
        index = b.broadcast(63 - b.arange(64), (16, 64))
        column = b.reshape(b.arange(16, "f32"), (16, 1)) * 2.0
        return b.take(x, index, 1), x + column, column

    x = numbers(16, 64)
    taken, added, _ = _run(make, x)
    np.testing.assert_array_equal(taken.reshape(16, 64), x[:, ::-1])
    np.testing.assert_array_equal(
        added.reshape(16, 64), x + 2 * np.arange(16, dtype=np.float32)[:, None]
    )


# Memory order


def test_a_shift_in_place_reads_everything_first() -> None:
    b = FunctionBuilder("shift")
    x = b.pointer("x", "f32")
    lanes = b.arange(256)
    b.scatter(x, lanes + 1, b.gather(x, lanes))
    data = numbers(257)
    (found,) = check_lowering(b.finish(), [data])
    np.testing.assert_array_equal(found[1:], data[:-1])


def test_halves_that_swap_in_place() -> None:
    b = FunctionBuilder("rotate")
    x = b.pointer("x", "f32")
    low, high = b.arange(64), b.arange(64) + 64
    first, second = b.gather(x, low), b.gather(x, high)
    b.scatter(x, low, first * 2.0 - second)
    b.scatter(x, high, second * 2.0 + first)
    data = numbers(128)
    (found,) = check_lowering(b.finish(), [data])
    np.testing.assert_array_equal(found[:64], data[:64] * 2 - data[64:])
    np.testing.assert_array_equal(found[64:], data[64:] * 2 + data[:64])


def test_a_read_after_a_write_sees_it() -> None:
    b = FunctionBuilder("again")
    x, y = b.pointer("x", "f32"), b.pointer("y", "f32", access="write")
    lanes = b.arange(128)
    b.scatter(x, lanes, b.gather(x, lanes) * 2.0)
    b.scatter(y, lanes, b.gather(x, 127 - lanes) + 1.0)
    data = numbers(128)
    _, found = check_lowering(b.finish(), [data, np.zeros(128, np.float32)])
    np.testing.assert_array_equal(found, data[::-1] * 2 + 1)


def test_memory_of_another_group_is_not_waited_for() -> None:
    def program(group: str | None) -> Module:
        b = FunctionBuilder("two")
        x = b.pointer("x", "f32", noalias=group)
        y = b.pointer("y", "f32", noalias="y")
        lanes = b.arange(128)
        block = b.gather(x, lanes)
        b.scatter(y, lanes + 1, block)
        b.scatter(x, lanes, block * 2.0)
        return lower_blocks(Module.of(b.finish()), Registers(64, 32))

    apart, maybe = (
        [type(o.op).__name__ for o in program(group).kernel.operations()] for group in ("x", None)
    )
    assert "Scratch" not in apart
    assert "Scratch" in maybe


# Loops and branches


def test_blocks_that_trade_places_in_a_loop() -> None:
    def make(b: FunctionBuilder, x: Expr) -> Sequence[Expr]:
        with b.for_(0, 5, carried=[x, x * 2.0]) as loop:
            one, two = loop.carried
            loop.yield_(two, one + two)
        return loop.results

    x = numbers(64)
    one, _two = _run(make, x)
    a, c = x, x * 2
    for _ in range(5):
        a, c = c, a + c
    np.testing.assert_array_equal(one, a)


def test_a_block_turned_over_in_each_turn() -> None:
    def make(b: FunctionBuilder, x: Expr) -> Sequence[Expr]:
        with b.for_(0, 3, carried=[x]) as loop:
            (block,) = loop.carried
            loop.yield_(b.transpose(block, (1, 0)) + 1.0)
        return loop.results

    x = numbers(16, 16)
    (found,) = _run(make, x)
    np.testing.assert_array_equal(found.reshape(16, 16), ((x.T + 1).T + 1).T + 1)


def test_running_maximum_and_sum() -> None:
    """The loop of an online softmax: carried rows, a carried block, a carried pointer."""

    def make(b: FunctionBuilder, x: Expr) -> Sequence[Expr]:
        zero = b.full((16,), 0.0, "f32")
        low = b.full((16,), -float("inf"), "f32")
        acc = b.full((16, 32), 0.0, "f32")
        source = b.pointer("more", "f32", access="read")
        where = grid(b, 16, 32, 32)
        with b.for_(0, 4, carried=[low, zero, acc, where]) as loop:
            largest, total, sums, place = loop.carried
            block = b.gather(source, place) + x
            (top,) = b.fold("max", [block], 1)
            new = b.max(largest, top)
            scale = b.unary("exp", largest - new)
            powers = b.unary("exp", block - b.reshape(new, (16, 1)))
            (added,) = b.fold("sum", [powers], 1)
            loop.yield_(
                new, total * scale + added, sums * b.reshape(scale, (16, 1)) + powers, place + 512
            )
        _, total, sums, _ = loop.results
        return [sums / b.reshape(total, (16, 1))]

    b = FunctionBuilder("online")
    x = b.pointer("x", "f32", access="read")
    (result,) = make(b, b.gather(x, grid(b, 16, 32, 32)))
    y = b.pointer("y", "f32", access="write")
    b.scatter(y, grid(b, 16, 32, 32), result)
    arguments = [numbers(512), numbers(2048, seed=1), np.zeros(512, np.float32)]
    check_lowering(b.finish(), arguments, exact=False)


def test_branches_give_blocks_and_numbers() -> None:
    b = FunctionBuilder("choose")
    x, y = b.pointer("x", "f32", access="read"), b.pointer("y", "f32", access="write")
    block = b.gather(x, b.arange(64))
    with b.if_(b.program_id().eq(0)) as branch:
        with branch.then():
            branch.yield_(block * 2.0, b.constant(1.0, "f32"))
        with branch.otherwise():
            (total,) = b.fold("sum", [block], 0)
            branch.yield_(block - 1.0, total)
    chosen, number = branch.results
    b.scatter(y, b.program_id() * 64 + b.arange(64), chosen + number)
    check_lowering(b.finish(), [numbers(64), np.zeros(128, np.float32)], 2)


def test_a_store_in_a_branch() -> None:
    b = FunctionBuilder("maybe")
    x, y = b.pointer("x", "f32", access="read"), b.pointer("y", "f32")
    block = b.gather(x, b.arange(64))
    with b.if_(b.program_id() > 0) as branch, branch.then():
        b.scatter(y, b.arange(64), block)
    check_lowering(b.finish(), [numbers(64), np.zeros(64, np.float32)], 2)


def test_while_with_a_block() -> None:
    def make(b: FunctionBuilder, x: Expr) -> Sequence[Expr]:
        with b.while_([b.constant(0, "i32"), x]) as loop:
            with loop.condition() as (count, _block):
                loop.test(count < 3)
            with loop.body() as (count, block):
                loop.yield_(count + 1, block * 0.5)
        return [loop.results[1]]

    x = numbers(64)
    (found,) = _run(make, x)
    np.testing.assert_array_equal(found, x / 8)


def test_atomics_give_old_values() -> None:
    b = FunctionBuilder("count")
    bins, x = b.pointer("bins", "i32"), b.pointer("x", "i32", access="read")
    where = b.gather(x, b.program_id() * 64 + b.arange(64))
    mask = where > 1
    old = b.atomic_rmw("add", bins, b.cast(where, "i64"), b.full((64,), 1, "i32"), mask=mask)
    y = b.pointer("y", "i32", access="write")
    b.scatter(y, b.program_id() * 64 + b.arange(64), old)
    data = np.random.default_rng(0).integers(0, 8, 128, np.int32)
    check_lowering(b.finish(), [np.zeros(8, np.int32), data, np.zeros(128, np.int32)], 2)


# Products


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shape", [(16, 16, 16), (32, 64, 16), (1, 32, 64), (24, 40, 8), (4, 4, 4)])
def test_products(shape: tuple[int, int, int], turned: bool) -> None:
    m, n, k = shape
    b = FunctionBuilder("product")
    x, w = (b.pointer(name, "f32", access="read") for name in "xw")
    y = b.pointer("y", "f32", access="write")
    right = (
        b.transpose(b.gather(w, grid(b, n, k, k)), (1, 0))
        if turned
        else b.gather(w, grid(b, k, n, n))
    )
    acc = b.broadcast(b.reshape(b.arange(n, "f32"), (1, n)), (m, n))
    b.scatter(y, grid(b, m, n, n), b.dot(b.gather(x, grid(b, m, k, k)), right, acc) * 2.0)
    left, weights = numbers(m, k), numbers(k, n, seed=1)
    stored = (weights.T if turned else weights).copy()
    _, _, found = check_lowering(
        b.finish(), [left.reshape(-1), stored.reshape(-1), np.zeros(m * n, np.float32)]
    )
    wanted = 2 * (left @ weights + np.arange(n))
    np.testing.assert_allclose(found.reshape(m, n), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("elem", ["f16", "bf16", "i8", "f64"])
def test_products_of_other_types(elem: str) -> None:
    b = FunctionBuilder("product")
    x = b.pointer("x", elem, access="read")
    total = {"i8": "i32", "f64": "f64"}.get(elem, "f32")
    y = b.pointer("y", total, access="write")
    block = b.gather(x, grid(b, 16, 16, 16))
    b.scatter(y, grid(b, 16, 16, 16), b.dot(block, block * block, b.full((16, 16), 0, total)))
    data = (numbers(256) * 3).astype(x.type.pointee.numpy)
    check_lowering(b.finish(), [data, np.zeros(256, y.type.pointee.numpy)])


def test_batches_of_products() -> None:
    def make(b: FunctionBuilder, x: Expr) -> Sequence[Expr]:
        return [b.dot(x, b.transpose(x, (0, 2, 1)), b.full((2, 16, 16), 0.0, "f32"))]

    x = numbers(2, 16, 8)
    (found,) = _run(make, x)
    np.testing.assert_allclose(found.reshape(2, 16, 16), x @ x.transpose(0, 2, 1), atol=1e-5)
