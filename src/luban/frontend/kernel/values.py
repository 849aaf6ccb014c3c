"""What a name in a kernel can stand for while the kernel is being compiled.

Static values are Python's own: numbers, strings, tuples, types, functions. The classes here are
values that only the run knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from luban.frontend.kernel.types import ElementType, PointerType, from_dtype
from luban.tile.expr import Expr

__all__ = ["BlockPointer", "Pointer", "RunTime", "Tensor", "is_number"]


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """Numbers: a scalar or a block."""

    expr: Expr

    @property
    def type(self) -> ElementType:
        """The element type."""
        return from_dtype(self.expr.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents, () for a scalar."""
        return self.expr.shape

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.shape))
        return f"{self.type}[{sizes}]" if self.shape else str(self.type)


@dataclass(frozen=True, slots=True, eq=False)
class Pointer:
    """Addresses: a parameter, and how many elements from its start each of them is.

    read_as   the element type that a cast of the pointer asks for, when it is another one
    """

    base: Expr
    offsets: Expr

    @property
    def element(self) -> ElementType:
        """The type of what is pointed to."""
        return from_dtype(self.base.type.pointee)

    @property
    def type(self) -> PointerType:
        """The pointer's type."""
        return PointerType(self.element)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents, () for one address."""
        return self.offsets.shape

    def moved(self, offsets: Expr) -> Pointer:
        """The same memory at other offsets."""
        return Pointer(self.base, offsets)

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.shape))
        return f"{self.type}[{sizes}]" if self.shape else str(self.type)


@dataclass(frozen=True, slots=True, eq=False)
class BlockPointer:
    """A block of a strided array: `make_block_ptr` and tensor descriptors.

    shape, strides, offsets   i64 scalars, one for each axis
    block                     extents of the block
    whole                     every axis is checked, as descriptors do; `padding` fills
    """

    base: Pointer
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    offsets: tuple[Expr, ...]
    block: tuple[int, ...]
    order: tuple[int, ...] = ()
    whole: bool = False
    padding: str = ""

    def advanced(self, steps: Sequence[Expr]) -> BlockPointer:
        """The block this many elements further on, along each axis."""
        moved = tuple(at + step for at, step in zip(self.offsets, steps, strict=True))
        return replace(self, offsets=moved)

    @property
    def type(self) -> PointerType:
        """The type of the elements' addresses."""
        return self.base.type

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the block."""
        return self.block

    def __str__(self) -> str:
        return f"block pointer to {self.base.element}{list(self.block)}"


RunTime = Tensor | Pointer | BlockPointer


def is_number(value: object) -> bool:
    """A static bool, int or float."""
    return isinstance(value, (bool, int, float))
