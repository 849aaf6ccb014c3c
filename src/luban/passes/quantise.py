"""Integer products in quantised models: dequantise, multiply, quantise as one integer kernel.

A product of dequantised factors is (x - z) * s times (w - 0) * t, summed: s * t times an integer
sum, which i32 holds without any rounding. So the integer form is nearer to the exact value than the
float form that it replaces (docs/adr/0023). What follows stays as it is, but for one thing: a sum
that only goes on to be quantised is scaled once, by s * t / u, not by s * t and then by 1 / u.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.dtypes import DTYPES
from luban.graph import build
from luban.graph.ops.contract import Convolution, DotGeneral
from luban.graph.ops.data import Constant
from luban.graph.ops.elementwise import BINARY, UNARY, Cast
from luban.graph.ops.reduce import ReduceWindow
from luban.graph.ops.structure import BroadcastInDim, Reshape, Transpose
from luban.ir.node import Graph, Node, Op, map_graph, node, rebuilt
from luban.passes.constant_nodes import constant_nodes
from luban.passes.decision import Decision

__all__ = ["integer_products"]

Add, Subtract, Multiply, Divide = (BINARY[n] for n in ("add", "subtract", "multiply", "divide"))
Maximum, RoundEven = BINARY["maximum"], UNARY["round"]

Numbers = npt.NDArray[Any]

_DEEPEST = 1 << 16  # products of one sum: 255 * 128 * 2**16 is below 2**31
_VIEWS = (Reshape, Transpose)


@dataclass(frozen=True, slots=True)
class Dequantised:
    """(codes - zero) * scale, with scale and zero scalars or of the rank of the codes."""

    codes: Node
    zero: Node | None
    scale: Node

    @property
    def is_uniform(self) -> bool:
        """True if one scale and one zero point serve all codes."""
        parts = (self.scale, self.zero) if self.zero is not None else (self.scale,)
        return all(part.tensor.num_elements == 1 for part in parts)

    def value(self) -> Node:
        """The numbers in f32."""
        wide = build.cast(self.codes, "f32")
        if self.zero is not None:
            wide = build.subtract(wide, build.cast(self.zero, "f32"))
        return build.multiply(wide, self.scale)


def integer_products(graph: Graph) -> tuple[Graph, list[Decision]]:
    """The graph with integer products in the place of those of dequantised factors."""
    decisions: list[Decision] = []
    fixed = constant_nodes(graph.nodes())

    def change(old: Node, operands: tuple[Node, ...]) -> Node:
        rule = _RULES.get(type(old.op))
        if rule is None:
            return rebuilt(old, operands)
        new = rebuilt(old, operands)
        made = rule(new) if old not in fixed else None
        if isinstance(made, str):
            decisions.append(Decision(old, False, made))
        elif made is not None:
            decisions.append(Decision(old, True, _WORDS[type(old.op)]))
            return made
        return new

    return map_graph(graph, change), decisions


def _plain(n: Node) -> Node:
    """A scale or zero point without its broadcast: a scalar, or with sizes of 1."""
    rank = n.tensor.rank
    while isinstance(n.op, BroadcastInDim):
        sizes: list[DimLike] = [1] * rank
        for size, axis in zip(n.operands[0].tensor.shape, n.op.axes, strict=True):
            sizes[axis] = size
        source = n.operands[0]
        n = source if source.tensor.rank in (0, rank) else build.reshape(source, sizes)
    return build.reshape(n, ()) if n.tensor.num_elements == 1 else n


def _numbers(n: Node) -> Numbers | None:
    """What a small constant holds, under casts and views; None for anything else."""
    current, casts = n, []
    while isinstance(current.op, (Cast, *_VIEWS, BroadcastInDim)):
        casts.append(current.tensor.dtype)
        current = current.operands[0]
    if not isinstance(current.op, Constant) or current.tensor.dtype.kind in ("string", "complex"):
        return None
    return np.asarray(current.op.value.array)


def _dequantised(n: Node) -> Dequantised | None:
    """The parts of a dequantised tensor with constant scale and zero point, under views."""
    if isinstance(n.op, _VIEWS):
        inner = _dequantised(n.operands[0])
        if inner is None:
            return None
        if inner.is_uniform:
            return replace(inner, codes=node(n.op, inner.codes))
        return _transposed(n.op, inner) if isinstance(n.op, Transpose) else None
    if not isinstance(n.op, Multiply) or n.tensor.dtype.name != "f32":
        return None
    shifted, scale = n.operands[0], _plain(n.operands[1])
    zero: Node | None = None
    if isinstance(shifted.op, Subtract):
        wide = _plain(shifted.operands[1])
        shifted = shifted.operands[0]
        while isinstance(wide.op, Reshape) and isinstance(wide.operands[0].op, Cast):
            wide = _cast_last(wide)
        if not isinstance(wide.op, Cast) or _numbers(wide) is None:
            return None
        zero = None if not np.any(_numbers(wide)) else wide.operands[0]
    if not isinstance(shifted.op, Cast):
        return None
    codes, factors = shifted.operands[0], _numbers(scale)
    if codes.tensor.dtype.name not in ("i8", "u8") or factors is None:
        return None
    if zero is not None and zero.tensor.dtype is not codes.tensor.dtype:
        return None
    return None if not _is_moderate(factors) else Dequantised(codes, zero, scale)


def _is_moderate(scales: Numbers) -> bool:
    """True for positive scales of which no product or quotient overflows or loses digits."""
    return bool(np.all((scales >= 2.0**-40) & (scales <= 2.0**40)))


def _cast_last(n: Node) -> Node:
    """reshape(cast(x)) as cast(reshape(x))"""
    inner = n.operands[0]
    return build.cast(build.reshape(inner.operands[0], n.tensor.shape), inner.tensor.dtype)


def _transposed(op: Transpose, inner: Dequantised) -> Dequantised:
    def moved(part: Node) -> Node:
        return part if not part.tensor.rank else node(op, part)

    zero = None if inner.zero is None else moved(inner.zero)
    return Dequantised(node(op, inner.codes), zero, moved(inner.scale))


def _factors(n: Node, output: int) -> tuple[Dequantised, Dequantised, Node] | str | None:
    """Both factors of a product, and the scale of its sums with `output` axes; or why not."""
    x, w = (_dequantised(o) for o in n.operands)
    if x is None or w is None or n.tensor.dtype.name != "f32":
        return None
    if not x.is_uniform:
        return "the scale of the left factor differs from place to place"
    if w.zero is not None:
        return "the zero point of the right factor is not 0"
    kept = [i for i, size in enumerate(w.scale.tensor.shape) if size != 1]
    if kept not in ([], [output]):
        return "the scale of the right factor does not go with its columns"
    return x, w, build.reshape(w.scale, (w.scale.tensor.num_elements,) if kept else ())


def _convolution(n: Node) -> Node | str | None:
    """A convolution of dequantised images with dequantised filters."""
    op = n.op
    assert isinstance(op, Convolution)
    found = _factors(n, 0)
    if found is None or isinstance(found, str):
        return found
    if op.layout != "channels_first" or op.groups != 1 or any(d != 1 for d in op.lhs_dilation):
        return "grouped and transposed convolutions stay in f32"
    x, w, scale = found
    if _too_deep(dims.num_elements(w.codes.tensor.shape[1:])):
        return "a sum could leave i32"
    codes, rank = x.codes, len(op.strides)
    own = replace(op, dtype=DTYPES["i32"])
    ones = (1,) * rank
    if x.zero is not None:
        point = build.reshape(x.zero, ())
        codes = build.pad(codes, (0, 0, *op.low), (0, 0, *op.high), point)
        own = replace(own, low=(0,) * rank, high=(0,) * rank)
    total = node(own, codes, w.codes, loc=n.loc)
    if x.zero is not None:
        sums = build.reduce("sum", build.cast(w.codes, "i32"), range(1, rank + 2))
        share = build.multiply(sums, build.negative(build.cast(point, "i32")))
        total = build.add(build.reshape(share, (1, *share.tensor.shape, *ones)), total)
    factor = build.multiply(x.scale, scale)
    if factor.tensor.rank:
        factor = build.reshape(factor, (1, *factor.tensor.shape, *ones))
    return build.multiply(build.cast(total, "f32"), factor)


def _dot(n: Node) -> Node | str | None:
    """A product of dequantised rows with a dequantised matrix."""
    op = n.op
    assert isinstance(op, DotGeneral)
    rank = n.operands[1].tensor.rank
    columns = [i for i in range(rank) if i not in (*op.rhs_batch, *op.rhs_contract)]
    found = _factors(n, columns[-1] if columns else -1)
    if found is None or isinstance(found, str):
        return found
    x, w, scale = found
    if scale.tensor.rank and len(columns) != 1:
        return "the scale of the right factor does not go with its columns"
    shape = w.codes.tensor.shape
    if _too_deep(dims.num_elements([shape[axis] for axis in op.rhs_contract])):
        return "a sum could leave i32"
    total = node(replace(op, dtype=DTYPES["i32"]), x.codes, w.codes, loc=n.loc)
    if x.zero is not None:
        sums = build.reduce("sum", build.cast(w.codes, "i32"), op.rhs_contract)
        batch = len(op.rhs_batch)
        left = n.tensor.rank - sums.tensor.rank
        order = [*op.rhs_batch, *columns]
        if order != sorted(order):
            return "the axes of the right factor are in another order than those of the result"
        wide = build.reshape(
            sums, (*sums.tensor.shape[:batch], *(1,) * left, *sums.tensor.shape[batch:])
        )
        point = build.cast(build.reshape(x.zero, ()), "i32")
        total = build.add(build.multiply(wide, build.negative(point)), total)
    return build.multiply(build.cast(total, "f32"), build.multiply(x.scale, scale))


def _too_deep(depth: DimLike) -> bool:
    high = dims.bounds(depth)[1]
    return high > _DEEPEST


def _largest(n: Node) -> Node | None:
    """The largest of dequantised numbers has the largest code, where a window is never empty."""
    op = n.op
    assert isinstance(op, ReduceWindow)
    found = _dequantised(n.operands[0])
    if op.kind != "maximum" or found is None or not found.is_uniform:
        return None
    full = all(
        isinstance(pad, int) and pad < window
        for pad, window in (
            *zip(op.low, op.window, strict=True),
            *zip(op.high, op.window, strict=True),
        )
    )
    if not full or any(d != 1 for d in op.dilation):
        return None
    return replace(found, codes=node(op, found.codes, loc=n.loc)).value()


def _round(n: Node) -> Node | None:
    """round(sums * factor / scale): quantised by one factor."""
    ratio = n.operands[0]
    if not isinstance(ratio.op, Divide):
        return None
    value, scale = ratio.operands[0], _plain(ratio.operands[1])
    number = _numbers(scale)
    if scale.tensor.rank or number is None or not _is_moderate(number):
        return None
    scaled = _scaled(value, scale)
    return None if scaled is None else build.round_even(scaled)


def _scaled(value: Node, divisor: Node) -> Node | None:
    """value / divisor for integers times factors, summed, under bias and ReLU; else None."""
    match value.op:
        case Multiply():
            total, factor = value.operands[0], _plain(value.operands[1])
            sums = isinstance(total.op, Cast) and total.operands[0].tensor.dtype.name == "i32"
            if not sums or not _is_fixed(factor):
                return None
            return build.multiply(total, build.divide(factor, divisor))
        case Add():
            for a, b in (value.operands, value.operands[::-1]):
                small = _plain(b)
                if _is_fixed(small) and (inner := _scaled(a, divisor)) is not None:
                    return build.add(inner, build.divide(small, divisor))
            left, right = (_scaled_summand(operand, divisor) for operand in value.operands)
            return None if left is None or right is None else build.add(left, right)
        case Maximum():
            value, zero = value.operands
            numbers = _numbers(zero)
            if numbers is not None and not np.any(numbers):
                inner = _scaled(value, divisor)
                return None if inner is None else build.maximum(inner, 0.0)
    return None


def _scaled_summand(value: Node, divisor: Node) -> Node | None:
    """The same, or dequantised codes, which alone may be quantised again as they were."""
    codes = _dequantised(value)
    if codes is None:
        return _scaled(value, divisor)
    return replace(codes, scale=build.divide(codes.scale, divisor)).value()


def _is_fixed(n: Node) -> bool:
    """True if n depends on constants only."""
    return n in constant_nodes(Graph("fixed", (), (n,)).nodes())


def _cast(n: Node) -> Node | None:
    """Codes of a rounded number: as they were, or without a zero point of 0.

    Adding 0.0 only turns -0.0 into 0.0, and both have the code 0.
    """
    if (codes := _quantised_again(n)) is not None:
        return codes
    whole = n.operands[0]
    if not n.tensor.dtype.is_integer or not isinstance(whole.op, Add):
        return None
    value, zero = whole.operands[0], _numbers(whole.operands[1])
    fits = whole.tensor.dtype.is_float and value.type == whole.type
    if not fits or zero is None or np.any(zero) or not isinstance(value.op, RoundEven):
        return None
    return node(n.op, value, loc=n.loc)


def _quantised_again(n: Node) -> Node | None:
    """quantise(dequantise(q)) with the same scale and zero point -> q

    n * s / s, each rounded once, lies far less than 1/2 from n, which has 9 bits.
    """
    whole, zero = n.operands[0], np.zeros(())
    if isinstance(whole.op, Add):
        whole, point = whole.operands
        numbers = _numbers(_plain(point))
        if numbers is None or numbers.size != 1:
            return None
        zero = numbers
    if not isinstance(whole.op, RoundEven) or not isinstance(whole.operands[0].op, Divide):
        return None
    value, divisor = whole.operands[0].operands
    found, scale = _dequantised(value), _numbers(_plain(divisor))
    if found is None or scale is None or not found.is_uniform or scale.size != 1:
        return None
    own_scale = _numbers(found.scale)
    own_zero = np.zeros(()) if found.zero is None else _numbers(found.zero)
    pairs = ((own_scale, scale), (own_zero, zero))
    same = all(a is not None and a.item() == b.item() for a, b in pairs)
    return found.codes if same and found.codes.type == n.type else None


_RULES: dict[type[Op], Callable[[Node], Node | str | None]] = {
    Convolution: _convolution,
    DotGeneral: _dot,
    ReduceWindow: _largest,
    RoundEven: _round,
    Cast: _cast,
}
_WORDS = {
    Convolution: "an integer convolution of the codes",
    DotGeneral: "an integer product of the codes",
    ReduceWindow: "the largest of the codes",
    RoundEven: "scaled and quantised by one factor",
    Cast: "quantised again as it was, or without a zero point of 0",
}
