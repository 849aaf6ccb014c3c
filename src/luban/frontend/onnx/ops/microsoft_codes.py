"""MatMulNBits of com.microsoft: products with weights that are codes of a few bits."""

from __future__ import annotations

from luban.core import dims
from luban.core.dtypes import DType
from luban.frontend.onnx.ops.microsoft import MICROSOFT
from luban.frontend.onnx.registry import NodeContext, op
from luban.graph import build
from luban.graph.ops.coded import CodedDot
from luban.ir.node import Node, node

__all__: list[str] = []

_BYTES = 4  # the accuracy level that lets rows be rounded to 8 bits
_LARGEST = 127


@op("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(
    ctx: NodeContext,
    a: Node,
    packed: Node,
    scales: Node,
    zeros: Node | None = None,
    groups: Node | None = None,
    bias: Node | None = None,
) -> Node:
    """A times the transpose of weights [N, K] of 2, 4 or 8 bits with a scale for each block.

    With accuracy_level 4, each block of A is rounded to 8 bits.
    """
    depth, rows = ctx.int("K"), ctx.int("N")
    bits, block = ctx.int("bits", 4), ctx.int("block_size")
    if bits not in (2, 4, 8):
        raise ctx.unsupported(f"bits={bits}", "2, 4 or 8 bits")
    count = -(-depth // block)
    element = a.tensor.dtype
    weights = [w for w in (packed, scales, zeros) if w is not None]
    stays = bits != 2 and block % 8 == 0 and groups is None
    if stays and all(ctx.constant_value(w) is not None for w in weights):
        codes = build.reshape(packed, (rows, count, block * bits // 8))
        points = _zero_points(zeros, bits, rows, count)
        rest = [points] if points is not None else []
        given = [codes, build.reshape(scales, (rows, count)), *rest]
        level = ctx.int("accuracy_level", 0)
        product = _coded(a, given, bits, block, element, rounds=level == _BYTES)
    else:
        whole = _weights(packed, scales, zeros, groups, bits, (rows, count, block), depth)
        product = build.dot_general(a, build.cast(whole, element), ([a.tensor.rank - 1], [1]))
    return product if bias is None else build.add(product, bias)


def _coded(
    a: Node, weights: list[Node], bits: int, block: int, element: DType, *, rounds: bool
) -> Node:
    """The product with codes as they are; `rounds` if A is to be rounded to 8 bits."""
    made = CodedDot(bits, block, element, len(weights) == 3)
    if not rounds:
        return node(made, a, *weights)
    rows, steps = _rounded(build.cast(a, "f32"), block, weights[0].tensor.shape[1])
    return node(made, rows, *weights, steps)


def _rounded(a: Node, block: int, count: dims.DimLike) -> tuple[Node, Node]:
    """A [*M, K] as i8 [*M, count * block] and the step of each block, f32 [*M, count]."""
    *rows, depth = a.tensor.shape
    none: tuple[dims.DimLike, ...] = (0,) * len(rows)
    whole = build.pad(a, (*none, 0), (*none, count * block - depth))
    whole = build.reshape(whole, (*rows, count, block))
    axis = whole.tensor.rank - 1
    largest = build.reduce("maximum", build.absolute(whole), [axis])
    inverse = build.select(build.greater(largest, 0.0), build.divide(_LARGEST, largest), 0.0)
    spread = build.broadcast_to(build.expand_dims(inverse, [axis]), whole.tensor.shape)
    codes = build.cast(build.round_even(build.multiply(whole, spread)), "i8")
    return (
        build.reshape(codes, (*rows, count * block)),
        build.multiply(largest, 1 / _LARGEST),
    )


def _weights(
    packed: Node,
    scales: Node,
    zeros: Node | None,
    groups: Node | None,
    bits: int,
    shape: tuple[int, int, int],
    depth: int,
) -> Node:
    """The weights as numbers, f32 [N, K]."""
    rows, count, block = shape
    codes = build.reshape(_unpacked(packed, bits), shape)
    scale = build.reshape(scales, (rows, count, 1))
    points = _zero_points(zeros, bits, rows, count)
    zero = build.constant(1 << (bits - 1), "f32")
    if points is not None:
        zero = build.reshape(build.cast(points, "f32"), (rows, count, 1))
    whole = build.cast(codes, "f32")
    if groups is not None:
        # Act-order: column k belongs to block groups[k].
        whole = build.slice_axis(build.reshape(whole, (rows, count * block)), 1, 0, depth)
        scale, zero = (
            build.take(build.reshape(x, (rows, count)), groups, 1) if x.tensor.rank else x
            for x in (scale, zero)
        )
    weights = build.multiply(build.subtract(whole, zero), build.cast(scale, "f32"))
    if groups is None:
        weights = build.slice_axis(build.reshape(weights, (rows, count * block)), 1, 0, depth)
    return weights


def _unpacked(packed: Node, bits: int) -> Node:
    """u8 codes along the last axis, lowest bits first."""
    if bits == 8:
        return packed
    *lead, width = packed.tensor.shape
    each = 8 // bits
    pieces = [
        build.bitwise_and(build.shift_right(packed, bits * i), (1 << bits) - 1) for i in range(each)
    ]
    rank = packed.tensor.rank
    joined = build.concatenate([build.expand_dims(p, [rank]) for p in pieces], rank)
    return build.reshape(joined, (*lead, width * each))


def _zero_points(zeros: Node | None, bits: int, rows: int, count: int) -> Node | None:
    """The zero point of each block, u8 or floats [rows, count]; None for the middle code."""
    if zeros is None:
        return None
    if zeros.tensor.dtype.is_float:
        return build.reshape(zeros, (rows, count))
    flat = build.reshape(zeros, (rows, dims.floor_div(zeros.tensor.num_elements, rows)))
    return build.slice_axis(_unpacked(flat, bits), 1, 0, count)
