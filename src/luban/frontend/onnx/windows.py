"""Geometry of sliding windows: what strides, dilations, pads, auto_pad and ceil_mode mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from luban.core import dims
from luban.core.dims import DimLike
from luban.frontend.onnx.context import NodeContext

__all__ = ["Windows", "windows"]


@dataclass(frozen=True, slots=True)
class Windows:
    """Sliding windows over the spatial axes.

    `low` and `high` is the padding that the model states, `extra` what `ceil_mode` reads beyond it.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[DimLike, ...]
    high: tuple[DimLike, ...]
    extra: tuple[DimLike, ...]

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.sizes)

    @property
    def spans(self) -> tuple[int, ...]:
        """The elements from the first to the last one of a window."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.sizes, self.dilations, strict=True))

    @property
    def all_high(self) -> tuple[DimLike, ...]:
        """Padding and extra together."""
        return tuple(h + e for h, e in zip(self.high, self.extra, strict=True))

    @property
    def is_padded(self) -> bool:
        """True if a window may reach outside the input."""
        return any(p != 0 for p in (*self.low, *self.high, *self.extra))


def windows(ctx: NodeContext, space: Sequence[DimLike], sizes: Sequence[int]) -> Windows:
    """The windows that the node's attributes state over axes of these sizes."""
    rank = len(sizes)
    if len(space) != rank:
        raise ctx.wrong(f"kernel_shape {list(sizes)} has {rank} axes, the input has {len(space)}")
    strides = _each(ctx, "strides", rank)
    dilations = _each(ctx, "dilations", rank)
    spans = [(k - 1) * d + 1 for k, d in zip(sizes, dilations, strict=True)]
    low, high = _padding(ctx, space, spans, strides)
    extra: tuple[DimLike, ...] = (0,) * rank
    if ctx.int("ceil_mode", 0):
        rows = zip(space, spans, strides, low, high, strict=True)
        extra = tuple(_beyond(*row) for row in rows)
    return Windows(tuple(sizes), strides, dilations, low, high, extra)


def _each(ctx: NodeContext, name: str, rank: int) -> tuple[int, ...]:
    values = ctx.ints(name, (1,) * rank)
    if len(values) != rank or min(values, default=1) < 1:
        raise ctx.wrong(f"{name} is {list(values)}, expected {rank} numbers of at least 1")
    return values


def _padding(
    ctx: NodeContext, space: Sequence[DimLike], spans: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[DimLike, ...], tuple[DimLike, ...]]:
    rank = len(spans)
    auto = ctx.text("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            dims.maximum((dims.ceil_div(size, stride) - 1) * stride + span - size, 0)
            for size, span, stride in zip(space, spans, strides, strict=True)
        ]
        small = tuple(dims.floor_div(total, 2) for total in totals)
        large = tuple(total - half for total, half in zip(totals, small, strict=True))
        return (small, large) if auto == "SAME_UPPER" else (large, small)
    if auto == "VALID":
        return (0,) * rank, (0,) * rank
    if auto not in ("NOTSET", ""):
        raise ctx.wrong(f"auto_pad is {auto!r}, expected NOTSET, SAME_UPPER, SAME_LOWER or VALID")
    pads = ctx.ints("pads", (0,) * (2 * rank))
    if len(pads) != 2 * rank:
        raise ctx.wrong(f"pads are {list(pads)}, expected 2 for each of {rank} axes")
    return tuple(pads[:rank]), tuple(pads[rank:])


def _beyond(size: DimLike, span: int, stride: int, low: DimLike, high: DimLike) -> DimLike:
    """What the last window reads beyond the padding; windows that would start there are dropped."""
    rounded_up = dims.ceil_div(size + low + high - span, stride) + 1
    starting_inside = dims.ceil_div(size + low, stride)
    count = dims.minimum(rounded_up, starting_inside)
    return (count - 1) * stride + span - (size + low + high)
