"""Reports about quantised models (CASES section 4)."""

from typing import Any

import numpy as np
import pytest

import luban
from tests.conformance.case import PATHS, Case, check, model_of


def quantise_case(
    report: str,
    what: str,
    dtype: type[np.floating[Any]],
    x: list[float],
    scale: float,
    y: list[int],
) -> Case:
    """QuantizeLinear to int8 without a zero point, in the float type of the input."""
    name = {np.float16: "float16", np.float32: "float"}[dtype]
    return Case(
        report,
        what,
        f"g ({name}[n] x, {name} scale, int8 zero) => (int8[n] y) "
        "{ y = QuantizeLinear(x, scale, zero) }",
        {"x": np.array(x, dtype), "scale": np.array(scale, dtype), "zero": np.array(0, np.int8)},
        (np.array(y, np.int8),),
    )


CASES = [
    Case(
        "Q2",
        "pair sums of unsigned by signed bytes do not saturate",
        "g (uint8[1, 2] a, int8[2, 1] b) => (int32[1, 1] y) { y = MatMulInteger(a, b) }",
        {"a": np.array([[255, 255]], np.uint8), "b": np.array([[127], [127]], np.int8)},
        (np.array([[64770]], np.int32),),
    ),
    Case(
        "Q2",
        "long sums of unsigned by signed bytes are exact",
        "g (uint8[m, k] a, int8[k, n] b) => (int32[m, n] y) { y = MatMulInteger(a, b) }",
        {"a": np.full((5, 333), 255, np.uint8), "b": np.full((333, 37), -128, np.int8)},
        (np.full((5, 37), -128 * 255 * 333, np.int32),),
    ),
    Case(
        "Q2",
        "quantised convolution of large inputs",
        "g (uint8[1, 4, 8, 8] x, int8[3, 4, 3, 3] w) => (int8[1, 3, h, h] y) "
        "<float one = {1}, float small = {0.001}, uint8 zx = {0}, int8 z = {0}> "
        "{ y = QLinearConv(x, one, zx, w, small, z, one, z) }",
        {"x": np.full((1, 4, 8, 8), 250, np.uint8), "w": np.full((3, 4, 3, 3), 12, np.int8)},
        (np.full((1, 3, 6, 6), 108, np.int8),),
    ),
    quantise_case(
        "Q5",
        "halves divide before they round",
        np.float16,
        [0.05002, -0.05002],
        0.09998,
        [1, -1],
    ),
    quantise_case(
        "Q6",
        "saturates",
        np.float32,
        [-129, -128, -127, 126, 127, 128],
        1,
        [-128, -128, -127, 126, 127, 127],
    ),
    quantise_case(
        "Q6", "ties go to even", np.float32, [0.5, 1.5, 2.5, -0.5, -1.5], 1, [0, 2, 2, 0, -2]
    ),
]


def nibbles_case() -> Case:
    """Q3: codes 2 with zero point 3 and scale 0.5, 2048 of them: -0.5 each."""
    model = """g (float[1, 2048] x, uint8[4, 4, 256] codes, float[16] scales, uint8[8] zeros)
    => (float[1, 4] y)
    { y = com.microsoft.MatMulNBits <K = 2048, N = 4, bits = 4, block_size = 512>
        (x, codes, scales, zeros) }"""
    return Case(
        "Q3",
        "four bit product with blocks of 512",
        model,
        {
            "x": np.ones((1, 2048), np.float32),
            "codes": np.full((4, 4, 256), 0x22, np.uint8),
            "scales": np.full(16, 0.5, np.float32),
            "zeros": np.full(8, 0x33, np.uint8),
        },
        (np.full((1, 4), -1024, np.float32),),
    )


CASES.append(nibbles_case())


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case, path: str) -> None:
    check(case, PATHS[path])


def test_q8_every_layer_of_a_quantised_model_is_reported_with_its_error() -> None:
    """Each layer on its own operands against float64, so a loss has a place."""
    case = next(case for case in CASES if case.what == "quantised convolution of large inputs")
    found = luban.check(model_of(case.text), case.inputs)
    assert found.ok, found
    assert found.layers
    assert all(layer.verdict.error <= layer.verdict.bound for layer in found.layers)
