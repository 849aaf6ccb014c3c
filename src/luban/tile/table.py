"""The closed set of tile ops, by class and by mnemonic."""

from __future__ import annotations

from typing import get_args

from luban.tile import block_ops, memory_ops, ops
from luban.tile.op import TileOp
from luban.tile.ops import BINARY, UNARY, Binary, Compare, Predicate, Unary

__all__ = ["BY_MNEMONIC", "GROUPS", "OPS"]

GROUPS: dict[str, tuple[type[TileOp], ...]] = {
    "Index and constants": (ops.ProgramId, ops.ThreadId, ops.Constant, ops.Arange),
    "Elementwise": (ops.Unary, ops.Binary, ops.Compare, ops.Select, ops.Fma),
    "Casts": (ops.Cast, ops.Bitcast),
    "Shape": (ops.Broadcast, ops.Reshape, ops.Transpose, ops.ExtractSlice, ops.Concat),
    "Reductions and small matrix products": (ops.Reduce, ops.Dot4, ops.DotPair),
    "Memory": (
        memory_ops.Load,
        memory_ops.Store,
        memory_ops.Gather,
        memory_ops.Scatter,
        memory_ops.AtomicRmw,
        memory_ops.AtomicCas,
        memory_ops.Prefetch,
        memory_ops.Scratch,
    ),
    "Blocks of kernel authors": (
        block_ops.Fold,
        block_ops.Scan,
        block_ops.Dot,
        block_ops.Take,
        block_ops.Print,
    ),
    "Control": (
        memory_ops.For,
        memory_ops.While,
        memory_ops.If,
        memory_ops.Call,
        memory_ops.Assert,
    ),
}
OPS: tuple[type[TileOp], ...] = tuple(op for group in GROUPS.values() for op in group)


def _mnemonics() -> dict[str, tuple[type[TileOp], dict[str, str]]]:
    """For each mnemonic the op class and the attributes that the mnemonic itself says."""
    found: dict[str, tuple[type[TileOp], dict[str, str]]] = {}
    by_kind: dict[type[TileOp], tuple[str, ...]] = {
        Unary: tuple(UNARY),
        Binary: tuple(BINARY),
        Compare: get_args(Predicate),
    }
    for op in OPS:
        if op in by_kind:
            field = "predicate" if op is Compare else "kind"
            found |= {kind: (op, {field: kind}) for kind in by_kind[op]}
        else:
            found[op.name] = (op, {})
    return found


BY_MNEMONIC: dict[str, tuple[type[TileOp], dict[str, str]]] = _mnemonics()
