"""Symbolic dimensions: one canonical form, which agrees with plain integer arithmetic."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from luban.core import dims
from luban.core.dims import DimLike, symbol
from luban.core.errors import ShapeError

NAMES = ("a", "b", "c")
SIZES = st.fixed_dictionaries({name: st.integers(0, 12) for name in NAMES})

OPERATIONS: dict[str, tuple[Callable[[Any, Any], DimLike], Callable[[int, int], int]]] = {
    "+": (lambda x, y: x + y, lambda x, y: x + y),
    "-": (lambda x, y: x - y, lambda x, y: x - y),
    "*": (lambda x, y: x * y, lambda x, y: x * y),
    "min": (dims.minimum, min),
    "max": (dims.maximum, max),
}


def expressions() -> st.SearchStrategy[tuple[DimLike, Callable[[dict[str, int]], int]]]:
    """A dimension, and the function of the sizes that it was built to be."""
    leaves = st.one_of(
        st.sampled_from(NAMES).map(lambda name: (symbol(name), lambda s, n=name: s[n])),
        st.integers(-4, 6).map(lambda value: (value, lambda _, v=value: v)),
    )

    def combine(children: Any) -> Any:
        def two(row: Any) -> Any:
            name, (x, f), (y, g) = row
            build, apply = OPERATIONS[name]
            return build(x, y), lambda s: apply(f(s), g(s))

        def divided(row: Any) -> Any:
            (x, f), divisor, kind = row
            if kind == "//":
                return dims.floor_div(x, divisor), lambda s: f(s) // divisor
            if kind == "ceil":
                return dims.ceil_div(x, divisor), lambda s: -(-f(s) // divisor)
            return dims.modulo(x, divisor), lambda s: f(s) % divisor

        pairs = st.tuples(st.sampled_from(sorted(OPERATIONS)), children, children).map(two)
        quotients = st.tuples(
            children, st.integers(1, 6), st.sampled_from(["//", "%", "ceil"])
        ).map(divided)
        return pairs | quotients

    return st.recursive(leaves, combine, max_leaves=6)


@given(expressions(), SIZES)
def test_the_canonical_form_keeps_the_value(expression: Any, sizes: dict[str, int]) -> None:
    dim, meaning = expression
    assert dims.evaluate(dim, sizes) == meaning(sizes)


@given(expressions(), SIZES)
def test_bounds_hold(expression: Any, sizes: dict[str, int]) -> None:
    dim, meaning = expression
    low, high = dims.bounds(dim)
    assert low <= meaning(sizes) <= high


@given(expressions())
def test_the_printed_form_reads_back(expression: Any) -> None:
    dim, _ = expression
    again = dims.parse(str(dim))
    assert again == dim
    assert str(again) == str(dim)


@given(expressions(), expressions(), SIZES)
def test_substitution_is_evaluation_in_two_steps(
    outer: Any, inner: Any, sizes: dict[str, int]
) -> None:
    dim, meaning = outer
    replacement, value = inner
    assume(value(sizes) >= 0)
    whole = dims.substitute(dim, {"a": replacement})
    assert dims.evaluate(whole, sizes) == meaning({**sizes, "a": value(sizes)})


@given(expressions(), SIZES)
def test_common_divisor_divides(expression: Any, sizes: dict[str, int]) -> None:
    dim, meaning = expression
    divisor = dims.common_divisor(dim)
    assert meaning(sizes) % divisor == 0 if divisor else meaning(sizes) == 0


@given(expressions(), expressions())
def test_sums_and_products_commute(x: Any, y: Any) -> None:
    assert x[0] + y[0] == y[0] + x[0]
    assert x[0] * y[0] == y[0] * x[0]


def test_equal_dimensions_are_proved_equal() -> None:
    a, b = symbol("a"), symbol("b")
    assert (a + b) * (a - b) == a * a - b * b
    assert (2 * a + 4) // 2 == a + 2
    assert a - a == 0
    assert isinstance(a - a, int)


def test_exact_quotients_need_a_divisor_that_is_not_zero() -> None:
    n, k = symbol("n"), symbol("k", 1)
    assert (6 * n * k) // (2 * k) == 3 * n
    assert str((n * symbol("z")) // symbol("z")) == "((n*z)//z)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2*h+1", "2*h+1"),
        ("(h+1)*2-1", "2*h+1"),
        ("h//2", "(h//2)"),
        ("h%2", "(h%2)"),
        ("min(h,8)", "min(8,h)"),
        ("max(h,0)", "h"),
        ("broadcast(h,1)", "h"),
        ("-h", "-h"),
        ("7", "7"),
    ],
)
def test_parse(text: str, expected: str) -> None:
    assert str(dims.parse(text)) == expected


@pytest.mark.parametrize(
    "text", ["h.x", "h**2", "f(h,2)", "h+", "'h'", "min(h)", "True", "h/2", ""]
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ShapeError, match="cannot be read"):
        dims.parse(text)


def test_sums_that_start_and_end_with_a_bracket_print_in_brackets() -> None:
    a = symbol("a")
    assert str((a // 2 + a) // 2) == "(((a//2)+a)//2)"
    assert str((a // 2 + (a + 1) % 2) // 2) == "((((a+1)%2)+(a//2))//2)"


def test_known_symbols_keep_their_bounds() -> None:
    n = symbol("n", 2, 5)
    assert dims.bounds(dims.parse("2*n", {"n": n})) == (4, 10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: symbol("not ok"), "dimension name 'not ok' is not an identifier"),
        (lambda: symbol("n", 5, 2), r"dimension n: bounds \[5, 2\] are empty or negative"),
        (lambda: symbol("n", -1), r"bounds \[-1, "),
        (lambda: dims.floor_div(symbol("n"), 0), r"dimension \(n\)//0 divides by zero"),
        (lambda: dims.modulo(symbol("n"), 0), r"dimension \(n\)%0 divides by zero"),
        (lambda: dims.broadcast(2, 3), "sizes 2 and 3 do not broadcast: expected equal sizes"),
        (
            lambda: dims.evaluate(symbol("n"), {"m": 1}),
            "dimension n has no size yet\nhint: known: m",
        ),
        (
            lambda: dims.evaluate(dims.broadcast(symbol("n"), symbol("m")), {"n": 2, "m": 3}),
            "sizes 2 and 3 do not broadcast|sizes 3 and 2 do not broadcast",
        ),
    ],
)
def test_errors_say_what_was_given_and_expected(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        make()


def test_broadcast_at_run_time() -> None:
    both = dims.broadcast(symbol("n"), symbol("m"))
    for n, m, expected in ((4, 1, 4), (1, 4, 4), (4, 4, 4), (0, 1, 0), (1, 0, 0)):
        assert dims.evaluate(both, {"n": n, "m": m}) == expected


def test_division_by_a_size_of_zero_is_zero() -> None:
    n, m = symbol("n"), symbol("m")
    assert dims.evaluate(n // m, {"n": 3, "m": 0}) == 0
    assert dims.evaluate(n % m, {"n": 3, "m": 0}) == 0


def test_num_elements() -> None:
    assert dims.num_elements(()) == 1
    assert dims.num_elements((symbol("n"), 0)) == 0
