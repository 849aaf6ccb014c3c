"""Classical machine learning (ai.onnx.ml): scalers, encoders, dictionaries, and linear models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from luban.core.dtypes import DTYPES
from luban.core.errors import ShapeError
from luban.core.types import SequenceType, TensorType
from luban.frontend.onnx.context import NodeContext
from luban.frontend.onnx.registry import op
from luban.frontend.onnx.scores import label_of, transformed, widened
from luban.graph import build
from luban.graph.host import dictionaries as host_dictionaries
from luban.graph.host import labels as host_labels
from luban.ir.node import Node

__all__: list[str] = []

DOMAIN = "ai.onnx.ml"
_F32 = DTYPES["f32"]


def _row(values: Sequence[float], x: Node) -> Node:
    """One value for all features, or one for each, in the dtype of x."""
    row = build.constant(np.asarray(values), x.tensor.dtype)
    return build.reshape(row, ()) if len(values) == 1 else row


@op("ArrayFeatureExtractor", since=1, domain=DOMAIN)
def array_feature_extractor(_ctx: NodeContext, x: Node, indices: Node) -> Node:
    """Columns of the last axis; a vector gives one row."""
    count = indices.tensor.num_elements
    table = x if x.tensor.rank > 1 else build.expand_dims(x, [0])
    return build.take(table, build.reshape(indices, (count,)), table.tensor.rank - 1)


@op("Binarizer", since=1, domain=DOMAIN)
def binarizer(ctx: NodeContext, x: Node) -> Node:
    """1 above the threshold, else 0."""
    above = build.greater(widened(x), ctx.float("threshold", 0.0))
    return build.cast(above, x.tensor.dtype)


@op("Scaler", since=1, domain=DOMAIN)
def scaler(ctx: NodeContext, x: Node) -> Node:
    """(x - offset) * scale, feature by feature, as f32."""
    wide = widened(x)
    shifted = build.subtract(wide, _row(ctx.floats("offset", (0.0,)), wide))
    return build.cast(build.multiply(shifted, _row(ctx.floats("scale", (1.0,)), wide)), _F32)


@op("Normalizer", since=1, domain=DOMAIN)
def normalizer(ctx: NodeContext, x: Node) -> Node:
    """Each row divided by its maximum, 1-norm or 2-norm; a row of norm 0 stays."""
    wide = widened(x)
    last = [wide.tensor.rank - 1]
    match ctx.text("norm", "MAX"):
        case "MAX":
            size = build.reduce("maximum", wide, last, keep_axes=True)
        case "L1":
            size = build.reduce("sum", build.absolute(wide), last, keep_axes=True)
        case "L2":
            squares = build.multiply(wide, wide)
            size = build.sqrt(build.reduce("sum", squares, last, keep_axes=True))
        case other:
            raise ctx.wrong(f"norm is {other!r}, expected MAX, L1 or L2")
    safe = build.select(build.equal(size, 0), 1, size)
    return build.cast(build.divide(wide, safe), _F32)


@op("Imputer", since=1, domain=DOMAIN)
def imputer(ctx: NodeContext, x: Node) -> Node:
    """Elements equal to one value (or NaN) replaced, by one value or one for each feature."""
    if x.tensor.dtype.is_integer:
        given: Sequence[float] = ctx.ints("imputed_value_int64s")
        missing = build.equal(x, ctx.int("replaced_value_int64", 0))
    else:
        given = ctx.floats("imputed_value_floats")
        wanted = ctx.float("replaced_value_float", 0.0)
        missing = build.is_nan(x) if np.isnan(wanted) else build.equal(x, wanted)
    return build.select(missing, _row(given, x), x)


@op("FeatureVectorizer", since=1, domain=DOMAIN)
def feature_vectorizer(_ctx: NodeContext, *inputs: Node) -> Node:
    """The inputs side by side, as f32; vectors count as one row."""
    rows = [x if x.tensor.rank > 1 else build.expand_dims(x, [0]) for x in inputs]
    return build.concatenate([build.cast(row, _F32) for row in rows], 1)


@op("OneHotEncoder", since=1, domain=DOMAIN)
def one_hot_encoder(ctx: NodeContext, x: Node) -> Node:
    """1 at the place of each element's category along a new last axis, as f32."""
    numbers, texts = ctx.ints("cats_int64s", None), ctx.texts("cats_strings", None)
    if not ctx.int("zeros", 1):
        raise ctx.unsupported("zeros=0, which fails for unknown categories", "zeros=1")
    if texts is not None:
        places = _encoded(ctx, x, _texts(texts), np.arange(len(texts)), np.int64(-1))
        count = len(texts)
        on = build.equal(build.expand_dims(places, [x.tensor.rank]), build.iota((count,), 0))
    else:
        categories = build.constant(np.array(numbers or (), np.int64))
        on = build.equal(build.expand_dims(build.cast(x, "i64"), [x.tensor.rank]), categories)
    return build.cast(on, _F32)


