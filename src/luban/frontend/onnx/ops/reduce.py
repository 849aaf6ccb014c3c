"""Reductions: many elements to one along axes, given as an attribute or as an input."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from luban.core.errors import ShapeError
from luban.core.types import Type
from luban.frontend.onnx.arguments import axes_in_order, axis_from, whole_numbers
from luban.frontend.onnx.context import NodeContext, RunTimeValueNeeded
from luban.frontend.onnx.registry import op
from luban.graph import build
from luban.ir.node import Node

__all__: list[str] = []

Axes = Sequence[int]


def _sum(x: Node, axes: Axes) -> Node:
    return build.reduce("sum", x, axes, keep_axes=True)


def _product(x: Node, axes: Axes) -> Node:
    return build.reduce("product", x, axes, keep_axes=True)


def _maximum(x: Node, axes: Axes) -> Node:
    kind = "or" if x.tensor.dtype.kind == "bool" else "maximum"
    return build.reduce(kind, x, axes, keep_axes=True)


def _minimum(x: Node, axes: Axes) -> Node:
    kind = "and" if x.tensor.dtype.kind == "bool" else "minimum"
    return build.reduce(kind, x, axes, keep_axes=True)


def _mean(x: Node, axes: Axes) -> Node:
    return build.mean(x, axes, keep_axes=True) if axes else x


def _sum_of_magnitudes(x: Node, axes: Axes) -> Node:
    return _sum(build.absolute(x), axes)


def _sum_of_squares(x: Node, axes: Axes) -> Node:
    return _sum(build.multiply(x, x), axes)


def _norm(x: Node, axes: Axes) -> Node:
    return _in_floats(build.sqrt, _sum_of_squares(x, axes))


def _log_sum(x: Node, axes: Axes) -> Node:
    return _in_floats(build.log, _sum(x, axes))


def _log_sum_exp(x: Node, axes: Axes) -> Node:
    """log(sum(e**x)), shifted by the largest element so that nothing overflows."""
    element = x.tensor.dtype
    inner = "f64" if not element.is_float or element.bits > 32 else "f32"
    wide = build.cast(x, inner)
    top = build.reduce("maximum", wide, axes, keep_axes=True) if axes else wide
    shift = build.select(build.is_inf(top), 0, top)
    total = _sum(build.exp(build.subtract(wide, shift)), axes)
    return build.cast(build.add(build.log(total), shift), element)


def _in_floats(function: Callable[[Node], Node], x: Node) -> Node:
    """The function of x; of integers in f64, cut off."""
    if x.tensor.dtype.is_float:
        return function(x)
    return build.cast(function(build.cast(x, "f64")), x.tensor.dtype)


_REDUCTIONS: dict[str, Callable[[Node, Axes], Node]] = {
    "ReduceSum": _sum,
    "ReduceProd": _product,
    "ReduceMax": _maximum,
    "ReduceMin": _minimum,
    "ReduceMean": _mean,
    "ReduceL1": _sum_of_magnitudes,
    "ReduceL2": _norm,
    "ReduceSumSquare": _sum_of_squares,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
}


def _register(name: str, reduction: Callable[[Node, Axes], Node]) -> None:
    @op(name, since=1)
    def handler(ctx: NodeContext, x: Node, axes: Node | None = None) -> Node:
        named = _named_axes(ctx, x, axes)
        rank = x.tensor.rank
        if named:
            chosen = axes_in_order(named, rank)
        elif ctx.int("noop_with_empty_axes", 0):
            chosen = ()
        else:
            chosen = tuple(range(rank))
        kept = reduction(x, chosen)
        if ctx.int("keepdims", 1):
            return kept
        return build.reshape(kept, [s for a, s in enumerate(x.tensor.shape) if a not in chosen])


def _named_axes(ctx: NodeContext, x: Node, axes: Node | None) -> tuple[int, ...]:
    if axes is None:
        return ctx.ints("axes", ())
    try:
        return whole_numbers(ctx, axes)
    except RunTimeValueNeeded:
        raise RunTimeValueNeeded(axes, _open_results(ctx, x, axes)) from None


def _open_results(ctx: NodeContext, x: Node, axes: Node) -> tuple[Type, ...] | None:
    """The result's type when the axes are known to the run only, but not how many there are."""
    count = axes.tensor.num_elements
    if ctx.int("keepdims", 1):
        count = 0
    elif count == 0 and not ctx.int("noop_with_empty_axes", 0):
        return (x.tensor.with_shape(()),)
    if not isinstance(count, int) or count > x.tensor.rank:
        return None
    sizes = [ctx.fresh(f"kept_{i}") for i in range(x.tensor.rank - count)]
    return (x.tensor.with_shape(sizes),)


for _name, _reduction in _REDUCTIONS.items():
    _register(_name, _reduction)


@op("ArgMax", since=1)
def arg_max(ctx: NodeContext, x: Node) -> Node:
    """The index of the largest element along an axis."""
    return _arg_reduce(ctx, x, "maximum")


@op("ArgMin", since=1)
def arg_min(ctx: NodeContext, x: Node) -> Node:
    """The index of the smallest element along an axis."""
    return _arg_reduce(ctx, x, "minimum")


def _arg_reduce(ctx: NodeContext, x: Node, kind: str) -> Node:
    axis = axis_from(ctx.int("axis", 0), x.tensor.rank)
    if x.tensor.shape[axis] == 0:
        raise ShapeError(f"axis {axis} of {x.tensor} is empty: there is no {kind} of nothing")
    found = build.arg_reduce(kind, x, axis, last=bool(ctx.int("select_last_index", 0)))
    return build.expand_dims(found, [axis]) if ctx.int("keepdims", 1) else found
