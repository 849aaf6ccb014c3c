"""Sizes from shapes: solved, checked, and refused with what was given and expected."""

import numpy as np
import pytest

from luban.core.dims import symbol
from luban.core.errors import InputError, ShapeError
from luban.core.types import SequenceType, TupleType, Type, tensor
from luban.graph.bind import bind_all, bind_symbols
from luban.graph.meaning.context import Array


def shaped(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("type_", "shape", "sizes"),
    [
        (tensor("f32", "n", 3), (4, 3), {"n": 4}),
        (tensor("f32", "n", "n"), (4, 4), {"n": 4}),
        (tensor("f32", "2*h+1"), (7,), {"h": 3}),
        (tensor("f32", "10-h"), (7,), {"h": 3}),
        (tensor("f32", "n*m", "m"), (12, 3), {"n": 4, "m": 3}),
        (tensor("f32", "n+m", "n"), (12, 3), {"n": 3, "m": 9}),
        (tensor("f32", "n", "n//2", "max(n,4)"), (5, 2, 5), {"n": 5}),
        (tensor("f32", "n"), (0,), {"n": 0}),
        (tensor("f32"), (), {}),
    ],
)
def test_shapes_settle_symbols(type_: Type, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    found: dict[str, int] = {}
    bind_symbols(type_, shaped(*shape), found)
    assert found == sizes


def test_one_input_settles_what_another_needs() -> None:
    sizes: dict[str, int] = {}
    rows = [("a", tensor("f32", "n*m"), shaped(12)), ("b", tensor("f32", "m"), shaped(3))]
    bind_all(rows, sizes)
    assert sizes == {"m": 3, "n": 4}


def test_what_cannot_be_solved_stays_open() -> None:
    sizes: dict[str, int] = {}
    bind_symbols(tensor("f32", "n*n", "k//2", "a+b"), shaped(4, 3, 2), sizes)
    assert sizes == {}


@pytest.mark.parametrize(
    ("type_", "shape", "message"),
    [
        (tensor("f32", 3), (4,), r"input 'x': axis 0 is 4, expected 3 as in f32\[3\]"),
        (tensor("f32", 3, 4), (3,), r"input 'x' has shape \[3\], expected 2 axes: f32\[3,4\]"),
        (tensor("f32", "n", "n"), (4, 5), "input 'x': axis 1 is 5, expected n = 4 for n = 4"),
        (tensor("f32", "n", "2*n"), (4, 5), r"axis 1 is 5, expected 2\*n = 8 for n = 4"),
        (tensor("f32", "2*h+1"), (6,), r"axis 0 is 6, expected 2\*h\+1 with h any size"),
        (tensor("f32", "h+9"), (6,), r"axis 0 is 6, expected h\+9 with h any size"),
        (tensor("f32", symbol("n", 1, 8)), (9,), "axis 0 is 9, expected n with n 1 to 8"),
        (tensor("f32", symbol("n", 1)), (0,), "axis 0 is 0, expected n with n at least 1"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    type_: Type, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        bind_symbols(type_, shaped(*shape), {}, what="input 'x'")


def test_inside_a_model_the_error_is_a_shape_error() -> None:
    with pytest.raises(ShapeError, match="result: axis 0 is 4"):
        bind_symbols(tensor("f32", 3), shaped(4), {}, what="result", given=False)


def test_tuples_are_bound_and_sequences_are_not() -> None:
    sizes: dict[str, int] = {}
    type_ = TupleType((tensor("f32", "a"), SequenceType(tensor("f32", "b"))))
    bind_symbols(type_, (shaped(2), [shaped(3), shaped(4)]), sizes)
    assert sizes == {"a": 2}
