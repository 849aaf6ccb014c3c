"""Types as kernels name them: `tl.float32`, `tl.pointer_type(tl.int8)`, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass

from luban.core.dtypes import DTYPES, DType

__all__ = ["BY_NAME", "ElementType", "PointerType", "element_type", "from_dtype"]

# The language's short name of each element type, and ours.
_NAMES = {
    "int1": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp64": "f64",
    "fp8e4nv": "f8e4m3fn", "fp8e5": "f8e5m2", "fp8e4b8": "f8e4m3fnuz", "fp8e5b16": "f8e5m2fnuz",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ElementType:
    """An element type of the language: short name as in error messages, and the IR's type.

    >>> BY_NAME["fp32"].primitive_bitwidth, BY_NAME["uint8"].is_int_signed()
    (32, False)
    """

    name: str
    dtype: DType

    def __repr__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name

    @property
    def primitive_bitwidth(self) -> int:
        """Bits of an element."""
        return 1 if self.name == "int1" else self.dtype.bits

    @property
    def int_bitwidth(self) -> int:
        """Bits of an integer."""
        return self.primitive_bitwidth

    @property
    def itemsize(self) -> int:
        """Bytes in memory."""
        return self.dtype.size_bytes

    @property
    def scalar(self) -> ElementType:
        """The type itself."""
        return self

    @property
    def element_ty(self) -> ElementType:
        """The type itself: blocks answer with their elements' type."""
        return self

    def is_floating(self) -> bool:
        """Any float."""
        return self.dtype.is_float

    def is_int(self) -> bool:
        """Integers, bool among them."""
        return not self.dtype.is_float

    def is_int_signed(self) -> bool:
        """Signed integers."""
        return self.dtype.kind == "int"

    def is_int_unsigned(self) -> bool:
        """Unsigned integers, bool among them."""
        return self.dtype.kind in ("uint", "bool")

    def is_bool(self) -> bool:
        """One bit."""
        return self.name == "int1"

    def is_fp8(self) -> bool:
        """Floats of eight bits."""
        return self.name.startswith("fp8")

    def is_ptr(self) -> bool:
        """Never: this is a number's type."""
        return False

    def is_block(self) -> bool:
        """Never: this is an element's type."""
        return False

    def is_standard_floating(self) -> bool:
        """16, 32 and 64 bits."""
        return self.name in ("fp16", "bf16", "fp32", "fp64")

    def is_fp16(self) -> bool:
        """Half precision."""
        return self.name == "fp16"

    def is_bf16(self) -> bool:
        """bfloat16."""
        return self.name == "bf16"

    def is_fp32(self) -> bool:
        """Single precision."""
        return self.name == "fp32"

    def is_fp64(self) -> bool:
        """Double precision."""
        return self.name == "fp64"

    def is_int8(self) -> bool:
        """8 bits, signed."""
        return self.name == "int8"

    def is_int32(self) -> bool:
        """32 bits, signed."""
        return self.name == "int32"

    def is_int64(self) -> bool:
        """64 bits, signed."""
        return self.name == "int64"

    def is_uint8(self) -> bool:
        """8 bits, unsigned."""
        return self.name == "uint8"


@dataclass(frozen=True, slots=True)
class PointerType:
    """The type of an address of elements."""

    element_ty: ElementType

    def __str__(self) -> str:
        return f"pointer<{self.element_ty}>"

    @property
    def scalar(self) -> PointerType:
        """The type itself."""
        return self

    @property
    def primitive_bitwidth(self) -> int:
        """Bits of an address."""
        return 64

    def is_ptr(self) -> bool:
        """Always."""
        return True

    def is_floating(self) -> bool:
        """Never."""
        return False

    def is_int(self) -> bool:
        """Never."""
        return False


BY_NAME: dict[str, ElementType] = {
    name: ElementType(name, DTYPES[ours]) for name, ours in _NAMES.items() if ours in DTYPES
}
_BY_DTYPE = {found.dtype: found for found in BY_NAME.values()}


def from_dtype(dtype: DType) -> ElementType:
    """The language's type for an element type of the IR."""
    return _BY_DTYPE[dtype]


def element_type(given: object) -> ElementType | PointerType | None:
    """A type that a kernel names: ours, or that of an installed Triton, known by its name."""
    if isinstance(given, (ElementType, PointerType)):
        return given
    kind = type(given)
    if kind.__module__.startswith("triton.language"):
        inner = getattr(given, "element_ty", None)
        if kind.__name__ == "pointer_type" and inner is not None:
            found = element_type(inner)
            return PointerType(found) if isinstance(found, ElementType) else None
        return BY_NAME.get(str(getattr(given, "name", "")))
    return None
