"""Reductions, scans, sorting and matrix products of blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from luban.frontend.kernel.source import source_of
from luban.frontend.kernel.table import builtin
from luban.frontend.kernel.types import BY_NAME, ElementType, element_type
from luban.frontend.kernel.values import Tensor
from luban.tile.block_ops import FoldKind
from luban.tile.expr import Expr

if TYPE_CHECKING:
    from luban.frontend.kernel.interpret import Interpreter

__all__: list[str] = []


def _widened(run: Interpreter, x: Any, *, halves: bool) -> Tensor:
    """Small integers as 32 bits, bf16 as fp32; with `halves` fp16 as fp32 too."""
    given = run.tensor(x)
    if given.type.is_int():
        if given.type.primitive_bitwidth < 32:
            return run.cast(
                given,
                BY_NAME[
                    "int32" if given.type.is_int_signed() or given.type.is_bool() else "uint32"
                ],
            )
        return given
    small = given.type.primitive_bitwidth < 32
    return (
        run.cast(given, BY_NAME["fp32"])
        if small and (halves or not given.type.is_fp16())
        else given
    )


def _axis(run: Interpreter, x: Tensor, axis: Any) -> tuple[Expr, int]:
    """The block and the axis to fold; without an axis the elements are one line."""
    if not x.shape:
        run.fail(f"a reduction of {x}, expected a block")
    if axis is None:
        return run.b.reshape(x.expr, (prod(x.shape),)), 0
    place = int(axis)
    if not -len(x.shape) <= place < len(x.shape):
        run.fail(f"axis {place} of {x}, expected 0 to {len(x.shape) - 1}")
    return x.expr, place % len(x.shape)


def _keep(run: Interpreter, found: Expr, x: Tensor, axis: Any, keep_dims: Any) -> Tensor:
    """A result with the folded axis as extent 1, if that is asked for."""
    if not keep_dims:
        return Tensor(found)
    shape = list(x.shape)
    for place in range(len(shape)) if axis is None else [int(axis) % len(shape)]:
        shape[place] = 1
    return Tensor(run.b.reshape(found, shape) if found.shape else run.b.broadcast(found, shape))


def _fold(run: Interpreter, kind: FoldKind, x: Tensor, axis: Any, keep_dims: Any) -> Tensor:
    block, place = _axis(run, x, axis)
    (found,) = run.b.fold(kind, [block], place)
    return _keep(run, found, x, axis, keep_dims)


@builtin("reductions", "sum", method=True)
def sum_(
    run: Interpreter, input: Any, axis: Any = None, keep_dims: Any = False, dtype: Any = None
) -> Tensor:
    """The sum along an axis, of all elements without one. Small integers sum as int32."""
    given = run.tensor(input)
    wanted = element_type(dtype)
    if isinstance(wanted, ElementType):
        given = run.cast(given, wanted)
    else:
        given = _widened(run, given, halves=False)
    return _fold(run, "sum", given, axis, keep_dims)


def _extreme(
    run: Interpreter, larger: bool, x: Any, axis: Any, indices: Any, left: Any, keep: Any
) -> Any:
    given = _widened(run, x, halves=True)
    if indices:
        return _arg_extreme(run, larger, given, axis, bool(left), keep)
    kind: FoldKind = "max" if larger else "min"
    if given.type.is_floating():
        kind = "maxnum" if larger else "minnum"
    return _fold(run, kind, given, axis, keep)


def _arg_extreme(
    run: Interpreter, larger: bool, x: Tensor, axis: Any, left: bool, keep: Any
) -> tuple[Tensor, Tensor]:
    """The extreme and where it is: among equals the first, or any (the first as well)."""
    del left
    b = run.b
    block, place = _axis(run, x, axis)
    around = [1] * len(block.shape)
    around[place] = block.shape[place]
    index = b.broadcast(b.reshape(b.arange(block.shape[place], "i32"), around), block.shape)

    def combine(v: Expr, i: Expr, w: Expr, j: Expr) -> Sequence[Expr]:
        better = (w > v) if larger else (w < v)
        tie = w.eq(v) & (j < i)
        if x.type.is_floating():  # a number is better than NaN
            better = better | (b.unary("is_nan", v) & b.unary("not", b.unary("is_nan", w)))
        take = better | tie
        return b.select(take, w, v), b.select(take, j, i)

    value, where = b.fold("region", [block, index], place, combine)
    return _keep(run, value, x, axis, keep), _keep(run, where, x, axis, keep)


@builtin("reductions", "max", method=True)
def max_(
    run: Interpreter,
    input: Any,
    axis: Any = None,
    return_indices: Any = False,
    return_indices_tie_break_left: Any = True,
    keep_dims: Any = False,
) -> Any:
    """The largest along an axis, numbers before NaN; with `return_indices` also where."""
    return _extreme(
        run, True, input, axis, return_indices, return_indices_tie_break_left, keep_dims
    )


@builtin("reductions", "min", method=True)
def min_(
    run: Interpreter,
    input: Any,
    axis: Any = None,
    return_indices: Any = False,
    return_indices_tie_break_left: Any = True,
    keep_dims: Any = False,
) -> Any:
    """The smallest along an axis, numbers before NaN; with `return_indices` also where."""
    return _extreme(
        run, False, input, axis, return_indices, return_indices_tie_break_left, keep_dims
    )


@builtin("reductions", method=True)
def argmax(
    run: Interpreter, input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False
) -> Tensor:
    """Where the largest along an axis is, as int32."""
    found: Tensor = _extreme(run, True, input, axis, True, tie_break_left, keep_dims)[1]
    return found


@builtin("reductions", method=True)
def argmin(
    run: Interpreter, input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False
) -> Tensor:
    """Where the smallest along an axis is, as int32."""
    found: Tensor = _extreme(run, False, input, axis, True, tie_break_left, keep_dims)[1]
    return found


@builtin("reductions", method=True)
def xor_sum(run: Interpreter, input: Any, axis: Any = None, keep_dims: Any = False) -> Tensor:
    """Exclusive or of integers along an axis."""
    return _fold(run, "xor", run.tensor(input), axis, keep_dims)


@builtin("reductions", method=True)
def reduce_or(run: Interpreter, input: Any, axis: Any, keep_dims: Any = False) -> Tensor:
    """Bitwise or of integers along an axis."""
    return _fold(run, "or", run.tensor(input), axis, keep_dims)


# Functions of the user's own


def _blocks(run: Interpreter, input: Any) -> tuple[list[Tensor], bool]:
    several = isinstance(input, (tuple, list))
    return [run.tensor(x) for x in (input if several else [input])], several


def _combine(run: Interpreter, function: Any, like: Sequence[Tensor]) -> Callable[..., list[Expr]]:
    """A user's function of 2 n numbers as the region of a fold or scan."""
    source = source_of(function)

    def combine(*parts: Expr) -> list[Expr]:
        arguments = [Tensor(part) for part in parts]
        if source is not None:
            found = run.inline(source, arguments, {})
        else:
            found = run.call(function, list(arguments), {})
        results = found if isinstance(found, (tuple, list)) else (found,)
        return [run.cast(x, t.type).expr for x, t in zip(results, like, strict=True)]

    return combine


