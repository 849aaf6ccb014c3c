"""Statements of the language: control flow, memory, calls, prints and assertions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luban.core.errors import LubanWarning
from luban.tile.memory import AssertionFailed
from tests.lang.expressions import define

Array = np.ndarray[Any, np.dtype[Any]]


def run(body: str, *arguments: Any, grid: Any = (1,), **names: Any) -> None:
    """A kernel with parameters a, b, c, ... launched compiled, then checked on copies."""
    letters = "abcdefgh"[: len(arguments)]
    text = f"def kernel({', '.join(letters)}):\n"
    text += "\n".join("    " + line for line in body.strip("\n").splitlines()) + "\n"
    kernel = define(text, **names)
    copies = [x.copy() if isinstance(x, np.ndarray) else x for x in arguments]
    kernel[grid](*arguments)
    kernel[grid](*copies, check=True)
    for one, other in zip(arguments, copies, strict=True):
        if isinstance(one, np.ndarray):
            np.testing.assert_allclose(one, other, rtol=2e-6)


def zeros(*shape: int, dtype: Any = np.float32) -> Array:
    return np.zeros(shape, dtype)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# Control flow


def test_a_branch_that_the_run_decides_merges_names() -> None:
    out = zeros(4)
    run(
        """
pid = tl.program_id(0)
if pid % 2 == 0:
    value = pid * 2.0
    other = 5
else:
    value = pid + 0.5
    other = 7
tl.store(a + pid, value + other)
""",
        out,
        grid=(4,),
    )
    np.testing.assert_array_equal(out, [5, 8.5, 9, 10.5])


def test_a_branch_of_constants_is_followed() -> None:
    out = zeros(1)
    run("if KIND == 'no':\n    tl.store(b, 1)\nelse:\n    tl.store(a, 2.0)", out, KIND="yes")
    assert out[0] == 2


def test_an_early_return() -> None:
    out = zeros(4, dtype=np.int32)
    run(
        """
pid = tl.program_id(0)
if pid == 1:
    return
if pid > 2:
    tl.store(a + pid, 9)
    return
tl.store(a + pid, pid + 1)
""",
        out,
        grid=(4,),
    )
    assert out.tolist() == [1, 0, 3, 9]


def test_a_helper_with_two_returns() -> None:
    text = "def pick(x):\n    if x > 1:\n        return x * 10\n    return x\n"
    out = zeros(4, dtype=np.int32)
    run("pid = tl.program_id(0)\ntl.store(a + pid, pick(pid))", out, grid=(4,), pick=define(text))
    assert out.tolist() == [0, 1, 20, 30]


def test_loops_count_in_both_directions() -> None:
    out = zeros(3, dtype=np.int32)
    run(
        """
n = tl.load(b)
up = 0
for i in range(n):
    up += i
down = 0
for i in range(n, 0, -2):
    down = down * 10 + i
never = 7
for i in range(3, n - 20):
    never = 0
tl.store(a, up)
tl.store(a + 1, down)
tl.store(a + 2, never)
""",
        out,
        np.array([7], np.int32),
    )
    assert out.tolist() == [21, 7531, 7]


def test_loops_of_constants_are_written_out() -> None:
    out = zeros(4)
    run(
        """
for i in tl.static_range(4):
    if i != 2:
        tl.store(a + i, i)
for name, place in (("x", 2),):
    tl.store(a + place, 7.0)
""",
        out,
    )
    assert out.tolist() == [0, 1, 7, 3]


def test_while() -> None:
    out = zeros(1, dtype=np.int32)
    run(
        """
