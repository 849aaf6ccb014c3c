"""Value ops: constants, elementwise maths, casts, shapes, reductions, small matrix products.

All are pure. Elementwise ops want operands of equal types: broadcasts and casts are ops of their
own. Maths in f16 and bf16 is that of f32, rounded to the type after every op (so `fma` in bf16 is
an f32 fma, then a rounding).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal, get_args

from luban.core.dtypes import DTYPES, DType
from luban.tile.op import TileOp, accepts, computes
from luban.tile.types import I64, TileType, broadcast_shapes

__all__ = [
    "BINARY",
    "UNARY",
    "Arange",
    "Binary",
    "BinaryKind",
    "Bitcast",
    "Broadcast",
    "Cast",
    "Compare",
    "Concat",
    "Constant",
    "Dot4",
    "DotPair",
    "ExtractSlice",
    "Fma",
    "Predicate",
    "ProgramId",
    "Reduce",
    "ReduceKind",
    "Reshape",
    "Select",
    "ThreadId",
    "Transpose",
    "Unary",
    "UnaryKind",
]

UnaryKind = Literal[
    "neg", "abs", "sign", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log1p",
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "erf", "logistic", "floor", "ceil", "round", "trunc", "not", "is_nan", "is_inf", "popcount",
]  # fmt: skip
BinaryKind = Literal[
    "add", "sub", "mul", "div", "rem", "min", "max", "minnum", "maxnum", "pow", "atan2",
    "and", "or", "xor", "shl", "shr_logical", "shr_arithmetic", "mulhi",
]  # fmt: skip
Predicate = Literal["eq", "ne", "lt", "le", "gt", "ge"]
ReduceKind = Literal["sum", "prod", "max", "min", "and", "or", "xor"]

# kind: (element types, meaning). The domains are explained at `luban.tile.op.accepts`.
UNARY: dict[str, tuple[str, str]] = {
    "neg": ("number", "-x; flips the sign bit of floats, wraps for integers"),
    "abs": ("number", "|x|; clears the sign bit of floats, abs(min) = min for integers"),
    "sign": ("number", "-1, 0 or 1; 0.0 for both zeros, NaN for NaN"),
    "sqrt": ("float", "square root, correctly rounded; NaN below zero, -0.0 for -0.0"),
    "rsqrt": ("float", "1 / sqrt(x); inf for 0.0, -inf for -0.0"),
    "exp": ("float", "e**x"),
    "exp2": ("float", "2**x"),
    "expm1": ("float", "e**x - 1"),
    "log": ("float", "natural logarithm; -inf at zeros, NaN below"),
    "log2": ("float", "logarithm to base 2"),
    "log1p": ("float", "log(1 + x)"),
    "sin": ("float", "sine of radians"),
    "cos": ("float", "cosine of radians"),
    "tan": ("float", "tangent of radians"),
    "asin": ("float", "arc sine; NaN outside [-1, 1]"),
    "acos": ("float", "arc cosine; NaN outside [-1, 1]"),
    "atan": ("float", "arc tangent"),
    "sinh": ("float", "hyperbolic sine"),
    "cosh": ("float", "hyperbolic cosine"),
    "tanh": ("float", "hyperbolic tangent"),
    "asinh": ("float", "inverse hyperbolic sine"),
    "acosh": ("float", "inverse hyperbolic cosine; NaN below 1"),
    "atanh": ("float", "inverse hyperbolic tangent; NaN outside [-1, 1]"),
    "erf": ("float", "error function"),
    "logistic": ("float", "1 / (1 + e**-x)"),
    "floor": ("float", "largest whole number <= x"),
    "ceil": ("float", "smallest whole number >= x"),
    "round": ("float", "nearest whole number, ties to even"),
    "trunc": ("float", "whole part"),
    "not": ("bits", "every bit flipped; logical not for bool"),
    "is_nan": ("float", "bool: x is NaN"),
    "is_inf": ("float", "bool: x is inf or -inf"),
    "popcount": ("integer", "number of one bits, in the type of x"),
}
BINARY: dict[str, tuple[str, str]] = {
    "add": ("number", "x + y; integers wrap"),
    "sub": ("number", "x - y; integers wrap"),
    "mul": ("number", "x * y; integers wrap"),
    "div": ("number", "x / y; integers truncate, x / 0 = 0, min / -1 = min"),
    "rem": ("number", "x - y * trunc(x / y), sign of x; integers: x rem 0 = 0, min rem -1 = 0"),
    "min": ("number", "the smaller; NaN if either is NaN, -0.0 < 0.0"),
    "max": ("number", "the larger; NaN if either is NaN, -0.0 < 0.0"),
    "minnum": ("float", "the smaller; the other one if one is NaN, -0.0 < 0.0"),
    "maxnum": ("float", "the larger; the other one if one is NaN, -0.0 < 0.0"),
    "pow": ("float", "x**y as in C: pow(x, 0) = pow(1, y) = 1 even for NaN"),
    "atan2": ("float", "angle of the point (y, x): atan2(y, x) with y the first operand"),
    "and": ("bits", "bitwise and"),
    "or": ("bits", "bitwise or"),
    "xor": ("bits", "bitwise exclusive or"),
    "shl": ("integer", "x << y; 0 for y outside 0 .. bits - 1"),
    "shr_logical": ("integer", "x >> y filled with zeros; 0 for y outside 0 .. bits - 1"),
    "shr_arithmetic": (
        "integer",
        "x >> y filled with the top bit; all fill for y outside 0 .. bits - 1",
    ),
    "mulhi": ("integer", "upper half of the double-width product"),
}
_PREDICATES = get_args(Predicate)
_REDUCE_KINDS = get_args(ReduceKind)


@dataclass(frozen=True, slots=True)
class ProgramId(TileOp):
    """Which program of the grid this is: 0 .. n - 1, i64."""

    name: ClassVar[str] = "program_id"

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 0)
        return (I64,)


@dataclass(frozen=True, slots=True)
class ThreadId(TileOp):
    """Which thread runs this program, i64. Legal only in an index into a `per_thread` pointer."""

    name: ClassVar[str] = "thread_id"

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 0)
        return (I64,)


@dataclass(frozen=True, slots=True, eq=False)
class Constant(TileOp):
    """One number, exact in `dtype`: a bool, an int in range, or a float that needs no rounding.

    Equality is by text, so 0.0 and -0.0 differ and NaN equals itself.
    """

    name: ClassVar[str] = "constant"
    value: bool | int | float
    dtype: DType

    def __post_init__(self) -> None:
        elem, value = self.dtype, self.value
        if elem.kind == "bool":
            good = isinstance(value, bool)
        elif elem.is_integer:
            good = type(value) is int and elem.lowest <= value <= elem.highest
        else:
            good = elem.is_float and type(value) is float and _is_exact(value, elem)
        if not good:
            self.fail_dtype(
                f"{value!r} is not a value of {elem}",
                "round it first: FunctionBuilder.constant does",
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 0)
        return (TileType(self.dtype),)


def _is_exact(value: float, elem: DType) -> bool:
    if elem.bits == 64 or value != value:
        return True
    return float(elem.numpy.type(value)) == value


@dataclass(frozen=True, slots=True)
class Arange(TileOp):
    """0, 1, ... n - 1 as a tile<n> of an integer or float type."""

    name: ClassVar[str] = "arange"
    n: int
    dtype: DType = DTYPES["i64"]

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 0)
        if not computes(self.dtype):
            self.fail_dtype(
                f"dtype is {self.dtype}, expected an integer or float of at least 8 bits"
            )
        if self.dtype.is_integer and self.n - 1 > self.dtype.highest:
            self.fail_dtype(f"{self.n - 1} does not fit {self.dtype}", "count in i64")
        return (TileType(self.dtype, (self.n,)),)


@dataclass(frozen=True, slots=True)
class Unary(TileOp):
    """One elementwise function of one tile; the kinds are in the table `UNARY`."""

    name: ClassVar[str] = "unary"
    kind: UnaryKind

    def __post_init__(self) -> None:
        if self.kind not in UNARY:
            self.fail_option(f"unknown kind, expected one of {', '.join(UNARY)}")

    @property
    def mnemonic(self) -> str:
        """The kind."""
        return self.kind

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 1)
        _expect_domain(self, UNARY[self.kind][0], types[0])
        if self.kind in ("is_nan", "is_inf"):
            return (types[0].with_dtype(DTYPES["bool"]),)
        return types


@dataclass(frozen=True, slots=True)
class Binary(TileOp):
    """One elementwise function of two tiles of one type; the kinds are in the table `BINARY`."""

    name: ClassVar[str] = "binary"
    kind: BinaryKind

    def __post_init__(self) -> None:
        if self.kind not in BINARY:
            self.fail_option(f"unknown kind, expected one of {', '.join(BINARY)}")

    @property
    def mnemonic(self) -> str:
        """The kind."""
        return self.kind

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 2)
        result = self.expect_same(types)
        _expect_domain(self, BINARY[self.kind][0], result)
        return (result,)


def _expect_domain(op: TileOp, domain: str, given: TileType) -> None:
    if given.is_pointer or not accepts(domain, given.dtype):
        words = {"bits": "integers or bool", "any": "numbers or bool"}.get(domain, f"{domain}s")
        op.fail_dtype(
            f"operand is {given}, expected {words}",
            "types below 8 bits and fp8 are storage only: cast first",
        )


@dataclass(frozen=True, slots=True)
class Compare(TileOp):
    """Elementwise eq, ne, lt, le, gt or ge, to bool; with NaN, all but `ne` are false.

    The element type says whether integers compare signed or unsigned.
    """

    name: ClassVar[str] = "compare"
    predicate: Predicate

    def __post_init__(self) -> None:
        if self.predicate not in _PREDICATES:
            self.fail_option(f"unknown predicate, expected one of {', '.join(_PREDICATES)}")

    @property
    def mnemonic(self) -> str:
        """The kind."""
        return self.predicate

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 2)
        given = self.expect_same(types)
        _expect_domain(self, "any" if self.predicate in ("eq", "ne") else "number", given)
        return (given.with_dtype(DTYPES["bool"]),)


@dataclass(frozen=True, slots=True)
class Select(TileOp):
    """condition ? x : y, element by element. The condition is a tile of bool of the same shape."""

    name: ClassVar[str] = "select"

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 3)
        condition, *branches = types
        result = self.expect_same(tuple(branches))
        if result.is_pointer or condition != result.with_dtype(DTYPES["bool"]):
            self.fail_dtype(
                f"condition is {condition} for branches {result}, expected bool of the same shape"
            )
        return (result,)


@dataclass(frozen=True, slots=True)
class Fma(TileOp):
    """x * y + z of floats, rounded once."""

    name: ClassVar[str] = "fma"

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 3)
        result = self.expect_same(types)
        _expect_domain(self, "float", result)
        return (result,)


@dataclass(frozen=True, slots=True)
class Cast(TileOp):
    """The same numbers in another element type; floats round to nearest even.

    saturate=True: what does not fit is clamped, NaN becomes 0 in integers; what lies beyond an fp8
    or f4 range, infinities too, becomes the nearest finite value. saturate=False: integers wrap;
    floats are truncated, clamped to i64 (u64 for a u64 result), then wrap, NaN becomes 0; fp8
    overflow becomes inf or NaN, as the type has it, and f4 is clamped. NaN becomes -0.0 in f4.
    Overflow to f16, bf16, f32 is inf in both modes. To bool: x != 0. From bool: 0 or 1.
    flush=True: hardware may take subnormal numbers for zero, as it does in `dot_pair`.
    """

    name: ClassVar[str] = "cast"
    dtype: DType
    saturate: bool = True
    flush: bool = False

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 1)
        if types[0].is_pointer:
            self.fail_dtype(f"operand is {types[0]}, expected numbers")
        return (types[0].with_dtype(self.dtype),)


@dataclass(frozen=True, slots=True)
class Bitcast(TileOp):
    """The same bits read as another element type of the same width (8 bits or more)."""

    name: ClassVar[str] = "bitcast"
    dtype: DType

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 1)
        if types[0].is_pointer or types[0].dtype.bits != self.dtype.bits or self.dtype.bits < 8:
            self.fail_dtype(f"{types[0]} to {self.dtype}, expected equal widths of at least 8 bits")
        return (types[0].with_dtype(self.dtype),)


@dataclass(frozen=True, slots=True)
class Broadcast(TileOp):
    """Repeat along axes of extent 1 and missing leading axes: numpy's rule."""

    name: ClassVar[str] = "broadcast"
    shape: tuple[int, ...]

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 1)
        if types[0].is_pointer or broadcast_shapes(types[0].shape, self.shape) != self.shape:
            self.fail_shape(f"{types[0]} does not broadcast to shape {self.shape}")
        return (types[0].with_shape(self.shape),)


