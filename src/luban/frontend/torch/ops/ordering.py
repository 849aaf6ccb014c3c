"""Sorting and the largest few."""

from __future__ import annotations

from luban.core import dims
from luban.core.dims import DimLike
from luban.frontend.torch.call import Call, axis_of
from luban.frontend.torch.registry import aten
from luban.graph import build
from luban.graph.ops.reduce import Sort, TopK
from luban.ir.node import Node, node, results_of

__all__: list[str] = []


@aten("sort.default", "sort.stable")
def sort(
    call: Call, x: Node, *given: int | bool, stable: bool = True, dim: int = -1,
    descending: bool = False,
) -> tuple[Node, ...]:  # fmt: skip
    """Elements in order along an axis, and where each was; equal ones keep their order."""
    if given:
        dim = int(given[0])
        descending = bool(given[1]) if len(given) > 1 else descending
    if not x.tensor.rank:
        return x, build.full((), 0, "i64")
    axis = axis_of(dim, x.tensor.rank)
    numbers = build.cast(x, "u8") if x.tensor.dtype.kind == "bool" else x
    places = build.iota(x.tensor.shape, axis)
    return results_of(node(Sort(axis, descending), numbers, places))


@aten("topk.default")
def topk(
    call: Call, x: Node, k: DimLike, dim: int = -1, largest: bool = True, _ordered: bool = True
) -> tuple[Node, ...]:
    """The k largest or smallest along an axis, in order, and where each was."""
    if not x.tensor.rank:
        return x, build.full((), 0, "i64")
    return results_of(node(TopK(k, axis_of(dim, x.tensor.rank), largest), x))


@aten("kthvalue.default")
def kthvalue(call: Call, x: Node, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Node, ...]:
    """The k-th smallest along an axis, and where it was."""
    if not x.tensor.rank:
        return x, build.full((), 0, "i64")
    return _sorted_at(x, axis_of(dim, x.tensor.rank), k - 1, keepdim)


@aten("median.dim")
def median(call: Call, x: Node, dim: int = -1, keepdim: bool = False) -> tuple[Node, ...]:
    """The lower of the middle elements along an axis, and where it was; NaN if any is."""
    if not x.tensor.rank:
        return x, build.full((), 0, "i64")
    axis = axis_of(dim, x.tensor.rank)
    middle = dims.floor_div(x.tensor.shape[axis] - 1, 2)
    value, place = _sorted_at(x, axis, middle, keepdim)
    if not x.tensor.dtype.is_float:
        return value, place
    last, last_place = _sorted_at(x, axis, x.tensor.shape[axis] - 1, keepdim)
    is_nan = build.is_nan(last)
    return build.select(is_nan, last, value), build.select(is_nan, last_place, place)


def _sorted_at(x: Node, axis: int, place: DimLike, keepdim: bool) -> tuple[Node, Node]:
    places = build.iota(x.tensor.shape, axis)
    values, where = results_of(node(Sort(axis, False), x, places))
    found = [build.slice_axis(part, axis, place, 1) for part in (values, where)]
    value, index = found if keepdim else (build.squeeze(part, [axis]) for part in found)
    return value, index
