"""Convolutions, channels last, as products with panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from luban.core import dims
from luban.core.dims import DimLike, Shape
from luban.core.dtypes import DType
from luban.core.loc import Loc
from luban.core.registers import Registers
from luban.graph import build
from luban.graph.ops.contract import Convolution
from luban.graph.ops.packed import PackPanels, PanelConvolution, PanelDot, product_in_words
from luban.graph.ops.reduce import ReduceWindow
from luban.graph.ops.structure import Slice
from luban.ir.node import Node, node
from luban.passes.quads import GROUP, Factors, byte_factors, takes_quads

__all__ = ["convolution_by_phases", "convolution_in_panels", "has_panels"]


def has_panels(operand: DType, result: DType) -> bool:
    """True if products of these dtypes have a kernel over panels."""
    if result.is_float:
        return operand.bits >= 16
    return result.is_integer and 32 >= result.bits >= operand.bits >= 8


def convolution_in_panels(
    registers: Registers, op: Convolution, x: Node, weights: Node, loc: Loc | None = None
) -> Node:
    """A convolution without groups or lhs dilation: x [N, *S, C], weights [*K, C, O]."""
    dtype = x.tensor.dtype
    bytes_only = takes_quads(dtype, weights.tensor.dtype, op.dtype)
    if any(p != 0 for p in (*op.low, *op.high)):
        zero = build.constant(0, dtype)
        x = build.pad(x, (0, *op.low, 0), (0, *op.high, 0), zero)
    factors = byte_factors(x, weights) if bytes_only else None
    if factors is not None:
        x, weights = factors.rows, factors.matrix
    *window, channels, columns = weights.tensor.shape
    depth = dims.num_elements((*window, channels))
    whole = all(k == 1 for k in window) and all(s == 1 for s in op.strides)
    sizes = tuple(k for k in window if isinstance(k, int))
    group = 1 if factors is None else GROUP
    matrix = build.reshape(weights, (depth, columns))

    made: PanelDot | PanelConvolution
    if whole:
        made = PanelDot(0, columns, op.dtype, group)
        rows = dims.num_elements(x.tensor.shape[:-1])
    else:
        made = PanelConvolution(sizes, op.strides, op.rhs_dilation, columns, op.dtype, group)
        reach = (sizes[-1] - 1) * op.rhs_dilation[-1] + 1
        rows = (x.tensor.shape[-2] - reach) // op.strides[-1] + 1
    step = channels * op.strides[-1]
    words = product_in_words(made, x.tensor)
    width = registers.panel_width(columns, dtype.size_bytes, rows, depth, step, words)
    sums = node(made, x, node(PackPanels(width, group), matrix, loc=loc), loc=loc)
    return sums if factors is None else _over_windows(op, sizes, factors).corrected(sums)


def _over_windows(op: Convolution, window: tuple[int, ...], factors: Factors) -> Factors:
    """Factors whose shares are those of whole windows, not of each of their places."""
    row_share, column_share = factors.row_share, factors.column_share
    if row_share is not None:
        none = (0,) * row_share.tensor.rank
        slide = ReduceWindow(
            "sum", (1, *window, 1), (1, *op.strides, 1), none, none, (1, *op.rhs_dilation, 1)
        )
        row_share = node(slide, row_share)
    if column_share is not None:
        columns = column_share.tensor.shape[-1]
        column_share = build.reduce("sum", column_share, range(column_share.tensor.rank - 1))
        column_share = build.reshape(column_share, (*(1,) * (len(window) + 1), columns))
    return replace(factors, row_share=row_share, column_share=column_share)


def convolution_by_phases(
    registers: Registers, op: Convolution, x: Node, weights: Node, space: Sequence[DimLike]
) -> Node | None:
    """A transposed convolution (lhs dilation) as one plain one for each phase of the output.

    Output places that are equal modulo the dilation use the same taps of the filter. `space` are
    the output sizes. None where that has no plain form: strides, filter dilation, fewer taps than
    phases, padding known at run time only.
    """
    window = [k for k in weights.tensor.shape[:-2] if isinstance(k, int)]
    spread = op.lhs_dilation
    low = [size for size in op.low if isinstance(size, int)]
    plain = all(s == 1 for s in (*op.strides, *op.rhs_dilation)) and len(low) == len(op.low)
    if not plain or any(k < s for k, s in zip(window, spread, strict=True)):
        return None
    counts = [dims.ceil_div(size, s) for size, s in zip(space, spread, strict=True)]
    phases = product(*(range(s) for s in spread))
    parts = [_phase(op, x, weights, phase, counts) for phase in phases]
    last = x.tensor.rank - 1
    if len({own for own, _ in parts}) == 1 and len({w.tensor.shape for _, w in parts}) == 1:
        # All phases read the same places: one product with the filters side by side.
        joined = build.concatenate([w for _, w in parts], last)
        result = convolution_in_panels(registers, parts[0][0], x, joined)
    else:
        made = [convolution_in_panels(registers, own, x, w) for own, w in parts]
        result = build.concatenate(made, last)
    return _interleaved(result, spread, (x.tensor.shape[0], *space, weights.tensor.shape[-1]))


def _phase(
    op: Convolution, x: Node, weights: Node, phase: Sequence[int], counts: Sequence[DimLike]
) -> tuple[Convolution, Node]:
    """The convolution and the filter of the output places `phase`, `phase` + dilation, ..."""
    low: list[DimLike] = []
    high: list[DimLike] = []
    starts: list[int] = []
    sizes: list[int] = []
    for axis, (begin, step) in enumerate(zip(phase, op.lhs_dilation, strict=True)):
        window, pad = weights.tensor.shape[axis], op.low[axis]
        assert isinstance(window, int)
        assert isinstance(pad, int)
        first = (pad - begin) % step
        taps = -(-(window - first) // step)
        low.append((pad - begin - first) // step)
        high.append(counts[axis] - 1 + taps - x.tensor.shape[axis + 1] - low[axis])
        starts.append(first)
        sizes.append(taps)
    own = replace(op, low=tuple(low), high=tuple(high), lhs_dilation=(1,) * len(low))
    shape = (*sizes, *weights.tensor.shape[-2:])
    return own, node(Slice((*starts, 0, 0), shape, (*op.lhs_dilation, 1, 1)), weights)


def _interleaved(phases: Node, spread: Sequence[int], shape: Shape) -> Node:
    """[N, *counts, prod(spread) * O], phase by phase, as the image [N, *S, O] of this shape."""
    batch, *counts, _ = phases.tensor.shape
    rank, columns = len(spread), shape[-1]
    split = build.reshape(phases, (batch, *counts, *spread, columns))
    order = [axis for i in range(rank) for axis in (1 + i, 1 + rank + i)]
    turned = build.transpose(split, (0, *order, 2 * rank + 1))
    sizes = [count * s for count, s in zip(counts, spread, strict=True)]
    full = build.reshape(turned, (batch, *sizes, columns))
    if full.tensor.shape == tuple(shape):
        return full
    return node(Slice((0,) * len(shape), tuple(shape), (1,) * len(shape)), full)
