"""Moving elements without changing them: views, slices, concatenation, gather and scatter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from luban.core import dims
from luban.core.dims import DimLike, Shape
from luban.core.errors import DTypeError, ShapeError
from luban.core.types import TensorType, Type
from luban.graph.infer import axis_in_range, require, tensor_operand, tensor_operands
from luban.ir.node import Op

__all__ = [
    "OPS",
    "BroadcastInDim",
    "Concatenate",
    "DynamicReshape",
    "DynamicSlice",
    "DynamicUpdateSlice",
    "Gather",
    "Pad",
    "Reshape",
    "Reverse",
    "Scatter",
    "Slice",
    "Transpose",
]


@dataclass(frozen=True, slots=True)
class BroadcastInDim(Op):
    """Operand axis i becomes result axis `axes[i]`, repeated if its size is 1.

    The other result axes repeat the whole.

    A symbolic operand size that differs from the result's must be 1 or equal at run time.
    """

    name: ClassVar[str] = "broadcast_in_dim"
    shape: Shape
    axes: tuple[int, ...]

    def infer(self, *operands: Type) -> Type:
        """The declared shape."""
        given = tensor_operand(operands)
        if len(self.axes) != given.rank or list(self.axes) != sorted(set(self.axes)):
            raise ShapeError(f"axes {self.axes} of {given}: expected {given.rank} increasing axes")
        for size, axis in zip(given.shape, self.axes, strict=True):
            axis_in_range(axis, len(self.shape))
            target = self.shape[axis]
            if isinstance(size, int) and isinstance(target, int) and size not in (1, target):
                raise ShapeError(
                    f"{given} does not broadcast to {list(self.shape)}: "
                    f"axis {axis} is {size}, not 1"
                )
        return given.with_shape(self.shape)


@dataclass(frozen=True, slots=True)
class Reshape(Op):
    """The same elements in row-major order under another shape."""

    name: ClassVar[str] = "reshape"
    shape: Shape

    def infer(self, *operands: Type) -> Type:
        """The declared shape; the number of elements must not be provably different."""
        given = tensor_operand(operands)
        count, wanted = given.num_elements, dims.num_elements(self.shape)
        low, high = dims.bounds(count - wanted)
        if low > 0 or high < 0:
            raise ShapeError(f"{given} has {count} elements, {list(self.shape)} needs {wanted}")
        return given.with_shape(self.shape)


@dataclass(frozen=True, slots=True)
class DynamicReshape(Op):
    """Reshape to run-time sizes: the second operand, i64[rank], bound to the symbols of `shape`."""

    name: ClassVar[str] = "dynamic_reshape"
    shape: Shape

    def infer(self, *operands: Type) -> Type:
        """The declared shape."""
        given, sizes = tensor_operands(operands, 2)
        require(
            sizes.dtype.name == "i64" and sizes.shape == (len(self.shape),),
            sizes,
            f"i64[{len(self.shape)}]",
        )
        return given.with_shape(self.shape)


@dataclass(frozen=True, slots=True)
class Transpose(Op):
    """Result axis i is operand axis `permutation[i]`."""

    name: ClassVar[str] = "transpose"
    permutation: tuple[int, ...]

    def infer(self, *operands: Type) -> Type:
        """The permuted shape."""
        given = tensor_operand(operands)
        if sorted(self.permutation) != list(range(given.rank)):
            raise ShapeError(f"permutation {self.permutation} does not fit {given}")
        return given.with_shape(given.shape[axis] for axis in self.permutation)


@dataclass(frozen=True, slots=True)
class Slice(Op):
    """`sizes` elements per axis, every `strides`-th from `starts`: y[i] = x[starts + i * strides].

    Stating the size keeps symbolic shapes simple; the last element must lie inside.
    Strides are >= 1.
    """

    name: ClassVar[str] = "slice"
    starts: Shape
    sizes: Shape
    strides: tuple[int, ...]

    def infer(self, *operands: Type) -> Type:
        """The declared sizes."""
        given = tensor_operand(operands)
        if not len(self.starts) == len(self.sizes) == len(self.strides) == given.rank:
            raise ShapeError(f"slice of {given}: expected {given.rank} starts, sizes and strides")
        rows = zip(given.shape, self.starts, self.sizes, self.strides, strict=True)
        for axis, (size, start, count, stride) in enumerate(rows):
            if stride < 1 or dims.bounds(start)[1] < 0 or dims.bounds(count)[1] < 0:
                raise ShapeError(
                    f"slice of {given}: axis {axis} has "
                    f"start {start}, size {count}, stride {stride}"
                )
            last = start + (count - 1) * stride
            if dims.bounds(count)[0] > 0 and dims.bounds(size - 1 - last)[1] < 0:
                raise ShapeError(f"slice of {given}: axis {axis} reads element {last} of {size}")
        return given.with_shape(self.sizes)


@dataclass(frozen=True, slots=True)
class DynamicSlice(Op):
    """A block of the declared sizes at a start known at run time: (T[S], i64[rank]) -> T[sizes].

    The start is clamped so that the block lies inside, as in StableHLO.
    """

    name: ClassVar[str] = "dynamic_slice"
    sizes: Shape

    def infer(self, *operands: Type) -> Type:
        """The declared sizes."""
        given, start = tensor_operands(operands, 2)
        require(
            start.dtype.name == "i64" and start.shape == (given.rank,),
            start,
            f"a start of i64[{given.rank}]",
        )
        return given.with_shape(self.sizes)


@dataclass(frozen=True, slots=True)
class DynamicUpdateSlice(Op):
    """(T[S], T[U], i64[rank]) -> T[S]: the block of the second at a run-time start of the first.

    The start is clamped.
    """

    name: ClassVar[str] = "dynamic_update_slice"

    def infer(self, *operands: Type) -> Type:
        """The type of the first operand."""
        given, update, start = tensor_operands(operands, 3)
        if update.dtype is not given.dtype or update.rank != given.rank:
            raise ShapeError(f"update is {update}, expected {given.dtype} of rank {given.rank}")
        require(
            start.dtype.name == "i64" and start.shape == (given.rank,),
            start,
            f"a start of i64[{given.rank}]",
        )
        return given


@dataclass(frozen=True, slots=True)
class Pad(Op):
    """Add `low` and `high` elements (negative: remove) and `interior` ones between neighbours.

    They have the value of the second operand.
    """

    name: ClassVar[str] = "pad"
    low: Shape
    high: Shape
    interior: tuple[int, ...]

    def infer(self, *operands: Type) -> Type:
        """Each size grows by low + high + (size - 1) * interior."""
        given, value = tensor_operands(operands, 2)
        if value.dtype is not given.dtype or value.rank:
            raise DTypeError(f"padding value is {value}, expected {given.dtype}[]")
        if not len(self.low) == len(self.high) == len(self.interior) == given.rank:
            raise ShapeError(
                f"pad of {given}: expected {given.rank} low, high and interior amounts"
            )
        shape: list[DimLike] = []
        for size, low, high, interior in zip(
            given.shape, self.low, self.high, self.interior, strict=True
        ):
            inner = size + dims.maximum(size - 1, 0) * interior if interior else size
            shape.append(inner + low + high)
        return given.with_shape(shape)


@dataclass(frozen=True, slots=True)
class Concatenate(Op):
    """Operands one after the other along one axis."""

    name: ClassVar[str] = "concatenate"
    axis: int

    def infer(self, *operands: Type) -> Type:
        """Sizes along the axis add up; the others must not be provably different."""
        given = tensor_operands(operands, max(len(operands), 1))
        first = given[0]
        axis_in_range(self.axis, first.rank)
        total: DimLike = 0
        for other in given:
            if other.dtype is not first.dtype:
                raise DTypeError(f"operands are {first} and {other}, expected one dtype")
            if other.rank != first.rank:
                raise ShapeError(f"operands are {first} and {other}, expected one rank")
            for i, (a, b) in enumerate(zip(first.shape, other.shape, strict=True)):
                low, high = dims.bounds(a - b)
                if i != self.axis and (low > 0 or high < 0):
                    raise ShapeError(f"operands are {first} and {other}: axis {i} differs")
            total = total + other.shape[self.axis]
        return first.with_shape((*first.shape[: self.axis], total, *first.shape[self.axis + 1 :]))


@dataclass(frozen=True, slots=True)
class Reverse(Op):
    """Elements in opposite order along some axes."""

    name: ClassVar[str] = "reverse"
    axes: tuple[int, ...]

    def infer(self, *operands: Type) -> Type:
        """The operand's type."""
        given = tensor_operand(operands)
        for axis in self.axes:
            axis_in_range(axis, given.rank)
        return given


