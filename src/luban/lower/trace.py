"""Fusion body to loop body: what one element of the result is, as values indexed by the loop axes.

Views cost nothing here: a transpose, slice or broadcast only changes the index at which its operand
is asked for. What remains are loads at `Linear` offsets, guards (padding), and elementwise maths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from luban.core import dims
from luban.core.dims import DimLike, Shape
from luban.core.dtypes import DTYPES, DType
from luban.core.errors import InternalError
from luban.core.types import TensorType
from luban.graph.ops.data import Constant, DimensionSize, Iota, RandomBits
from luban.graph.ops.elementwise import Bitcast, Cast, ElementwiseOp, Select
from luban.graph.ops.packed import PackPanels
from luban.graph.ops.structure import (
    BroadcastInDim,
    Concatenate,
    DynamicSlice,
    Gather,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from luban.ir.node import Node, Parameter
from luban.lower.affine import Linear, axis_index, fixed, row_major
from luban.lower.philox import philox

__all__ = ["Declined", "Ref", "Trace"]

Index = tuple[Linear, ...]


class Declined(Exception):
    """This body has no loop form; the text says why. The fusion pass then tries something else."""


@dataclass(frozen=True, slots=True, eq=False)
class Ref:
    """A value of the loop body.

    kind: load (of operand `operand` at `offset`, 0 where a guard in `args` is false), constant
    (`value`), scalar (a dimension, `value`), index (`offset` as i64), stage (result of reduction
    `value`), or an elementwise op by name, with `args`.
    """

    number: int
    kind: str
    dtype: DType
    args: tuple[Ref, ...] = ()
    operand: Node | None = None
    offset: Linear | None = None
    value: Any = None


_HALVES = ("f16", "bf16")
_CHOICES = ("maximum", "minimum")
_ROUNDED = ("add", "subtract", "multiply")


@dataclass(slots=True)
class Trace:
    """Builds the values of one loop body over axes of the given sizes; equal values are shared."""

    sizes: dict[int, DimLike]
    stages: Mapping[Node, Callable[[Index], Ref]] = field(default_factory=dict)
    refs: list[Ref] = field(default_factory=list)
    _known: dict[tuple[object, ...], Ref] = field(default_factory=dict)
    _values: dict[tuple[Node, Index, tuple[Ref, ...]], Ref] = field(default_factory=dict)

    def ref(
        self,
        kind: str,
        dtype: DType,
        args: tuple[Ref, ...] = (),
        operand: Node | None = None,
        offset: Linear | None = None,
        value: Any = None,
    ) -> Ref:
        """The value with this content, made once."""
        shown = repr(value) if isinstance(value, float) else value
        key = (kind, dtype, args, operand, offset, type(value), shown)
        if key not in self._known:
            self._known[key] = Ref(len(self.refs), kind, dtype, args, operand, offset, value)
            self.refs.append(self._known[key])
        return self._known[key]

    def constant(self, value: Any, dtype: DType) -> Ref:
        """A number of that dtype."""
        return self.ref("constant", dtype, value=value)

    def index(self, offset: Linear) -> Ref:
        """An index expression as an i64 value; a constant or lone value as itself."""
        if not offset.axes and offset.constant == 0 and len(offset.values) == 1:
            (value, coefficient), *_ = offset.values
            if coefficient == 1:
                return value
        return self.ref("index", DTYPES["i64"], offset=offset)

    def apply(self, name: str, dtype: DType, *args: Ref) -> Ref:
        """An elementwise op by its graph name."""
        return self.ref(name, dtype, args)

    def load(self, operand: Node, index: Index, guards: tuple[Ref, ...] = ()) -> Ref:
        """An element of a materialised tensor, row-major."""
        offset: Linear = fixed(0)
        stride: DimLike = 1
        for i, size in zip(reversed(index), reversed(operand.tensor.shape), strict=True):
            offset = offset + i.scaled(stride)
            stride = stride * size
        return self.ref("load", operand.tensor.dtype, guards, operand, offset)

    def value(self, node: Node, index: Index, guards: tuple[Ref, ...] = ()) -> Ref:
        """Element `index` of a node; where a guard is false anything that is safe to compute.

        Raises Declined for an operation without a loop form.
        """
        key = (node, index, guards)
        if key not in self._values:
            self._values[key] = self._value(node, index, guards)
        return self._values[key]

    def _value(self, node: Node, index: Index, guards: tuple[Ref, ...]) -> Ref:
        if node in self.stages:
            return self.stages[node](index)
        match node.op:
            case Constant(value=literal) if (
                literal.array.size == 1 and literal.array.dtype.kind != "O"
            ):
                return self.constant(literal.array.reshape(()).item(), node.tensor.dtype)
            case DimensionSize(size=size):
                return self.ref("scalar", DTYPES["i64"], value=size)
            case Iota(dtype=dtype, axis=axis):
                place = self.index(index[axis])
                return place if dtype.name == "i64" else self.cast(place, dtype)
            case RandomBits(shape=shape):
                key = self.value(node.operands[0], (fixed(0),), guards)
                return philox(self, key, row_major(index, shape))
            case Cast() | Bitcast():
                arg = self.value(node.operands[0], index, guards)
                return self.ref(node.op.name, node.op.dtype, (arg,), value=_saturates(node))
            case ElementwiseOp() | Select():
                args = tuple(self.value(operand, index, guards) for operand in node.operands)
                if node.op.name in _CHOICES and node.tensor.dtype.name in _HALVES:
                    return self._choice(node.op.name, *args)
                return self.apply(node.op.name, node.tensor.dtype, *args)
        view = _VIEWS.get(type(node.op))
        if view is None and not isinstance(node.op, Parameter):
            raise Declined(f"{node.op.name} has no loop form")
        if view is None:
            return self.load(node, index, guards)
        return view(self, node, index, guards)

    def cast(self, value: Ref, dtype: DType) -> Ref:
        """The value in another dtype."""
        return value if value.dtype is dtype else self.ref("cast", dtype, (value,), value=True)

    def _choice(self, name: str, *args: Ref) -> Ref:
        """The greater or lesser of halves, rounded after the choice where that spares a rounding.

        Sums, differences and products of halves are those of f32, rounded. Rounding keeps order,
        so the choice may come first, and what is stored is then rounded once.
        """
        dtype, wide = args[0].dtype, DTYPES["f32"]
        exact: list[Ref] = []
        for arg in args:
            if arg.kind in _ROUNDED:
                parts = (self.cast(part, wide) for part in arg.args)
                exact.append(self.apply(arg.kind, wide, *parts))
            elif arg.kind == "cast" and arg.args[0].dtype is wide:
                exact.append(arg.args[0])
            else:
                exact.append(self.cast(arg, wide))
        if all(ref.kind == "cast" for ref in exact):
            return self.apply(name, dtype, *args)
        return self.cast(self.apply(name, wide, *exact), dtype)

    def inside(self, index: Linear, size: DimLike) -> tuple[Ref, ...]:
        """Guards that hold where 0 <= index < size, leaving out what bounds prove."""
        low, _ = index.bounds(self.sizes)
        boolean, guards = DTYPES["bool"], []
        if low < 0:
            zero = self.ref("scalar", DTYPES["i64"], value=0)
            guards.append(self.apply("greater_equal", boolean, self.index(index), zero))
        _, over = index.shifted(1 - size).bounds(self.sizes)
        if over > 0:
            limit = self.ref("scalar", DTYPES["i64"], value=size)
            guards.append(self.apply("less", boolean, self.index(index), limit))
        return tuple(guards)

    def spread(self, index: Linear, step: int, size: DimLike) -> tuple[Linear, tuple[Ref, ...]]:
        """Where element `index` of an axis whose elements stand `step` apart comes from; guards."""
        if step == 1:
            return index, self.inside(index, size)
        integer, boolean = DTYPES["i64"], DTYPES["bool"]
        place = self.index(index)
        divisor = self.ref("scalar", integer, value=step)
        zero = self.ref("scalar", integer, value=0)
        rest = self.apply("remainder", integer, place, divisor)
        source = Linear(0, (), ((self.apply("divide", integer, place, divisor), 1),))
        exact = self.apply("equal", boolean, rest, zero)
        return source, (exact, *self.inside(index, (size - 1) * step + 1))

    def quotient(self, index: Linear, divisor: DimLike) -> tuple[Linear, Linear]:
        """index // divisor and index % divisor, for index >= 0; simplified as far as proved."""
        whole = _exact_parts(index, divisor)
        rest = index + whole.scaled(divisor).scaled(-1)
        low, _ = rest.bounds(self.sizes)
        if low >= 0 and rest.shifted(1 - divisor).bounds(self.sizes)[1] <= 0:
            return whole, rest
        integer = DTYPES["i64"]
        numerator, denominator = self.index(rest), self.ref("scalar", integer, value=divisor)
        quotient = self.apply("divide", integer, numerator, denominator)
        return whole + Linear(0, (), ((quotient, 1),)), rest + Linear(
            0, (), ((quotient, -divisor),)
        )


