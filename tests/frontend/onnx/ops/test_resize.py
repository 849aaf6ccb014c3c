"""Resize: every mode against ONNX Runtime, and what fractional scales read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luban.core.errors import LubanError
from luban.graph.ops.structure import Gather
from tests.frontend.onnx.ops.comparison import SYMBOLIC, Array, compare, graph_of, model, run

rng = np.random.default_rng(10)
COORDINATES = ["half_pixel", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric"]
# Not align_corners: ONNX Runtime divides by the rounded length, the standard by the exact one.
PAIRS = [(mode, c) for mode in ("nearest", "linear", "cubic") for c in COORDINATES]


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def scales(*values: float) -> Array:
    return np.array(values, np.float32)


@pytest.mark.parametrize("scale", [2.0, 2.5, 0.6, 0.5])
@pytest.mark.parametrize(("mode", "coordinates"), PAIRS)
def test_scales(mode: str, coordinates: str, scale: float) -> None:
    x = normal(1, 2, 6, 8)
    options: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": coordinates,
        "opset": 18,
    }
    given = [x, None, scales(1, 1, scale, scale)]
    compare("Resize", given, known=[2], atol=1e-5, **options)
    compare("Resize", given, atol=1e-5, **options)


@pytest.mark.parametrize(("mode", "coordinates"), [*PAIRS, ("linear", "align_corners")])
def test_sizes(mode: str, coordinates: str) -> None:
    given = [normal(1, 2, 6, 8), None, None, np.array([1, 2, 9, 5])]
    compare(
        "Resize",
        given,
        known=[3],
        atol=1e-5,
        mode=mode,
        coordinate_transformation_mode=coordinates,
    )


@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest_modes(nearest: str) -> None:
    compare(
        "Resize",
        [normal(1, 2, 6, 8), None, scales(1, 1, 3, 1.5)],
        known=[2],
        mode="nearest",
        nearest_mode=nearest,
        coordinate_transformation_mode="asymmetric",
    )


@pytest.mark.parametrize(
    ("mode", "coordinates", "wanted"),
    [
        ("nearest", "half_pixel", [0, 0, 0, 1, 1, 2, 2]),
        ("linear", "half_pixel", [0, 0.1, 0.5, 0.9, 1.3, 1.7, 2]),
        ("linear", "asymmetric", [0, 0.4, 0.8, 1.2, 1.6, 2, 2]),
    ],
)
def test_a_fractional_scale_reads_the_right_places(
    mode: str, coordinates: str, wanted: list[float]
) -> None:
    x = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    (result,) = run(
        "Resize",
        [x, None, scales(1, 1, 2.5, 2.5)],
        known=[2],
        mode=mode,
        coordinate_transformation_mode=coordinates,
    )
    np.testing.assert_allclose(result[0, 0, 0], wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("coordinates", "wanted"), [("pytorch_half_pixel", 0), ("half_pixel", 4.5)]
)
def test_down_to_one_element(coordinates: str, wanted: float) -> None:
    x = np.arange(10, dtype=np.float32).reshape(1, 1, 10)
    (result,) = run(
        "Resize",
        [x, None, None, np.array([1, 1, 1])],
        known=[3],
        mode="linear",
        coordinate_transformation_mode=coordinates,
    )
    assert result.item() == wanted


def test_positions_of_sizes_are_exact() -> None:
    """0.5 * 7 / 1 - 0.5 is 3, though 1 / 7 is rounded."""
    x = np.arange(7, dtype=np.float32).reshape(1, 1, 7)
    given = [x, None, None, np.array([1, 1, 1])]
    assert run("Resize", given, known=[3], mode="nearest", nearest_mode="floor")[0].item() == 3


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialias_reads_every_element(mode: str) -> None:
    options: dict[str, Any] = {"mode": mode, "antialias": 1, "exclude_outside": 1, "opset": 18}
    given = [normal(1, 1, 13, 9), None, None, np.array([1, 1, 5, 4])]
    compare("Resize", given, known=[3], atol=1e-4, **options)


def test_cropping_gives_the_stated_value_outside() -> None:
    roi = np.array([0, 0, 0.4, -0.2, 1, 1, 0.6, 1.2], np.float32)
    compare(
        "Resize",
        [normal(1, 1, 4, 4), roi, None, np.array([1, 1, 3, 5])],
        known=[1, 3],
        atol=1e-5,
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=10.0,
    )


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_the_aspect_may_be_kept(policy: str) -> None:
    (result,) = run(
        "Resize",
        [normal(1, 1, 2, 4), None, None, np.array([7, 8])],
        known=[3],
        mode="nearest",
        axes=[2, 3],
        keep_aspect_ratio_policy=policy,
    )
    assert result.shape[2:] == ((4, 8) if policy == "not_larger" else (7, 14))


def test_whole_scales_repeat_without_a_gather() -> None:
    proto = model(
        "Resize",
        [normal(1, 2, 3, 4), None, scales(1, 1, 2, 2)],
        known=[2],
        sizes=SYMBOLIC,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    graph = graph_of(proto)
    assert not any(isinstance(n.op, Gather) for n in graph.nodes())
    assert str(graph.results[0].type) == "f32[x0_0,x0_1,2*x0_2,2*x0_3]"


def test_fractional_scales_do_gather() -> None:
    given = [normal(1, 2, 3, 4), None, scales(1, 1, 1.5, 1)]
    graph = graph_of(model("Resize", given, known=[2], mode="nearest"))
    assert any(isinstance(n.op, Gather) for n in graph.nodes())


def test_early_opsets() -> None:
    x = normal(1, 2, 6, 8)
    for mode in ("nearest", "linear"):
        compare("Upsample", [x, scales(1, 1, 2, 3)], opset=9, mode=mode, known=[1])
        compare("Upsample", [x], opset=7, mode=mode, scales=[1.0, 1.0, 2.0, 3.0])
        compare("Resize", [x, scales(1, 1, 2, 3)], opset=10, mode=mode, known=[1])


def test_bytes_are_cut_off_and_do_not_wrap() -> None:
    x = np.array([[[[0, 255], [255, 0]]]], np.uint8)
    given = [x, None, scales(1, 1, 3, 3)]
    (result,) = run("Resize", given, known=[2], mode="cubic")
    assert result.dtype == np.uint8
    assert result[0, 0, 0, 0] == 0
    assert result[0, 0, 0, -1] == 255


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"mode": "area"}, "mode is 'area', expected nearest, linear or cubic"),
        ({"nearest_mode": "round"}, "nearest_mode is 'round', expected round_prefer_floor"),
        ({"coordinate_transformation_mode": "tf"}, "coordinate_transformation_mode is 'tf'"),
    ],
)
def test_unknown_modes(attributes: dict[str, str], message: str) -> None:
    given = [normal(1, 1, 4, 4), None, scales(1, 1, 1.5, 1.5)]
    with pytest.raises(LubanError, match=message):
        run("Resize", given, known=[2], **attributes)


def test_neither_scales_nor_sizes() -> None:
    with pytest.raises(LubanError, match="neither scales nor sizes are given"):
        run("Resize", [normal(1, 1, 4, 4)])
