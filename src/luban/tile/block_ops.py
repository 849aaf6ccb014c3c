"""Ops on whole blocks, as kernel authors write them: folds, scans, products, look-ups.

A *block program* is a tile function whose tiles have the size that its author chose, not that of
registers. These ops occur in block programs only. `luban.lower.blocks` rewrites a block program to
loops over register tiles; code generation refuses what is left of them. Sorting and histograms are
compositions of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from luban.tile.memory_ops import expect_mask
from luban.tile.op import TileOp, accepts
from luban.tile.types import TileType

__all__ = [
    "FOLD_PARTIALS",
    "Dot",
    "Fold",
    "FoldKind",
    "Print",
    "Scan",
    "Take",
]

FoldKind = Literal[
    "sum", "prod", "max", "min", "maxnum", "minnum", "and", "or", "xor", "region"
]  # fmt: skip
_FOLD_KINDS = get_args(FoldKind)
FOLD_PARTIALS = 64  # partial results of a fold along the last axis: four vectors of 16 f32


def _domain(kind: str) -> str:
    if kind in ("and", "or", "xor"):
        return "bits"
    return "float" if kind in ("maxnum", "minnum") else "number"


def _check_combine(op: Fold | Scan, types: tuple[TileType, ...]) -> None:
    """What `Fold` and `Scan` ask of their kind, their axis and their operands."""
    if op.kind not in _FOLD_KINDS:
        op.fail_option(f"unknown kind {op.kind!r}, expected one of {', '.join(_FOLD_KINDS)}")
    if not types:
        op.fail_shape("got no operands, expected at least 1")
    if op.kind != "region":
        op.expect_count(types, 1)
        if types[0].is_pointer or not accepts(_domain(op.kind), types[0].dtype):
            op.fail_dtype(f"{op.kind} of {types[0]}, expected {_domain(op.kind)}", "cast first")
    op.expect_axis(op.axis, types[0])
    for other in types:
        if other.is_pointer or other.shape != types[0].shape:
            op.fail_shape(f"operands are {', '.join(map(str, types))}, expected one shape")


@dataclass(frozen=True, slots=True)
class Fold(TileOp):
    """Fold `axis` away in one fixed order, so that every back end gives the same bits.

    Along the last axis of n elements there are p = min(64, n) partial results: element i goes into
    partial i mod p, in order, and the partials are then folded as `Reduce` folds p elements. Along
    other axes the elements are taken in order. For f16 and bf16 every step rounds. `max` and `min`
    propagate NaN, `maxnum` and `minnum` prefer numbers.

    kind "region": one region with 2 n scalar parameters (n so far, n new) that yields n combines n
    operands of one shape, as in an arg-max.
    """

    name: ClassVar[str] = "fold"
    in_registers: ClassVar[bool] = False
    kind: FoldKind
    axis: int

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        _check_combine(self, types)
        shape = types[0].shape
        left = (*shape[: self.axis], *shape[self.axis + 1 :])
        return tuple(given.with_shape(left) for given in types)


@dataclass(frozen=True, slots=True)
class Scan(TileOp):
    """Running results along `axis`, in order; from the last element backwards when `reverse`.

    Kinds and regions are those of `Fold`. Element i of a result takes in all operands up to i.
    """

    name: ClassVar[str] = "scan"
    in_registers: ClassVar[bool] = False
    kind: FoldKind
    axis: int
    reverse: bool = False

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        _check_combine(self, types)
        return types


_DOT_SUMS = {"f16": "f32", "bf16": "f32", "f32": "f32", "f64": "f64", "i8": "i32", "u8": "i32"}


@dataclass(frozen=True, slots=True)
class Dot(TileOp):
    """acc[..., m, n] + sum over k, in order, of a[..., m, k] * b[..., k, n].

    a, b  of one type: f16, bf16, f32, f64, i8 or u8;  acc  f32 for floats of up to 32 bits, f64 for
    f64, i32 for integers. Products and sums are fused multiply-adds in the type of acc; integers
    wrap. Ranks 2, or 3 with a leading batch axis.
    """

    name: ClassVar[str] = "dot"
    in_registers: ClassVar[bool] = False

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 3)
        a, b, acc = types
        wanted = _DOT_SUMS.get(str(a.elem))
        if a.elem != b.elem or wanted != str(acc.elem):
            self.fail_dtype(
                f"operands are {a}, {b}, acc {acc}, expected equal factors of "
                f"{', '.join(_DOT_SUMS)} and their sums in f32, f64 or i32"
            )
        rank = len(a.shape)
        if (
            rank not in (2, 3)
            or (len(b.shape), len(acc.shape)) != (rank, rank)
            or a.shape[-1] != b.shape[-2]
            or acc.shape != (*a.shape[:-1], b.shape[-1])
            or a.shape[:-2] != b.shape[:-2]
        ):
            self.fail_shape(f"operands are {a}, {b}, acc {acc}, expected [M, K], [K, N], [M, N]")
        return (acc,)


@dataclass(frozen=True, slots=True)
class Take(TileOp):
    """x[..., index[..., j, ...], ...]: look up along `axis`. Operands: x, index.

    The index has integers from 0 to the extent - 1 (others are an error in checked mode and give
    the nearest element) and x's extents but for `axis`.
    """

    name: ClassVar[str] = "take"
    in_registers: ClassVar[bool] = False
    axis: int

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        self.expect_count(types, 2)
        x, index = types
        self.expect_axis(self.axis, x)
        if index.is_pointer or not index.dtype.is_integer:
            self.fail_dtype(f"index is {index}, expected integers")
        around = [(*t.shape[: self.axis], *t.shape[self.axis + 1 :]) for t in types]
        if len(index.shape) != len(x.shape) or around[0] != around[1]:
            self.fail_shape(f"index is {index} for {x}, expected equal extents beside the axis")
        return (x.with_shape(index.shape),)


@dataclass(frozen=True, slots=True)
class Print(TileOp):
    """Show the operands with a prefix, in the evaluator only. Optional mask first when `masked`."""

    name: ClassVar[str] = "print"
    pure: ClassVar[bool] = False
    in_registers: ClassVar[bool] = False
    prefix: str
    hexadecimal: bool = False
    masked: bool = False

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        if self.masked:
            if not types:
                self.fail_shape("got no operands, expected a mask")
            expect_mask(self, types[0], types[0].shape)
        for given in types:
            if given.is_pointer:
                self.fail_dtype(f"operand is {given}, expected numbers", "print the offsets")
        return ()


def combine_types(types: tuple[TileType, ...]) -> tuple[TileType, ...]:
    """The scalars that a region of `Fold` or `Scan` yields for operands of these types.

    >>> from luban.core.dtypes import DTYPES
    >>> combine_types((TileType(DTYPES["f32"], (8, 4)),))
    (TileType(elem=f32, shape=()),)
    """
    return tuple(given.with_shape(()) for given in types)