@builtin("reductions", "reduce", method=True)
def reduce_(
    run: Interpreter, input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False
) -> Any:
    """Fold an axis with a function of the user's own, which must be associative."""
    given, several = _blocks(run, input)
    blocks = [_axis(run, x, axis) for x in given]
    combine = _combine(run, combine_fn, given)
    found = run.b.fold("region", [block for block, _ in blocks], blocks[0][1], combine)
    results = tuple(_keep(run, x, t, axis, keep_dims) for x, t in zip(found, given, strict=True))
    return results if several else results[0]


@builtin("scans", method=True)
def associative_scan(
    run: Interpreter, input: Any, axis: Any, combine_fn: Any, reverse: Any = False
) -> Any:
    """Running results along an axis, with a function of the user's own."""
    given, several = _blocks(run, input)
    place = int(axis) % len(given[0].shape)
    combine = _combine(run, combine_fn, given)
    found = run.b.scan(
        "region", [x.expr for x in given], place, reverse=bool(reverse), combine=combine
    )
    results = tuple(map(Tensor, found))
    return results if several else results[0]


def _running(
    run: Interpreter, kind: FoldKind, x: Any, axis: Any, reverse: Any, dtype: Any = None
) -> Tensor:
    given = run.tensor(x)
    wanted = element_type(dtype)
    given = (
        run.cast(given, wanted)
        if isinstance(wanted, ElementType)
        else _widened(run, given, halves=False)
    )
    (found,) = run.b.scan(kind, [given.expr], int(axis) % len(given.shape), reverse=bool(reverse))
    return Tensor(found)


@builtin("scans", method=True)
def cumsum(
    run: Interpreter, input: Any, axis: Any = 0, reverse: Any = False, dtype: Any = None
) -> Tensor:
    """Running sums along an axis."""
    return _running(run, "sum", input, axis, reverse, dtype)


