"""Matrix products and convolutions, and what their gradients are."""

from __future__ import annotations

from collections.abc import Sequence

from luban.core.dims import DimLike
from luban.frontend.torch.call import Call
from luban.frontend.torch.ops.shape import pad_with
from luban.frontend.torch.registry import aten
from luban.graph import build
from luban.ir.node import Node

__all__: list[str] = []

Sizes = Sequence[int]


@aten("mm.default", "bmm.default", "dot.default", "mv.default", "matmul.default", "vdot.default")
def product(call: Call, x: Node, y: Node) -> Node:
    """The matrix product."""
    return build.matmul(x, y)


@aten("addmm.default", "addmv.default", "baddbmm.default")
def add_product(
    call: Call, c: Node, x: Node, y: Node, *, beta: float = 1, alpha: float = 1
) -> Node:
    """beta * c + alpha * x y."""
    found = build.matmul(x, y)
    if alpha != 1:
        found = build.multiply(found, alpha)
    if beta == 0:
        return found
    return build.add(found, c if beta == 1 else build.multiply(c, beta))


@aten("convolution.default")
def convolution(
    call: Call,
    x: Node,
    filters: Node,
    bias: Node | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Node:
    """A convolution over one to three axes, or the transpose of one."""
    rank = x.tensor.rank - 2
    if transposed:
        ends = [0] * rank if not output_padding else list(output_padding)
        found = _transposed(x, filters, _each(stride, rank), _each(padding, rank),
                            _each(dilation, rank), _each(ends, rank), groups)  # fmt: skip
    else:
        pads = _each(padding, rank)
        found = build.convolution(
            x,
            filters,
            _each(stride, rank),
            pads,
            pads,
            rhs_dilation=_each(dilation, rank),
            groups=groups,
        )
    return found if bias is None else build.add(found, _per_channel(bias, rank))


@aten("convolution_backward.default")
def convolution_backward(
    call: Call,
    grad: Node,
    x: Node,
    filters: Node,
    _bias_sizes: Sizes | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    _output_padding: Sizes,
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Node | None, ...]:
    """The gradients of a convolution's input, filters and bias, those that are wanted."""
    rank = x.tensor.rank - 2
    steps, pads, gaps = (_each(given, rank) for given in (stride, padding, dilation))
    for_x = for_filters = for_bias = None
    if wanted[0] and transposed:
        for_x = build.convolution(
            grad, filters, steps, pads, pads, rhs_dilation=gaps, groups=groups
        )
    elif wanted[0]:
        rows = zip(x.tensor.shape[2:], grad.tensor.shape[2:], filters.tensor.shape[2:], steps, pads,
                   gaps, strict=True)  # fmt: skip
        left = [size - ((out - 1) * s - 2 * p + g * (k - 1) + 1) for size, out, k, s, p, g in rows]
        for_x = _transposed(grad, filters, steps, pads, gaps, left, groups)
    if wanted[1]:
        image, sums = (grad, x) if transposed else (x, grad)
        for_filters = _for_filters(image, sums, filters, steps, pads, gaps, groups)
    if wanted[2]:
        for_bias = build.reduce("sum", grad, [0, *range(2, rank + 2)])
    return for_x, for_filters, for_bias


def _each(given: Sizes, rank: int) -> list[int]:
    return [int(v) for v in given] * rank if len(given) == 1 else [int(v) for v in given]


def _per_channel(bias: Node, rank: int) -> Node:
    return build.reshape(bias, (1, bias.tensor.shape[0], *(1 for _ in range(rank))))


def _transposed(
    x: Node,
    filters: Node,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    output_padding: Sequence[DimLike],
    groups: int,
) -> Node:
    """The transpose of a convolution: zeros between the elements, filters turned round.

    filters   [channels of x, channels of the result / groups, *window]
    """
    inner, outer, *window = filters.tensor.shape
    rank = len(window)
    turned = build.reverse(filters, list(range(2, rank + 2)))
    grouped = build.reshape(turned, (groups, inner // groups, outer, *window))
    swapped = build.transpose(grouped, [0, 2, 1, *range(3, rank + 3)])
    spans = [g * (k - 1) for g, k in zip(dilation, window, strict=True)]
    low = [span - p for span, p in zip(spans, padding, strict=True)]
    high = [b + e for b, e in zip(low, output_padding, strict=True)]
    return build.convolution(
        x,
        build.reshape(swapped, (groups * outer, inner // groups, *window)),
        [1] * rank,
        low,
        high,
        lhs_dilation=stride,
        rhs_dilation=dilation,
        groups=groups,
    )


def _for_filters(
    image: Node,
    sums: Node,
    filters: Node,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Node:
    """Sum over batch and space of image times sums: a convolution with the sums as filters.

    Batch and channels change places; the image of each group has the batch for channels.
    """
    batch, _, *space = image.tensor.shape
    _, inner, *window = filters.tensor.shape
    rank = len(space)
    grouped = build.reshape(image, (batch, groups, inner, *space))
    lhs = build.reshape(
        build.transpose(grouped, [2, 1, 0, *range(3, rank + 3)]),
        (inner, groups * batch, *space),
    )
    rhs = build.transpose(sums, [1, 0, *range(2, rank + 2)])
    # The window moves by `dilation`, and the last of the image may be too little for a step.
    high = []
    counts = sums.tensor.shape[2:]
    rows = zip(space, counts, window, stride, padding, dilation, strict=True)
    for size, out, k, s, p, g in rows:
        span = (out - 1) * s + 1 + (k - 1) * g  # what all places of the window reach
        high.append(span - size - p)
    found = build.convolution(lhs, rhs, dilation, padding, high, rhs_dilation=stride, groups=groups)
    return build.transpose(found, [1, 0, *range(2, rank + 2)])


@aten("col2im.default")
def col2im(
    call: Call,
    x: Node,
    size: Sizes,
    window: Sizes,
    dilation: Sizes,
    padding: Sizes,
    stride: Sizes,
) -> Node:
    """Sums of columns at the places of an image that they were taken from."""
    batched = x if x.tensor.rank == 3 else build.expand_dims(x, [0])
    batch, rows, _ = batched.tensor.shape
    counts = [
        (s + 2 * p - g * (k - 1) - 1) // t + 1
        for s, k, g, p, t in zip(size, window, dilation, padding, stride, strict=True)
    ]
    channels = rows // (window[0] * window[1])
    parts = build.reshape(batched, (batch, channels, *window, *counts))
    found: Node | None = None
    for i in range(window[0]):
        for j in range(window[1]):
            piece = build.reshape(
                build.slice_axis(build.slice_axis(parts, 2, i, 1), 3, j, 1),
                (batch, channels, *counts),
            )
            low = [o * g - p for o, g, p in zip((i, j), dilation, padding, strict=True)]
            high = [
                s - b - ((c - 1) * t + 1)
                for s, b, c, t in zip(size, low, counts, stride, strict=True)
            ]
            wide = pad_with(piece, (0, 0, *low), (0, 0, *high), 0, (0, 0, *(t - 1 for t in stride)))
            found = wide if found is None else build.add(found, wide)
    assert found is not None
    return build.reshape(found, call.type.shape)
