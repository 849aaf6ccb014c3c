from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luban.core.dtypes import dtype
from luban.core.errors import DTypeError, InternalError, LubanError, OptionError, ShapeError
from luban.tile import Expr, FunctionBuilder, run, to_text, verify
from luban.tile.fold import fold_binary, fold_compare
from luban.tile.meaning import binary
from luban.tile.memory_ops import For, If, Load
from luban.tile.ops import BINARY


def mnemonics(b: FunctionBuilder) -> list[str]:
    return [operation.op.mnemonic for operation in b.finish().operations()]


# Folding


@given(st.sampled_from(sorted(BINARY)), st.sampled_from(["i8", "i64", "u8", "u64"]), st.data())
@settings(max_examples=300, deadline=None)
def test_folding_agrees_with_the_meaning(kind: str, name: str, data: st.DataObject) -> None:
    elem = dtype(name)
    numbers = st.integers(elem.lowest, elem.highest) | st.integers(0, 3)
    x, y = data.draw(numbers), data.draw(numbers)
    folded = fold_binary(kind, elem, x, y)
    if folded is not None:
        wanted = binary(kind, np.array(x, elem.numpy), np.array(y, elem.numpy), elem)
        assert folded == int(wanted)


@given(st.sampled_from(["and", "or", "xor"]), st.booleans(), st.booleans())
def test_folding_of_bool(kind: str, x: bool, y: bool) -> None:
    elem = dtype("bool")
    folded = fold_binary(kind, elem, x, y)
    assert folded is bool(binary(kind, np.array(x), np.array(y), elem))


@given(st.integers(-5, 5), st.integers(-5, 5))
def test_folding_of_comparisons(x: int, y: int) -> None:
    got = [fold_compare(predicate, x, y) for predicate in ("eq", "ne", "lt", "le", "gt", "ge")]
    assert got == [x == y, x != y, x < y, x <= y, x > y, x >= y]


def test_floats_are_not_folded() -> None:
    assert fold_binary("add", dtype("f32"), 1.0, 2.0) is None
    b = FunctionBuilder("f")
    one = b.constant(1.0, "f32")
    assert (one + one).known is None


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_index_expressions_keep_their_meaning(data: st.DataObject) -> None:
    """The same random expression by the builder and by Python."""
    b = FunctionBuilder("f")
    out = b.pointer("out", "i64")
    names = ["u", "v"]
    given_values = [data.draw(st.integers(-9, 9)) for _ in names]
    pairs: list[tuple[Expr | int, int]] = [
        *zip([b.scalar(name) for name in names], given_values, strict=True),
        *[(number, number) for number in (-2, -1, 0, 1, 2, 7)],
    ]
    trunc = np.trunc
    rules: dict[str, Callable[[int, int], int]] = {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "div": lambda x, y: int(trunc(x / y)) if y else 0,
        "rem": lambda x, y: x - y * int(trunc(x / y)) if y else 0,
        "min": min,
        "max": max,
    }
    for _ in range(data.draw(st.integers(1, 8))):
        kind = data.draw(st.sampled_from(sorted(rules)))
        (left, x), (right, y) = (data.draw(st.sampled_from(pairs)) for _ in range(2))
        if abs(x) < 10**6 > abs(y):
            made = b.binary(kind, left, right)  # type: ignore[arg-type]
            pairs.append((made, rules[kind](x, y)))
    last, wanted = pairs[-1]
    b.store(out, 0, last)
    function = b.finish()
    verify(function)
    result = np.zeros(1, np.int64)
    run(function, [result, *given_values])
    assert result[0] == wanted