def _saturates(node: Node) -> bool | str | None:
    """Whether a cast clamps: the tile IR can clamp integers too, those of a graph always wrap.

    "flush" for one that may take subnormal numbers for zero.
    """
    if not isinstance(node.op, Cast):
        return None
    if node.op.flush:
        return "flush"
    integers = node.op.dtype.is_integer and node.operands[0].tensor.dtype.is_integer
    return node.op.saturate and not integers


def _exact_parts(index: Linear, divisor: DimLike) -> Linear:
    """The terms of index / divisor whose coefficient is a multiple of the divisor."""

    def part(coefficient: DimLike) -> DimLike:
        if divisor == 0:
            return 0
        quotient = dims.floor_div(coefficient, divisor)
        return quotient if quotient * divisor == coefficient else 0

    axes = tuple((axis, part(c)) for axis, c in index.axes if part(c) != 0)
    values = tuple((value, part(c)) for value, c in index.values if part(c) != 0)
    constant = (
        dims.floor_div(index.constant, divisor) if isinstance(divisor, int) and divisor else 0
    )
    return Linear(constant if isinstance(constant, int) else part(index.constant), axes, values)


def _broadcast(trace: Trace, node: Node, index: Index, guards: tuple[Ref, ...]) -> Ref:
    op, operand = node.op, node.operands[0]
    assert isinstance(op, BroadcastInDim)
    inner: list[Linear] = []
    for size, axis in zip(operand.tensor.shape, op.axes, strict=True):
        if size == 1:
            inner.append(fixed(0))
        elif size == op.shape[axis]:
            inner.append(index[axis])
        else:  # equal or 1, known at run time only
            inner.append(index[axis].scaled(dims.minimum(dims.maximum(size - 1, 0), 1)))
    return trace.value(operand, tuple(inner), guards)