n = tl.load(b)
steps = 0
while n != 1:
    n = tl.where(n % 2 == 0, n // 2, 3 * n + 1)
    steps += 1
tl.store(a, steps)
""",
        out,
        np.array([27], np.int32),
    )
    assert out[0] == 111


def test_a_choice_and_logic() -> None:
    out = zeros(4, dtype=np.int32)
    run(
        """
pid = tl.program_id(0)
x = 10 if pid > 1 and not pid == 3 else 20
y = x if pid == 0 or pid == 2 else x + 1
tl.store(a + pid, y)
""",
        out,
        grid=(4,),
    )
    assert out.tolist() == [20, 21, 10, 21]


def test_tuples_come_and_go() -> None:
    helper = define("def both(x, y):\n    return x + y, x - y\n")
    out = zeros(2)
    run(
        "total, rest = both(*(3.0, 1.0))\npair = (total, rest)\ntl.store(a, pair[0])\n"
        "tl.store(a + 1, pair[1])",
        out,
        both=helper,
    )
    assert out.tolist() == [4, 2]


def test_pointers_move_in_loops() -> None:
    x, out = numbers(4, 64), zeros(64)
    run(
        """
lanes = tl.arange(0, 64)
where = a + lanes
total = tl.zeros([64], tl.float32)
for _ in range(4):
    total += tl.load(where)
    where += 64
tl.store(b + lanes, total)
""",
        x,
        out,
    )
    np.testing.assert_allclose(out, x.sum(0), rtol=1e-5)


# Memory


def test_block_pointers() -> None:
    x, out = numbers(20, 30), zeros(30, 20)
    run(
        """
source = tl.make_block_ptr(
    a, shape=(20, 30), strides=(30, 1), offsets=(0, 16), block_shape=(16, 16), order=(1, 0)
)
target = tl.make_block_ptr(b, (30, 20), (20, 1), (16, 0), (16, 16), (1, 0))
for _ in range(2):
    block = tl.load(source, boundary_check=(0, 1), padding_option="zero")
    tl.store(target, tl.trans(block), boundary_check=(0, 1))
    source = tl.advance(source, (16, 0))
    target = tl.advance(target, (0, 16))
""",
        x,
        out,
    )
    np.testing.assert_array_equal(out[16:], x[:, 16:].T)


def test_tensor_descriptors() -> None:
    x, out = numbers(20, 32), zeros(20, 32)
    run(
        """
source = tl.make_tensor_descriptor(a, [20, 32], [32, 1], [8, 16])
target = tl.make_tensor_descriptor(b, [20, 32], [32, 1], [8, 16])
row = tl.program_id(0) * 8
for column in range(0, 32, 16):
    tl.store_tensor_descriptor(target, [row, column], source.load([row, column]) * 2)
""",
        x,
        out,
        grid=(3,),
    )
    np.testing.assert_array_equal(out, x * 2)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("add", 10), ("max", 3), ("min", 0), ("or", 3), ("and", 0), ("xor", 4), ("xchg", 3)],
)
def test_atomics(name: str, wanted: int) -> None:
    cell = np.array([4 if name in ("add", "xor") else 0], np.int32)
    text = f"tl.atomic_{name}(a, tl.program_id(0))"
    run(text, cell, grid=(4,))
    assert cell[0] == wanted


def test_atomics_of_blocks_with_masks() -> None:
    bins = zeros(8, dtype=np.int32)
    data = np.arange(64, dtype=np.int32) % 11
    run(
        """
x = tl.load(b + tl.arange(0, 64))
tl.atomic_add(a + x, 1, mask=x < 8)
""",
        bins,
        data,
    )
    assert bins.tolist() == np.bincount(data, minlength=11)[:8].tolist()


def test_a_lock_by_compare_and_swap() -> None:
    cell, out = np.zeros(1, np.int32), np.zeros(4, np.int32)
    run(
        "pid = tl.program_id(0)\ntl.store(b + pid, tl.atomic_cas(a, pid, pid + 1))",
        cell,
        out,
        grid=(4,),
    )
    assert cell[0] == 4
    assert out.tolist() == [0, 1, 2, 3]


def test_numbers_of_every_kind_are_handed_over() -> None:
    out = np.zeros(5, np.float64)
    run(
        """
tl.store(a, b)
tl.store(a + 1, c)
tl.store(a + 2, d)
tl.store(a + 3, e)
tl.store(a + 4, f)
""",
        out,
        5,
        1 << 40,
        0.5,
        True,
        1,
    )
    assert out.tolist() == [5, 2.0**40, 0.5, 1, 1]


# Random numbers


def test_random_numbers_are_philox() -> None:
    out = zeros(4, 64, dtype=np.uint32)
    run(
        """
lanes = tl.arange(0, 64)
several = (tl.randint(b, lanes), tl.randint4x(b, lanes)[0], tl.philox(b, lanes, 0, 0, 0)[0])
for i, x in ((0, several[0]), (1, several[1]), (2, several[2])):
    tl.store(a + i * 64 + lanes, x)
""",
        out,
        1234,
    )
    # The first of Salmon's known answers: counter and key 0.
    np.testing.assert_array_equal(out[0], out[1])
    np.testing.assert_array_equal(out[0], out[2])
    first = zeros(1, dtype=np.uint32)
    run("tl.store(a, tl.randint(0, 0))", first)
    assert first[0] == 0x6627E8D5


@pytest.mark.parametrize(("text", "mean", "deviation"), [
    ("tl.rand(b, lanes)", 0.5, 0.289), ("tl.randn(b, lanes)", 0.0, 1.0),
    ("tl.rand4x(b, lanes)[3]", 0.5, 0.289), ("tl.randn4x(b, lanes)[2]", 0.0, 1.0),
    ("tl.pair_uniform_to_normal(tl.rand(b + 1, lanes), tl.rand(b, lanes))[0]", 0.0, 1.0),
    ("tl.uint_to_uniform_float(tl.randint(b, lanes))", 0.5, 0.289),
])  # fmt: skip
def test_random_numbers_have_their_moments(text: str, mean: float, deviation: float) -> None:
    out = zeros(4096)
    run(f"lanes = tl.arange(0, 4096)\ntl.store(a + lanes, {text})", out, 99)
    assert abs(out.mean() - mean) < 0.05
    assert abs(out.std() - deviation) < 0.05


# Prints, assertions, hints


def test_a_kernel_that_prints_runs_in_the_evaluator(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = define(
        "def kernel():\n    print('pid', tl.program_id(0))\n    tl.device_print('x', 5)\n"
    )
    with pytest.warns(LubanWarning, match="kernel runs in the evaluator, slowly: it prints"):
        kernel[(2,)]()
    assert capsys.readouterr().out.splitlines() == [
        "program 0: pid0", "program 0: x5", "program 1: pid1", "program 1: x5",
    ]  # fmt: skip


def test_assertions_hold_in_checked_runs_only() -> None:
    kernel = define(
        "def kernel(a):\n    x = tl.load(a + tl.arange(0, 4))\n"
        "    tl.assume(x[None, :] >= 0)\n    tl.device_assert(x < 3, 'too large')\n"
        "    assert tl.max(x, 0) > 0, 'all zero'\n    tl.debug_barrier()\n"
    )
    data = np.arange(4, dtype=np.int32)
    kernel[(1,)](data)
    with pytest.raises(AssertionFailed, match="too large"):
        kernel[(1,)](data, check=True)


def test_constants_print_and_are_asserted(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = define(
        "def kernel(a, N: tl.constexpr):\n    tl.static_assert(N == 4, 'four')\n"
        "    tl.static_print('N =', N, f'and {N + 1}')\n    tl.store(a, N)\n"
        "    if isinstance(N, int):\n        tl.store(a + 1, 1.0)\n"
    )
    out = zeros(2)
    kernel[(1,)](out, N=4)
    assert capsys.readouterr().out == "N = 4 and 5\n"
    assert out.tolist() == [4, 1]


def test_types_answer() -> None:
    out = zeros(1)
    run(
        """
x = tl.load(b)
bits = x.type.scalar.primitive_bitwidth
if b.dtype.element_ty == tl.float16 and x.dtype.is_fp16() and bits == 16:
    tl.store(a, x.to(a.dtype.element_ty))
tl.static_assert(tl.zeros([4, 8], tl.int8).shape[1] == 8)
""",
        out,
        np.array([2.5], np.float16),
    )
    assert out[0] == 2.5


def test_a_name_that_each_turn_sets_may_change_its_memory() -> None:
    x, y, out = numbers(16), numbers(16) + 1, zeros(16)
    run(
        """
lanes = tl.arange(0, 4)
p = a + lanes
total = tl.load(p)
for i in range(4):
    p = b + i * 4 + lanes
    total += tl.load(p)
    tl.store(c + i * 4 + lanes, total)
""",
        x,
        y,
        out,
    )
    wanted = x[:4] + np.cumsum(y.reshape(4, 4), axis=0, dtype=np.float32)
    np.testing.assert_allclose(out.reshape(4, 4), wanted, rtol=1e-5)


def test_a_name_set_in_turns_is_carried_when_it_is_read_later() -> None:
    out = zeros(2)
    run(
        """
last = 5.0
for i in range(b):
    last = i * 2.0
    tl.store(a + 1, last)
tl.store(a, last)
""",
        out,
        3,
    )
    np.testing.assert_array_equal(out, [4, 4])
    run("last = 5.0\nfor i in range(b):\n    last = i * 2.0\ntl.store(a, last)", out, 0)
    assert out[0] == 5


@pytest.mark.parametrize(
    ("bounds", "last"), [("0, b", 6), ("1, b, 3", 4), ("b, 0, -1", 1), ("b, 1, -4", 3)]
)
def test_the_name_of_a_range_keeps_its_last_value(bounds: str, last: int) -> None:
    out = zeros(1, dtype=np.int32)
    run(f"for i in range({bounds}):\n    tl.store(a, 0)\ntl.store(a, i)", out, 7)
    assert out[0] == last


def test_none_gives_a_number_an_axis() -> None:
    out = zeros(4)
    run("x = b * 2.0\ntl.store(a + tl.arange(0, 4), x[:, None] + tl.arange(0, 4))", out, 1.5)
    np.testing.assert_array_equal(out, 3 + np.arange(4))


def test_constants_are_their_own_value() -> None:
    out = zeros(1)
    run("kind = a.dtype.element_ty.value\ntl.store(a, tl.full((), b.value, kind))", out, 1)
    assert out[0] == 1


def test_a_name_may_be_set_anew_after_a_loop_that_set_it_to_other_memory() -> None:
    x, y, out = numbers(4), numbers(4), zeros(4)
    run(
        """
p = a + tl.arange(0, 4)
total = tl.load(p)
for i in range(2):
    p = b + tl.arange(0, 4)
    total += tl.load(p)
if FINAL:
    p = c + tl.arange(0, 4)
    tl.store(p, total)
""",
        x,
        y,
        out,
        FINAL=True,
    )
    np.testing.assert_allclose(out, x + 2 * y, rtol=1e-5)


def test_a_fold_of_ones_own_may_use_constants() -> None:
    x, out = numbers(64), zeros(1)
    names = {}
    names["combine"] = define(
        "def combine(x, y):\n    return tl.where(x > y + 0.5, x, tl.maximum(x, y) * 1.0)\n"
    )
    run("tl.store(b, tl.reduce(tl.load(a + tl.arange(0, 64)), 0, combine))", x, out, **names)
    assert out[0] == x.max()
