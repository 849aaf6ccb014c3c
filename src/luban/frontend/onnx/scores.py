"""What classical models do with their scores: transforms, and the label of the best one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from luban.core.dtypes import DTYPES
from luban.frontend.onnx.context import NodeContext
from luban.graph import build
from luban.ir.node import Node

__all__ = ["label_of", "transformed", "widened"]

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def transformed(ctx: NodeContext, scores: Node, kind: str) -> Node:
    """Scores [N, classes] after a post_transform. Raises ModelError for an unknown one."""
    last = scores.tensor.rank - 1
    match kind:
        case "NONE":
            return scores
        case "LOGISTIC":
            return build.logistic(scores)
        case "SOFTMAX":
            return build.softmax(scores, last)
        case "SOFTMAX_ZERO":
            zero = build.equal(scores, 0)
            top = build.reduce("maximum", scores, [last], keep_axes=True)
            powers = build.select(zero, 0, build.exp(build.subtract(scores, top)))
            total = build.reduce("sum", powers, [last], keep_axes=True)
            return build.divide(powers, build.select(build.equal(total, 0), 1, total))
        case "PROBIT":
            return _probit(scores)
    raise ctx.wrong(f"post_transform is {kind!r}, expected one of {', '.join(TRANSFORMS)}")


def _probit(x: Node) -> Node:
    """sqrt(2) * inverse erf of 2 x - 1, by Winitzki's approximation with a = 0.147 (2008)."""
    y = build.subtract(build.multiply(x, 2), 1)
    tail = build.log(build.subtract(1, build.multiply(y, y)))
    first = build.add(build.multiply(tail, 0.5), 2 / (math.pi * 0.147))
    inner = build.subtract(build.multiply(first, first), build.divide(tail, 0.147))
    size = build.sqrt(build.subtract(build.sqrt(inner), first))
    return build.multiply(build.multiply(build.sign(y), size), math.sqrt(2))


def label_of(scores: Node, names: Sequence[str] | Sequence[int] | None) -> Node:
    """The label of each row's highest score; of equals the first."""
    best = build.arg_reduce("maximum", scores, scores.tensor.rank - 1)
    if names is None:
        return best
    is_text = isinstance(names[0], str)
    table = np.array(list(names), object if is_text else np.int64)
    return build.take(build.constant(table), best, 0)


def widened(x: Node) -> Node:
    """x in a float dtype: f64 stays, all others become f32."""
    return x if x.tensor.dtype is DTYPES["f64"] else build.cast(x, "f32")
