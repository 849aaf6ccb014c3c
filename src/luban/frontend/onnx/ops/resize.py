"""Resize and Upsample: interpolation along each axis in turn.

Positions are computed in float64; what they read and the weights become constants when sizes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor

import numpy as np

from luban.core import dims
from luban.core.dims import DimLike
from luban.frontend.onnx.arguments import axis_from
from luban.frontend.onnx.context import NodeContext, RunTimeValueNeeded
from luban.frontend.onnx.registry import op
from luban.frontend.onnx.sampling import Tap, cubic_kernel, linear_kernel, taps
from luban.graph import build
from luban.ir.node import Node

__all__: list[str] = []


@dataclass(frozen=True, slots=True)
class Stretch:
    """How one axis is resized.

    scale  the stated factor; None: wanted / given, exactly
    roi    (start, end) of the part that is read, as fractions of the axis
    """

    axis: int
    given: DimLike
    wanted: DimLike
    scale: float | None
    roi: tuple[float, float] = (0.0, 1.0)

    @property
    def ratio(self) -> float | None:
        """The factor as a number; None if a size is symbolic."""
        if self.scale is not None:
            return self.scale
        if isinstance(self.given, int) and isinstance(self.wanted, int) and self.given:
            return self.wanted / self.given
        return None


@op("Upsample", since=1)
def upsample_by_attributes(ctx: NodeContext, x: Node) -> Node:
    """Nearest or bilinear enlargement by factors in attributes (opsets 1 to 8)."""
    if ctx.opset < 7:
        scales: Sequence[float] = (1.0, 1.0, ctx.float("height_scale"), ctx.float("width_scale"))
    else:
        scales = ctx.floats("scales")
    return _legacy(ctx, x, scales)


@op("Upsample", since=9)
@op("Resize", since=10)
def resize_by_scales(ctx: NodeContext, x: Node, scales: Node) -> Node:
    """Nearest or linear resizing by factors: positions are i / scale."""
    return _legacy(ctx, x, [float(v) for v in ctx.static(scales).ravel()])


def _legacy(ctx: NodeContext, x: Node, scales: Sequence[float]) -> Node:
    stretches = _by_scales(x, range(x.tensor.rank), scales, None)
    mode = ctx.text("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    for stretch in stretches:
        x = _resized(ctx, x, stretch, Rules(mode, "asymmetric", nearest="floor"))
    return x


@op("Resize", since=11)
def resize(
    ctx: NodeContext,
    x: Node,
    roi: Node | None = None,
    scales: Node | None = None,
    sizes: Node | None = None,
) -> Node:
    """x resized by factors or to sizes."""
    rank = x.tensor.rank
    axes = [axis_from(a, rank) for a in ctx.ints("axes", range(rank))]
    rules = Rules(
        ctx.text("mode", "nearest"),
        ctx.text("coordinate_transformation_mode", "half_pixel"),
        ctx.text("nearest_mode", "round_prefer_floor"),
        ctx.float("cubic_coeff_a", -0.75),
        bool(ctx.int("exclude_outside", 0)),
        bool(ctx.int("antialias", 0)),
        ctx.float("extrapolation_value", 0.0),
    )
    parts = None
    if rules.coordinates == "tf_crop_and_resize" and roi is not None:
        parts = [float(v) for v in ctx.static(roi).ravel()]
    if scales is not None and scales.tensor.shape != (0,):
        factors = [float(v) for v in ctx.static(scales).ravel()]
        stretches = _by_scales(x, axes, factors, parts)
    elif sizes is not None:
        stretches = _by_sizes(ctx, x, axes, ctx.static_sizes(sizes), parts)
    else:
        raise ctx.wrong("neither scales nor sizes are given")
    if rules.antialias and any(stretch.ratio is None for stretch in stretches):
        # How many elements are read follows from the sizes.
        raise RunTimeValueNeeded(x, [x.tensor.with_shape(_open_shape(ctx, x, axes))])
    element = x.tensor.dtype
    if rules.mode != "nearest" and (not element.is_float or element.bits < 32):
        x = build.cast(x, "f32")
    for stretch in stretches:
        x = _resized(ctx, x, stretch, rules)
    return build.cast(x, element)


def _roi(parts: Sequence[float] | None, i: int) -> tuple[float, float]:
    return (0.0, 1.0) if parts is None else (parts[i], parts[len(parts) // 2 + i])


def _by_scales(
    x: Node, axes: Sequence[int], scales: Sequence[float], parts: Sequence[float] | None
) -> list[Stretch]:
    found: list[Stretch] = []
    for i, (axis, scale) in enumerate(zip(axes, scales, strict=True)):
        given = x.tensor.shape[axis]
        start, end = _roi(parts, i)
        wanted = _scaled_size(given, scale * (end - start))
        found.append(Stretch(axis, given, wanted, scale, (start, end)))
    return found


def _scaled_size(given: DimLike, scale: float) -> DimLike:
    """floor(given * scale), as f32 rounds the product."""
    if isinstance(given, int):
        return floor(np.float32(given) * np.float32(scale))
    exact = Fraction(scale)
    simple = exact.limit_denominator(1000)
    ratio = simple if np.float32(float(simple)) == np.float32(scale) else exact
    return dims.floor_div(given * ratio.numerator, ratio.denominator)


def _by_sizes(
    ctx: NodeContext,
    x: Node,
    axes: Sequence[int],
    sizes: Sequence[DimLike],
    parts: Sequence[float] | None,
) -> list[Stretch]:
    given = [x.tensor.shape[axis] for axis in axes]
    policy = ctx.text("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        pairs = zip(given, sizes, strict=True)
        known = [(g, w) for g, w in pairs if isinstance(g, int) and isinstance(w, int)]
        if len(known) < len(given):
            raise RunTimeValueNeeded(x, [x.tensor.with_shape(_open_shape(ctx, x, axes))])
        ratios = [Fraction(w, g) for g, w in known]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        return [
            Stretch(axis, g, floor(ratio * g + Fraction(1, 2)), float(ratio), _roi(parts, i))
            for i, (axis, (g, _)) in enumerate(zip(axes, known, strict=True))
        ]
    return [
        Stretch(axis, g, w, None, _roi(parts, i))
        for i, (axis, g, w) in enumerate(zip(axes, given, sizes, strict=True))
    ]


def _open_shape(ctx: NodeContext, x: Node, axes: Sequence[int]) -> list[DimLike]:
    return [ctx.fresh(f"resized_{a}") if a in axes else s for a, s in enumerate(x.tensor.shape)]


@dataclass(frozen=True, slots=True)
class Rules:
    """How values between elements are made."""

    mode: str
    coordinates: str
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0


def _resized(ctx: NodeContext, x: Node, stretch: Stretch, rules: Rules) -> Node:
    whole = stretch.roi == (0.0, 1.0)
    same = stretch.given == stretch.wanted and (stretch.scale in (None, 1.0))
    if same and whole:
        return x
    if rules.mode == "nearest":
        factor = _repeats(ctx, stretch, rules)
        if factor is not None:
            return _repeated(x, stretch.axis, factor)
        places = _nearest(ctx, stretch, rules)
        return _extrapolated(build.take(x, places, stretch.axis), ctx, stretch, rules)
    if rules.mode not in ("linear", "cubic"):
        raise ctx.wrong(f"mode is {rules.mode!r}, expected nearest, linear or cubic")
    total: Node | None = None
    for tap in _taps(ctx, stretch, rules):
        assert tap.weight is not None
        weight = build.cast(tap.weight, x.tensor.dtype)
        shape = [1] * x.tensor.rank
        column = build.reshape(
            weight, [*shape[: stretch.axis], stretch.wanted, *shape[stretch.axis + 1 :]]
        )
        part = build.multiply(build.take(x, tap.index, stretch.axis), column)
        total = part if total is None else build.add(total, part)
    assert total is not None
    return _extrapolated(total, ctx, stretch, rules)


def _repeats(ctx: NodeContext, stretch: Stretch, rules: Rules) -> int | None:
    """k if every element is simply repeated k times, else None."""
    scale = stretch.ratio
    if (
        scale is None
        or scale != floor(scale)
        or rules.coordinates not in ("asymmetric", "half_pixel")
    ):
        return None
    factor = int(scale)
    # Positions move by one element every `factor` places, so one short axis stands for all.
    probe = ctx.constant_value(_nearest(ctx, replace(stretch, given=4, wanted=4 * factor), rules))
    repeats = np.arange(4 * factor) // factor
    return factor if probe is not None and np.array_equal(probe, repeats) else None


def _repeated(x: Node, axis: int, factor: int) -> Node:
    shape = x.tensor.shape
    apart = build.expand_dims(x, [axis + 1])
    stretched = build.broadcast_to(apart, (*shape[: axis + 1], factor, *shape[axis + 1 :]))
    return build.reshape(stretched, (*shape[:axis], shape[axis] * factor, *shape[axis + 1 :]))


def _nearest(ctx: NodeContext, stretch: Stretch, rules: Rules) -> Node:
    position = _positions(ctx, stretch, rules)
    match rules.nearest:
        case "round_prefer_floor":
            rounded = build.ceil(build.subtract(position, 0.5))
        case "round_prefer_ceil":
            rounded = build.floor(build.add(position, 0.5))
        case "floor":
            rounded = build.floor(position)
        case "ceil":
            rounded = build.ceil(position)
        case other:
            raise ctx.wrong(
                f"nearest_mode is {other!r}, "
                "expected round_prefer_floor, round_prefer_ceil, floor or ceil"
            )
    return _settled(ctx, _inside(build.cast(rounded, "i64"), stretch.given))


def _inside(places: Node, size: DimLike) -> Node:
    return build.minimum(build.maximum(places, 0), build.dimension(size - 1))


def _settled(ctx: NodeContext, x: Node) -> Node:
    """x as a constant if it is known."""
    known = ctx.constant_value(x)
    return x if known is None else build.constant(known)


def _number(value: DimLike) -> Node:
    return build.cast(build.dimension(value), "f64")


def _positions(ctx: NodeContext, stretch: Stretch, rules: Rules) -> Node:
    """Where each result element lies on the given axis: f64[wanted]."""
    i = build.iota((stretch.wanted,), 0, "f64")
    given, wanted = _number(stretch.given), _number(stretch.wanted)
    scale = stretch.scale
    width = wanted if scale is None else build.multiply(given, scale)

    def shrunk(place: Node) -> Node:
        if scale is not None:
            return build.divide(place, scale)
        return build.divide(build.multiply(place, given), wanted)

    half = build.subtract(shrunk(build.add(i, 0.5)), 0.5)
    single = build.equal(width, 1)
    span = build.select(single, 1, build.subtract(width, 1))
    match rules.coordinates:
        case "half_pixel":
            return half
        case "pytorch_half_pixel":
            return build.select(build.greater(wanted, 1), half, 0)
        case "half_pixel_symmetric":
            adjustment = build.subtract(1, build.divide(wanted, width))
            return build.add(build.multiply(build.divide(given, 2), adjustment), half)
        case "asymmetric":
            return shrunk(i)
        case "align_corners":
            reach = build.divide(build.multiply(i, build.subtract(given, 1)), span)
            return build.select(single, 0, reach)
        case "tf_crop_and_resize":
            start, end = stretch.roi
            last = build.subtract(given, 1)
            moved = build.divide(build.multiply(build.multiply(i, end - start), last), span)
            spread = build.add(build.multiply(last, start), moved)
            return build.select(single, build.multiply(last, (start + end) / 2), spread)
    raise ctx.wrong(f"coordinate_transformation_mode is {rules.coordinates!r}, which is not known")


def _extrapolated(x: Node, ctx: NodeContext, stretch: Stretch, rules: Rules) -> Node:
    """Cropping gives a stated value where it looks outside of x."""
    if rules.coordinates != "tf_crop_and_resize":
        return x
    position = _positions(ctx, stretch, rules)
    last = _number(stretch.given - 1)
    outside = build.bitwise_or(build.less(position, 0), build.greater(position, last))
    shape = [1] * x.tensor.rank
    column = _settled(ctx, outside)
    row = build.reshape(
        column, [*shape[: stretch.axis], stretch.wanted, *shape[stretch.axis + 1 :]]
    )
    return build.select(row, rules.extrapolation, x)


def _taps(ctx: NodeContext, stretch: Stretch, rules: Rules) -> list[Tap]:
    """What each result element reads along the axis; weights add up to 1."""
    position = _positions(ctx, stretch, rules)
    reach = 1 if rules.mode == "linear" else 2
    offsets = range(1 - reach, 1 + reach)
    found = taps(position, offsets, rules.mode, rules.cubic)
    if rules.antialias:
        assert stretch.ratio is not None
        found = _wide_taps(position, min(stretch.ratio, 1.0), reach, rules)
    if rules.exclude_outside:
        found = [_without_outside(tap, stretch.given) for tap in found]
    if rules.exclude_outside or rules.antialias:
        found = _normalised(found)
    settled: list[Tap] = []
    for tap in found:
        assert tap.weight is not None
        place = _settled(ctx, _inside(tap.index, stretch.given))
        settled.append(Tap(place, _settled(ctx, tap.weight)))
    return settled


def _wide_taps(position: Node, scale: float, reach: int, rules: Rules) -> list[Tap]:
    """Taps of the kernel stretched by 1 / scale, so that shrinking reads every element."""
    first = floor(-reach / scale) + 1
    base = build.floor(position)
    found: list[Tap] = []
    for offset in range(first, 2 - first):
        distance = build.multiply(build.subtract(build.add(base, float(offset)), position), scale)
        weight = _kernel(distance, rules)
        found.append(Tap(build.add(build.cast(base, "i64"), offset), weight))
    return found


def _kernel(distance: Node, rules: Rules) -> Node:
    """The kernel's value at a distance."""
    if rules.mode == "linear":
        return linear_kernel(distance)
    return cubic_kernel(distance, rules.cubic)


def _without_outside(tap: Tap, size: DimLike) -> Tap:
    assert tap.weight is not None
    last = build.dimension(size - 1)
    outside = build.bitwise_or(build.less(tap.index, 0), build.greater(tap.index, last))
    return Tap(tap.index, build.select(outside, 0, tap.weight))


def _normalised(found: Sequence[Tap]) -> list[Tap]:
    total: Node | None = None
    for tap in found:
        assert tap.weight is not None
        total = tap.weight if total is None else build.add(total, tap.weight)
    assert total is not None
    return [
        Tap(tap.index, build.divide(tap.weight, total)) for tap in found if tap.weight is not None
    ]
