"""The tile IR: ordered programs on register tiles, under every kernel of the product.

A program runs once for each element of a one-dimensional grid. Its values are scalars and small
tiles with static shapes; memory is reached through pointer parameters and per-thread scratch;
control flow is structured.
"""

from luban.tile.block_ops import Dot, Fold, Print, Scan, Take
from luban.tile.builder import Branch, FunctionBuilder, Loop, WhileLoop
from luban.tile.evaluate import run
from luban.tile.expr import Expr, Operand
from luban.tile.function import Access, Function, Module, Operation, Param, Region, Value
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
from luban.tile.op import TileOp
from luban.tile.ops import (
    BINARY,
    UNARY,
    Arange,
    Binary,
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
)
from luban.tile.parse import parse
from luban.tile.text import to_text
from luban.tile.types import BOOL, I64, Ptr, TileType, pointer_type, tile_type
from luban.tile.verify import verify

__all__ = [
    "Take",
    "Scan",
    "Print",
    "Fold",
    "Dot",
    "AtomicCas",
    "BINARY",
    "BOOL",
    "I64",
    "UNARY",
    "Access",
    "Arange",
    "Assert",
    "AtomicRmw",
    "Binary",
    "Bitcast",
    "Branch",
    "Broadcast",
    "Call",
    "Cast",
    "Compare",
    "Concat",
    "Constant",
    "Dot4",
    "DotPair",
    "Expr",
    "ExtractSlice",
    "Fma",
    "For",
    "Function",
    "FunctionBuilder",
    "Gather",
    "If",
    "Load",
    "Loop",
    "Module",
    "Operand",
    "Operation",
    "Param",
    "Prefetch",
    "ProgramId",
    "Ptr",
    "Reduce",
    "Region",
    "Reshape",
    "Scatter",
    "Scratch",
    "Select",
    "Store",
    "ThreadId",
    "TileOp",
    "TileType",
    "Transpose",
    "Unary",
    "Value",
    "While",
    "WhileLoop",
    "parse",
    "pointer_type",
    "run",
    "tile_type",
    "to_text",
    "verify",
]