@dataclass(frozen=True, slots=True)
class Gather(Op):
    """Slices of the first operand at run-time places, with StableHLO's dimension numbers.

    operands  T[S], and start_indices i64 or i32 with the index vector along the last axis, of size
              len(start_index_map)
    result    batch axes of start_indices in order, with the slice's axes (less the collapsed and
              batching ones) at `offset_axes`
    Starts are clamped so that each slice lies inside.
    """

    name: ClassVar[str] = "gather"
    offset_axes: tuple[int, ...]
    collapsed_axes: tuple[int, ...]
    operand_batching_axes: tuple[int, ...]
    indices_batching_axes: tuple[int, ...]
    start_index_map: tuple[int, ...]
    slice_sizes: Shape

    def infer(self, *operands: Type) -> Type:
        """Batch shape of the indices interleaved with the kept slice axes."""
        given, indices = tensor_operands(operands, 2)
        require(indices.dtype.is_integer, indices, "integer indices")
        if not indices.rank or indices.shape[-1] != len(self.start_index_map):
            raise ShapeError(
                f"indices are {indices}, expected a last axis of {len(self.start_index_map)}"
            )
        if len(self.slice_sizes) != given.rank:
            raise ShapeError(f"slice sizes {self.slice_sizes} do not fit {given}")
        dropped = {*self.collapsed_axes, *self.operand_batching_axes}
        kept = [size for axis, size in enumerate(self.slice_sizes) if axis not in dropped]
        batch = list(indices.shape[:-1])
        if len(kept) != len(self.offset_axes):
            raise ShapeError(
                f"{len(self.offset_axes)} offset axes for {len(kept)} kept slice axes of {given}"
            )
        offsets = dict(zip(self.offset_axes, kept, strict=True))
        rest = iter(batch)
        rank = len(batch) + len(kept)
        return given.with_shape(offsets[i] if i in offsets else next(rest) for i in range(rank))


