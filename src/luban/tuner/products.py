"""The products of a compiled model, and the widths of panels that each could have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from luban.core import dims
from luban.core.registers import Registers
from luban.engine.compile import Compiled
from luban.engine.steps import LinkedKernel
from luban.graph.ops.fusion import Fusion
from luban.graph.ops.packed import (
    PackPanels,
    PanelConvolution,
    PanelDot,
    panel_depth,
    panel_width,
    product_in_words,
)
from luban.ir.node import Node

__all__ = ["Product", "products_of"]

_MOST_PADDING = 1.5  # more columns computed than asked for, and it cannot be the fastest
_UNSURE = 1.6  # times the least cost: dearer ones cannot be the fastest
_MOST = 6  # candidates of a product


@dataclass(slots=True)
class Product:
    """One product in words, as often as it occurs.

    vectors      vector registers of a panel's row, as compiled
    candidates   other widths worth a try, the likeliest first
    kernels      the kernels that compute it, with all that is fused to them
    """

    words: str
    vectors: int
    candidates: tuple[int, ...]
    kernels: list[LinkedKernel] = field(default_factory=list)


def products_of(compiled: Compiled, registers: Registers) -> dict[str, Product]:
    """Every product that has a kernel over panels, by its words."""
    found: dict[str, Product] = {}
    for fusion, kernel in compiled.kernels.linked.items():
        for n in _panel_products(fusion):
            assert isinstance(n.op, (PanelDot, PanelConvolution))
            words = product_in_words(n.op, n.operands[0].tensor)
            lanes = registers.lanes(n.operands[1].tensor.dtype.size_bytes)
            made = Product(words, -(-panel_width(n) // lanes), ())
            product = found.setdefault(words, made)
            product.candidates = _candidates(n, product.vectors, registers)
            if kernel not in product.kernels:
                product.kernels.append(kernel)
    return found


def _panel_products(fusion: Node) -> Iterator[Node]:
    assert isinstance(fusion.op, Fusion)
    nodes = fusion.op.body.nodes()
    if not any(isinstance(n.op, PackPanels) for n in nodes):
        yield from (n for n in nodes if isinstance(n.op, (PanelDot, PanelConvolution)))


def _candidates(n: Node, current: int, registers: Registers) -> tuple[int, ...]:
    """Widths other than `current` that may be the fastest, the likeliest first.

    By what the rules of `Registers` make of the arithmetic: predicted times grow with it, so this
    is their order, too. What is far behind or mostly padding cannot win and is not timed.
    """
    assert isinstance(n.op, (PanelDot, PanelConvolution))
    costs = {vectors: _cost(n, vectors, registers) for _, vectors in registers.tiles}
    unsure = {v for v, cost in costs.items() if cost <= _UNSURE * min(costs.values())}
    if isinstance(n.op.columns, int):
        least = -(-n.op.columns // registers.lanes(n.operands[1].tensor.dtype.size_bytes))
        unsure = {v for v in unsure if -(-least // v) * v <= _MOST_PADDING * least}
    return tuple(sorted(unsure - {current}, key=lambda v: (costs[v], -v)))[:_MOST]


def _cost(n: Node, vectors: int, registers: Registers) -> float:
    """As the passes that choose widths ask for it."""
    left, size_bytes = n.operands[0].tensor, n.operands[1].tensor.dtype.size_bytes
    depth = panel_depth(n)
    if isinstance(n.op, PanelDot):
        rows = dims.num_elements(left.shape[n.op.batch : -1])
        return registers.width_cost(vectors, n.op.columns, size_bytes, rows, depth, depth)
    assert isinstance(n.op, PanelConvolution)
    step = left.shape[-1] * n.op.strides[-1]
    rows = n.tensor.shape[-2]
    return registers.width_cost(vectors, n.op.columns, size_bytes, rows, depth, step)
