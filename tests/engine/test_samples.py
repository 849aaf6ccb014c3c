"""Inputs that are made up: their sizes, their values, what is refused."""

import numpy as np
import pytest

from luban.core.errors import InputError, UnsupportedError
from luban.core.types import TensorType, tensor
from luban.engine.samples import choose_sizes, sample_inputs
from luban.engine.steps import Value

IMAGE, IDS = tensor("f32", "n", 3, "h", "w"), tensor("i64", "n", "length")


def inputs(*types: TensorType) -> list[tuple[str, Value]]:
    return [(f"x{i}", Value(i, type_, "input")) for i, type_ in enumerate(types)]


def test_sizes_by_place_or_as_given() -> None:
    assert choose_sizes(inputs(IMAGE, IDS)) == {"n": 1, "h": 64, "w": 64, "length": 16}
    assert choose_sizes(inputs(IMAGE), {"n": 0, "h": 5}) == {"n": 0, "h": 5, "w": 64}


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(InputError, match="no input has a size called 'm'\nhint: symbolic sizes: h"):
        choose_sizes(inputs(IMAGE), {"m": 1})
    with pytest.raises(InputError, match="size 'n' is -1, expected 0 or more"):
        choose_sizes(inputs(IMAGE), {"n": -1})


def test_values_are_seeded_and_of_the_declared_type() -> None:
    given = inputs(IMAGE, IDS, tensor("bool", 9), tensor("bf16", 2), tensor("u8", 40))
    sizes = choose_sizes(given)
    one, two, other = (sample_inputs(given, sizes, seed) for seed in (0, 0, 1))
    for (name, value), x in zip(given, one.values(), strict=True):
        assert isinstance(value.type, TensorType)
        assert x.dtype == value.type.dtype.numpy
        assert x.shape == value.type.resolve(sizes)
        np.testing.assert_array_equal(x, two[name])
    assert (one["x0"] != other["x0"]).any()
    assert set(np.unique(one["x1"])) == {0, 1}


def test_strings_are_not_made_up() -> None:
    with pytest.raises(UnsupportedError, match=r"input 'x0' is str\[2\]: values for it cannot be"):
        sample_inputs(inputs(tensor("str", 2)), {})
