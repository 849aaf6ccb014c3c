"""3 x 3 convolutions by Winograd's algorithm, where that saves time.

Runs on what the layout pass made: a `panel_convolution` of constant filters becomes a
`winograd_convolution` of filters transformed once, at load. Padding with zeros becomes part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.dtypes import DTYPES
from luban.core.registers import Registers
from luban.graph import build
from luban.graph.ops.data import Constant
from luban.graph.ops.packed import PackPanels, PanelConvolution
from luban.graph.ops.structure import Pad
from luban.graph.ops.winograd import TAPS, WinogradConvolution, transforms
from luban.ir.node import Graph, Node, map_graph, node, rebuilt
from luban.passes.decision import Decision
from luban.passes.quads import whole_groups

__all__ = ["use_winograd"]

_SIZE = 64  # of an image whose size only the run knows
# Cycles of one vector of channels or columns through the transforms of one tile, in units of a
# vector multiply-add; measured on Zen 4.
_TRANSFORM = {2: 45.0, 4: 160.0}
_LOW_TILE = 4.0  # rows of sums that take as long as reading a row of the panel
_WEIGHT_BYTES = 8.0  # of weights that arrive from memory in the time of a vector multiply-add
_HALF_BYTES = 1 << 24  # of filters: beyond, half of their transform is left to the kernel


@dataclass(frozen=True, slots=True)
class _Form:
    """Tiles of `tile` x `tile` places, 1 for the plain form; products in groups of `group`."""

    tile: int
    group: int = 1


_FORMS = (_Form(1), _Form(2), _Form(4))
# Factors in bf16 have 1.5 times the error of the plain form in tiles of 2, 4 times in tiles of 4.
_PAIR_FORMS = (_Form(1, 2), _Form(2, 2), _Form(4))
_PAYS = 0.9  # less gain than this is not worth more memory for weights


def use_winograd(graph: Graph, registers: Registers) -> tuple[Graph, list[Decision]]:
    """The graph with 3 x 3 convolutions in tiles where it pays, and the decisions taken."""
    decisions: list[Decision] = []
    constant: set[Node] = set()
    for n in graph.nodes():
        if isinstance(n.op, Constant) or (n.operands and all(o in constant for o in n.operands)):
            constant.add(n)

    def change(old: Node, operands: tuple[Node, ...]) -> Node:
        if not isinstance(old.op, PanelConvolution):
            return rebuilt(old, operands)
        form, why = _choice(old, old.op, constant, registers)
        decisions.append(Decision(old, form is not None, why))
        if form is None:
            return rebuilt(old, operands)
        return _in_tiles(old, old.op, operands, form, registers)

    return map_graph(graph, change), decisions


def _choice(
    old: Node, op: PanelConvolution, constant: set[Node], registers: Registers
) -> tuple[_Form | None, str]:
    """(how, None for the plain form, and why)"""
    filters = old.operands[1]
    if op.window != (TAPS, TAPS) or {*op.strides, *op.dilation} != {1}:
        return None, "not a 3 x 3 convolution without strides and dilation"
    dtypes = {op.dtype, *(o.tensor.dtype for o in old.operands)}
    if dtypes != {DTYPES["f32"]}:
        return None, "tiles of a convolution have a kernel for f32 only"
    channels = old.operands[0].tensor.shape[-1]
    if filters not in constant or not isinstance(filters.op, PackPanels):
        return None, "filters that a call computes would be transformed in every call"
    if not isinstance(channels, int) or not isinstance(op.columns, int):
        return None, "the channels are known at run time only"
    batch = _expected(old.tensor.shape[0], 1)
    places = [_expected(size, _SIZE) for size in old.tensor.shape[1:3]]
    lanes = registers.lanes(4)
    plain, *forms = _PAIR_FORMS if registers.pair_products else _FORMS
    costs = {
        form: _cost(form, batch, places, channels, op.columns, lanes) for form in (plain, *forms)
    }
    best = min(costs, key=lambda form: costs[form] / (1 if form is plain else _PAYS))
    if best is plain:
        return None, "transforms and larger weights cost more than fewer multiplications save"
    saved = 1 - costs[best] / costs[plain]
    half = _filter_axes(best.tile, channels, op.columns) == 1
    note = "; filters transformed half way, for half the memory" if half else ""
    what = f"{best.tile} x {best.tile}" + (", factors in bf16" if best.group > 1 else "")
    return best, f"Winograd tiles of {what}: about {saved:.0%} less time{note}"


def _filter_axes(tile: int, channels: DimLike, columns: DimLike) -> int:
    """Along how many axes filters are transformed at load: the kernel does the rest."""
    least = dims.bounds((tile + TAPS - 1) ** 2 * channels * columns * 4)[0]
    return 1 if least > _HALF_BYTES and tile > 2 else 2  # of tiles of 2 little would be saved


def _expected(size: DimLike, usual: int) -> int:
    """A size for the estimate: as told, or the usual one within what is known."""
    low, high = dims.bounds(size)
    return size if isinstance(size, int) else min(max(usual, low), high)


def _cost(
    form: _Form, batch: int, places: Sequence[int], channels: int, columns: int, lanes: int
) -> float:
    """Vector multiply-adds, or what takes as long."""
    tile, steps = form.tile, -(-channels // form.group)
    vectors = -(-columns // lanes)
    count = batch * prod(-(-size // tile) for size in places)
    matrices = TAPS**2 if tile == 1 else (tile + TAPS - 1) ** 2
    rows = min(count, places[-1]) if tile == 1 else count
    products = matrices * max(count, _LOW_TILE * -(-count // max(rows, 1))) * steps * vectors
    weights = matrices * steps * vectors * lanes * 4 / _WEIGHT_BYTES
    moved = 0.0 if tile == 1 else count * _TRANSFORM[tile] * (-(-channels // lanes) + vectors)
    return products + weights + moved


def _in_tiles(
    old: Node, op: PanelConvolution, operands: Sequence[Node], form: _Form, registers: Registers
) -> Node:
    tile, (image, panels) = form.tile, operands
    matrix = panels.operands[0]
    low: tuple[DimLike, DimLike] = (0, 0)
    high: tuple[DimLike, DimLike] = (0, 0)
    if isinstance(image.op, Pad) and _is_zero_border(image):
        low, high = image.op.low[1:3], image.op.high[1:3]  # type: ignore[assignment]
        image = image.operands[0]
    channels = image.tensor.shape[-1]
    size = tile + TAPS - 1
    taps = build.reshape(matrix, (TAPS**2, channels * op.columns))
    filters = np.array(transforms(tile).filters)
    axes = _filter_axes(tile, channels, op.columns)
    both = build.constant(np.kron(filters, filters if axes == 2 else np.eye(TAPS)), "f32")
    matrices = size * (size if axes == 2 else TAPS)
    transformed = build.reshape(build.matmul(both, taps), (matrices, channels, op.columns))
    batch, *places, _ = old.tensor.shape
    count = batch * prod((dims.ceil_div(p, tile) for p in places), start=1)
    rows = dims.common_divisor(count)  # one image of a run-time batch
    if form.group > 1:
        transformed = build.cast(whole_groups(transformed, 1, form.group), "bf16")
    size_bytes = transformed.tensor.dtype.size_bytes
    width = registers.panel_width(
        op.columns, size_bytes, rows if rows > 1 else count, channels, channels
    )
    return node(
        WinogradConvolution(
            tile, low, high, op.columns, op.dtype, group=form.group, filter_axes=axes
        ),
        image,
        node(PackPanels(width, form.group), transformed),
        loc=old.loc,
    )


def _is_zero_border(padded: Node) -> bool:
    """True for zeros before and behind the two axes of the image, and nothing else."""
    op, filler = padded.op, padded.operands[1]
    assert isinstance(op, Pad)
    zero = isinstance(filler.op, Constant) and not filler.op.value.array.any()
    ends = zip(op.low, op.high, strict=True)
    plain = all(
        (a == b == 0) if axis in (0, 3) else min(dims.bounds(a)[0], dims.bounds(b)[0]) >= 0
        for axis, (a, b) in enumerate(ends)
    )
    return zero and plain and not any(op.interior)
