"""Products with codes: codes into panels, rows into integers.

Rows that the model itself quantised are one digit. Others are cut into four digits of 8 bits: each
number is rounded once to a multiple of a step, which is the largest magnitude of its block over
127 * 2**24, so nothing but numbers 2**7 times smaller than their block's largest loses bits that
f32 has (docs/adr/0031).
"""

from __future__ import annotations

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.registers import Registers
from luban.graph import build
from luban.graph.ops.coded import CodedDot, PanelCodedDot
from luban.graph.ops.packed import PackPanels
from luban.graph.ops.structure import Reshape
from luban.ir.node import Node, node

__all__ = ["VECTORS", "coded_in_panels"]

VECTORS = 2  # of a panel's row: enough sums in few rows, and as many columns as most have
_DIGITS = 4
_LARGEST = 127.0 * 2**24  # the top digit stays below 128
_LEAST = 2.0**-96  # of the magnitudes that a step is made for: its inverse is finite


def coded_in_panels(old: Node, registers: Registers) -> Node:
    """A `coded_dot` as digits, panels and their product."""
    op = old.op
    assert isinstance(op, CodedDot)
    x, codes, scales, *rest = old.operands
    columns, count = codes.tensor.shape[0], codes.tensor.shape[1]
    zeros = rest[: op.has_zeros]
    width = VECTORS * registers.lanes(4)
    if x.tensor.dtype.is_float:
        digits, steps = _digits(_blocks(build.cast(x, "f32"), op.block, count))
        lead = digits.tensor.shape[:-2]
    else:
        digits, steps = _blocks(x, op.block, count), rest[-1]
        lead = (*x.tensor.shape[:-1], 1)
    totals = build.reduce("sum", build.cast(digits, "i32"), [digits.tensor.rank - 1])
    totals = build.reshape(totals, (*lead, count))
    rows = build.reshape(digits, (*lead, count * op.block))
    made = PanelCodedDot(op.bits, op.block, columns, op.dtype, op.has_zeros)
    panels = node(PackPanels(width, 4), _by_depth(codes, op.bits))
    each = [node(PackPanels(width), build.transpose(s, (1, 0))) for s in (scales, *zeros)]
    return node(made, rows, steps, totals, panels, *each, loc=old.loc)


def _blocks(x: Node, block: int, count: DimLike) -> Node:
    """[*M, K] as [*M, blocks, block], with zeros behind K."""
    *rows, depth = x.tensor.shape
    whole = (*rows, count, block)
    if isinstance(x.op, Reshape) and x.operands[0].tensor.shape == whole:
        return x.operands[0]
    if depth != count * block:
        none: tuple[DimLike, ...] = (0,) * (x.tensor.rank - 1)
        zero = build.constant(0, x.tensor.dtype)
        x = build.pad(x, (*none, 0), (*none, count * block - depth), zero)
    return build.reshape(x, whole)


def _digits(x: Node) -> tuple[Node, Node]:
    """i8 [*M, digits, blocks, block] and f32 steps [*M, blocks] of numbers [*M, blocks, block].

    A block with an infinity has an infinite step: its infinities become 1 or -1, the rest 0. With a
    NaN, the step is NaN.
    """
    rank = x.tensor.rank
    largest = build.reduce("maximum", build.absolute(x), [rank - 1])
    steps = build.multiply(build.maximum(largest, _LEAST), 1 / _LARGEST)
    inverse = build.divide(_LARGEST, build.maximum(largest, _LEAST))
    spread = build.broadcast_to(build.expand_dims(inverse, [rank - 1]), x.tensor.shape)
    finite = build.round_even(build.multiply(x, spread))
    whole = build.cast(build.select(build.is_inf(x), build.sign(x), finite), "i32")
    # Adding and flipping the highest bits of the lower digits makes each of them -128 .. 127.
    bits = 0x00808080
    whole = build.bitwise_xor(build.add(whole, bits), bits)
    *rows, count, block = x.tensor.shape
    shape = (*rows, _DIGITS, count, block)
    shift = build.reshape(build.constant([8 * d for d in range(_DIGITS)], "i32"), (_DIGITS, 1, 1))
    lifted = build.broadcast_to(build.expand_dims(whole, [rank - 2]), shape)
    return build.cast(build.shift_right(lifted, build.broadcast_to(shift, shape)), "i8"), steps


def _by_depth(codes: Node, bits: int) -> Node:
    """u8 [N, blocks, bytes] as the matrix [bytes of a column, N] that panels are packed from.

    Eight codes of 4 bits lie in four bytes: from neighbours in a byte to those four apart.
    """
    columns, count, size = codes.tensor.shape
    if bits == 8:
        return build.transpose(build.reshape(codes, (columns, count * size)), (1, 0))
    groups = dims.floor_div(count * size, 4)
    pairs = build.reshape(codes, (columns, groups, 2, 2, 1))
    shape = (columns, groups, 1, 2, 2)
    shift = build.multiply(build.iota(shape, 4, "u8"), 4)

    def half(number: int) -> Node:
        """Codes 4 * number .. 4 * number + 3 of each eight, a byte each."""
        both = build.broadcast_to(build.slice_axis(pairs, 2, number, 1), shape)
        return build.bitwise_and(build.shift_right(both, shift), 15)

    mixed = build.bitwise_or(half(0), build.shift_left(half(1), 4))
    return build.transpose(build.reshape(mixed, (columns, groups * 4)), (1, 0))