@dataclass(frozen=True, slots=True)
class Reshape(TileOp):
    """The same elements in row-major order in another shape."""

    name: ClassVar[str] = "reshape"
    shape: tuple[int, ...]

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 1)
        if types[0].is_pointer or prod(self.shape) != types[0].num_elements:
            self.fail_shape(
                f"{types[0]} to shape {self.shape}, expected {types[0].num_elements} elements"
            )
        return (types[0].with_shape(self.shape),)


@dataclass(frozen=True, slots=True)
class Transpose(TileOp):
    """Result axis i is operand axis permutation[i]."""

    name: ClassVar[str] = "transpose"
    permutation: tuple[int, ...]

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 1)
        shape = types[0].shape
        if sorted(self.permutation) != list(range(len(shape))):
            self.fail_shape(
                f"permutation {self.permutation} of {types[0]}, expected each axis once"
            )
        return (types[0].with_shape(tuple(shape[axis] for axis in self.permutation)),)


@dataclass(frozen=True, slots=True)
class ExtractSlice(TileOp):
    """The block of `shape` that starts at static `offsets`."""

    name: ClassVar[str] = "extract_slice"
    offsets: tuple[int, ...]
    shape: tuple[int, ...]

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 1)
        given = types[0].shape
        if not len(given) == len(self.offsets) == len(self.shape) or any(
            offset < 0 or extent < 1 or offset + extent > limit
            for offset, extent, limit in zip(self.offsets, self.shape, given, strict=True)
        ):
            self.fail_shape(f"block {self.shape} at {self.offsets} does not lie inside {types[0]}")
        return (types[0].with_shape(self.shape),)


