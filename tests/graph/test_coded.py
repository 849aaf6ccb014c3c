"""Products with codes: both forms mean the product with the weights as numbers; what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luban.core.dtypes import dtype
from luban.core.errors import DTypeError, LubanError, OptionError, ShapeError
from luban.core.types import TensorType, tensor
from luban.graph.ops.coded import CodedDot, PanelCodedDot
from luban.graph.ops.packed import PackPanels
from tests.graph.calls import apply

F32, F64 = dtype("f32"), dtype("f64")
RNG = np.random.default_rng(0)
BLOCKS, BLOCK, COLUMNS = 2, 16, 5
CODES = RNG.integers(0, 16, (COLUMNS, BLOCKS, BLOCK)).astype(np.uint8)
SCALES = RNG.uniform(0.5, 1.5, (COLUMNS, BLOCKS))
ZEROS = RNG.integers(0, 16, (COLUMNS, BLOCKS)).astype(np.uint8)


def numbers(zeros: Any) -> Any:
    """The weights [K, N]."""
    whole = (CODES.astype(float) - zeros) * SCALES[..., None]
    return whole.reshape(COLUMNS, -1).T


def test_two_codes_share_a_byte_the_first_in_its_low_half() -> None:
    x = RNG.standard_normal((2, 3, BLOCKS * BLOCK))
    packed = CODES[..., 0::2] | (CODES[..., 1::2] << 4)
    got = apply(CodedDot(4, BLOCK, F64), x, packed, SCALES)
    np.testing.assert_allclose(got, x @ numbers(8), rtol=1e-5, atol=1e-4)


def test_codes_behind_the_depth_count_for_nothing() -> None:
    x = RNG.standard_normal((3, 20))
    got = apply(CodedDot(8, BLOCK, F64, True), x, CODES, SCALES, ZEROS)
    np.testing.assert_allclose(got, x @ numbers(ZEROS[..., None])[:20], rtol=1e-5, atol=1e-4)


def test_rows_of_integers_come_with_steps() -> None:
    x = RNG.integers(-127, 128, (3, BLOCKS * BLOCK)).astype(np.int8)
    steps = RNG.uniform(0.1, 0.2, (3, BLOCKS)).astype(np.float32)
    got = apply(CodedDot(8, BLOCK, F64), x, CODES, SCALES, steps)
    want = x * np.repeat(steps, BLOCK, 1) @ numbers(128)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("bits", [4, 8])
def test_panels_and_digits_mean_the_same(bits: int) -> None:
    digits = RNG.integers(-128, 128, (3, 2, BLOCKS * BLOCK)).astype(np.int8)
    steps = RNG.uniform(0.1, 0.2, (3, BLOCKS)).astype(np.float32)
    totals = digits.reshape(3, 2, BLOCKS, BLOCK).sum(-1, dtype=np.int32)
    matrix: Any = CODES.reshape(COLUMNS, -1).T
    if bits == 4:
        halves = matrix.reshape(-1, 2, 4, COLUMNS)
        matrix = (halves[:, 0] | (halves[:, 1] << 4)).reshape(-1, COLUMNS)
    panels = [apply(PackPanels(4, 4), matrix)]
    panels += [apply(PackPanels(4), np.ascontiguousarray(a.T)) for a in (SCALES, ZEROS)]
    op = PanelCodedDot(bits, BLOCK, COLUMNS, F64, True)
    got = apply(op, digits, steps, totals, *panels)
    x = (digits[:, 0] + 256.0 * digits[:, 1]) * np.repeat(steps, BLOCK, 1)
    np.testing.assert_allclose(got, x @ numbers(ZEROS[..., None]), rtol=1e-5, atol=1e-4)


X, CODED, SCALED = tensor("f32", "n", 64), tensor("u8", 40, 2, 16), tensor("f32", 40, 2)
ROWS = (tensor("i8", "n", 1, 64), tensor("f32", "n", 2), tensor("i32", "n", 1, 2))
PANELS = (tensor("u8", 3, 8, 16, 4), tensor("f32", 3, 2, 16))


@pytest.mark.parametrize(
    ("op", "operands", "error", "text"),
    [
        (CodedDot(3, 32, F32), (X, CODED, SCALED), OptionError, "codes of 3 bits in blocks of 32"),
        (CodedDot(4, 12, F32), (X, CODED, SCALED), OptionError, "expected 4 or 8 bits and a mul"),
        (CodedDot(4, 32, F32), (X, CODED), ShapeError, "expected 3 tensor operands"),
        (CodedDot(4, 32, F32, True), (X, CODED, SCALED), ShapeError, "expected 4 tensor operands"),
        (CodedDot(4, 32, F32), (tensor("f32", 65), CODED, SCALED), ShapeError, "hold the depth"),
        (CodedDot(4, 32, F32), (X, CODED, tensor("f32", 40, 3)), ShapeError, "columns, blocks, 16"),
        (CodedDot(4, 32, F32), (X, CODED, tensor("i8", 40, 2)), DTypeError, "floats as scales"),
        (CodedDot(4, 32, F32), (tensor("i32", 64), CODED, SCALED), DTypeError, "floats or i8"),
        (PanelCodedDot(4, 32, 49, F32), (*ROWS, *PANELS), ShapeError, "panels for 49 columns"),
        (PanelCodedDot(8, 32, 40, F32), (*ROWS, *PANELS), ShapeError, "depth / 4, width, 4"),
        (PanelCodedDot(4, 32, 40, F32), (X, *ROWS[1:], *PANELS), DTypeError, "codes u8"),
        (PanelCodedDot(2, 32, 40, F32), (*ROWS, *PANELS), OptionError, "codes of 2 bits"),
    ],
)
def test_what_does_not_fit_is_refused(
    op: CodedDot | PanelCodedDot,
    operands: tuple[TensorType, ...],
    error: type[LubanError],
    text: str,
) -> None:
    with pytest.raises(error, match=text):
        op.infer(*operands)
