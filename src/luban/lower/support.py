"""Which primitives have a kernel form: the fusion pass asks before it gives them a place."""

from __future__ import annotations

from luban.core.types import TensorType
from luban.graph.ops.data import Iota
from luban.graph.ops.elementwise import Bitcast, Cast, ElementwiseOp, Select
from luban.graph.ops.reduce import ArgReduce, Cumulative, Reduce, ReduceWindow, Sort, TopK
from luban.graph.ops.structure import Scatter
from luban.ir.node import Node
from luban.lower import maths, ordering, scatter
from luban.lower.trace import Declined
from luban.tile.op import computes

__all__ = ["no_kernel"]


def no_kernel(n: Node) -> str | None:
    """Why this node has no kernel form, or None if it has one."""
    if isinstance(n.op, (Sort, TopK)):
        return ordering.unordered(n)
    for value in (n, *n.operands):
        if not isinstance(value.type, TensorType):
            return f"{n.op.name} of {value.type} is a host operation"
        if value.type.dtype.kind in ("complex", "string"):
            return f"values of {value.type.dtype} are for host operations"
    match n.op:
        case ElementwiseOp() | Select() | Cast():
            try:
                maths.check(n.op.name, tuple(o.tensor.dtype for o in n.operands))
            except Declined as reason:
                return str(reason)
        case Bitcast(dtype=dtype) if dtype.bits < 8 or n.operands[0].tensor.dtype.kind == "bool":
            return f"bitcast to {dtype} has no kernel"
        case Reduce() | ReduceWindow() | ArgReduce() | Cumulative() if not _accumulates(n):
            return f"{n.op.name} of {n.operands[0].tensor.dtype} has no kernel"
        case Scatter():
            return scatter.supported(n)
        case Iota(dtype=dtype) if not computes(dtype):
            return f"iota of {dtype} has no kernel"
    return None


def _accumulates(n: Node) -> bool:
    dtype = n.operands[0].tensor.dtype
    return dtype.kind == "bool" or computes(dtype)