@dataclass(frozen=True, slots=True)
class Concat(TileOp):
    """Operands joined along `axis`; the other extents are equal."""

    name: ClassVar[str] = "concat"
    axis: int

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        if not types:
            self.fail_shape("got no operands, expected at least 1")
        first = types[0]
        self.expect_axis(self.axis, first)
        rest = _without(first.shape, self.axis)
        for other in types:
            if (
                other.elem != first.elem
                or len(other.shape) != len(first.shape)
                or _without(other.shape, self.axis) != rest
            ):
                self.fail_shape(
                    f"{other} beside {first}, expected equal types except along axis {self.axis}"
                )
        total = sum(given.shape[self.axis] for given in types)
        return (
            first.with_shape((*first.shape[: self.axis], total, *first.shape[self.axis + 1 :])),
        )


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


@dataclass(frozen=True, slots=True)
class Reduce(TileOp):
    """Fold `axis` away in one fixed order, so that every back end gives the same bits.

    With n elements along the axis and p the largest power of two <= n: first element i takes in
    element i + p for i < n - p; then, while p > 1, p is halved and element i takes in element i + p
    for i < p. For f16 and bf16 every step rounds. `max` and `min` propagate NaN. Kinds: sum, prod,
    max, min for numbers; and, or, xor for integers and bool.
    """

    name: ClassVar[str] = "reduce"
    kind: ReduceKind
    axis: int

    def __post_init__(self) -> None:
        if self.kind not in _REDUCE_KINDS:
            self.fail_option(
                f"unknown kind {self.kind!r}, expected one of {', '.join(_REDUCE_KINDS)}"
            )

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 1)
        self.expect_axis(self.axis, types[0])
        _expect_domain(self, "bits" if self.kind in ("and", "or", "xor") else "number", types[0])
        return (types[0].with_shape(_without(types[0].shape, self.axis)),)


