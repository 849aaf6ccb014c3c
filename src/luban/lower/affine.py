"""Index expressions of a loop nest: linear in its axes, plus terms in values computed inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from luban.core import dims
from luban.core.dims import DimLike

if TYPE_CHECKING:
    from luban.lower.trace import Ref

__all__ = ["Linear", "axis_index", "fixed", "row_major"]


@dataclass(frozen=True, slots=True)
class Linear:
    """constant + sum of coefficient * axis + sum of coefficient * value; no zero coefficients.

    `axes` and `values` are sorted by number, so equal forms are equal.
    """

    constant: DimLike
    axes: tuple[tuple[int, DimLike], ...] = ()
    values: tuple[tuple[Ref, DimLike], ...] = ()

    def coefficient(self, axis: int) -> DimLike:
        """How far one step along the loop axis moves."""
        return dict(self.axes).get(axis, 0)

    @property
    def is_constant(self) -> bool:
        """True if no loop axis and no value takes part."""
        return not self.axes and not self.values

    def __add__(self, other: Linear) -> Linear:
        axes = dict(self.axes)
        for axis, coefficient in other.axes:
            axes[axis] = axes.get(axis, 0) + coefficient
        values = dict(self.values)
        for value, coefficient in other.values:
            values[value] = values.get(value, 0) + coefficient
        return _linear(self.constant + other.constant, axes, values)

    def scaled(self, factor: DimLike) -> Linear:
        """Every term times `factor`."""
        axes = {axis: coefficient * factor for axis, coefficient in self.axes}
        values = {value: coefficient * factor for value, coefficient in self.values}
        return _linear(self.constant * factor, axes, values)

    def shifted(self, by: DimLike) -> Linear:
        """The constant grown by `by`."""
        return Linear(self.constant + by, self.axes, self.values)

    def bounds(self, sizes: Mapping[int, DimLike]) -> tuple[int, int]:
        """Inclusive bounds for axes in [0, size); unbounded if a value takes part."""
        low, high = dims.bounds(self.constant)
        if self.values:
            return -dims.UNBOUNDED, dims.UNBOUNDED
        for axis, coefficient in self.axes:
            a, b = dims.bounds((sizes[axis] - 1) * coefficient)
            low, high = low + min(a, 0), high + max(b, 0)
        return low, high


def _linear(constant: DimLike, axes: dict[int, DimLike], values: dict[Ref, DimLike]) -> Linear:
    return Linear(
        constant,
        tuple(sorted((axis, c) for axis, c in axes.items() if c != 0)),
        tuple(
            sorted(((v, c) for v, c in values.items() if c != 0), key=lambda item: item[0].number)
        ),
    )


def axis_index(axis: int) -> Linear:
    """The loop axis itself."""
    return Linear(0, ((axis, 1),))


def row_major(index: Sequence[Linear], shape: Sequence[DimLike]) -> Linear:
    """The offset of an index in a dense tensor of that shape."""
    offset: Linear = fixed(0)
    stride: DimLike = 1
    for i, size in zip(reversed(index), reversed(shape), strict=True):
        offset, stride = offset + i.scaled(stride), stride * size
    return offset


def fixed(value: DimLike) -> Linear:
    """An index that does not move."""
    return Linear(value)