@dataclass(frozen=True, slots=True)
class Scatter(Op):
    """Updates combined into the first operand at run-time places: the inverse of `gather`.

    (T[S], indices, T[updates]) -> T[S]. combine: "replace", "add", "multiply", "maximum" or
    "minimum"; updates apply in row-major order, so the result never depends on threads. Slices
    whose indices let them not lie inside are left out.
    """

    name: ClassVar[str] = "scatter"
    combine: str
    window_axes: tuple[int, ...]
    inserted_axes: tuple[int, ...]
    operand_batching_axes: tuple[int, ...]
    indices_batching_axes: tuple[int, ...]
    scatter_axes: tuple[int, ...]

    def infer(self, *operands: Type) -> Type:
        """The type of the first operand."""
        given, indices, updates = tensor_operands(operands, 3)
        require(indices.dtype.is_integer, indices, "integer indices")
        if self.combine not in ("replace", "add", "multiply", "maximum", "minimum"):
            raise ShapeError(
                f"combine is {self.combine!r}, expected replace, add, multiply, maximum or minimum"
            )
        if updates.dtype is not given.dtype:
            raise DTypeError(f"updates are {updates}, expected {given.dtype}")
        if not indices.rank or indices.shape[-1] != len(self.scatter_axes):
            raise ShapeError(
                f"indices are {indices}, expected a last axis of {len(self.scatter_axes)}"
            )
        if updates.rank != indices.rank - 1 + len(self.window_axes):
            raise ShapeError(
                f"updates are {updates}, expected rank {indices.rank - 1 + len(self.window_axes)}"
            )
        return TensorType(given.dtype, given.shape)

    def windows(self, rank: int) -> dict[int, int]:
        """Axes of an operand of that rank that a slice spans -> its axis of the updates."""
        dropped = {*self.inserted_axes, *self.operand_batching_axes}
        spanned = (axis for axis in range(rank) if axis not in dropped)
        return dict(zip(spanned, sorted(self.window_axes), strict=True))


OPS: tuple[type[Op], ...] = (
    BroadcastInDim,
    Reshape,
    DynamicReshape,
    Transpose,
    Slice,
    DynamicSlice,
    DynamicUpdateSlice,
    Pad,
    Concatenate,
    Reverse,
    Gather,
    Scatter,
)
