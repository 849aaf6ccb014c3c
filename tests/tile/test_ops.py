from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import get_args

import pytest

from luban.core.dtypes import dtype
from luban.core.errors import DTypeError, LubanError, OptionError, ShapeError
from luban.tile import block_ops, memory_ops, ops
from luban.tile.block_ops import Dot, Fold, Print, Scan, Take
from luban.tile.memory_ops import (
    Assert,
    AtomicCas,
    AtomicRmw,
    Call,
    For,
    Gather,
    If,
    Load,
    Prefetch,
    Scatter,
    Scratch,
    Store,
    While,
)
from luban.tile.op import TileOp, accepts, computes
from luban.tile.ops import (
    BINARY,
    UNARY,
    Arange,
    Binary,
    BinaryKind,
    Bitcast,
    Broadcast,
    Cast,
    Compare,
    Concat,
    Constant,
    Dot4,
    DotPair,
    ExtractSlice,
    Fma,
    ProgramId,
    Reduce,
    Reshape,
    Select,
    ThreadId,
    Transpose,
    Unary,
    UnaryKind,
)
from luban.tile.table import BY_MNEMONIC, OPS
from luban.tile.types import BOOL, I64, TileType, pointer_type, tile_type

F4, F24, B4, I4 = (
    tile_type("f32", 4),
    tile_type("f32", 2, 4),
    tile_type("bool", 4),
    tile_type("i64", 4),
)
P = pointer_type("f32")
F = tile_type("f32")

ACCEPTED: list[tuple[TileOp, list[TileType], list[TileType]]] = [
    (ProgramId(), [], [I64]),
    (ThreadId(), [], [I64]),
    (Constant(1.5, dtype("bf16")), [], [tile_type("bf16")]),
    (Arange(4), [], [I4]),
    (Unary("exp"), [F24], [F24]),
    (Unary("is_nan"), [F4], [B4]),
    (Unary("not"), [B4], [B4]),
    (Binary("add"), [F4, F4], [F4]),
    (Binary("and"), [B4, B4], [B4]),
    (Compare("eq"), [BOOL, BOOL], [BOOL]),
    (Compare("lt"), [I4, I4], [B4]),
    (Select(), [B4, F4, F4], [F4]),
    (Select(), [B4, tile_type("f8e5m2", 4), tile_type("f8e5m2", 4)], [tile_type("f8e5m2", 4)]),
    (Fma(), [F4, F4, F4], [F4]),
    (Cast(dtype("i4")), [F4], [tile_type("i4", 4)]),
    (Bitcast(dtype("i32")), [F4], [tile_type("i32", 4)]),
    (Broadcast((3, 2, 4)), [F24], [tile_type("f32", 3, 2, 4)]),
    (Broadcast((4,)), [F], [F4]),
    (Reshape((8,)), [F24], [tile_type("f32", 8)]),
    (Reshape(()), [tile_type("f32", 1, 1)], [F]),
    (Transpose((1, 0)), [F24], [tile_type("f32", 4, 2)]),
    (ExtractSlice((1, 1), (1, 3)), [F24], [tile_type("f32", 1, 3)]),
    (Concat(0), [F24, F24, tile_type("f32", 1, 4)], [tile_type("f32", 5, 4)]),
    (Reduce("sum", 1), [F24], [tile_type("f32", 2)]),
    (Reduce("or", 0), [B4], [BOOL]),
    (
        Dot4(),
        [tile_type("i32", 2, 3), tile_type("u8", 2, 4), tile_type("i8", 12)],
        [tile_type("i32", 2, 3)],
    ),
    (
        DotPair(),
        [tile_type("f32", 2, 3), tile_type("bf16", 2, 2), tile_type("bf16", 6)],
        [tile_type("f32", 2, 3)],
    ),
    (Load((2, 4), (None, 1)), [P, I64, I64], [F24]),
    (Load((4,), (1,)), [P, I64, B4], [F4]),
    (Load((4,), (1,)), [P, I64, B4, F4], [F4]),
    (Load((2, 4), (0, 1), ((5, 9), None)), [P, I64], [F24]),
    (Store((2, 4), (None, None)), [P, I64, F24, I64, I64, tile_type("bool", 2, 4)], []),
    (Gather(), [P, I4], [F4]),
    (Gather(), [P, I64, BOOL, F], [F]),
    (Scatter(), [P, I4, F4, B4], []),
    (AtomicRmw("max"), [P, I4, F4, B4], [F4]),
    (Prefetch(0), [P, I64], []),
    (Scratch(dtype("i8"), 10), [], [pointer_type("i8")]),
    (For(4), [I64, I64, I64, F4, BOOL], [F4, BOOL]),
    (While(), [F4], [F4]),
    (If((F4,)), [BOOL], [F4]),
    (Call("g", (F4,)), [P, I64], [F4]),
    (Assert("why"), [BOOL], []),
    (Fold("sum", 1), [F24], [tile_type("f32", 2)]),
    (Fold("region", 0), [F24, tile_type("i32", 2, 4)], [F4, tile_type("i32", 4)]),
    (Scan("max", 0, reverse=True), [F24], [F24]),
    (
        Dot(),
        [tile_type("bf16", 2, 3), tile_type("bf16", 3, 4), tile_type("f32", 2, 4)],
        [tile_type("f32", 2, 4)],
    ),
    (
        Dot(),
        [tile_type("i8", 5, 2, 3), tile_type("i8", 5, 3, 4), tile_type("i32", 5, 2, 4)],
        [tile_type("i32", 5, 2, 4)],
    ),
    (Take(1), [F24, tile_type("i32", 2, 7)], [tile_type("f32", 2, 7)]),
    (AtomicCas(), [P, I4, F4, F4], [F4]),
    (Print("x = "), [F4, I64], []),
    (Print("x = ", masked=True), [B4, F4], []),
]


