"""Block programs: ops on whole blocks, in the evaluator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from luban.tile import Expr, FunctionBuilder, parse, run, to_text, verify
from luban.tile.block_ops import FoldKind
from luban.tile.memory import OutOfBounds

Make = Callable[[FunctionBuilder, Expr], Sequence[Expr]]


def _apply(make: Make, x: NDArray[np.float32]) -> list[NDArray[Any]]:
    """The blocks that `make` gives for a block of x's shape, through text and back."""
    b = FunctionBuilder("blocks")
    source = b.pointer("x", "f32", access="read")
    where = b.reshape(b.arange(x.size), x.shape)
    results = make(b, b.gather(source, where))
    outputs = []
    for number, result in enumerate(results):
        target = b.pointer(f"y{number}", result.dtype, access="write")
        size = result.type.num_elements
        b.scatter(target, b.reshape(b.arange(size), result.shape), result)
        outputs.append(np.zeros(result.shape, result.dtype.numpy))
    function = b.finish()
    verify(function)
    again = parse(to_text(function))
    assert to_text(again) == to_text(function)
    run(again, [x.reshape(-1), *[output.reshape(-1) for output in outputs]], check=True)
    return list(outputs)


def _numbers(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(1,), (7,), (64,), (100,), (256,), (3, 130), (4, 5, 6)])
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "maxnum", "minnum"])
def test_fold(kind: FoldKind, shape: tuple[int, ...]) -> None:
    x = _numbers(*shape)
    reference: dict[str, Callable[..., Any]] = {"sum": np.sum, "prod": np.prod}
    reference |= {"max": np.max, "min": np.min, "maxnum": np.max, "minnum": np.min}
    for axis in range(len(shape)):
        (y,) = _apply(lambda b, t, axis=axis: b.fold(kind, [t], axis), x)  # type: ignore[misc]
        wanted = reference[kind](x.astype(np.float64), axis=axis)
        np.testing.assert_allclose(y, wanted, rtol=2e-5, atol=1e-5)


