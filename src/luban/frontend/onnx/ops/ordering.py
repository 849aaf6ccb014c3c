"""Running totals, sorting, and picking elements by value."""

from __future__ import annotations

from luban.core.dims import DimLike
from luban.core.dtypes import DTYPES
from luban.core.types import TensorType
from luban.frontend.onnx.arguments import axis_from, whole_number
from luban.frontend.onnx.context import NodeContext
from luban.frontend.onnx.registry import op
from luban.graph import build
from luban.graph.host import selection as host_selection
from luban.graph.ops.data import Nonzero
from luban.graph.ops.reduce import Cumulative, TopK
from luban.ir.node import Node, node, results_of

__all__: list[str] = []

_I64 = DTYPES["i64"]


@op("CumSum", since=11)
def cumulative_sum(ctx: NodeContext, x: Node, axis: Node) -> Node:
    """The running sum along an axis."""
    return _running(ctx, x, axis, "sum")


@op("CumProd", since=26)
def cumulative_product(ctx: NodeContext, x: Node, axis: Node) -> Node:
    """The running product along an axis."""
    return _running(ctx, x, axis, "product")


def _running(ctx: NodeContext, x: Node, axis: Node, kind: str) -> Node:
    chosen = axis_from(whole_number(ctx, axis), x.tensor.rank)
    exclusive, backwards = bool(ctx.int("exclusive", 0)), bool(ctx.int("reverse", 0))
    return node(Cumulative(kind, chosen, exclusive, backwards), x)


@op("TopK", since=1)
def top_k_by_attribute(ctx: NodeContext, x: Node) -> tuple[Node, ...]:
    """The k largest along an axis and their indices."""
    axis = axis_from(ctx.int("axis", -1), x.tensor.rank)
    return results_of(node(TopK(ctx.int("k"), axis), x))


@op("TopK", since=10)
def top_k(ctx: NodeContext, x: Node, k: Node) -> tuple[Node, ...]:
    """The k largest or smallest along an axis and their indices, always in order."""
    axis = axis_from(ctx.int("axis", -1), x.tensor.rank)
    largest = bool(ctx.int("largest", 1))
    sizes = ctx.sizes(k)
    if sizes is not None:
        return results_of(node(TopK(sizes[0], axis, largest), x))
    count = build.cast(build.reshape(k, ()), "i64")
    return results_of(node(TopK(ctx.fresh("k"), axis, largest), x, count))


@op("NonZero", since=9)
def nonzero(ctx: NodeContext, x: Node) -> Node:
    """The indices of all elements other than 0, an axis a row."""
    return _places(ctx, x if x.tensor.rank else build.reshape(x, (1,)))


def _places(ctx: NodeContext, x: Node) -> Node:
    mask = x if x.tensor.dtype.kind == "bool" else build.not_equal(x, 0)
    return node(Nonzero(ctx.fresh("nonzero")), mask)


@op("Compress", since=9)
def compress(ctx: NodeContext, x: Node, condition: Node) -> Node:
    """The slices along an axis (of x as one row, if none is named) where the condition holds."""
    if ctx.has("axis"):
        axis = axis_from(ctx.int("axis"), x.tensor.rank)
    else:
        x, axis = build.reshape(x, (x.tensor.num_elements,)), 0
    places = _places(ctx, condition)
    return build.take(x, build.reshape(places, places.tensor.shape[1:]), axis)


@op("Unique", since=11)
def unique(ctx: NodeContext, x: Node) -> tuple[Node, ...]:
    """Each value or slice once, its first index, the place of each element, and the counts."""
    found = ctx.fresh("unique")
    element = x.tensor.dtype
    axis: int | None = None
    shape: tuple[DimLike, ...] = (found,)
    length = x.tensor.num_elements
    if ctx.has("axis"):
        axis = axis_from(ctx.int("axis"), x.tensor.rank)
        length = x.tensor.shape[axis]
        shape = (*x.tensor.shape[:axis], found, *x.tensor.shape[axis + 1 :])
    results = (
        TensorType(element, shape),
        TensorType(_I64, (found,)),
        TensorType(_I64, (length,)),
        TensorType(_I64, (found,)),
    )
    return ctx.host_call(
        host_selection.UNIQUE, [x], results, axis=axis, in_order=bool(ctx.int("sorted", 1))
    )


@op("NonMaxSuppression", since=10)
def non_max_suppression(
    ctx: NodeContext,
    boxes: Node,
    scores: Node,
    max_per_class: Node | None = None,
    iou_threshold: Node | None = None,
    score_threshold: Node | None = None,
) -> tuple[Node, ...]:
    """The boxes kept for each batch and class, best first: rows of (batch, class, box)."""
    given = [
        build.constant(0, "i64") if max_per_class is None else build.reshape(max_per_class, ()),
        build.constant(0.0, "f32") if iou_threshold is None else build.reshape(iou_threshold, ()),
    ]
    if score_threshold is not None:
        given.append(build.reshape(score_threshold, ()))
    return ctx.host_call(
        host_selection.NON_MAX_SUPPRESSION,
        [boxes, scores, *given],
        [TensorType(_I64, (ctx.fresh("kept"), 3))],
        center_point=bool(ctx.int("center_point_box", 0)),
    )