@pytest.mark.parametrize(("op", "types", "wanted"), ACCEPTED, ids=lambda v: repr(v)[:40])
def test_infer(op: TileOp, types: list[TileType], wanted: list[TileType]) -> None:
    assert list(op.infer(*types)) == wanted


def test_every_op_is_tried() -> None:
    assert {type(op) for op, _, _ in ACCEPTED} == set(OPS)


REFUSED: list[tuple[Callable[[], object], type[LubanError], str]] = [
    (lambda: Fold("no", 0).infer(F4), OptionError, "fold: unknown kind 'no'"),  # type: ignore[arg-type]
    (lambda: Fold("sum", 0).infer(), ShapeError, "fold: got no operands"),
    (lambda: Fold("sum", 2).infer(F24), ShapeError, "fold: axis 2 of tile<2x4xf32>"),
    (lambda: Fold("maxnum", 0).infer(I4), DTypeError, "maxnum of tile<4xi64>, expected float"),
    (lambda: Scan("region", 0).infer(F4, F24), ShapeError, "expected one shape"),
    (lambda: Dot().infer(F24, F24, F24), ShapeError, "expected [M, K], [K, N], [M, N]"),
    (lambda: Dot().infer(F24, I4, F24), DTypeError, "expected equal factors of f16, bf16"),
    (lambda: Take(0).infer(F4, F4), DTypeError, "take: index is tile<4xf32>, expected integers"),
    (lambda: Take(0).infer(F24, I4), ShapeError, "expected equal extents beside the axis"),
    (lambda: AtomicCas().infer(P, I4, F4, I4), DTypeError, "value is tile<4xi64>, expected"),
    (lambda: AtomicCas().infer(P, F4, F4, F4), DTypeError, "offsets are tile<4xf32>"),
    (lambda: Print("").infer(P), DTypeError, "print: operand is ptr<f32>, expected numbers"),
    (lambda: Print("", masked=True).infer(), ShapeError, "got no operands, expected a mask"),
    (lambda: Unary("exp").infer(), ShapeError, "exp: got 0 operands, expected 1"),
    (lambda: Unary("exp").infer(I4), DTypeError, "exp: operand is tile<4xi64>, expected floats"),
    (lambda: Unary("popcount").infer(F4), DTypeError, "expected integers"),
    (lambda: Unary("not").infer(F4), DTypeError, "expected integers or bool"),
    (lambda: Unary("neg").infer(tile_type("i4", 4)), DTypeError, "types below 8 bits"),
    (lambda: Unary("neg").infer(P), DTypeError, "operand is ptr<f32>"),
    (lambda: Unary("nope"), OptionError, "nope: unknown kind"),  # type: ignore[arg-type]
    (lambda: Binary("nope"), OptionError, "unknown kind"),  # type: ignore[arg-type]
    (lambda: Binary("add").infer(F4, F24), ShapeError, "operands are tile<4xf32>, tile<2x4xf32>"),
    (lambda: Binary("add").infer(F4, I4), ShapeError, "expected equal types"),
    (lambda: Binary("add").infer(B4, B4), DTypeError, "expected numbers"),
    (lambda: Binary("shl").infer(F4, F4), DTypeError, "expected integers"),
    (lambda: Compare("lt").infer(B4, B4), DTypeError, "expected numbers"),
    (lambda: Compare("near"), OptionError, "unknown predicate"),  # type: ignore[arg-type]
    (lambda: Select().infer(BOOL, F4, F4), DTypeError, "condition is bool for branches"),
    (lambda: Select().infer(BOOL, P, P), DTypeError, "condition is bool for branches ptr<f32>"),
    (lambda: Fma().infer(I4, I4, I4), DTypeError, "expected floats"),
    (lambda: Constant(1, dtype("f32")), DTypeError, "1 is not a value of f32"),
    (lambda: Constant(0.1, dtype("f32")), DTypeError, "0.1 is not a value of f32"),
    (lambda: Constant(True, dtype("i8")), DTypeError, "True is not a value of i8"),
    (lambda: Constant(128, dtype("i8")), DTypeError, "128 is not a value of i8"),
    (lambda: Constant(1, dtype("bool")), DTypeError, "1 is not a value of bool"),
    (lambda: Arange(4, dtype("i4")).infer(), DTypeError, "expected an integer or float"),
    (lambda: Arange(300, dtype("u8")).infer(), DTypeError, "299 does not fit u8"),
    (lambda: Cast(dtype("f32")).infer(P), DTypeError, "operand is ptr<f32>, expected numbers"),
    (lambda: Bitcast(dtype("i64")).infer(F4), DTypeError, "expected equal widths"),
    (lambda: Bitcast(dtype("u4")).infer(tile_type("i4", 4)), DTypeError, "at least 8 bits"),
    (lambda: Broadcast((5,)).infer(F4), ShapeError, "does not broadcast to shape (5,)"),
    (lambda: Broadcast((1,)).infer(F4), ShapeError, "does not broadcast"),
    (lambda: Reshape((5,)).infer(F4), ShapeError, "to shape (5,), expected 4 elements"),
    (lambda: Transpose((0, 0)).infer(F24), ShapeError, "expected each axis once"),
    (lambda: ExtractSlice((2,), (3,)).infer(F4), ShapeError, "does not lie inside tile<4xf32>"),
    (lambda: ExtractSlice((0,), (3,)).infer(F24), ShapeError, "does not lie inside"),
    (lambda: Concat(0).infer(), ShapeError, "got no operands"),
    (lambda: Concat(1).infer(F24, F4), ShapeError, "expected equal types except along axis 1"),
    (lambda: Concat(2).infer(F24), ShapeError, "axis 2 of tile<2x4xf32>, expected 0 to 1"),
    (lambda: Reduce("sum", 1).infer(F4), ShapeError, "axis 1 of tile<4xf32>, expected 0 to 0"),
    (lambda: Reduce("and", 0).infer(F4), DTypeError, "expected integers or bool"),
    (lambda: Reduce("sum", 0).infer(B4), DTypeError, "expected numbers"),
    (lambda: Reduce("mean", 0), OptionError, "unknown kind 'mean'"),  # type: ignore[arg-type]
    (lambda: Dot4().infer(F24, F24, F4), DTypeError, "expected elements i32, i8 or u8, i8"),
    (
        lambda: Dot4().infer(tile_type("i32", 2, 3), tile_type("i8", 2, 4), tile_type("i8", 8)),
        ShapeError,
        "expected [M, N], [M, 4], [4 * N]",
    ),
    (lambda: DotPair().infer(F24, F24, F4), DTypeError, "expected elements f32, bf16, bf16"),
    (lambda: Load((4,), (1, 1)).infer(P, I64), ShapeError, "expected one per axis"),
    (lambda: Load((4,), (None,)).infer(P, I64), ShapeError, "got 2 operands, expected 3 to 5"),
    (lambda: Load((4,), (1,)).infer(P, F), DTypeError, "index is f32, expected i64"),
    (lambda: Load((4,), (None,)).infer(P, I64, I4), DTypeError, "stride is tile<4xi64>"),
    (
        lambda: Load((4,), (1,)).infer(P, I64, BOOL),
        DTypeError,
        "mask is bool, expected",
    ),
    (
        lambda: Load((4,), (1,)).infer(P, I64, B4, F),
        DTypeError,
        "other is f32, expected",
    ),
    (lambda: Load((4,), (1,)).infer(F, I64), DTypeError, "f32 is not an address"),
    (lambda: Load((4,), (0,), ((1, 2),)).infer(P, I64), ShapeError, "axis 0 has 2 row_offsets"),
    (lambda: Load((2,), (1,), ((1, 2),)).infer(P, I64), ShapeError, "stride 1, expected 2 and 0"),
    (lambda: Load((2,), (1,), ()).infer(P, I64), ShapeError, "row_offsets for 0 axes"),
    (lambda: Load((), (), align=12).infer(P, I64), OptionError, "align is 12, expected a power"),
    (
        lambda: Load((), (), cache="hot").infer(P, I64),  # type: ignore[arg-type]
        OptionError,
        "cache is 'hot', expected default or stream",
    ),
    (lambda: Store((4,), (1,)).infer(P, I64, I4), DTypeError, "value is tile<4xi64>, expected"),
    (lambda: Store((4,), (1,)).infer(P, I64, F4, I4), DTypeError, "mask is tile<4xi64>"),
    (lambda: Gather().infer(P, F4), DTypeError, "offsets are tile<4xf32>, expected i64"),
    (lambda: Gather().infer(P, I4, B4, F), DTypeError, "other is f32"),
    (lambda: Scatter().infer(P, I4, F), DTypeError, "value is f32, expected tile<4xf32>"),
    (
        lambda: AtomicRmw("and").infer(P, I4, F4),
        DTypeError,
        "and of tile<4xf32>, expected",
    ),
    (lambda: AtomicRmw("add").infer(P, I4, F), DTypeError, "value is f32"),
    (lambda: AtomicRmw("cas"), OptionError, "unknown kind 'cas'"),  # type: ignore[arg-type]
    (lambda: Prefetch(4).infer(P, I64), OptionError, "locality is 4, expected 0 to 3"),
    (lambda: Prefetch().infer(F, I64), DTypeError, "f32 is not an address"),
    (lambda: Scratch(dtype("f32"), 0).infer(), OptionError, "count is 0"),
    (lambda: Scratch(dtype("f32"), 1, 3).infer(), OptionError, "align is 3"),
    (lambda: For().infer(I64, I64), ShapeError, "expected lower, upper, step"),
    (lambda: For().infer(I64, F, I64), DTypeError, "upper is f32, expected i64"),
    (lambda: For(0).infer(I64, I64, I64), OptionError, "unroll is 0"),
    (lambda: For().infer(I64, I64, I64, P), DTypeError, "ptr<f32> as a carried value"),
    (lambda: While().infer(P), DTypeError, "ptr<f32> as a carried value"),
    (lambda: If().infer(I64), DTypeError, "condition is i64, expected bool"),
    (lambda: If((P,)).infer(BOOL), DTypeError, "ptr<f32> as a carried value"),
    (lambda: Call("g", (P,)).infer(), DTypeError, "ptr<f32> as a carried value"),
    (lambda: Assert("m").infer(B4), DTypeError, "condition is tile<4xbool>, expected bool"),
]