def _transpose(trace: Trace, node: Node, index: Index, guards: tuple[Ref, ...]) -> Ref:
    assert isinstance(node.op, Transpose)
    inner = [fixed(0)] * len(index)
    for position, axis in enumerate(node.op.permutation):
        inner[axis] = index[position]
    return trace.value(node.operands[0], tuple(inner), guards)


def _slice(trace: Trace, node: Node, index: Index, guards: tuple[Ref, ...]) -> Ref:
    assert isinstance(node.op, Slice)
    rows = zip(index, node.op.starts, node.op.strides, strict=True)
    inner = tuple(i.scaled(stride).shifted(start) for i, start, stride in rows)
    return trace.value(node.operands[0], inner, guards)


def _reverse(trace: Trace, node: Node, index: Index, guards: tuple[Ref, ...]) -> Ref:
    assert isinstance(node.op, Reverse)
    inner = list(index)
    for axis in node.op.axes:
        inner[axis] = index[axis].scaled(-1).shifted(node.tensor.shape[axis] - 1)
    return trace.value(node.operands[0], tuple(inner), guards)


def _reshape(trace: Trace, node: Node, index: Index, guards: tuple[Ref, ...]) -> Ref:
    operand = node.operands[0]
    if is_materialised(trace, operand):
        offset = row_major(index, node.tensor.shape)
        return trace.ref("load", operand.tensor.dtype, guards, operand, offset)
    inner = reshaped_index(trace, index, node.tensor.shape, operand.tensor.shape)
    return trace.value(operand, inner, guards)


