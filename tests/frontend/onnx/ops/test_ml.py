"""Classical models of ai.onnx.ml against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import luban
from luban.core.errors import LubanError
from luban.engine.explain import explain
from luban.graph.ops.data import HostCall
from tests.frontend.onnx.ops.comparison import (
    Array,
    compare,
    graph_of,
    model,
    run,
    run_elsewhere,
)

rng = np.random.default_rng(15)
DOMAIN = "ai.onnx.ml"


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def compare_ml(op: str, inputs: list[Any], version: int = 3, **options: Any) -> None:
    compare(op, inputs, domain=DOMAIN, versions=version, **options)


def test_features() -> None:
    x = normal(3, 4)
    compare_ml("ArrayFeatureExtractor", [x, np.array([2, 0])])
    compare_ml("Binarizer", [x], threshold=0.3)
    compare_ml("Scaler", [x], offset=[1.0, 2.0, 3.0, 4.0], scale=[0.5] * 4)
    compare_ml("Scaler", [rng.integers(0, 9, (3, 4))], offset=[1.0], scale=[0.5])
    compare_ml("FeatureVectorizer", [x, normal(3, 2)], inputdimensions=[4, 2])
    for norm in ("MAX", "L1", "L2"):
        compare_ml("Normalizer", [abs(x)], norm=norm)


def test_imputer_finds_nan() -> None:
    x = np.array([[1, np.nan], [np.nan, 4]], np.float32)
    values: dict[str, Any] = {
        "imputed_value_floats": [7.0, 8.0],
        "replaced_value_float": float("nan"),
    }
    compare_ml("Imputer", [x], **values)
    counts = np.array([[0, 1], [2, 0]])
    compare_ml("Imputer", [counts], imputed_value_int64s=[9], replaced_value_int64=0)


def test_categories() -> None:
    compare_ml("OneHotEncoder", [np.array([1, 5, 3])], cats_int64s=[1, 3], zeros=1)
    texts = np.array(["a", "c", "b"], object)
    compare_ml("OneHotEncoder", [texts], cats_strings=["a", "b"], zeros=1, known=[0])
    pairs: dict[str, Any] = {"cats_strings": ["a", "b"], "cats_int64s": [4, 5]}
    (found,) = run("CategoryMapper", [texts], domain=DOMAIN, versions=1, known=[0], **pairs)
    np.testing.assert_array_equal(found, [4, -1, 5])
    (names,) = run("CategoryMapper", [np.array([5, 6])], domain=DOMAIN, versions=1, **pairs)
    np.testing.assert_array_equal(names, ["b", "_Unused"])


def test_labels() -> None:
    pairs: dict[str, Any] = {
        "keys_int64s": [1, 2],
        "values_floats": [0.5, 1.5],
        "default_float": 9.0,
    }
    compare_ml("LabelEncoder", [np.array([[2, 1], [0, 2]])], version=2, **pairs)
    floats = np.array([np.nan, 1.0], np.float32)
    nan_key: dict[str, Any] = {"keys_floats": [float("nan")], "values_int64s": [7]}
    (found,) = run("LabelEncoder", [floats], domain=DOMAIN, versions=2, **nan_key)
    np.testing.assert_array_equal(found, [7, -1])
    texts = np.array(["b", "x"], object)
    (places,) = run(
        "LabelEncoder", [texts], domain=DOMAIN, versions=1, known=[0], classes_strings=["a", "b"]
    )
    np.testing.assert_array_equal(places, [1, -1])


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_linear(transform: str) -> None:
    x = normal(5, 3)
    weights: dict[str, Any] = {"coefficients": normal(6).tolist(), "intercepts": normal(2).tolist()}
    options: dict[str, Any] = {"post_transform": transform, "atol": 1e-5}
    compare_ml("LinearRegressor", [x], targets=2, **weights, **options)
    compare_ml("LinearClassifier", [x], results=2, classlabels_ints=[7, 8], **weights, **options)


def test_linear_of_two_classes_and_one_row_of_weights() -> None:
    weights: dict[str, Any] = {"coefficients": normal(3).tolist(), "intercepts": [0.1]}
    names: dict[str, Any] = {"classlabels_ints": [0, 1], "post_transform": "LOGISTIC"}
    compare_ml("LinearClassifier", [normal(5, 3)], results=2, **weights, **names)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors(kernel: str) -> None:
    compare_ml(
        "SVMRegressor",
        [normal(5, 3)],
        kernel_type=kernel,
        kernel_params=[0.3, 0.5, 3.0],
        n_supports=4,
        support_vectors=normal(12).tolist(),
        coefficients=normal(4).tolist(),
        rho=[0.2],
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("with_chances", [False, True])
def test_support_vector_classification(classes: int, with_chances: bool) -> None:
    pairs = classes * (classes - 1) // 2
    sizes = [int(n) for n in rng.integers(2, 5, classes)]
    options: dict[str, Any] = {
        "kernel_type": "RBF",
        "kernel_params": [0.3, 0.0, 0.0],
        "support_vectors": normal(sum(sizes) * 3).tolist(),
        "coefficients": normal(sum(sizes) * (classes - 1)).tolist(),
        "vectors_per_class": sizes,
        "rho": normal(pairs).tolist(),
        "classlabels_ints": [7, 5, 9, 2][:classes],
    }
    if with_chances:
        options |= {"prob_a": (-abs(normal(pairs))).tolist(), "prob_b": normal(pairs).tolist()}
    compare_ml("SVMClassifier", [normal(20, 3)], results=2, rtol=1e-3, atol=1e-4, **options)


def test_weights_without_a_negative_one_change_nothing() -> None:
    options: dict[str, Any] = {
        "support_vectors": normal(4 * 3).tolist(),
        "coefficients": abs(normal(4)).tolist(),
        "vectors_per_class": [2, 2],
        "kernel_type": "LINEAR",
        "kernel_params": [0.0, 0.0, 0.0],
        "rho": [0.1],
        "classlabels_ints": [7, 5],
    }
    compare_ml("SVMClassifier", [normal(9, 3)], results=2, rtol=1e-3, atol=1e-4, **options)


def test_a_classifier_without_support_vectors_points_at_another() -> None:
    with pytest.raises(LubanError, match="without support vectors") as error:
        run(
            "SVMClassifier",
            [normal(2, 2)],
            domain=DOMAIN,
            versions=1,
            results=2,
            coefficients=[1.0, 2.0],
            rho=[0.0],
            classlabels_ints=[0, 1],
        )
    assert "nearest: LinearClassifier" in str(error.value)


@pytest.mark.parametrize(
    "labels", [{"classlabels_int64s": [3, 5]}, {"classlabels_strings": ["a", "b"]}]
)
def test_scores_by_name(labels: dict[str, Any]) -> None:
    for x in (normal(3, 2), normal(2)):
        options: dict[str, Any] = {"domain": DOMAIN, "versions": 1, **labels}
        assert run("ZipMap", [x], **options) == run_elsewhere("ZipMap", [x], **options)


def test_names_and_scores_must_be_as_many() -> None:
    with pytest.raises(LubanError, match="expected a score for each of 3 classes"):
        run("ZipMap", [normal(2, 2)], domain=DOMAIN, versions=1, classlabels_int64s=[1, 2, 3])


def forest(num_trees: int, depth: int, num_features: int) -> dict[str, Any]:
    """Random complete trees in the form of operator set 3."""
    inner, nodes = 2**depth - 1, 2 ** (depth + 1) - 1
    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"]
    per_tree = range(nodes)
    return {
        "nodes_treeids": [t for t in range(num_trees) for _ in per_tree],
        "nodes_nodeids": [n for _ in range(num_trees) for n in per_tree],
        "nodes_featureids": [
            int(rng.integers(num_features)) if n < inner else 0
            for _ in range(num_trees)
            for n in per_tree
        ],
        "nodes_values": [float(v) for v in normal(num_trees * nodes)],
        "nodes_modes": [
            str(rng.choice(modes)) if n < inner else "LEAF"
            for _ in range(num_trees)
            for n in per_tree
        ],
        "nodes_truenodeids": [
            2 * n + 1 if n < inner else 0 for _ in range(num_trees) for n in per_tree
        ],
        "nodes_falsenodeids": [
            2 * n + 2 if n < inner else 0 for _ in range(num_trees) for n in per_tree
        ],
        "nodes_missing_value_tracks_true": [
            int(rng.integers(2)) for _ in range(num_trees) for _ in per_tree
        ],
    }


def votes(prefix: str, num_trees: int, depth: int, num_targets: int) -> dict[str, Any]:
    """A random weight for every leaf and target."""
    leaves = range(2**depth - 1, 2 ** (depth + 1) - 1)
    rows = [(t, n, k) for t in range(num_trees) for n in leaves for k in range(num_targets)]
    return {
        f"{prefix}_treeids": [t for t, _, _ in rows],
        f"{prefix}_nodeids": [n for _, n, _ in rows],
        f"{prefix}_ids": [k for _, _, k in rows],
        f"{prefix}_weights": [float(v) for v in rng.random(len(rows))],
    }


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_tree_regression(aggregate: str) -> None:
    x = normal(20, 4)
    x[3, 1] = np.nan
    compare_ml(
        "TreeEnsembleRegressor",
        [x],
        n_targets=2,
        aggregate_function=aggregate,
        **forest(5, 3, 4),
        **votes("target", 5, 3, 2),
    )


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_tree_classification(transform: str) -> None:
    compare_ml(
        "TreeEnsembleClassifier",
        [normal(20, 4)],
        results=2,
        classlabels_int64s=[3, 5, 9],
        base_values=[0.1, 0.2, 0.3],
        post_transform=transform,
        **forest(5, 3, 4),
        **votes("class", 5, 3, 3),
    )


def test_trees_need_no_host() -> None:
    trees = forest(3, 2, 4) | votes("target", 3, 2, 1)
    graph = graph_of(
        model("TreeEnsembleRegressor", [normal(2, 4)], domain=DOMAIN, versions=3, **trees)
    )
    assert not any(isinstance(n.op, HostCall) for n in graph.nodes())


def test_unknown_names_are_errors() -> None:
    with pytest.raises(LubanError, match="norm is 'L3', expected MAX, L1 or L2"):
        run("Normalizer", [normal(2, 2)], domain=DOMAIN, versions=1, norm="L3")
    with pytest.raises(LubanError, match="post_transform is 'X', expected one of NONE"):
        run(
            "LinearRegressor",
            [normal(2, 2)],
            domain=DOMAIN,
            versions=1,
            coefficients=[1.0, 2.0],
            post_transform="X",
        )
    with pytest.raises(LubanError, match="kernel_type is 'K', expected LINEAR"):
        run(
            "SVMRegressor",
            [normal(2, 2)],
            domain=DOMAIN,
            versions=1,
            kernel_type="K",
            n_supports=1,
            support_vectors=[1.0, 2.0],
            coefficients=[1.0],
            rho=[0.0],
        )


def dictionary_model(op: str, key: int, value: int, **attributes: Any) -> onnx.ModelProto:
    node = onnx.helper.make_node(op, ["x"], ["y"], domain=DOMAIN, **attributes)
    given = onnx.ValueInfoProto(name="x")
    given.type.map_type.key_type = key
    given.type.map_type.value_type.tensor_type.elem_type = value
    graph = onnx.helper.make_graph([node], "g", [given], [onnx.ValueInfoProto(name="y")])
    imports = [onnx.helper.make_opsetid(DOMAIN, 1), onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)


NUMBERS: dict[Any, Any] = {3: 1.5, 1: -2.0, 7: 4.0}
INT, FLOAT, TEXT = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT, onnx.TensorProto.STRING


@pytest.mark.parametrize(
    ("op", "key", "given", "attributes"),
    [
        ("CastMap", INT, NUMBERS, {}),
        ("CastMap", INT, NUMBERS, {"cast_to": "TO_INT64"}),
        ("CastMap", INT, NUMBERS, {"cast_to": "TO_STRING"}),
        ("CastMap", INT, NUMBERS, {"map_form": "SPARSE", "max_map": 9}),
        ("CastMap", INT, NUMBERS, {"map_form": "SPARSE", "max_map": 5}),
        ("DictVectorizer", TEXT, {"a": 4.0, "c": 8.0}, {"string_vocabulary": ["a", "c", "b"]}),
        ("DictVectorizer", INT, NUMBERS, {"int64_vocabulary": [7, 2, 1]}),
    ],
)
def test_dictionaries(op: str, key: int, given: dict[Any, Any], attributes: Any) -> None:
    """On the compiled path, where `explain` lists them as host steps."""
    proto = dictionary_model(op, key, FLOAT, **attributes)
    compiled = luban.compile(proto)
    got = compiled({"x": given})["y"]
    (want,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": given})
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    assert len(explain(compiled.compiled).host_steps) == 1


def test_texts_of_a_dictionary_become_numbers() -> None:
    compiled = luban.compile(dictionary_model("CastMap", INT, TEXT))
    np.testing.assert_array_equal(compiled({"x": {2: "1.5", 1: "3"}})["y"], [[3.0, 1.5]])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1.0], "given a list, expected a dictionary from whole numbers"),
        ({"a": 1.0}, "given keys of other types, expected a dictionary from whole numbers"),
        ({-1: 1.0}, "the dictionary has the key -1, expected none below 0"),
        ({1: "one"}, "the dictionary has the value 'one', expected a number"),
    ],
)
def test_what_is_no_such_dictionary_is_refused(given: Any, message: str) -> None:
    options: dict[str, Any] = {"map_form": "SPARSE", "max_map": 3}
    compiled = luban.compile(dictionary_model("CastMap", INT, FLOAT, **options))
    with pytest.raises(LubanError, match=message):
        compiled({"x": given})


def test_a_cast_to_something_else_is_an_error_of_the_model() -> None:
    with pytest.raises(LubanError, match="cast_to is 'TO_BOOL' and map_form is 'DENSE'"):
        luban.compile(dictionary_model("CastMap", INT, FLOAT, cast_to="TO_BOOL"))
