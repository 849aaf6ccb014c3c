"""Reshape, Expand, Tile, Squeeze and their kin: symbolic sizes, zeros, and errors that help."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from luban.core.errors import LubanError, LubanWarning
from luban.frontend.onnx import import_model
from tests.frontend.onnx.ops.comparison import SYMBOLIC, Array, compare, graph_of, model, run

rng = np.random.default_rng(5)


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def result_type(op: str, inputs: list[Array], **options: object) -> str:
    graph = graph_of(model(op, inputs, sizes=SYMBOLIC, **options))  # type: ignore[arg-type]
    return str(graph.results[0].type)


@pytest.mark.filterwarnings("ignore:.*works for one value")
@pytest.mark.parametrize("known", [(1,), ()])
@pytest.mark.parametrize("target", [[0, -1], [4, 6], [-1], [2, 3, 4, 1], [0, 0, -1]])
def test_reshape(target: list[int], known: tuple[int, ...]) -> None:
    compare("Reshape", [normal(2, 3, 4), np.array(target)], known=known)


def test_an_open_size_stays_simple() -> None:
    inputs = [normal(2, 3, 4), np.array([0, -1])]
    assert result_type("Reshape", inputs, known=[1]) == "f32[x0_0,x0_1*x0_2]"


@pytest.mark.parametrize(
    ("shape", "target", "allowzero", "wanted"),
    [
        ((0, 8, 2), [0, 0, 4], 1, (0, 0, 4)),
        ((0, 3), [0, 3], 0, (0, 3)),
        ((0, 4), [3, 0], 1, (3, 0)),
        ((2, 0), [0, -1, 7], 0, (2, 0, 7)),
        ((1, 0), [-1, 0], 0, "-1 beside a size of 0 could be anything"),
        ((0, 1), [1], 0, r"0 elements do not fill \[1\]"),
        ((2, 3), [4, -1], 0, "6 elements are no multiple of 4"),
        ((2, 3), [-1, -1], 0, "expected at most one -1"),
        ((2, 3), [2, 3, 0], 0, "axis 2 is 0, there is no size to keep"),
    ],
)
def test_zeros(
    shape: tuple[int, ...], target: list[int], allowzero: int, wanted: tuple[int, ...] | str
) -> None:
    inputs = [np.zeros(shape, np.float32), np.array(target)]
    if isinstance(wanted, str):
        with pytest.raises(LubanError, match=wanted):
            run("Reshape", inputs, known=[1], allowzero=allowzero, opset=14)
    else:
        assert run("Reshape", inputs, known=[1], allowzero=allowzero, opset=14)[0].shape == wanted


def test_a_frozen_batch_is_pointed_at() -> None:
    inputs = [normal(2, 6), np.array([1, 2, 3])]
    with pytest.raises(LubanError, match="exported with a batch of 1: use 0 or -1"):
        run("Reshape", inputs, known=[1])


def test_a_batch_frozen_at_export_is_pointed_at_when_loading() -> None:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 255, 52, 52])
    shapes = {"frozen": [1, 3, 85, 52, 52], "open": [-1, 3, 85, 52, 52]}
    for name, shape in shapes.items():
        graph = helper.make_graph(
            [helper.make_node("Reshape", ["x", "shape"], ["y"], name="the_reshape")],
            name,
            [x],
            [onnx.ValueInfoProto(name="y")],
            [onnx.numpy_helper.from_array(np.array(shape), "shape")],
        )
        proto = helper.make_model(graph)
        if name == "open":
            import_model(proto)
            continue
        with pytest.warns(
            LubanWarning, match=r"one value of N only: 689520\*N must be 689520"
        ) as w:
            import_model(proto, "yolo.onnx")
        assert "use -1 there" in str(w[0].message)
        assert "at yolo.onnx: the_reshape" in str(w[0].message)


def test_a_shape_that_is_half_known_keeps_the_known_half() -> None:
    """Concat([N, 2, -1]) of a run-time N: the 2 stays a constant."""
    nodes = [
        helper.make_node("Concat", ["n", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "half",
        [
            helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["a", "b"]),
            helper.make_tensor_value_info("n", onnx.TensorProto.INT64, [1]),
        ],
        [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(np.array([2, -1]), "rest")],
    )
    shape = import_model(helper.make_model(graph)).graph.results[0].tensor.shape
    assert shape[1] == 2
    assert len(shape) == 3


def test_rank_and_batch_survive_a_computed_shape() -> None:
    """Shape -> Gather -> Concat([N, -1]) -> Reshape."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "open"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    constants = {"zero": np.array([0]), "open": np.array([-1])}
    graph = helper.make_graph(
        nodes,
        "computed",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, 4])],
        [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    assert str(import_model(helper.make_model(graph)).graph.results[0].type) == "f32[n,12]"


@pytest.mark.parametrize("known", [(1,), ()])
def test_expand_and_tile(known: tuple[int, ...]) -> None:
    compare("Expand", [normal(3, 1), np.array([2, 1, 4])], known=known)
    compare("Expand", [normal(3, 4), np.array([1, 1])], known=known)
    compare("Tile", [normal(2, 3), np.array([2, 3])], known=known)
    compare("Tile", [normal(2, 3), np.array([0, 1])], known=known)


def test_expand_at_run_time_keeps_the_sizes_that_cannot_change() -> None:
    graph = graph_of(model("Expand", [normal(3, 1), np.array([2, 1, 4])]))
    assert graph.results[0].tensor.shape[1] == 3


@pytest.mark.parametrize("known", [(1,), ()])
def test_squeeze_and_unsqueeze(known: tuple[int, ...]) -> None:
    compare("Squeeze", [normal(2, 1, 3, 1), np.array([1, -1])], known=known)
    compare("Unsqueeze", [normal(2, 3), np.array([0, -1])], known=known)


def test_squeeze_of_attributes_then_transpose() -> None:
    compare("Squeeze", [normal(2, 3, 1)], axes=[2], opset=11)
    assert run("Squeeze", [normal(2, 1, 3)], opset=11)[0].shape == (2, 3)


def test_squeeze_of_another_size_is_an_error() -> None:
    with pytest.raises(LubanError, match=r"axis 0 of f32\[2,1\] is 2, expected 1 to remove it"):
        run("Squeeze", [normal(2, 1), np.array([0])], known=[1])


def test_unsqueeze_without_axes_is_an_error() -> None:
    with pytest.raises(LubanError, match="axes are missing"):
        run("Unsqueeze", [normal(2)], opset=11)


def test_tile_needs_a_count_for_each_axis() -> None:
    with pytest.raises(LubanError, match="repeats has 1 counts, expected one for each axis"):
        run("Tile", [normal(2, 3), np.array([2])], known=[1])


@pytest.mark.parametrize("axis", [0, 2, 4, -1])
def test_flatten(axis: int) -> None:
    compare("Flatten", [normal(2, 3, 4, 5)], axis=axis)


def test_transpose_and_shape() -> None:
    compare("Transpose", [normal(2, 3, 4)])
    compare("Transpose", [normal(2, 3, 4)], perm=[1, 2, 0])
    compare("Shape", [normal(2, 3, 4)], start=1, end=-1)
    compare("Size", [normal(2, 3, 4)])


def test_depth_and_space() -> None:
    for mode in ("DCR", "CRD"):
        compare("DepthToSpace", [normal(2, 8, 3, 4)], blocksize=2, mode=mode)
    compare("SpaceToDepth", [normal(2, 3, 4, 6)], blocksize=2)
    with pytest.raises(LubanError, match="size 5 is no multiple of 2"):
        run("SpaceToDepth", [normal(1, 1, 5, 4)], blocksize=2)