def is_materialised(trace: Trace, node: Node) -> bool:
    """True if the node is a tensor in memory: an operand of the fusion, or a constant array."""
    known = (Constant, DimensionSize, Iota, Cast, Bitcast, ElementwiseOp, Select)
    inline = isinstance(node.op, known) or type(node.op) in _VIEWS
    return node not in trace.stages and not inline


def reshaped_index(trace: Trace, index: Index, shape: Shape, target: Shape) -> Index:
    """The index into `target` of the element at `index` of `shape`: equal row-major places.

    Groups of axes with equal products are matched from the left, so that a split or merge touches
    only its own axes.
    """
    result: list[Linear] = []
    i = j = 0
    while i < len(shape) or j < len(target):
        if i < len(shape) and j < len(target) and shape[i] == target[j]:
            result.append(index[i])
            i, j = i + 1, j + 1
        elif i < len(shape) and shape[i] == 1:
            i += 1
        elif j < len(target) and target[j] == 1:
            result.append(fixed(0))
            j += 1
        else:
            i, j = _regroup(trace, index, shape, target, i, j, result)
    return tuple(result)


def _regroup(
    trace: Trace, index: Index, shape: Shape, target: Shape, i: int, j: int, result: list[Linear]
) -> tuple[int, int]:
    left, right = i + 1, j + 1
    while not _same_product(shape[i:left], target[j:right]):
        if left == len(shape) and right == len(target):
            break
        grow_left = right == len(target) or (
            left < len(shape) and _smaller(shape[i:left], target[j:right])
        )
        left, right = (left + 1, right) if grow_left else (left, right + 1)
    place: Linear = fixed(0)
    stride: DimLike = 1
    for axis in reversed(range(i, left)):
        place, stride = place + index[axis].scaled(stride), stride * shape[axis]
    parts: list[Linear] = []
    for axis in reversed(range(j, right)):
        if axis == j:
            parts.append(place)
        else:
            place, rest = trace.quotient(place, target[axis])
            parts.append(rest)
    result.extend(reversed(parts))
    return left, right


def _same_product(a: Sequence[DimLike], b: Sequence[DimLike]) -> bool:
    return dims.num_elements(a) == dims.num_elements(b)


def _smaller(a: Sequence[DimLike], b: Sequence[DimLike]) -> bool:
    x, y = dims.num_elements(a), dims.num_elements(b)
    if isinstance(x, int) and isinstance(y, int):
        return x < y
    return len(a) <= len(b)


def _pad(trace: Trace, node: Node, index: Index, guards: tuple[Ref, ...]) -> Ref:
    op, (operand, filler) = node.op, node.operands
    assert isinstance(op, Pad)
    inner: list[Linear] = []
    mine: tuple[Ref, ...] = ()
    rows = zip(index, op.low, op.interior, operand.tensor.shape, strict=True)
    for i, low, interior, size in rows:
        place, guards_here = trace.spread(i.shifted(-low), interior + 1, size)
        inner.append(place)
        mine += guards_here
    found = trace.value(operand, tuple(inner), tuple(dict.fromkeys((*guards, *mine))))
    return _where(trace, mine, found, trace.value(filler, (), guards)) if mine else found


def _pack_panels(trace: Trace, node: Node, index: Index, guards: tuple[Ref, ...]) -> Ref:
    op, (operand,) = node.op, node.operands
    assert isinstance(op, PackPanels)
    if op.group == 1:
        *batch, panel, row, place = index
    else:
        *batch, panel, above, place, below = index
        row = above.scaled(op.group) + below
    column = panel.scaled(op.width) + place
    mine = trace.inside(column, operand.tensor.shape[-1])
    every = tuple(dict.fromkeys((*guards, *mine)))
    found = trace.value(operand, (*batch, row, column), every)
    return _where(trace, mine, found, trace.constant(0, node.tensor.dtype))