@pytest.mark.parametrize(("make", "error", "message"), REFUSED, ids=[row[2] for row in REFUSED])
def test_infer_refuses(make: Callable[[], object], error: type[LubanError], message: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert message in str(caught.value)


def test_constants_compare_by_what_they_print() -> None:
    f32 = dtype("f32")
    assert Constant(0.0, f32) != Constant(-0.0, f32)
    assert Constant(float("nan"), f32) == Constant(float("nan"), f32)
    assert len({Constant(0.0, f32), Constant(-0.0, f32), Constant(0.0, f32)}) == 2
    assert Constant(1, I64.dtype) != Constant(True, dtype("bool"))


def test_kinds_and_tables_agree() -> None:
    assert get_args(UnaryKind) == tuple(UNARY)
    assert get_args(BinaryKind) == tuple(BINARY)
    domains = {domain for table in (UNARY, BINARY) for domain, _ in table.values()}
    assert domains <= {"float", "integer", "number", "bits", "any"}


def test_mnemonics_are_unique_and_cover_every_op() -> None:
    assert {op for op, _ in BY_MNEMONIC.values()} == set(OPS)
    count = len(UNARY) + len(BINARY) + 6 + len(OPS) - 3
    assert len(BY_MNEMONIC) == count
    for mnemonic, (op, said) in BY_MNEMONIC.items():
        if said:
            assert op(**said).mnemonic == mnemonic


def test_the_table_holds_every_op_of_the_modules() -> None:
    declared = {
        item
        for module in (block_ops, ops, memory_ops)
        for item in vars(module).values()
        if isinstance(item, type) and issubclass(item, TileOp) and "name" in vars(item)
    }
    assert declared == set(OPS)
    assert all(dataclasses.is_dataclass(op) for op in OPS)


@pytest.mark.parametrize(
    ("name", "domains"),
    [
        ("f32", {"float", "number", "any"}),
        ("bf16", {"float", "number", "any"}),
        ("u8", {"integer", "number", "bits", "any"}),
        ("bool", {"bits", "any"}),
        ("f8e5m2", set()),
        ("i4", set()),
    ],
)
def test_domains(name: str, domains: set[str]) -> None:
    every = ("float", "integer", "number", "bits", "any")
    assert {domain for domain in every if accepts(domain, dtype(name))} == domains
    assert computes(dtype(name)) == ("number" in domains)