def test_a_fold_along_the_last_axis_keeps_64_partial_sums() -> None:
    x = _numbers(300)
    (y,) = _apply(lambda b, t: b.fold("sum", [t], 0), x)
    partials = x[:64].copy()
    for start in range(64, 300, 64):
        partials[: min(64, 300 - start)] += x[start : start + 64]
    while len(partials) > 1:
        partials = partials[: len(partials) // 2] + partials[len(partials) // 2 :]
    assert y == partials[0]


def test_a_fold_along_another_axis_goes_in_order() -> None:
    x = _numbers(200, 2)
    (y,) = _apply(lambda b, t: b.fold("sum", [t], 0), x)
    np.testing.assert_array_equal(y, np.add.accumulate(x, axis=0)[-1])


def _first_of_largest(b: FunctionBuilder, x: Expr) -> Sequence[Expr]:
    index = b.broadcast(b.arange(x.shape[-1], "i32"), x.shape)

    def combine(v: Expr, i: Expr, w: Expr, j: Expr) -> Sequence[Expr]:
        better = (w > v) | (w.eq(v) & (j < i))
        return b.select(better, w, v), b.select(better, j, i)

    return b.fold("region", [x, index], len(x.shape) - 1, combine)


@pytest.mark.parametrize("shape", [(5,), (64,), (200,), (3, 70)])
def test_a_region_finds_the_largest_and_its_place(shape: tuple[int, ...]) -> None:
    x = np.round(_numbers(*shape) * 2)
    value, index = _apply(_first_of_largest, x)
    np.testing.assert_array_equal(value, x.max(axis=-1))
    np.testing.assert_array_equal(index, x.argmax(axis=-1))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_scan(axis: int, reverse: bool) -> None:
    x = _numbers(9, 33)
    (y,) = _apply(lambda b, t: b.scan("sum", [t], axis, reverse=reverse), x)
    turned = np.flip(x, axis) if reverse else x
    wanted = np.add.accumulate(turned, axis=axis)
    np.testing.assert_array_equal(y, np.flip(wanted, axis) if reverse else wanted)


def test_a_scan_with_a_region() -> None:
    x = _numbers(50)
    (y,) = _apply(
        lambda b, t: b.scan("region", [t], 0, combine=lambda so, new: [so * 0.5 + new]), x
    )
    total = np.float32(0)
    for place, number in enumerate(x):
        total = number if place == 0 else total * np.float32(0.5) + number
        assert y[place] == total


@pytest.mark.parametrize(("a", "b"), [((5, 7), (7, 3)), ((2, 4, 8), (2, 8, 6))])
def test_dot(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x = _numbers(*a)
    right = _numbers(*b)

    def make(build: FunctionBuilder, left: Expr) -> Sequence[Expr]:
        other = build.gather(
            build.pointer("b", "f32", access="read"), build.reshape(build.arange(right.size), b)
        )
        acc = build.full((*a[:-1], b[-1]), 1.0, "f32")
        return [build.dot(left, other, acc)]

    build = FunctionBuilder("product")
    source = build.pointer("x", "f32", access="read")
    left = build.gather(source, build.reshape(build.arange(x.size), a))
    (result,) = make(build, left)
    target = build.pointer("y", "f32", access="write")
    build.scatter(
        target, build.reshape(build.arange(result.type.num_elements), result.shape), result
    )
    y = np.zeros(result.shape, np.float32)
    run(build.finish(), [x.reshape(-1), right.reshape(-1), y.reshape(-1)], check=True)
    np.testing.assert_allclose(y, x @ right + 1, rtol=1e-5, atol=1e-5)


def test_int8_products_are_exact() -> None:
    build = FunctionBuilder("product")
    a = build.full((2, 9), -128, "i8")
    b = build.full((9, 2), 127, "i8")
    result = build.dot(a, b, build.full((2, 2), 1, "i32"))
    target = build.pointer("y", "i32", access="write")
    build.scatter(target, build.reshape(build.arange(4), (2, 2)), result)
    y = np.zeros(4, np.int32)
    run(build.finish(), [y])
    assert y.tolist() == [-128 * 127 * 9 + 1] * 4


def test_take_reverses() -> None:
    x = _numbers(3, 8)
    (y,) = _apply(
        lambda b, t: [b.take(t, b.broadcast(7 - b.arange(8), (3, 8)), 1)],
        x,
    )
    np.testing.assert_array_equal(y, x[:, ::-1])


def test_take_outside_is_found() -> None:
    with pytest.raises(OutOfBounds, match="index 8 along axis 0, expected 0 to 7"):
        _apply(lambda b, t: [b.take(t, b.arange(8) + 1, 0)], _numbers(8))


def test_compare_and_swap() -> None:
    b = FunctionBuilder("lock")
    memory = b.pointer("m", "i32")
    old = b.pointer("old", "i32", access="write")
    zero, one = b.constant(0, "i32"), b.constant(1, "i32")
    b.scatter(old, b.arange(4), b.atomic_cas(memory, b.arange(4), zero, one))
    data, seen = np.array([0, 5, 0, 1], np.int32), np.zeros(4, np.int32)
    run(b.finish(), [data, seen], check=True)
    assert seen.tolist() == [0, 5, 0, 1]
    assert data.tolist() == [1, 5, 1, 1]


def test_print_says_which_program(capsys: pytest.CaptureFixture[str]) -> None:
    b = FunctionBuilder("show")
    x = b.arange(3, "i32") + 10
    b.print_values("x = ", x)
    b.print_values("hex = ", x, hexadecimal=True)
    b.print_values("some = ", x, mask=x > 10)
    b.print_values("here")
    run(b.finish(), [], num_programs=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "program 0: x = [10 11 12]",
        "program 0: hex = [0x0000000a 0x0000000b 0x0000000c]",
        "program 0: some = [11 12]",
        "program 0: here",
    ]
    assert lines[4] == "program 1: x = [10 11 12]"