@builtin("scans", method=True)
def cumprod(run: Interpreter, input: Any, axis: Any = 0, reverse: Any = False) -> Tensor:
    """Running products along an axis."""
    return _running(run, "prod", input, axis, reverse)


# Order


def _sorted(run: Interpreter, x: Tensor, descending: bool) -> Tensor:
    """A bitonic network along the last axis: each step compares with the element i ^ distance."""
    b = run.b
    shape = x.shape
    count = shape[-1]
    index = b.broadcast(b.arange(count, "i32"), shape)
    block = x.expr
    size = 2
    while size <= count:
        distance = size // 2
        while distance:
            other = b.take(block, index ^ distance, len(shape) - 1)
            low = (index & distance).eq(0)
            upward = (index & size).eq(0) if size < count else b.full(shape, True, "bool")
            ascending = b.unary("not", upward) if descending else upward
            smaller = b.select(other < block, other, block)
            larger = b.select(other > block, other, block)
            block = b.select(low.eq(ascending), smaller, larger)
            distance //= 2
        size *= 2
    return Tensor(block)


def _last_axis(run: Interpreter, x: Any, dim: Any) -> Tensor:
    given = run.tensor(x)
    if not given.shape or (dim is not None and int(dim) % len(given.shape) != len(given.shape) - 1):
        run.fail(f"sorting {given} along axis {dim}, expected the last axis")
    return given


@builtin("order", method=True)
def sort(run: Interpreter, x: Any, dim: Any = None, descending: Any = False) -> Tensor:
    """The elements along the last axis in order."""
    return _sorted(run, _last_axis(run, x, dim), bool(descending))


@builtin("order", method=True)
def topk(run: Interpreter, x: Any, k: Any, dim: Any = None) -> Tensor:
    """The k largest along the last axis, the largest first."""
    given = _sorted(run, _last_axis(run, x, dim), True)
    offsets = [0] * len(given.shape)
    return Tensor(run.b.extract_slice(given.expr, offsets, (*given.shape[:-1], int(k))))


@builtin("order", method=True)
def histogram(run: Interpreter, input: Any, num_bins: Any, mask: Any = None) -> Tensor:
    """How often 0, 1, ... num_bins - 1 occur in a block of one axis, as int32."""
    b, given, bins = run.b, run.tensor(input), int(num_bins)
    count = given.shape[0]
    values = b.reshape(b.cast(given.expr, "i32"), (1, count))
    hits = values.eq(b.reshape(b.arange(bins, "i32"), (bins, 1)))
    if mask is not None:
        hits = hits & b.reshape(b.broadcast(run.truth(mask).expr, given.shape), (1, count))
    return Tensor(b.fold("sum", [b.cast(hits, "i32")], 1)[0])


# Matrix products


@builtin("products")
def dot(
    run: Interpreter,
    input: Any,
    other: Any,
    acc: Any = None,
    input_precision: Any = None,
    allow_tf32: Any = None,
    max_num_imprecise_acc: Any = None,
    out_dtype: Any = None,
) -> Tensor:
    """acc + input @ other, of blocks [M, K] and [K, N], or with a batch axis in front.

    Floats of up to 32 bits sum in fp32 with IEEE products, int8 in int32 exactly.
    """
    del input_precision, allow_tf32, max_num_imprecise_acc  # products are exact here
    b = run.b
    left, right = run.tensor(input), run.tensor(other)
    if left.type != right.type and not (left.type.is_fp8() and right.type.is_fp8()):
        run.fail(f"tl.dot of {left} and {right}: the types differ", hint="cast one with .to(...)")
    if left.type.is_fp8():
        left, right = run.cast(left, BY_NAME["fp16"]), run.cast(right, BY_NAME["fp16"])
    ranks = len(left.shape), len(right.shape)
    if ranks not in ((2, 2), (3, 3)) or left.shape[-1] != right.shape[-2]:
        run.fail(f"tl.dot of {left} and {right}, expected [M, K] and [K, N]")
    total = BY_NAME["fp32"]
    if left.type.is_int():
        total = BY_NAME["int32"]
    elif left.type.is_fp64():
        total = BY_NAME["fp64"]
    shape = (*left.shape[:-1], right.shape[-1])
    asked = element_type(out_dtype)
    wanted = asked if isinstance(asked, ElementType) else total
    if acc is None:
        start = b.full(shape, 0.0 if total.is_floating() else 0, total.dtype)
    else:
        given = run.tensor(acc)
        if given.shape != shape:
            run.fail(f"tl.dot: acc is {given}, expected shape {list(shape)}")
        wanted = given.type
        start = run.cast(given, total).expr
    found = Tensor(b.dot(left.expr, right.expr, start))
    return run.cast(found, wanted)
