"""Values of arguments that a handler must know while it builds: axes, sizes, counts.

A value that only the run knows raises `RunTimeValueNeeded`: the importer then puts off the node.
"""

from __future__ import annotations

from collections.abc import Iterable

from luban.core import dims
from luban.core.dims import Dim, DimLike, symbol
from luban.core.errors import ShapeError
from luban.frontend.onnx.context import NodeContext, RunTimeValueNeeded
from luban.graph.ops.elementwise import Cast
from luban.graph.ops.structure import Concatenate
from luban.ir.node import Node

__all__ = [
    "axes_in_order",
    "axis_from",
    "partly_known_sizes",
    "quotient",
    "whole_number",
    "whole_numbers",
]


def whole_numbers(ctx: NodeContext, value: Node) -> tuple[int, ...]:
    """The elements as ints. Raises RunTimeValueNeeded if one is not known before the run."""
    return tuple(int(v) for v in ctx.static(value).ravel())


def whole_number(ctx: NodeContext, value: Node) -> int:
    """The only element as an int. Raises RunTimeValueNeeded as `whole_numbers` does."""
    numbers = whole_numbers(ctx, value)
    if len(numbers) != 1:
        raise ShapeError(f"value is {value.tensor}, expected one element")
    return numbers[0]


def partly_known_sizes(ctx: NodeContext, vector: Node) -> tuple[DimLike | None, ...]:
    """The elements of a vector of sizes; None for each one that only the run knows.

    Raises RunTimeValueNeeded if not even the number of elements is known.
    """
    known = ctx.sizes(vector)
    if known is not None:
        return known
    if isinstance(vector.op, Concatenate):
        return tuple(s for part in vector.operands for s in partly_known_sizes(ctx, part))
    if isinstance(vector.op, Cast) and vector.tensor.dtype.is_integer:
        return partly_known_sizes(ctx, vector.operands[0])
    count = vector.tensor.num_elements
    if not isinstance(count, int):
        raise RunTimeValueNeeded(vector)
    return (None,) * count


def axis_from(axis: int, rank: int, what: str = "axis") -> int:
    """The axis counted from the front. Raises ShapeError if it is outside.

    >>> axis_from(-1, 3)
    2
    """
    if not -rank <= axis < rank:
        raise ShapeError(
            f"{what} is {axis}, expected {-rank} to {rank - 1} for {rank} axes",
        )
    return axis % rank if rank else axis


def axes_in_order(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """The axes counted from the front, ascending. Raises ShapeError if one is outside or twice."""
    counted = sorted(axis_from(axis, rank) for axis in axes)
    if len(set(counted)) != len(counted):
        raise ShapeError(f"axes {counted} repeat, expected each one once")
    return tuple(counted)


def quotient(total: DimLike, part: DimLike) -> DimLike:
    """total / part for sizes known to divide; common symbols cancel even where they may be 0.

    >>> n = symbol("n")
    >>> quotient(12 * n, 4 * n)
    3
    >>> quotient(12 * n * n + 24 * n, 4 * n + 8)
    3*n
    """
    if isinstance(total, Dim) and isinstance(part, Dim) and len(part.terms) > 1:
        first = Dim(total.terms[:1])
        for monomial, coefficient in part.terms:
            guess = quotient(first, Dim(((monomial, coefficient),)) if monomial else coefficient)
            if guess * part == total:
                return guess
    found = dims.symbols(total) | dims.symbols(part)
    positive: dict[str, DimLike] = {s.name: symbol(s.name, max(s.low, 1), s.high) for s in found}
    original: dict[str, DimLike] = {s.name: symbol(s.name, s.low, s.high) for s in found}
    divided = dims.floor_div(dims.substitute(total, positive), dims.substitute(part, positive))
    return dims.substitute(divided, original) if isinstance(divided, Dim) else divided
