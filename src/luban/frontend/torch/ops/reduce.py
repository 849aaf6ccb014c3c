"""Many elements to one: sums, extremes, truth, variance, running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luban.core.dims import DimLike
from luban.frontend.torch.call import Call, axes_of, axis_of
from luban.frontend.torch.ops.elementwise import truth
from luban.frontend.torch.registry import aten
from luban.graph import build
from luban.graph.ops.reduce import Cumulative
from luban.ir.node import Node, node

__all__: list[str] = []

Axes = Sequence[int] | int | None


@aten("sum.default", "sum.dim_IntList")
def total(
    call: Call, x: Node, dim: Axes = None, keepdim: bool = False, *, dtype: Any = None
) -> Node:
    """The sum along axes, all of them by default."""
    return _reduced("sum", build.cast(x, call.type.dtype, saturate=False), dim, keepdim)


@aten("mean.default", "mean.dim")
def mean(
    call: Call, x: Node, dim: Axes = None, keepdim: bool = False, *, dtype: Any = None
) -> Node:
    """The mean along axes."""
    wide = build.cast(x, call.type.dtype)
    axes = axes_of(dim, x.tensor.rank)
    return build.mean(wide, axes, keep_axes=keepdim) if axes else wide


@aten("prod.default")
def product_of_all(call: Call, x: Node, *, dtype: Any = None) -> Node:
    """The product of all elements."""
    return _reduced("product", build.cast(x, call.type.dtype, saturate=False), None, False)


@aten("prod.dim_int")
def product(call: Call, x: Node, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Node:
    """The product along an axis."""
    return _reduced("product", build.cast(x, call.type.dtype, saturate=False), dim, keepdim)


@aten("amax.default")
def amax(call: Call, x: Node, dim: Axes = (), keepdim: bool = False) -> Node:
    """The largest along axes; NaN if any is."""
    return _extreme("maximum", x, dim, keepdim)


@aten("amin.default")
def amin(call: Call, x: Node, dim: Axes = (), keepdim: bool = False) -> Node:
    """The smallest along axes; NaN if any is."""
    return _extreme("minimum", x, dim, keepdim)


@aten("max.default")
def max_of_all(call: Call, x: Node) -> Node:
    """The largest of all elements."""
    return _extreme("maximum", x, None, False)


@aten("min.default")
def min_of_all(call: Call, x: Node) -> Node:
    """The smallest of all elements."""
    return _extreme("minimum", x, None, False)


@aten("max.dim")
def max_along(call: Call, x: Node, dim: int, keepdim: bool = False) -> tuple[Node, Node]:
    """The largest along an axis, and where it is."""
    return _extreme("maximum", x, dim, keepdim), _place("maximum", x, dim, keepdim)


@aten("min.dim")
def min_along(call: Call, x: Node, dim: int, keepdim: bool = False) -> tuple[Node, Node]:
    """The smallest along an axis, and where it is."""
    return _extreme("minimum", x, dim, keepdim), _place("minimum", x, dim, keepdim)


@aten("argmax.default")
def argmax(call: Call, x: Node, dim: int | None = None, keepdim: bool = False) -> Node:
    """Where the largest is."""
    return _argument(call, "maximum", x, dim, keepdim)


@aten("argmin.default")
def argmin(call: Call, x: Node, dim: int | None = None, keepdim: bool = False) -> Node:
    """Where the smallest is."""
    return _argument(call, "minimum", x, dim, keepdim)


def _argument(call: Call, kind: str, x: Node, dim: int | None, keepdim: bool) -> Node:
    if dim is None:
        flat = build.reshape(x, (x.tensor.num_elements,))
        return build.reshape(_place(kind, flat, 0, False), call.type.shape)
    return _place(kind, x, dim, keepdim)


def _place(kind: str, x: Node, dim: int, keepdim: bool) -> Node:
    if not x.tensor.rank:
        return build.full((), 0, "i64")
    axis = axis_of(dim, x.tensor.rank)
    numbers = build.cast(x, "u8") if x.tensor.dtype.kind == "bool" else x
    found = build.arg_reduce(kind, numbers, axis)
    return build.expand_dims(found, [axis]) if keepdim else found


@aten("any.default", "any.dim", "any.dims")
def any_of(call: Call, x: Node, dim: Axes = None, keepdim: bool = False) -> Node:
    """Whether one is anything but zero."""
    return build.cast(_reduced("or", truth(x), dim, keepdim), call.type.dtype)


@aten("all.default", "all.dim", "all.dims")
def all_of(call: Call, x: Node, dim: Axes = None, keepdim: bool = False) -> Node:
    """Whether none is zero."""
    return build.cast(_reduced("and", truth(x), dim, keepdim), call.type.dtype)


@aten("var.correction")
def variance(
    call: Call,
    x: Node,
    dim: Axes = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Node:
    """The mean of squared distances from the mean, for count - correction."""
    found, _ = _variance_and_mean(x, dim, correction, keepdim)
    return found


@aten("var_mean.correction")
def variance_and_mean(
    call: Call,
    x: Node,
    dim: Axes = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[Node, Node]:
    """The variance and the mean."""
    return _variance_and_mean(x, dim, correction, keepdim)


def _variance_and_mean(
    x: Node, dim: Axes, correction: float | None, keepdim: bool
) -> tuple[Node, Node]:
    element = x.tensor.dtype
    axes = axes_of(dim, x.tensor.rank)
    wide = build.cast(x, build.accumulator_dtype(x))
    center = build.mean(wide, axes, keep_axes=True) if axes else wide
    distance = build.subtract(wide, center)
    squares = (
        _reduced("sum", build.multiply(distance, distance), axes, keepdim)
        if axes
        else (build.multiply(distance, distance))
    )
    count: DimLike = 1
    for axis in axes:
        count = count * x.tensor.shape[axis]
    number = build.cast(build.dimension(count), squares.tensor.dtype)
    less = build.subtract(number, 1.0 if correction is None else float(correction))
    found = build.divide(squares, build.maximum(less, 0.0))
    middle = center if keepdim else build.squeeze(center, axes)
    return build.cast(found, element), build.cast(middle, element)


@aten("cumsum.default")
def cumsum(call: Call, x: Node, dim: int, *, dtype: Any = None) -> Node:
    """The running sum along an axis."""
    return _running("sum", call, x, dim)


@aten("cumprod.default")
def cumprod(call: Call, x: Node, dim: int, *, dtype: Any = None) -> Node:
    """The running product along an axis."""
    return _running("product", call, x, dim)


def _running(kind: str, call: Call, x: Node, dim: int) -> Node:
    wide = build.cast(x, call.type.dtype, saturate=False)
    if not x.tensor.rank:
        return wide
    return node(Cumulative(kind, axis_of(dim, x.tensor.rank), False, False), wide)


def _extreme(kind: str, x: Node, dim: Axes, keepdim: bool) -> Node:
    if x.tensor.dtype.kind == "bool":
        return _reduced("or" if kind == "maximum" else "and", x, dim, keepdim)
    return _reduced(kind, x, dim, keepdim)


def _reduced(kind: str, x: Node, dim: Axes, keepdim: bool) -> Node:
    given = list(dim) if isinstance(dim, tuple) else dim
    return build.reduce(kind, x, axes_of(given, x.tensor.rank), keep_axes=keepdim)
