"""How much a kernel has to do: a size, so that it survives in a cached program."""

from __future__ import annotations

from luban.core.dims import DimLike, num_elements
from luban.graph.ops.contract import Convolution, DotGeneral
from luban.graph.ops.fusion import Fusion
from luban.graph.ops.packed import PanelConvolution, PanelDot
from luban.ir.node import Node

__all__ = ["work_of"]


def work_of(n: Node) -> DimLike:
    """The multiply-adds of a fusion's products, or else the number of its elements."""
    assert isinstance(n.op, Fusion)
    products = [(m, _terms(m)) for m in n.op.body.nodes() if _terms(m) != 0]
    total: DimLike = 0
    for m, terms in products:
        total = total + m.tensor.num_elements * terms
    return total if products else n.op.body.results[0].tensor.num_elements


def _terms(n: Node) -> DimLike:
    """The terms of one element of a product; 0 for other operations."""
    match n.op:
        case DotGeneral(lhs_contract=axes):
            shape = n.operands[0].tensor.shape
            return num_elements([shape[axis] for axis in axes])
        case PanelDot() | PanelConvolution():
            return n.operands[1].tensor.shape[-2]
        case Convolution(layout="channels_first"):
            return num_elements(n.operands[1].tensor.shape[1:])
        case Convolution():
            return num_elements(n.operands[1].tensor.shape[:-1])
    return 0
