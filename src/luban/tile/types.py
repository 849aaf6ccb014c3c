"""Types of tile values: scalars, small static tiles, pointers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from luban.core.dtypes import DType, dtype
from luban.core.errors import DTypeError, ShapeError

__all__ = [
    "BOOL",
    "I64",
    "MAX_TILE_ELEMENTS",
    "Ptr",
    "TileType",
    "broadcast_shapes",
    "pointer_type",
    "tile_type",
]

MAX_TILE_ELEMENTS = 1 << 20  # of a block; register tiles are far smaller


@dataclass(frozen=True, slots=True)
class Ptr:
    """The address of an array of `elem`. Offsets from it count elements, never bytes.

    >>> print(Ptr(dtype("f32")))
    ptr<f32>
    """

    elem: DType

    def __str__(self) -> str:
        return f"ptr<{self.elem}>"


@dataclass(frozen=True, slots=True)
class TileType:
    """A block of elements with a static shape; shape () is a scalar. Pointers are always scalars.

    Raises DTypeError for complex and string elements, ShapeError for an empty or absurd extent.

    >>> print(TileType(dtype("f32"), (6, 64)), TileType(dtype("i64")), TileType(Ptr(dtype("i8"))))
    tile<6x64xf32> i64 ptr<i8>
    """

    elem: DType | Ptr
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.elem, Ptr):
            if self.shape:
                raise ShapeError(
                    f"a tile of pointers {self.elem} with shape {self.shape}",
                    hint="use gather or scatter with a tile of i64 offsets",
                )
            stored = self.elem.elem
        else:
            stored = self.elem
        if stored.kind in ("complex", "string"):
            raise DTypeError(
                f"a tile of {stored}, expected bool, integers or floats",
                hint="split complex numbers into a real and an imaginary tile",
            )
        if self.shape and (min(self.shape) < 1 or prod(self.shape) > MAX_TILE_ELEMENTS):
            raise ShapeError(
                f"a tile of shape {self.shape}, expected extents of at least 1 and at most "
                f"{MAX_TILE_ELEMENTS} elements",
                hint="loop over smaller tiles",
            )

    def __str__(self) -> str:
        if not self.shape:
            return str(self.elem)
        return f"tile<{'x'.join(map(str, self.shape))}x{self.elem}>"

    @property
    def is_pointer(self) -> bool:
        """True for an address."""
        return isinstance(self.elem, Ptr)

    @property
    def is_scalar(self) -> bool:
        """True for one number (not for an address)."""
        return not self.shape and not isinstance(self.elem, Ptr)

    @property
    def dtype(self) -> DType:
        """The element type. Raises DTypeError for a pointer.

        >>> tile_type("f32", 4).dtype
        f32
        """
        if isinstance(self.elem, Ptr):
            raise DTypeError(f"{self.elem} is an address, expected numbers", hint="load from it")
        return self.elem

    @property
    def pointee(self) -> DType:
        """The element type that a pointer points to. Raises DTypeError for anything else.

        >>> pointer_type("u8").pointee
        u8
        """
        if not isinstance(self.elem, Ptr):
            raise DTypeError(f"{self} is not an address", hint="pass a pointer parameter")
        return self.elem.elem

    @property
    def num_elements(self) -> int:
        """Elements in the tile, 1 for a scalar."""
        return prod(self.shape)

    def with_shape(self, shape: tuple[int, ...]) -> TileType:
        """The same element type in another shape."""
        return TileType(self.elem, shape)

    def with_dtype(self, elem: DType) -> TileType:
        """Another element type in the same shape."""
        return TileType(elem, self.shape)


def tile_type(elem: str | DType, *shape: int) -> TileType:
    """The type of a tile, or of a scalar when no extents are given.

    >>> print(tile_type("bf16", 4, 16))
    tile<4x16xbf16>
    """
    return TileType(dtype(elem), shape)


def pointer_type(elem: str | DType) -> TileType:
    """The type of an address.

    >>> print(pointer_type("f64"))
    ptr<f64>
    """
    return TileType(Ptr(dtype(elem)))


I64 = tile_type("i64")
BOOL = tile_type("bool")


@lru_cache(maxsize=4096)  # the builder asks for every operation
def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that all of these broadcast to by numpy's rule, None when there is none.

    >>> broadcast_shapes((6, 1), (16,), ())
    (6, 16)
    >>> broadcast_shapes((3,), (4,)) is None
    True
    """
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, start=rank - len(shape)):
            if extent == 1 or extent == result[axis]:
                continue
            if result[axis] != 1:
                return None
            result[axis] = extent
    return tuple(result)