def _where(trace: Trace, guards: tuple[Ref, ...], inside: Ref, outside: Ref) -> Ref:
    """`inside` where all guards hold."""
    if not guards:
        return inside
    both = guards[0]
    for guard in guards[1:]:
        both = trace.apply("bitwise_and", DTYPES["bool"], both, guard)
    return trace.apply("select", inside.dtype, both, inside, outside)


def _concatenate(trace: Trace, node: Node, index: Index, guards: tuple[Ref, ...]) -> Ref:
    op = node.op
    assert isinstance(op, Concatenate)
    result: Ref | None = None
    start: DimLike = 0
    pieces: list[tuple[DimLike, Ref]] = []
    for operand in node.operands:
        inner = list(index)
        inner[op.axis] = index[op.axis].shifted(-start)
        mine = trace.inside(inner[op.axis], operand.tensor.shape[op.axis])
        pieces.append(
            (start, trace.value(operand, tuple(inner), tuple(dict.fromkeys((*guards, *mine)))))
        )
        start = start + operand.tensor.shape[op.axis]
    for begin, piece in pieces:
        if result is None:
            result = piece
            continue
        limit = trace.ref("scalar", DTYPES["i64"], value=begin)
        later = trace.apply("greater_equal", DTYPES["bool"], trace.index(index[op.axis]), limit)
        result = trace.apply("select", node.tensor.dtype, later, piece, result)
    if result is None:
        raise InternalError("concatenate without operands")
    return result


def _clamped(trace: Trace, place: Ref, limit: DimLike) -> Ref:
    """place, moved into 0 .. limit."""
    integer = DTYPES["i64"]
    high = trace.ref("scalar", integer, value=limit)
    zero = trace.ref("scalar", integer, value=0)
    return trace.apply("maximum", integer, trace.apply("minimum", integer, place, high), zero)


def _gather(trace: Trace, node: Node, index: Index, guards: tuple[Ref, ...]) -> Ref:
    op, (operand, indices) = node.op, node.operands
    assert isinstance(op, Gather)
    batch = [i for position, i in enumerate(index) if position not in op.offset_axes]
    inner = [fixed(0)] * operand.tensor.rank
    dropped = {*op.collapsed_axes, *op.operand_batching_axes}
    kept = [axis for axis in range(operand.tensor.rank) if axis not in dropped]
    for axis, position in zip(kept, op.offset_axes, strict=True):
        inner[axis] = index[position]
    for axis, position in zip(op.operand_batching_axes, op.indices_batching_axes, strict=True):
        inner[axis] = batch[position]
    for component, axis in enumerate(op.start_index_map):
        place = trace.cast(trace.value(indices, (*batch, fixed(component)), guards), DTYPES["i64"])
        limit = operand.tensor.shape[axis] - op.slice_sizes[axis]
        start = _clamped(trace, place, limit)
        inner[axis] = inner[axis] + Linear(0, (), ((start, 1),))
    return trace.value(operand, tuple(inner), guards)


def _dynamic_slice(trace: Trace, node: Node, index: Index, guards: tuple[Ref, ...]) -> Ref:
    operand, start = node.operands
    inner: list[Linear] = []
    for axis, (size, count) in enumerate(zip(operand.tensor.shape, node.tensor.shape, strict=True)):
        place = trace.value(start, (fixed(axis),), guards)
        begin = _clamped(trace, place, size - count)
        inner.append(index[axis] + Linear(0, (), ((begin, 1),)))
    return trace.value(operand, tuple(inner), guards)


_VIEWS: dict[type, Callable[[Trace, Node, Index, tuple[Ref, ...]], Ref]] = {
    BroadcastInDim: _broadcast,
    Transpose: _transpose,
    Slice: _slice,
    Reverse: _reverse,
    Reshape: _reshape,
    Pad: _pad,
    PackPanels: _pack_panels,
    Concatenate: _concatenate,
    Gather: _gather,
    DynamicSlice: _dynamic_slice,
}


def identity(tensor: TensorType) -> Index:
    """Axis i at loop axis i."""
    return tuple(axis_index(i) for i in range(tensor.rank))
