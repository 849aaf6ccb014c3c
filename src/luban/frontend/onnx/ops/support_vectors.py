"""Support vector machines of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from luban.core.dtypes import DTYPES
from luban.core.types import TensorType
from luban.frontend.onnx.context import NodeContext
from luban.frontend.onnx.ops.ml import DOMAIN
from luban.frontend.onnx.registry import op
from luban.frontend.onnx.scores import label_of, transformed, widened
from luban.graph import build
from luban.graph.host import labels as host_labels
from luban.ir.node import Node

__all__: list[str] = []

Array = np.ndarray[Any, Any]
_F32 = DTYPES["f32"]


def _kernel(ctx: NodeContext, x: Node, vectors: np.ndarray[Any, Any]) -> Node:
    """k(x, v) for each row of x and each support vector: [N, V]."""
    gamma, offset, degree = (*ctx.floats("kernel_params", ()), 0.0, 0.0, 0.0)[:3]
    kind = ctx.text("kernel_type", "LINEAR")
    points = build.constant(vectors, x.tensor.dtype)
    if kind == "RBF":
        apart = build.subtract(build.expand_dims(x, [1]), build.expand_dims(points, [0]))
        squares = build.reduce("sum", build.multiply(apart, apart), [2])
        return build.exp(build.multiply(squares, -gamma))
    products = build.dot_general(x, points, ([1], [1]))
    if kind == "LINEAR":
        return products
    inner = build.add(build.multiply(products, gamma), offset)
    if kind == "POLY":
        return build.power(inner, degree)
    if kind == "SIGMOID":
        return build.tanh(inner)
    raise ctx.wrong(f"kernel_type is {kind!r}, expected LINEAR, POLY, RBF or SIGMOID")


@op("SVMRegressor", since=1, domain=DOMAIN)
def svm_regressor(ctx: NodeContext, x: Node) -> Node:
    """The kernel sum over the support vectors plus rho; its sign for a one-class machine."""
    wide = widened(x)
    weights = np.array(ctx.floats("coefficients"))
    count = ctx.int("n_supports", 0)
    if count:
        vectors = np.array(ctx.floats("support_vectors")).reshape(count, -1)
        products = _kernel(ctx, wide, vectors)
    else:
        products = wide
    column = build.constant(weights.reshape(-1, 1), wide.tensor.dtype)
    scores = build.add(build.matmul(products, column), ctx.floats("rho")[0])
    if ctx.int("one_class", 0):
        scores = build.select(build.greater(scores, 0), build.lift(1.0, scores), -1.0)
    return build.cast(transformed(ctx, scores, ctx.text("post_transform", "NONE")), _F32)


@op("SVMClassifier", since=1, domain=DOMAIN)
def svm_classifier(ctx: NodeContext, x: Node) -> tuple[Node, ...]:
    """The class that wins most comparisons of two classes, and the scores or probabilities."""
    names = ctx.texts("classlabels_strings", None) or ctx.ints("classlabels_ints")
    sizes = ctx.ints("vectors_per_class", ())
    if not sizes:
        raise ctx.unsupported("a machine without support vectors", "LinearClassifier")
    wide = widened(x)
    vectors = np.array(ctx.floats("support_vectors")).reshape(sum(sizes), -1)
    weights = np.array(ctx.floats("coefficients")).reshape(-1, sum(sizes))
    pairs = list(combinations(range(len(names)), 2))
    table = build.constant(_pair_weights(weights, sizes, pairs), wide.tensor.dtype)
    rho = build.constant(np.array(ctx.floats("rho")), wide.tensor.dtype)
    scores = build.add(build.matmul(_kernel(ctx, wide, vectors), table), rho)
    labels = _winner(scores, names, pairs)
    if ctx.has("prob_a"):
        scores = _probabilities(ctx, scores, len(names))
    elif len(pairs) == 1:
        scores = build.concatenate([build.negative(scores), scores], 1)
    kind = ctx.text("post_transform", "NONE")
    return labels, build.cast(transformed(ctx, scores, kind), _F32)


def _pair_weights(weights: Array, sizes: Sequence[int], pairs: list[tuple[int, int]]) -> Array:
    """[vectors, pairs]: with what each vector enters the comparison of two classes."""
    ends = np.cumsum(sizes)
    spans = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    table = np.zeros((int(ends[-1]), len(pairs)))
    for column, (i, j) in enumerate(pairs):
        table[spans[i], column] = weights[j - 1, spans[i]]
        table[spans[j], column] = weights[i, spans[j]]
    return table


def _winner(
    scores: Node,
    names: Sequence[str] | Sequence[int],
    pairs: list[tuple[int, int]],
) -> Node:
    """The label of the class with most votes: a score above 0 is a vote for the first of a pair."""
    first, second = (np.eye(len(names))[[pair[i] for pair in pairs]] for i in (0, 1))
    element = scores.tensor.dtype
    won = build.cast(build.greater(scores, 0), element)
    votes = build.add(
        build.matmul(won, build.constant(first, element)),
        build.matmul(build.subtract(1, won), build.constant(second, element)),
    )
    return label_of(votes, names)


def _probabilities(ctx: NodeContext, scores: Node, count: int) -> Node:
    """Probabilities of classes that fit those of the comparisons (Wu, Lin and Weng, 2004)."""
    a, b = (
        build.constant(np.array(ctx.floats(n)), scores.tensor.dtype) for n in ("prob_a", "prob_b")
    )
    chances = build.logistic(build.negative(build.add(build.multiply(scores, a), b)))
    result = TensorType(scores.tensor.dtype, (scores.tensor.shape[0], count))
    return ctx.host_call(host_labels.COUPLE, [chances], [result])[0]
