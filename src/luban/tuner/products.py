"""The products of a compiled model, and the widths of panels that each could have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from luban.core.dims import DimLike
from luban.core.registers import Registers
from luban.engine.compile import Compiled
from luban.engine.steps import LinkedKernel
from luban.graph.ops.fusion import Fusion
from luban.graph.ops.packed import (
    PackPanels,
    PanelConvolution,
    PanelDot,
    panel_width,
    product_in_words,
)
from luban.ir.node import Node

__all__ = ["Product", "products_of"]

_MOST_PADDING = 1.5  # more columns computed than asked for, and it cannot be the fastest


@dataclass(slots=True)
class Product:
    """One product in words, as often as it occurs.

    vectors      vector registers of a panel's row, as compiled
    candidates   other widths worth a try
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
            product.candidates = _candidates(n.op.columns, product.vectors, lanes, registers)
            if kernel not in product.kernels:
                product.kernels.append(kernel)
    return found


def _panel_products(fusion: Node) -> Iterator[Node]:
    assert isinstance(fusion.op, Fusion)
    nodes = fusion.op.body.nodes()
    if not any(isinstance(n.op, PackPanels) for n in nodes):
        yield from (n for n in nodes if isinstance(n.op, (PanelDot, PanelConvolution)))


def _candidates(
    columns: DimLike, current: int, lanes: int, registers: Registers
) -> tuple[int, ...]:
    """Widths other than `current` that do not compute far more columns than there are."""
    widths = sorted({vectors for _, vectors in registers.tiles} - {current})
    if not isinstance(columns, int):
        return tuple(widths)
    least = -(-columns // lanes)
    return tuple(v for v in widths if -(-least // v) * v <= _MOST_PADDING * least)
