"""Types that cover several: what branches give, and what a loop carries from turn to turn."""

from __future__ import annotations

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.errors import ShapeError
from luban.core.types import OptionalType, SequenceType, TensorType, Type
from luban.frontend.onnx.value_types import UNRANKED, SymbolNames, is_unranked

__all__ = ["joined", "joined_items", "open_outside"]


def joined(first: Type, second: Type, names: SymbolNames, hint: str, opened: set[str]) -> Type:
    """The narrowest type that holds values of both; sizes that differ become fresh symbols.

    `opened` collects the names of these. One of them joined with anything is itself, so that
    joining again and again comes to an end.
    Raises ShapeError if the kinds, dtypes or numbers of axes differ.
    """
    match first, second:
        case TensorType(), TensorType():
            if first.dtype is not second.dtype or first.rank != second.rank:
                raise ShapeError(f"values are {first} and {second}, expected one dtype and rank")
            pairs = zip(first.shape, second.shape, strict=True)
            return first.with_shape(
                a if a == b or str(a) in opened else _opened(names.fresh(f"{hint}_{axis}"), opened)
                for axis, (a, b) in enumerate(pairs)
            )
        case SequenceType(), SequenceType():
            return SequenceType(joined_items(first.item, second.item))
        case OptionalType(), OptionalType():
            return OptionalType(joined_items(first.item, second.item))
        case OptionalType(), _:
            return OptionalType(joined_items(first.item, second))
        case _, OptionalType():
            return OptionalType(joined_items(first, second.item))
    raise ShapeError(f"values are {first} and {second}, expected one kind")


def _opened(size: DimLike, opened: set[str]) -> DimLike:
    opened.add(str(size))
    return size


def joined_items(first: Type, second: Type) -> Type:
    """The item type of a list that holds both. Of two numbers of axes neither is known any more.

    Raises ShapeError if kinds or dtypes differ.
    """
    if is_unranked(first):
        return second
    if is_unranked(second):
        return first
    match first, second:
        case TensorType(), TensorType() if first.dtype is second.dtype:
            return first if first.rank == second.rank else TensorType(first.dtype, (UNRANKED,))
        case SequenceType(), SequenceType():
            return SequenceType(joined_items(first.item, second.item))
    raise ShapeError(f"items are {first} and {second}, expected one kind and dtype")


def open_outside(type_: Type, inner: frozenset[str], names: SymbolNames, hint: str) -> Type:
    """The type as seen from outside a sub-graph: sizes over symbols of the inside become fresh."""
    if not isinstance(type_, TensorType):
        return type_
    return type_.with_shape(
        names.fresh(f"{hint}_{axis}") if any(s.name in inner for s in dims.symbols(size)) else size
        for axis, size in enumerate(type_.shape)
    )
