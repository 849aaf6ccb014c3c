"""How much a kernel has to do: a size, so that it survives in a cached program."""

from __future__ import annotations

from luban.core.dims import DimLike
from luban.graph.cost import product_terms
from luban.graph.ops.fusion import Fusion
from luban.ir.node import Node

__all__ = ["work_of"]


def work_of(n: Node) -> DimLike:
    """The multiply-adds of a fusion's products, or else the number of its elements."""
    assert isinstance(n.op, Fusion)
    products = [(m, terms) for m in n.op.body.nodes() if (terms := product_terms(m)) != 0]
    total: DimLike = 0
    for m, terms in products:
        total = total + m.tensor.num_elements * terms
    return total if products else n.op.body.results[0].tensor.num_elements
