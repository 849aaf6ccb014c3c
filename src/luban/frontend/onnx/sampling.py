"""Interpolation: which elements a fractional position reads, and with which weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from luban.core import dims
from luban.core.dims import DimLike
from luban.graph import build
from luban.graph.ops.structure import Gather
from luban.ir.node import Node, node

__all__ = ["Tap", "cubic_kernel", "linear_kernel", "sample", "taps"]


@dataclass(frozen=True, slots=True)
class Tap:
    """One element that is read along an axis: its index, weight, and whether it lies inside."""

    index: Node
    weight: Node | None
    inside: Node | None = None


def linear_kernel(distance: Node) -> Node:
    """max(0, 1 - |d|)"""
    return build.maximum(build.subtract(1, build.absolute(distance)), 0)


def cubic_kernel(distance: Node, a: float) -> Node:
    """Keys' cubic convolution: cubics on [0, 1] and [1, 2], 0 beyond (IEEE TASSP 29, 1981)."""
    d = build.absolute(distance)

    def polynomial(*coefficients: float) -> Node:
        value = build.lift(coefficients[0], d)
        for coefficient in coefficients[1:]:
            value = build.add(build.multiply(value, d), coefficient)
        return value

    near = polynomial(a + 2, -(a + 3), 0, 1)
    far = polynomial(a, -5 * a, 8 * a, -4 * a)
    outer = build.select(build.less(d, 2), far, 0)
    return build.select(build.less_equal(d, 1), near, outer)


def taps(position: Node, offsets: Sequence[int], kernel: str, a: float = -0.75) -> list[Tap]:
    """The taps at whole offsets from the floor of each position; kernel "linear" or "cubic".

    Indices may lie outside; say what becomes of them afterwards.
    """
    base = build.floor(position)
    share = build.subtract(position, base)
    whole = build.cast(base, "i64")
    found: list[Tap] = []
    for offset in offsets:
        distance = build.subtract(share, float(offset))
        weight = linear_kernel(distance) if kernel == "linear" else cubic_kernel(distance, a)
        found.append(Tap(build.add(whole, offset), weight))
    return found


def sample(x: Node, axes: Sequence[Sequence[Tap]]) -> Node:
    """The weighted sum of elements at positions that vary within the batch.

    x     [N, C, *S]
    axes  for each spatial axis its taps, each of shape [N, P]
    Gives [N, C, P].
    """
    batch, channels, *space = x.tensor.shape
    flat = build.reshape(x, (batch, channels, dims.num_elements(space)))
    steps: list[DimLike] = [dims.num_elements(space[i + 1 :]) for i in range(len(space))]
    total: Node | None = None
    for corner in product(*axes):
        value = _weighted(flat, corner, steps)
        total = value if total is None else build.add(total, value)
    assert total is not None
    return total


def _weighted(flat: Node, corner: Sequence[Tap], steps: Sequence[DimLike]) -> Node:
    place: Node | None = None
    for tap, step in zip(corner, steps, strict=True):
        scaled = build.multiply(tap.index, build.dimension(step))
        place = scaled if place is None else build.add(place, scaled)
    assert place is not None
    value = _read(flat, place)
    weights = [tap.weight for tap in corner if tap.weight is not None]
    for weight in weights:
        value = build.multiply(value, build.cast(build.expand_dims(weight, [1]), _dtype(value)))
    for tap in corner:
        if tap.inside is not None:
            value = build.select(build.expand_dims(tap.inside, [1]), value, 0)
    return value


def _dtype(x: Node) -> str:
    return x.tensor.dtype.name


def _read(flat: Node, place: Node) -> Node:
    """flat[n, c, place[n, p]] as [N, C, P]."""
    op = Gather((1,), (2,), (0,), (0,), (2,), (1, flat.tensor.shape[1], 1))
    return node(op, flat, build.expand_dims(place, [2]))