def test_identities_leave_no_operation() -> None:
    b = FunctionBuilder("f")
    n = b.scalar("n")
    assert (n + 0).value is n.value
    assert (0 + n).value is n.value
    assert (n * 1).value is n.value
    assert (n // 1).value is n.value
    assert (n << 0).value is n.value
    assert (n * 0).known == 0
    assert (n % 1).known == 0
    assert (n + 4 - 4).value is n.value
    assert "mul" not in mnemonics(b)


def test_offsets_of_one_start_are_shared() -> None:
    b = FunctionBuilder("f")
    n = b.scalar("n")
    first = n + 8
    assert (n + 3 + 5).value is first.value
    assert (first - 0).value is first.value
    assert (5 + (n + 3)).value is first.value


def test_equal_scalars_are_shared_but_tiles_are_not() -> None:
    b = FunctionBuilder("f")
    n = b.scalar("n")
    x = b.pointer("x", "f32")
    assert (n * 3).value is (n * 3).value
    assert b.full((4,), 2.0, "f32").value is b.full((4,), 2.0, "f32").value
    assert b.arange(4).value is b.arange(4).value
    tile = b.load(x, 0, (4,))
    assert (tile * tile).value is not (tile * tile).value
    assert b.load(x, 0).value is not b.load(x, 0).value


def test_zero_and_minus_zero_are_not_shared() -> None:
    b = FunctionBuilder("f")
    assert b.constant(0.0, "f32").value is not b.constant(-0.0, "f32").value


def test_what_a_region_computes_is_not_shared_outside() -> None:
    b = FunctionBuilder("f")
    n, out = b.scalar("n"), b.pointer("out", "i64")
    with b.if_(n < 3) as branch, branch.then():
        b.store(out, 0, n * 7)
    b.store(out, 1, n * 7)
    verify(b.finish())


# Operators


def test_operators_build_the_ops() -> None:
    b = FunctionBuilder("f")
    x, n, c = b.scalar("x", "f32"), b.scalar("n"), b.scalar("c", "bool")
    u = b.scalar("u", "u32")
    made = [x + 1, 2 - x, x * x, 1.0 / x, x / 2, n // 3, 7 // n, n % 3, n & 5, n | 5, n ^ 5]
    made += [n << 2, n >> 2, u >> 2, -x, ~c, x < 1, n <= 1, n > 1, n >= 1, n.eq(3), n.ne(3)]
    wanted = ["add", "sub", "mul", "div", "div", "div", "div", "rem", "and", "or", "xor"]
    wanted += ["shl", "shr_arithmetic", "shr_logical", "neg", "not"]
    wanted += ["lt", "le", "gt", "ge", "eq", "ne"]
    assert [item for item in mnemonics(b) if item != "constant"] == wanted
    assert str(made[-1].type) == "bool"


def test_operators_broadcast_and_take_numbers() -> None:
    b = FunctionBuilder("f")
    x = b.pointer("x", "f32")
    column, row = b.load(x, 0, (6, 1)), b.load(x, 0, (16,))
    assert (column * row + 1).shape == (6, 16)
    assert b.min(column, 0).dtype is dtype("f32")
    assert b.select(b.arange(6) < 3, 1.0, b.load(x, 0)).shape == (6,)
    assert b.fma(column, 2, row).shape == (6, 16)


def test_casts_saturate_from_floats_and_wrap_from_integers() -> None:
    b = FunctionBuilder("f")
    b.scalar("x", "f32").cast("i8")
    b.scalar("n").cast("i8")
    text = to_text(b.finish())
    assert "cast{dtype=i8} %x" in text
    assert "cast{dtype=i8, saturate=false} %n" in text


def test_casts_of_known_integers_are_constants() -> None:
    b = FunctionBuilder("f")
    assert b.constant(5).cast("i8").known == 5
    assert b.constant(500).cast("i8").known is None
    n = b.scalar("n")
    assert n.cast("i64").value is n.value


# Control flow


def test_a_loop_of_one_iteration_is_inlined() -> None:
    b = FunctionBuilder("f")
    x = b.pointer("x", "f32")
    with b.for_(8, 16, 8, carried=[b.load(x, 0)]) as loop:
        assert loop.index.known == 8
        loop.yield_(loop.carried[0] + 1)
    b.store(x, 0, loop.results[0])
    assert not any(isinstance(o.op, For) for o in b.finish().operations())


def test_a_loop_of_no_iterations_disappears() -> None:
    b = FunctionBuilder("f")
    x = b.pointer("x", "f32")
    start = b.load(x, 0)
    with b.for_(4, 4, carried=[start]) as loop:
        b.store(x, 1000, 1.0)
        loop.yield_(loop.carried[0] + 1)
    assert loop.results[0].value is start.value
    assert mnemonics(b).count("store") == 0


def test_a_known_condition_keeps_one_branch() -> None:
    b = FunctionBuilder("f")
    out = b.pointer("out", "i64")
    for flag in (True, False):
        with b.if_(b.constant(flag, "bool")) as branch:
            with branch.then():
                branch.yield_(b.constant(1))
            with branch.otherwise():
                branch.yield_(b.constant(2))
        b.store(out, int(flag), branch.results[0])
    function = b.finish()
    assert not any(isinstance(o.op, If) for o in function.operations())
    result = np.zeros(2, np.int64)
    run(function, [result])
    assert result.tolist() == [2, 1]


def test_a_branch_without_results_needs_no_otherwise() -> None:
    b = FunctionBuilder("f")
    out, c = b.pointer("out", "i64"), b.scalar("c", "bool")
    with b.if_(c) as branch, branch.then():
        b.store(out, 0, 1)
    function = b.finish()
    verify(function)
    for flag in (0, 1):
        result = np.zeros(1, np.int64)
        run(function, [result, flag])
        assert result[0] == flag


def test_yields_take_numbers_and_smaller_shapes() -> None:
    b = FunctionBuilder("f")
    x = b.pointer("x", "f32")
    zero = b.full((4,), 0.0, "f32")
    with b.for_(0, b.scalar("n"), carried=[zero]) as loop:
        loop.yield_(b.load(x, loop.index))
    assert loop.results[0].shape == (4,)
    verify(b.finish())


def test_a_known_true_mask_is_left_out() -> None:
    b = FunctionBuilder("f")
    x = b.pointer("x", "f32")
    b.load(x, 0, (4,), mask=b.constant(3) < 4)
    (load,) = [o for o in b.finish().operations() if isinstance(o.op, Load)]
    assert len(load.operands) == 2


def test_known_strides_become_static() -> None:
    b = FunctionBuilder("f")
    x, n = b.pointer("x", "f32"), b.scalar("n")
    b.load(x, 0, (2, 4), [b.constant(32), 1])
    b.load(x, 0, (2, 4), [n * 2, 1])
    b.load(x, 0, (2, 3, 4))
    found = [o.op.strides for o in b.finish().operations() if isinstance(o.op, Load)]
    assert found == [(32, 1), (None, 1), (12, 4, 1)]


def test_the_parts_of_a_while_may_be_built_in_any_order() -> None:
    b = FunctionBuilder("f")
    out = b.pointer("out", "i64")
    with b.while_([b.constant(1)]) as loop:
        with loop.body() as (value,):
            loop.yield_(value * 3)
        with loop.condition() as (value,):
            loop.test(value < 50)
    b.store(out, 0, loop.results[0])
    function = b.finish()
    verify(function)
    result = np.zeros(1, np.int64)
    run(function, [result])
    assert result[0] == 81


# Refusals


def _foreign() -> None:
    other = FunctionBuilder("g").scalar("n")
    FunctionBuilder("f").scalar("m") + other


def _twice() -> None:
    b = FunctionBuilder("f")
    b.scalar("n")
    b.scalar("n")


def _open() -> None:
    b = FunctionBuilder("f")
    with b.for_(0, b.scalar("n")):
        b.finish()


def _no_yield() -> None:
    b = FunctionBuilder("f")
    n = b.scalar("n")
    with b.for_(0, n, carried=[n]):
        pass


def _yield_twice() -> None:
    b = FunctionBuilder("f")
    n = b.scalar("n")
    with b.for_(0, n, carried=[n]) as loop:
        loop.yield_(n)
        loop.yield_(n)


def _yield_count() -> None:
    b = FunctionBuilder("f")
    n = b.scalar("n")
    with b.for_(0, n, carried=[n]) as loop:
        loop.yield_(n, n)


def _yield_type() -> None:
    b = FunctionBuilder("f")
    n = b.scalar("n")
    with b.for_(0, n, carried=[n]) as loop:
        loop.yield_(b.scalar("x", "f32"))


def _backwards() -> None:
    b = FunctionBuilder("f")
    with b.for_(5, 0, -1):
        pass


def _half_while() -> None:
    b = FunctionBuilder("f")
    with b.while_([b.scalar("n")]) as loop, loop.condition() as (n,):
        loop.test(n < 3)


def _uneven_branches() -> None:
    b = FunctionBuilder("f")
    n = b.scalar("n")
    with b.if_(n < 3) as branch, branch.then():
        branch.yield_(n)


def _truth() -> None:
    if FunctionBuilder("f").scalar("n") < 3:
        pass


def _float_floor() -> None:
    FunctionBuilder("f").scalar("x", "f32") // 2


def _integer_slash() -> None:
    FunctionBuilder("f").scalar("n") / 2


def _no_broadcast() -> None:
    b = FunctionBuilder("f")
    b.arange(3) + b.arange(4)


def _select_shapes() -> None:
    b = FunctionBuilder("f")
    b.select(b.arange(3) < 1, b.arange(4), 0)


def _call_count() -> None:
    b = FunctionBuilder("f")
    inner = FunctionBuilder("g")
    inner.scalar("n")
    b.call(inner.finish())


def _call_type() -> None:
    b = FunctionBuilder("f")
    inner = FunctionBuilder("g")
    inner.scalar("x", "f32")
    b.call(inner.finish(), b.scalar("n"))


@pytest.mark.parametrize(
    ("broken", "error", "message"),
    [
        (_foreign, InternalError, "belongs to another function"),
        (_twice, DTypeError, "f has two parameters named 'n'"),
        (_open, InternalError, "finished inside an open loop or branch"),
        (_no_yield, ShapeError, "nothing yielded for 1 carried values"),
        (_yield_twice, ShapeError, "for: yields twice"),
        (_yield_count, ShapeError, "yields 2 values, expected 1"),
        (_yield_type, DTypeError, "yields f32, expected i64"),
        (_backwards, OptionError, "step is -1, expected at least 1"),
        (_half_while, ShapeError, "expected one condition() with test and one body() with yield_"),
        (_uneven_branches, ShapeError, "the branches yield (i64) and (), expected equal types"),
        (_truth, DTypeError, "has no truth value while the program is being built"),
        (_float_floor, DTypeError, "// of f32"),
        (_integer_slash, DTypeError, "/ of i64"),
        (_no_broadcast, ShapeError, "shapes (3,), (4,) do not broadcast"),
        (_select_shapes, ShapeError, "does not broadcast with tile<4xi64>"),
        (_call_count, ShapeError, "g got 0 arguments, expected 1"),
        (_call_type, DTypeError, "g: x is i64, expected f32"),
    ],
)
def test_refusals(
    broken: Callable[[], None], error: type[LubanError | InternalError], message: str
) -> None:
    with pytest.raises(error) as caught:
        broken()
    assert message in str(caught.value)