@op("LabelEncoder", since=1, domain=DOMAIN)
def label_encoder_one(ctx: NodeContext, x: Node) -> Node:
    """The index of a text among the classes, or the text of an index."""
    texts = _texts(ctx.texts("classes_strings"))
    places = np.arange(len(texts), dtype=np.int64)
    if x.tensor.dtype is DTYPES["str"]:
        return _encoded(ctx, x, texts, places, np.int64(ctx.int("default_int64", -1)))
    return _encoded(ctx, x, places, texts, _text(ctx.text("default_string", "_Unused")))


@op("LabelEncoder", since=2, domain=DOMAIN)
def label_encoder(ctx: NodeContext, x: Node) -> Node:
    """Each key replaced by its value, anything else by the default."""
    keys, values = _mapping(ctx, "keys"), _mapping(ctx, "values")
    default = ctx.array("default_tensor")
    if default is None:
        if values.dtype.kind == "O":
            default = _text(ctx.text("default_string", "_Unused"))
        elif values.dtype.kind == "f":
            default = np.asarray(ctx.float("default_float", -0.0), values.dtype)
        else:
            default = np.asarray(ctx.int("default_int64", -1), values.dtype)
    return _encoded(ctx, x, keys, values, default)


@op("CategoryMapper", since=1, domain=DOMAIN)
def category_mapper(ctx: NodeContext, x: Node) -> Node:
    """Texts to the integers beside them, or the other way round."""
    texts, numbers = _texts(ctx.texts("cats_strings")), np.array(ctx.ints("cats_int64s"), np.int64)
    if x.tensor.dtype is DTYPES["str"]:
        return _encoded(ctx, x, texts, numbers, np.int64(ctx.int("default_int64", -1)))
    return _encoded(ctx, x, numbers, texts, _text(ctx.text("default_string", "_Unused")))


@op("ZipMap", since=1, domain=DOMAIN)
def zip_map(ctx: NodeContext, x: Node) -> tuple[Node, ...]:
    """A list with a dictionary from class to score for each row; a vector is one row."""
    names = ctx.texts("classlabels_strings", None)
    keys = _texts(names) if names else np.array(ctx.ints("classlabels_int64s"), np.int64)
    columns = x.tensor.shape[-1]
    if isinstance(columns, int) and columns != len(keys):
        raise ShapeError(f"x is {x.tensor}, expected a score for each of {len(keys)} classes")
    # A dictionary has no type of its own here: the item stands for its values.
    result = SequenceType(TensorType(x.tensor.dtype, ()))
    return ctx.host_call(host_labels.ZIP, [x, build.constant(keys)], [result])


@op("CastMap", since=1, domain=DOMAIN)
def cast_map(ctx: NodeContext, x: Node) -> Node:
    """The values of a dictionary as one row, in the order of its keys or each at its key."""
    names = {"TO_FLOAT": "f32", "TO_STRING": "str", "TO_INT64": "i64"}
    wanted, form = ctx.text("cast_to", "TO_FLOAT"), ctx.text("map_form", "DENSE")
    if wanted not in names or form not in ("DENSE", "SPARSE"):
        raise ctx.wrong(
            f"cast_to is {wanted!r} and map_form is {form!r}",
            f"cast_to is one of {', '.join(names)}, map_form is DENSE or SPARSE",
        )
    length = ctx.int("max_map", 1) if form == "SPARSE" else None
    columns = ctx.fresh("values") if length is None else length
    result = TensorType(DTYPES[names[wanted]], (1, columns))
    options = {"dtype": names[wanted], "length": length}
    return ctx.host_call(host_dictionaries.CAST, [x], [result], **options)[0]


