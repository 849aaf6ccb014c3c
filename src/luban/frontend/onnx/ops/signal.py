"""Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from luban.core import dims
from luban.core.errors import ShapeError
from luban.frontend.onnx.arguments import axis_from, whole_number
from luban.frontend.onnx.context import NodeContext, RunTimeValueNeeded
from luban.frontend.onnx.registry import op
from luban.graph import build
from luban.ir.node import Node

__all__: list[str] = []

_LARGEST_MATRIX = 64
"""Longer transforms are split in two where their length has a divisor."""

Complex = tuple[Node, Node]
Array = np.ndarray[Any, Any]


@op("DFT", since=17)
def dft_by_attribute(ctx: NodeContext, x: Node, length: Node | None = None) -> Node:
    """The discrete Fourier transform along `axis`; the last axis holds real and imaginary parts."""
    return _dft(ctx, x, length, ctx.int("axis", 1))


@op("DFT", since=20)
def dft(ctx: NodeContext, x: Node, length: Node | None = None, axis: Node | None = None) -> Node:
    """The discrete Fourier transform along `axis`; the last axis holds real and imaginary parts."""
    return _dft(ctx, x, length, -2 if axis is None else whole_number(ctx, axis))


def _dft(ctx: NodeContext, x: Node, length: Node | None, axis: int) -> Node:
    rank = x.tensor.rank
    axis = axis_from(axis, rank)
    inverse, one_sided = bool(ctx.int("inverse", 0)), bool(ctx.int("onesided", 0))
    given = x.tensor.shape[axis]
    if not isinstance(given, int):
        shape = list(x.tensor.shape)
        shape[axis], shape[-1] = ctx.fresh("frequencies"), 1 if inverse and one_sided else 2
        raise RunTimeValueNeeded(x, [x.tensor.with_shape(shape)])
    both = inverse and one_sided
    default = 2 * (given - 1) if both else given
    count = default if length is None else whole_number(ctx, length)
    needed = count // 2 + 1 if both else count
    moved = build.transpose(x, (*(a for a in range(rank) if a != axis), axis))
    real = _resized(_part(moved, 0), needed)
    imaginary = (
        _resized(_part(moved, 1), needed)
        if x.tensor.shape[-1] == 2
        else build.full(real.tensor.shape, 0, x.tensor.dtype)
    )
    if both:
        real, imaginary = _mirrored(real, imaginary, count)
    real, imaginary = (_widened(part, count) for part in (real, imaginary))
    real, imaginary = transform(real, imaginary, inverse=inverse)
    if inverse:
        real, imaginary = build.divide(real, count), build.divide(imaginary, count)
    if one_sided and not inverse:
        kept = count // 2 + 1
        real, imaginary = (_resized(part, kept) for part in (real, imaginary))
        if x.tensor.shape[-1] != 2:
            imaginary = _real_ends(imaginary, count)
    parts = [build.cast(p, x.tensor.dtype) for p in ([real] if both else [real, imaginary])]
    return _placed(parts, axis)


def _widened(x: Node, count: int) -> Node:
    """What a transform of this length starts from: f64 for those done as one product.

    Frequencies that a signal does not have cancel to numbers far below its own rounding. Models
    take their phase all the same: summed up in f32, it is that of rounding errors, and none (0 / 0)
    where those cancel, too. In f64 it is that of the exact sum. Long transforms stay as they are:
    theirs would take up to three times as long.
    """
    return build.cast(x, "f64") if count <= _LARGEST_MATRIX else x


def _part(moved: Node, index: int) -> Node:
    """Real or imaginary part of [.., parts, n] as [.., n]."""
    place = moved.tensor.rank - 2
    part = build.slice_axis(moved, place, index, 1)
    return build.squeeze(part, [place])


def _resized(x: Node, count: int) -> Node:
    """The last axis cut, or filled with zeros."""
    axis = x.tensor.rank - 1
    given = x.tensor.shape[axis]
    if not isinstance(given, int):
        raise ShapeError(f"the last axis of {x.tensor} is symbolic, expected a constant")
    if given >= count:
        return build.slice_axis(x, axis, 0, count)
    zeros = [0] * x.tensor.rank
    return build.pad(x, zeros, [*zeros[:-1], count - given], 0)


def _real_ends(imaginary: Node, count: int) -> Node:
    """The imaginary parts of a real signal's one-sided spectrum: the first, and of an even count
    the last, are exactly 0. A transform done in rounds leaves rounding errors with a sign there.
    """
    if _divisor(count) == 1:
        return imaginary
    axis = imaginary.tensor.rank - 1
    last = 1 - count % 2
    kept = build.slice_axis(imaginary, axis, 1, count // 2 - last)
    zeros = [0] * axis
    return build.pad(kept, [*zeros, 1], [*zeros, last], 0)


def _mirrored(real: Node, imaginary: Node, count: int) -> Complex:
    """The whole spectrum of a real signal from its first count // 2 + 1 entries."""
    axis = real.tensor.rank - 1
    rest = count - (count // 2 + 1)
    back = [build.reverse(build.slice_axis(p, axis, 1, rest), [axis]) for p in (real, imaginary)]
    return (
        build.concatenate([real, back[0]], axis),
        build.concatenate([imaginary, build.negative(back[1])], axis),
    )


def _placed(parts: list[Node], axis: int) -> Node:
    """[.., n] parts as [.., n at axis, .., parts]."""
    rank = parts[0].tensor.rank
    stacked = build.concatenate([build.expand_dims(p, [rank]) for p in parts], rank)
    others = list(range(rank - 1))
    return build.transpose(stacked, (*others[:axis], rank - 1, *others[axis:], rank))


def transform(real: Node, imaginary: Node, *, inverse: bool) -> Complex:
    """The unscaled transform along the last axis, of constant length n.

    A product with the n x n matrix of roots of unity; a long one of length a * b is done as two
    rounds of shorter ones with a rotation in between (Cooley and Tukey, 1965).
    """
    count = real.tensor.shape[-1]
    assert isinstance(count, int)
    first = _divisor(count)
    if first == 1:
        return _by_matrix(real, imaginary, count, inverse=inverse)
    second = count // first
    outer = real.tensor.shape[:-1]
    rank = len(outer)
    # x[a * second + b]: transform over a for each b, rotate, transform over b.
    order = (*range(rank), rank + 1, rank)
    split = [
        build.transpose(build.reshape(p, (*outer, first, second)), order) for p in (real, imaginary)
    ]
    inner = transform(split[0], split[1], inverse=inverse)
    rotated = _times(inner, *_roots(second, first, count, inverse=inverse))
    swapped = [build.transpose(p, order) for p in rotated]
    done = transform(swapped[0], swapped[1], inverse=inverse)
    # [.., k1 in first, k2 in second] stands for frequency k2 * first + k1.
    flat = [build.reshape(build.transpose(p, order), (*outer, count)) for p in done]
    return flat[0], flat[1]


def _divisor(count: int) -> int:
    """The largest divisor up to the matrix limit of a count above it, else 1."""
    if count <= _LARGEST_MATRIX:
        return 1
    return max((d for d in range(2, _LARGEST_MATRIX + 1) if count % d == 0), default=1)


def _roots(rows: int, columns: int, count: int, *, inverse: bool) -> tuple[Array, Array]:
    """Cosine and sine of 2 pi r c / count (minus that if not inverse), exact at quarter turns.

    The angle is reduced to an eighth of a turn in integers: what is 0, 1 or -1 is just that, and
    what cancels in exact arithmetic cancels here. `np.sin(np.pi)` is 1.2e-16, which has a sign:
    the imaginary part of the highest frequency of a real signal must not have one.
    """
    turns = np.outer(np.arange(rows), np.arange(columns)) % count
    quarter, rest = np.divmod(4 * turns, count)
    beyond = 2 * rest > count
    angle = np.pi / 2 * np.where(beyond, count - rest, rest) / count
    near, far = np.cos(angle), np.sin(angle)
    x, y = np.where(beyond, far, near), np.where(beyond, near, far)
    cosine = np.choose(quarter, [x, -y, -x, y])
    sine = np.choose(quarter, [y, x, -y, -x])
    return cosine, sine if inverse else -sine


def _times(x: Complex, cosine: Array, sine: Array) -> Complex:
    real, imaginary = x
    c, s = (build.constant(v, real.tensor.dtype) for v in (cosine, sine))
    return (
        build.subtract(build.multiply(real, c), build.multiply(imaginary, s)),
        build.add(build.multiply(real, s), build.multiply(imaginary, c)),
    )


def _by_matrix(real: Node, imaginary: Node, count: int, *, inverse: bool) -> Complex:
    roots = _roots(count, count, count, inverse=inverse)
    cosine, sine = (build.constant(part, real.tensor.dtype) for part in roots)
    return (
        build.subtract(build.matmul(real, cosine), build.matmul(imaginary, sine)),
        build.add(build.matmul(real, sine), build.matmul(imaginary, cosine)),
    )


@op("STFT", since=17)
def stft(
    ctx: NodeContext,
    signal: Node,
    frame_step: Node,
    window: Node | None = None,
    frame_length: Node | None = None,
) -> Node:
    """The transform of windows that slide over the signal: [batch, frames, frequencies, 2]."""
    if signal.tensor.rank == 2:  # some exporters leave the last axis of real signals out
        signal = build.expand_dims(signal, [2])
    total = signal.tensor.shape[1]
    result = signal.tensor.with_shape(
        (signal.tensor.shape[0], ctx.fresh("frames"), ctx.fresh("frequencies"), 2)
    )
    if ctx.constant_value(frame_step) is None:
        raise RunTimeValueNeeded(frame_step, [result])
    step = whole_number(ctx, frame_step)
    if frame_length is not None:
        count = whole_number(ctx, frame_length)
    else:
        given = total if window is None else window.tensor.shape[0]
        if not isinstance(given, int):
            raise RunTimeValueNeeded(signal if window is None else window, [result])
        count = given
    frames = dims.floor_div(total - count, step) + 1
    places = build.add(
        build.multiply(build.iota((frames, count), 0), step), build.iota((frames, count), 1)
    )
    framed = build.take(signal, places, 1)
    parts = [
        _widened(build.squeeze(build.slice_axis(framed, 3, i, 1), [3]), count)
        for i in range(2 if signal.tensor.shape[2] == 2 else 1)
    ]
    if window is not None:
        weights = _widened(build.reshape(window, (count,)), count)
        parts = [build.multiply(part, weights) for part in parts]
    zero = build.full(parts[0].tensor.shape, 0, parts[0].tensor.dtype)
    real, imaginary = transform(parts[0], parts[1] if len(parts) > 1 else zero, inverse=False)
    if ctx.int("onesided", 1) and len(parts) == 1:
        real, imaginary = (_resized(part, count // 2 + 1) for part in (real, imaginary))
        imaginary = _real_ends(imaginary, count)
    rounded = (build.cast(p, signal.tensor.dtype) for p in (real, imaginary))
    return build.concatenate([build.expand_dims(p, [3]) for p in rounded], 3)
