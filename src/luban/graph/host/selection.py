"""Host functions whose result sizes depend on the values."""

from __future__ import annotations

from typing import Any

import numpy as np

from luban.graph.host import host

__all__ = ["UNIQUE", "NON_MAX_SUPPRESSION"]

UNIQUE = "unique"
NON_MAX_SUPPRESSION = "non_max_suppression"

Array = np.ndarray[Any, Any]


@host(UNIQUE)
def unique(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """(x) -> each value or slice once, its first index, the place of every element, the counts.

    Options: axis (None: all elements as one row), in_order (else by first occurrence).
    """
    (x,) = values
    axis = options["axis"]
    distinct, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not options["in_order"]:
        order = np.argsort(first, kind="stable")
        distinct = np.take(distinct, order, axis=0 if axis is None else axis)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order, kind="stable")[inverse]
    return (
        distinct.astype(x.dtype, copy=False),
        *(a.astype(np.int64) for a in (first, inverse, counts)),
    )


@host(NON_MAX_SUPPRESSION)
def non_max_suppression(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """(boxes [B, N, 4], scores [B, C, N], limit, iou and score threshold) -> i64[kept, 3].

    A box is dropped only when its overlap with a kept one is greater than the threshold. Of equal
    scores the lower index comes first.
    """
    boxes, scores, limit, iou_threshold = values[:4]
    corners = _corners(boxes.astype(np.float64), center_point=options["center_point"])
    kept: list[tuple[int, int, int]] = []
    for batch in range(scores.shape[0]):
        for label in range(scores.shape[1]):
            row = scores[batch, label]
            order = np.argsort(-row.astype(np.float64), kind="stable")
            if len(values) > 4:
                order = order[row[order] > values[4]]
            chosen = _suppressed(corners[batch], order, int(limit), float(iou_threshold))
            kept += [(batch, label, box) for box in chosen]
    return (np.array(kept, np.int64).reshape(-1, 3),)


def _corners(boxes: Array, *, center_point: bool) -> Array:
    """(low, low, high, high) of every box, from two opposite corners or from centre and size."""
    if center_point:
        centre, half = boxes[..., :2], boxes[..., 2:] / 2
        return np.concatenate([centre - half, centre + half], -1)
    a, b = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(a, b), np.maximum(a, b)], -1)


def _suppressed(corners: Array, order: Array, limit: int, threshold: float) -> list[int]:
    areas = np.prod(corners[:, 2:] - corners[:, :2], -1)
    chosen: list[int] = []
    while len(order) and len(chosen) < limit:
        best, rest = int(order[0]), order[1:]
        chosen.append(best)
        low = np.maximum(corners[best, :2], corners[rest, :2])
        high = np.minimum(corners[best, 2:], corners[rest, 2:])
        shared = np.prod(np.maximum(high - low, 0), -1)
        union = areas[best] + areas[rest] - shared
        overlap = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
        order = rest[overlap <= threshold]
    return chosen