@op("DictVectorizer", since=1, domain=DOMAIN)
def dict_vectorizer(ctx: NodeContext, x: Node) -> Node:
    """The values of a dictionary as one row, in the order of the vocabulary."""
    texts = ctx.texts("string_vocabulary", None)
    names = _texts(texts) if texts else np.array(ctx.ints("int64_vocabulary"), np.int64)
    assert isinstance(x.type, SequenceType)  # a dictionary goes by the type of its values
    assert isinstance(x.type.item, TensorType)
    result = TensorType(x.type.item.dtype, (1, len(names)))
    given = [x, build.constant(names)]
    name = host_dictionaries.VECTORISE
    return ctx.host_call(name, given, [result], dtype=result.dtype.name)[0]


def _mapping(ctx: NodeContext, side: str) -> np.ndarray[Any, Any]:
    array = ctx.array(f"{side}_tensor")
    if array is not None:
        return array.ravel()
    if ctx.has(f"{side}_strings"):
        return _texts(ctx.texts(f"{side}_strings"))
    if ctx.has(f"{side}_int64s"):
        return np.array(ctx.ints(f"{side}_int64s"), np.int64)
    return np.array(ctx.floats(f"{side}_floats"), np.float32)


def _texts(texts: Sequence[str]) -> np.ndarray[Any, Any]:
    return np.array(list(texts), object)


def _text(text: str) -> np.ndarray[Any, Any]:
    return np.array(text, object)


def _encoded(ctx: NodeContext, x: Node, keys: Any, values: Any, default: Any) -> Node:
    table = [build.constant(np.asarray(a)) for a in (keys, values, np.asarray(default).reshape(()))]
    result = TensorType(table[1].tensor.dtype, x.tensor.shape)
    return ctx.host_call(host_labels.ENCODE, [x, *table], [result])[0]


@op("LinearRegressor", since=1, domain=DOMAIN)
def linear_regressor(ctx: NodeContext, x: Node) -> Node:
    """x times coefficients, plus intercepts, for each target; f32."""
    scores = _linear(ctx, widened(x), ctx.int("targets", 1))
    return build.cast(transformed(ctx, scores, ctx.text("post_transform", "NONE")), _F32)


def _linear(ctx: NodeContext, x: Node, count: int) -> Node:
    weights = np.array(ctx.floats("coefficients")).reshape(count, -1)
    scores = build.matmul(x, build.constant(weights.T, x.tensor.dtype))
    if ctx.floats("intercepts", ()):
        scores = build.add(scores, _row(ctx.floats("intercepts"), x))
    return scores


@op("LinearClassifier", since=1, domain=DOMAIN)
def linear_classifier(ctx: NodeContext, x: Node) -> tuple[Node, ...]:
    """The class of the highest linear score, and all scores."""
    names = ctx.texts("classlabels_strings", None) or ctx.ints("classlabels_ints", None)
    count = len(ctx.floats("intercepts", ())) or _num_rows(ctx, x)
    scores = _linear(ctx, widened(x), count)
    if count == 1 and names is not None and len(names) == 2:
        scores = build.concatenate([build.negative(scores), scores], 1)
    kind = ctx.text("post_transform", "NONE")
    scores = build.cast(transformed(ctx, scores, kind), _F32)
    if scores.tensor.shape[1] == 1:
        threshold = 0.0 if kind == "NONE" else 0.5
        chosen = build.cast(build.greater_equal(scores, threshold), "i64")
        hit = int(names[0]) if names is not None and not isinstance(names[0], str) else 1
        return build.reshape(build.multiply(chosen, hit), (x.tensor.shape[0],)), scores
    return label_of(scores, names), scores


def _num_rows(ctx: NodeContext, x: Node) -> int:
    features = x.tensor.shape[1]
    if not isinstance(features, int):
        raise ShapeError(f"x is {x.tensor}, expected a constant number of features")
    return len(ctx.floats("coefficients")) // features
