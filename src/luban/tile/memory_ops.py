"""Memory and control-flow ops: everything whose order counts.

Element address = pointer + index + sum over axes of (stride * i) or of a static offset. All in
elements, in i64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from luban.core.dtypes import DTYPES, DType
from luban.tile.op import TileOp, accepts
from luban.tile.types import Ptr, TileType

__all__ = [
    "Assert",
    "AtomicCas",
    "AtomicKind",
    "AtomicRmw",
    "Call",
    "For",
    "Gather",
    "If",
    "Load",
    "Prefetch",
    "Scatter",
    "Scratch",
    "Store",
    "While",
    "expect_mask",
    "expect_offsets",
]

CacheHint = Literal["default", "stream"]
AtomicKind = Literal["add", "min", "max", "and", "or", "xor", "exchange"]
_ATOMIC_KINDS = get_args(AtomicKind)


@dataclass(frozen=True, slots=True)
class _Access(TileOp):
    """A strided block of memory; what `Load` and `Store` share.

    strides      per axis: elements from one index to the next. None = the next dynamic stride
                 operand (i64). 1 on the last axis is contiguous, 0 repeats one element.
    row_offsets  per axis: None, or the static offset of each index (then the axis' stride is 0).
    align        the claim that every row (run along the last axis) starts at a multiple of this
                 many bytes.
    cache        "stream": the data is not needed again soon.
    """

    pure: ClassVar[bool] = False
    shape: tuple[int, ...]
    strides: tuple[int | None, ...]
    row_offsets: tuple[tuple[int, ...] | None, ...] | None = None
    align: int | None = None
    cache: CacheHint = "default"

    @property
    def num_dynamic_strides(self) -> int:
        """How many strides are operands."""
        return sum(stride is None for stride in self.strides)

    def check_layout(self) -> None:
        """Refuse attributes that do not fit together."""
        rank = len(self.shape)
        if len(self.strides) != rank:
            self.fail_shape(f"strides {self.strides} for shape {self.shape}, expected one per axis")
        if self.row_offsets is not None:
            if len(self.row_offsets) != rank:
                self.fail_shape(f"row_offsets for {len(self.row_offsets)} axes, expected {rank}")
            for axis, offsets in enumerate(self.row_offsets):
                if offsets is None:
                    continue
                if len(offsets) != self.shape[axis] or self.strides[axis] != 0:
                    self.fail_shape(
                        f"axis {axis} has {len(offsets)} row_offsets, stride {self.strides[axis]}, "
                        f"expected {self.shape[axis]} and 0"
                    )
        if self.align is not None and (self.align < 1 or self.align & (self.align - 1)):
            self.fail_option(f"align is {self.align}, expected a power of two")
        if self.cache not in get_args(CacheHint):
            self.fail_option(f"cache is {self.cache!r}, expected default or stream")

    def check_mask(self, mask: TileType, shape: tuple[int, ...]) -> None:
        """Refuse a mask that is not bool of this shape."""
        expect_mask(self, mask, shape)


def expect_mask(op: TileOp, mask: TileType, shape: tuple[int, ...]) -> None:
    """Refuse a mask that is not bool of this shape."""
    wanted = TileType(DTYPES["bool"], shape)
    if mask != wanted:
        op.fail_dtype(f"mask is {mask}, expected {wanted}", "broadcast it first (the builder does)")


@dataclass(frozen=True, slots=True)
class Load(_Access):
    """Read a block. Operands: pointer, index, dynamic strides..., optional mask, optional other.

    Masked-off elements never touch memory and give `other`, or 0 without it. `other` has the type
    of the result.
    """

    name: ClassVar[str] = "load"

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.check_layout()
        dynamic = self.num_dynamic_strides
        self.expect_count(types, 2 + dynamic, 4 + dynamic)
        result = TileType(types[0].pointee, self.shape)
        for what, given in zip(
            ("index", *["stride"] * dynamic), types[1 : 2 + dynamic], strict=True
        ):
            self.expect_i64(what, given)
        if len(types) > 2 + dynamic:
            self.check_mask(types[2 + dynamic], self.shape)
        if len(types) > 3 + dynamic and types[3 + dynamic] != result:
            self.fail_dtype(f"other is {types[3 + dynamic]}, expected {result}")
        return (result,)


@dataclass(frozen=True, slots=True)
class Store(_Access):
    """Write a block. Operands: pointer, index, value, dynamic strides..., optional mask.

    Elements go out in row-major order: where two have the same address the last one stays.
    """

    name: ClassVar[str] = "store"

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.check_layout()
        dynamic = self.num_dynamic_strides
        self.expect_count(types, 3 + dynamic, 4 + dynamic)
        self.expect_i64("index", types[1])
        wanted = TileType(types[0].pointee, self.shape)
        if types[2] != wanted:
            self.fail_dtype(f"value is {types[2]}, expected {wanted}", "cast or broadcast it first")
        for given in types[3 : 3 + dynamic]:
            self.expect_i64("stride", given)
        if len(types) > 3 + dynamic:
            self.check_mask(types[3 + dynamic], self.shape)
        return ()


@dataclass(frozen=True, slots=True)
class Gather(TileOp):
    """Read pointer[offsets]. Operands: pointer, offsets (i64), optional mask, optional other."""

    name: ClassVar[str] = "gather"
    pure: ClassVar[bool] = False

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 2, 4)
        expect_offsets(self, types[1])
        result = TileType(types[0].pointee, types[1].shape)
        if len(types) > 2:
            expect_mask(self, types[2], result.shape)
        if len(types) > 3 and types[3] != result:
            self.fail_dtype(f"other is {types[3]}, expected {result}")
        return (result,)


@dataclass(frozen=True, slots=True)
class Scatter(TileOp):
    """Write pointer[offsets]. Operands: pointer, offsets (i64), value, optional mask.

    Elements go out in row-major order: where two have the same address the last one stays.
    """

    name: ClassVar[str] = "scatter"
    pure: ClassVar[bool] = False

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 3, 4)
        expect_offsets(self, types[1])
        wanted = TileType(types[0].pointee, types[1].shape)
        if types[2] != wanted:
            self.fail_dtype(f"value is {types[2]}, expected {wanted}")
        if len(types) > 3:
            expect_mask(self, types[3], wanted.shape)
        return ()


@dataclass(frozen=True, slots=True)
class AtomicRmw(TileOp):
    """Read, combine, write as one step; gives the old value.

    Operands: pointer, offsets (i64), value, optional mask.
    Kinds: add min max exchange for numbers, and or xor for integers. Element by element in
    row-major order. Masked-off elements give 0.
    """

    name: ClassVar[str] = "atomic_rmw"
    pure: ClassVar[bool] = False
    kind: AtomicKind

    def __post_init__(self) -> None:
        if self.kind not in _ATOMIC_KINDS:
            self.fail_option(
                f"unknown kind {self.kind!r}, expected one of {', '.join(_ATOMIC_KINDS)}"
            )

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 3, 4)
        expect_offsets(self, types[1])
        wanted = TileType(types[0].pointee, types[1].shape)
        if types[2] != wanted:
            self.fail_dtype(f"value is {types[2]}, expected {wanted}")
        domain = "integer" if self.kind in ("and", "or", "xor") else "number"
        if not accepts(domain, wanted.dtype):
            self.fail_dtype(f"{self.kind} of {wanted}, expected {domain}s")
        if len(types) > 3:
            expect_mask(self, types[3], wanted.shape)
        return (wanted,)


def expect_offsets(op: TileOp, given: TileType) -> None:
    """Refuse offsets that are not i64."""
    if given.elem is not DTYPES["i64"]:
        op.fail_dtype(f"offsets are {given}, expected i64")


@dataclass(frozen=True, slots=True)
class AtomicCas(TileOp):
    """Where memory equals `compare`, write `value`, as one step; gives the old values.

    Operands: pointer, offsets (i64), compare, value. Integers and floats by their bits.
    """

    name: ClassVar[str] = "atomic_cas"
    pure: ClassVar[bool] = False

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 4)
        expect_offsets(self, types[1])
        wanted = TileType(types[0].pointee, types[1].shape)
        for what, given in zip(("compare", "value"), types[2:], strict=True):
            if given != wanted:
                self.fail_dtype(f"{what} is {given}, expected {wanted}")
        return (wanted,)


@dataclass(frozen=True, slots=True)
class Prefetch(TileOp):
    """A hint that pointer[index] is needed soon; never faults.

    locality: 0 (used once) .. 3 (keep in every cache level).
    """

    name: ClassVar[str] = "prefetch"
    pure: ClassVar[bool] = False
    locality: int = 3
    write: bool = False

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 2)
        types[0].pointee  # noqa: B018 - refuses anything but an address
        self.expect_i64("index", types[1])
        if not 0 <= self.locality <= 3:
            self.fail_option(f"locality is {self.locality}, expected 0 to 3")
        return ()


@dataclass(frozen=True, slots=True)
class Scratch(TileOp):
    """Memory of this thread for `count` elements, not initialised when a program starts.

    Legal at the top of a function only, so that its size is known.
    """

    name: ClassVar[str] = "scratch"
    pure: ClassVar[bool] = False
    dtype: DType
    count: int
    align: int = 64

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 0)
        if self.count < 1:
            self.fail_option(f"count is {self.count}, expected at least 1")
        if self.align < 1 or self.align & (self.align - 1):
            self.fail_option(f"align is {self.align}, expected a power of two")
        return (TileType(Ptr(self.dtype)),)


@dataclass(frozen=True, slots=True)
class For(TileOp):
    """for index in range(lower, upper, step), with values carried from one iteration to the next.

    Operands: lower, upper, step (i64, step > 0), carried... One region: parameters index,
    carried...; yields carried. Results: the carried values after the last iteration. `unroll` is a
    hint: that many bodies in a row.
    """

    name: ClassVar[str] = "for"
    pure: ClassVar[bool] = False
    unroll: int = 1

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        if len(types) < 3:
            self.fail_shape(
                f"got {len(types)} operands, expected lower, upper, step and the carried values"
            )
        for what, given in zip(("lower", "upper", "step"), types[:3], strict=True):
            self.expect_i64(what, given)
        if self.unroll < 1:
            self.fail_option(f"unroll is {self.unroll}, expected at least 1")
        _expect_numbers(self, types[3:])
        return types[3:]


@dataclass(frozen=True, slots=True)
class While(TileOp):
    """while condition(carried): carried = body(carried).

    Operands: carried... Two regions with the carried values as parameters: the condition yields one
    bool, the body yields carried. Results: the carried values for which the condition was false.
    """

    name: ClassVar[str] = "while"
    pure: ClassVar[bool] = False

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        _expect_numbers(self, types)
        return types


@dataclass(frozen=True, slots=True)
class If(TileOp):
    """One of two regions without parameters, which yield the results. Operand: condition (bool)."""

    name: ClassVar[str] = "if"
    pure: ClassVar[bool] = False
    types: tuple[TileType, ...] = ()

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 1)
        self.expect_bool("condition", types[0])
        _expect_numbers(self, self.types)
        return self.types


def _expect_numbers(op: TileOp, types: tuple[TileType, ...]) -> None:
    for given in types:
        if given.is_pointer:
            op.fail_dtype(
                f"{given} as a carried value",
                "carry an i64 index instead: the base of each access stays known",
            )


@dataclass(frozen=True, slots=True)
class Call(TileOp):
    """Run another function of the module on arguments (pointers too); results: what it returns."""

    name: ClassVar[str] = "call"
    pure: ClassVar[bool] = False
    callee: str
    types: tuple[TileType, ...] = ()

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:  # noqa: ARG002 - the verifier knows the callee
        _expect_numbers(self, self.types)
        return self.types


@dataclass(frozen=True, slots=True)
class Assert(TileOp):
    """Stop in checked mode when the condition (bool) is false; no effect in compiled code."""

    name: ClassVar[str] = "assert"
    pure: ClassVar[bool] = False
    message: str

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 1)
        self.expect_bool("condition", types[0])
        return ()