@dataclass(frozen=True, slots=True)
class Dot4(TileOp):
    """acc[m, n] + sum over j < 4 of a[m, j] * b[4 n + j], exact products, i32 that wraps.

    acc  tile<MxNxi32>;  a  tile<Mx4xi8> or tile<Mx4xu8>;  b  tile<4Nxi8>, or tile<4Nxu8> if a is
         i8: four neighbours of one lane's k together.
    """

    name: ClassVar[str] = "dot4"

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        signed = len(types) == 3 and str(types[1].elem) == "i8"
        right = ("i8", "u8") if signed else ("i8",)
        return _infer_dot(self, types, DTYPES["i32"], 4, ("i8", "u8"), right)


@dataclass(frozen=True, slots=True)
class DotPair(TileOp):
    """acc[m, n] + a[m, 1] * b[2 n + 1], then + a[m, 0] * b[2 n], each an f32 fma of bf16 factors.

    acc  tile<MxNxf32>;  a  tile<Mx2xbf16>;  b  tile<2Nxbf16>. Hardware may flush subnormals to
         zero.
    """

    name: ClassVar[str] = "dot_pair"

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        return _infer_dot(self, types, DTYPES["f32"], 2, ("bf16",), ("bf16",))


def _infer_dot(
    op: TileOp,
    types: tuple[TileType, ...],
    total: DType,
    group: int,
    left: tuple[str, ...],
    right: tuple[str, ...],
) -> tuple[TileType, ...]:
    op.expect_count(types, 3)
    acc, a, b = types
    if acc.elem is not total or str(a.elem) not in left or str(b.elem) not in right:
        wanted = f"{total}, {' or '.join(left)}, {' or '.join(right)}"
        op.fail_dtype(f"operands are {acc}, {a}, {b}, expected elements {wanted}")
    if (
        len(acc.shape) != 2
        or a.shape != (acc.shape[0], group)
        or b.shape != (group * acc.shape[1],)
    ):
        op.fail_shape(f"operands are {acc}, {a}, {b}, expected [M, N], [M, {group}], [{group} * N]")
    return (acc,)
