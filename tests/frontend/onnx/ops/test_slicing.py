"""Slice, Split, Concat, Pad, CenterCropPad, ReverseSequence."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from luban.core.errors import LubanError
from luban.frontend.onnx import import_model
from tests.frontend.onnx.ops.comparison import Array, compare, run

rng = np.random.default_rng(2)
HUGE = 2**63 - 1


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def numbers(*values: int) -> Array:
    return np.array(values, np.int64)


@pytest.mark.parametrize("known", [(1, 2, 3, 4), ()])
@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([1], [100], [0], [1]),
        ([-3, -1], [HUGE, -100], [1, 2], [1, -2]),
        ([5], [0], [1], [-1]),
        ([-100], [-1], [1], [3]),
        ([HUGE], [-HUGE], [2], [-3]),
        ([3], [3], [1], [1]),
        ([2, 0], [4, -1], [-1, -2], [1, 1]),
    ],
)
def test_slice(
    starts: list[int], ends: list[int], axes: list[int], steps: list[int], known: tuple[int, ...]
) -> None:
    rows = [numbers(*row) for row in (starts, ends, axes, steps)]
    compare("Slice", [normal(4, 7, 9), *rows], known=known)


def test_slice_by_attributes() -> None:
    compare("Slice", [normal(4, 7)], opset=9, starts=[1, -3], ends=[3, 1000], axes=[0, 1])


@pytest.mark.parametrize("known", [(1, 2, 3, 4), ()])
@pytest.mark.parametrize(("size", "count"), [(7, 1), (0, 0)])
def test_a_start_before_the_front_is_the_front_for_a_negative_step(
    size: int, count: int, known: tuple[int, ...]
) -> None:
    x = normal(size)
    (y,) = run("Slice", [x, *map(numbers, (-9, -HUGE, 0, -1))], known=known)
    np.testing.assert_array_equal(y, x[:count])


def test_a_step_of_zero_is_an_error() -> None:
    with pytest.raises(LubanError, match="step along axis 0 is 0"):
        run("Slice", [normal(3), *map(numbers, (0, 3, 0, 0))], known=(1, 2, 3, 4))


def test_split_into_equal_and_unequal_pieces() -> None:
    compare("Split", [normal(7, 2)], opset=18, results=3, num_outputs=3)
    compare("Split", [normal(6, 2)], opset=11, results=3)
    compare("Split", [normal(6, 2), numbers(2, 4)], results=2, known=[1])
    compare("Split", [normal(6, 2), numbers(2, 4)], results=2)


def test_split_that_does_not_add_up_is_an_error() -> None:
    with pytest.raises(LubanError, match=r"pieces \[2, 3\] do not add up to axis 0 of f32\[6\]"):
        run("Split", [normal(6), numbers(2, 3)], results=2, known=[1])


@pytest.mark.parametrize("known", [(1, 2, 3), ()])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pad_modes(mode: str, known: tuple[int, ...]) -> None:
    compare("Pad", [normal(3, 4, 5), numbers(0, 1, 2, 1, 3, 0)], mode=mode, known=known)
    compare("Pad", [normal(3, 4, 5), numbers(1, 2), None, numbers(-1)], mode=mode, known=known)


def test_pad_removes_where_negative() -> None:
    compare("Pad", [normal(3, 4, 5), numbers(-1, 0, 2, 1, -2, 0), np.float32(7)], known=(1, 2))


def test_reflection_goes_back_and_forth() -> None:
    (result,) = run("Pad", [np.arange(3.0), numbers(5, 4)], mode="reflect", known=[1])
    np.testing.assert_array_equal(result, np.pad(np.arange(3.0), (5, 4), mode="reflect"))
    (single,) = run("Pad", [np.array([4.0]), numbers(2, 3)], mode="reflect", known=[1])
    np.testing.assert_array_equal(single, [4.0] * 6)


def test_reflecting_close_to_the_size() -> None:
    x = normal(8, 20, 17, 13)
    pads = [3, 0, 4, 1, 11, 1, 8, 0]
    (result,) = run("Pad", [x, numbers(*pads)], mode="reflect", known=[1])
    assert result.shape == (22, 21, 29, 14)
    widths = list(zip(pads[:4], pads[4:], strict=True))
    np.testing.assert_array_equal(result, np.pad(x, widths, mode="reflect"))


def test_padding_with_nothing_to_repeat_is_an_error() -> None:
    with pytest.raises(LubanError, match=r"edge padding of axis 0 of f32\[0\]"):
        run("Pad", [normal(0), numbers(1, 0)], mode="edge", known=[1])


def test_an_unknown_padding_mode_is_an_error() -> None:
    with pytest.raises(LubanError, match="mode is 'mirror', expected constant, edge"):
        run("Pad", [normal(3), numbers(1, 0)], mode="mirror", known=[1])


@pytest.mark.parametrize("known", [(1,), ()])
def test_center_crop_pad(known: tuple[int, ...]) -> None:
    compare("CenterCropPad", [normal(5, 8), numbers(7, 3)], opset=18, known=known)
    compare("CenterCropPad", [normal(5, 8), numbers(3)], opset=18, known=known, axes=[-1])


def test_reverse_sequence() -> None:
    compare("ReverseSequence", [normal(4, 3, 2), numbers(4, 2, 1)])
    compare("ReverseSequence", [normal(3, 4, 2), numbers(4, 2, 1)], batch_axis=0, time_axis=1)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("y = Slice(x, two, one)", "2, 1, 2, 2 starts, ends, axes and steps, expected as many"),
        ("y = Slice(x, two, two, one)", "2, 2, 1, 2 starts, ends, axes and steps"),
        ("y = GatherND <batch_dims = -1> (x, two)", "batch_dims is -1, expected 0 or more"),
        # Empty or not: the standard asks for one rank and for equal sizes along other axes.
        ("y = Concat <axis = 0> (x, none)", "operands are .* and .*, expected one rank"),
        ("y = Concat <axis = 0> (x, flat)", "axis 1 differs"),
    ],
)
def test_malformed_places_are_an_error_of_the_model(body: str, words: str) -> None:
    head = '<ir_version: 10, opset_import: ["" : 21]> g (float[4, 5] x) => (float[a, b] y)'
    text = (
        head + " <int64[2] two = {0, 1}, int64[1] one = {0}, float[0] none = {}, "
        "float[0, 4] flat = {}> { " + body + " }"
    )
    with pytest.raises(LubanError, match=words):
        import_model(onnx.parser.parse_model(text))
