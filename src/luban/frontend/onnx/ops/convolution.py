"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.errors import ShapeError
from luban.frontend.onnx.context import NodeContext, RunTimeValueNeeded
from luban.frontend.onnx.registry import op
from luban.frontend.onnx.windows import windows
from luban.graph import build
from luban.ir.node import Node

__all__: list[str] = []


def kernel_shape(ctx: NodeContext, filters: Node, x: Node | None = None) -> tuple[int, ...]:
    """The window sizes of the filters. Raises ShapeError if they are stated otherwise.

    Raises RunTimeValueNeeded for symbolic ones: windows are unrolled, so their size is built in.
    `x` is the input if the result has its dtype, batch and rank.
    """
    given = filters.tensor.shape[2:]
    sizes = tuple(size for size in given if isinstance(size, int))
    if len(sizes) != len(given):
        names = ("channels", *(f"space_{i}" for i in range(len(given))))
        fresh = [ctx.fresh(name) for name in names]
        opened = None if x is None else [x.tensor.with_shape((x.tensor.shape[0], *fresh))]
        raise RunTimeValueNeeded(filters, opened)
    stated = ctx.ints("kernel_shape", sizes)
    if stated != sizes:
        raise ShapeError(f"kernel_shape is {list(stated)}, the filters are {filters.tensor}")
    return sizes


def with_bias(x: Node, bias: Node | None) -> Node:
    """x with an entry of the bias added to each channel of axis 1."""
    if bias is None:
        return x
    ones = (1,) * (x.tensor.rank - 2)
    return build.add(x, build.reshape(bias, (1, bias.tensor.shape[0], *ones)))


@op("Conv", since=1)
def conv(ctx: NodeContext, x: Node, filters: Node, bias: Node | None = None) -> Node:
    """Cross-correlation of [N, C, *S] with [O, C / groups, *K], plus a bias for each channel."""
    geometry = windows(ctx, x.tensor.shape[2:], kernel_shape(ctx, filters, x))
    result = build.convolution(
        x,
        filters,
        geometry.strides,
        geometry.low,
        geometry.high,
        rhs_dilation=geometry.dilations,
        groups=ctx.int("group", 1),
    )
    return with_bias(result, bias)


@op("ConvTranspose", since=1)
def conv_transpose(ctx: NodeContext, x: Node, filters: Node, bias: Node | None = None) -> Node:
    """The transpose of a convolution: [N, C, *S] with [C, O / groups, *K] gives [N, O, *S'].

    It is the convolution of the input, spread out by the strides, with the mirrored filters.
    """
    sizes = kernel_shape(ctx, filters, x)
    rank = len(sizes)
    groups = ctx.int("group", 1)
    strides = ctx.ints("strides", (1,) * rank)
    dilations = ctx.ints("dilations", (1,) * rank)
    spans = [(k - 1) * d + 1 for k, d in zip(sizes, dilations, strict=True)]
    extra = ctx.ints("output_padding", (0,) * rank)
    low, high = _transposed_padding(ctx, x.tensor.shape[2:], spans, strides, extra)
    result = build.convolution(
        x,
        _mirrored(filters, groups),
        (1,) * rank,
        [span - 1 - p for span, p in zip(spans, low, strict=True)],
        [span - 1 - p + more for span, p, more in zip(spans, high, extra, strict=True)],
        lhs_dilation=strides,
        rhs_dilation=dilations,
        groups=groups,
    )
    return with_bias(result, bias)


def _mirrored(filters: Node, groups: int) -> Node:
    """[C, O / groups, *K] as [O, C / groups, *K], every window backwards."""
    inputs, outputs, *window = filters.tensor.shape
    each = dims.floor_div(inputs, groups)
    split = build.reshape(filters, (groups, each, outputs, *window))
    order = (0, 2, 1, *range(3, split.tensor.rank))
    swapped = build.reshape(build.transpose(split, order), (outputs * groups, each, *window))
    return build.reverse(swapped, range(2, swapped.tensor.rank))


def _transposed_padding(
    ctx: NodeContext,
    space: Sequence[DimLike],
    spans: Sequence[int],
    strides: Sequence[int],
    extra: Sequence[int],
) -> tuple[Sequence[DimLike], Sequence[DimLike]]:
    """What is cut from both ends, as stated, or so that the result has the wanted sizes."""
    rank = len(spans)
    auto = ctx.text("auto_pad", "NOTSET")
    wanted: Sequence[DimLike] | None = ctx.ints("output_shape", None)
    if wanted is not None:
        wanted = wanted[-rank:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * stride for size, stride in zip(space, strides, strict=True)]
    if wanted is None:
        pads = ctx.ints("pads", (0,) * (2 * rank)) if auto != "VALID" else (0,) * (2 * rank)
        return pads[:rank], pads[rank:]
    low: list[DimLike] = []
    high: list[DimLike] = []
    for size, span, stride, more, goal in zip(space, spans, strides, extra, wanted, strict=True):
        total = (size - 1) * stride + more + span - goal
        half = dims.floor_div(total, 2)
        first, second = (half, total - half) if auto == "SAME_UPPER" else (total - half, half)
        low.append(first)
        high.append(second)
    return low, high


@op("Col2Im", since=18)
def column_to_image(ctx: NodeContext, x: Node, image: Node, block: Node) -> Node:
    """The sum of overlapping blocks: [N, C * block, places] gives [N, C, *image].

    Every block element of every place is added to where it lies: a transposed convolution whose
    filters pick one block element each.
    """
    image_sizes, block_sizes = ctx.static_sizes(image), ctx.static(block).ravel().tolist()
    geometry = windows(ctx, image_sizes, block_sizes)
    spans = geometry.spans
    places = [
        dims.floor_div(size + low + high - span, stride) + 1
        for size, low, high, span, stride in zip(
            image_sizes, geometry.low, geometry.high, spans, geometry.strides, strict=True
        )
    ]
    batch, rows = x.tensor.shape[:2]
    elements = 1
    for size in block_sizes:
        elements *= size
    channels = dims.floor_div(rows, elements)
    grid = build.reshape(x, (batch * channels, elements, *places))
    picks = build.reshape(
        build.equal(build.iota((elements, elements), 0), build.iota((elements, elements), 1)),
        (elements, 1, *block_sizes),
    )
    filters = _mirrored(build.cast(picks, x.tensor.dtype), 1)
    # The image may be longer than the last block reaches.
    reach = [
        size + low + high - ((count - 1) * stride + span)
        for size, low, high, count, stride, span in zip(
            image_sizes, geometry.low, geometry.high, places, geometry.strides, spans, strict=True
        )
    ]
    summed = build.convolution(
        grid,
        filters,
        (1,) * geometry.rank,
        [span - 1 - low for span, low in zip(spans, geometry.low, strict=True)],
        [
            span - 1 - high + more
            for span, high, more in zip(spans, geometry.high, reach, strict=True)
        ],
        lhs_dilation=geometry.strides,
        rhs_dilation=geometry.dilations,
    )
    return build.reshape(summed, (batch, channels, *image_sizes))
