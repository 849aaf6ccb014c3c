"""An array argument as a kernel shall see it: as other elements, or in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from luban.core.errors import InputError
from luban.frontend.kernel import ElementType

__all__ = ["TensorDescriptor", "TensorWrapper", "reinterpret"]


class TensorWrapper:
    """A tensor whose memory a kernel reads as elements of another type of the same size.

    base   the tensor
    dtype  the type that the kernel sees, such as tl.uint16
    """

    def __init__(self, base: Any, dtype: ElementType) -> None:
        self.base = base
        self.dtype = dtype
        self.data = base.data
        self.device = getattr(base, "device", None)
        self.shape = base.shape

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self.base.data_ptr())

    def stride(self, *dims: int) -> Any:
        """Strides in elements."""
        return self.base.stride(*dims)

    def element_size(self) -> int:
        """Bytes of an element."""
        return int(self.base.element_size())

    def cpu(self) -> TensorWrapper:
        """The same on the CPU."""
        return TensorWrapper(self.base.cpu(), self.dtype)

    def clone(self) -> TensorWrapper:
        """A copy."""
        return TensorWrapper(self.base.clone(), self.dtype)

    def copy_(self, other: TensorWrapper) -> None:
        """Take over another one's elements."""
        self.base.copy_(other.base)

    def to(self, device: Any) -> TensorWrapper:
        """The same on a device."""
        return TensorWrapper(self.base.to(device), self.dtype)

    def __str__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base})"


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """The tensor, read as elements of `dtype`. Raises InputError if their sizes differ."""
    base = tensor.base if isinstance(tensor, TensorWrapper) else tensor
    if not hasattr(base, "data_ptr"):
        raise InputError(f"reinterpret of {type(tensor).__name__}, expected a torch tensor")
    if dtype == base.dtype:
        return base
    if dtype.itemsize != base.element_size():
        raise InputError(
            f"reinterpret of a tensor of {base.dtype} as {dtype}, expected elements of "
            f"{base.element_size()} bytes"
        )
    return TensorWrapper(base, dtype)


@dataclass
class TensorDescriptor:
    """A strided array from which a kernel loads and stores whole blocks.

    base         the tensor
    shape        extents
    strides      in elements; the last is 1
    block_shape  extents of a block

    Raises InputError if their lengths differ or the last stride is not 1.
    """

    base: Any
    shape: list[int]
    strides: list[int]
    block_shape: list[int]
    padding: str = "zero"

    def __post_init__(self) -> None:
        lengths = {len(self.shape), len(self.strides), len(self.block_shape)}
        if len(lengths) != 1 or not self.shape:
            raise InputError(
                f"descriptor of shape {self.shape}, strides {self.strides} and blocks of "
                f"{self.block_shape}, expected one number each for every axis"
            )
        if self.strides[-1] != 1:
            raise InputError(
                f"descriptor with strides {self.strides}, expected 1 at the last axis",
                hint="transpose the tensor, or copy it",
            )

    @staticmethod
    def from_tensor(
        tensor: Any, block_shape: Sequence[int], padding: str = "zero"
    ) -> TensorDescriptor:
        """The descriptor of a whole tensor."""
        strides = [int(s) for s in tensor.stride()]
        return TensorDescriptor(
            tensor, [int(n) for n in tensor.shape], strides, list(block_shape), padding
        )
