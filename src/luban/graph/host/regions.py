"""Host functions over regions of interest, whose sample counts depend on the regions' sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from luban.graph.host import host

__all__ = ["MAX_ROI_POOL", "ROI_ALIGN"]

MAX_ROI_POOL = "max_roi_pool"
ROI_ALIGN = "roi_align"

Array = np.ndarray[Any, Any]


@host(MAX_ROI_POOL)
def max_roi_pool(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """(x [N, C, H, W], [R, 5] of batch, x1, y1, x2, y2) -> [R, C, *pooled]; empty cells give 0."""
    x, regions = values
    rows, columns = options["pooled"]
    result = np.zeros((len(regions), x.shape[1], rows, columns), x.dtype)
    for r, region in enumerate(regions):
        batch = int(region[0])
        left, top, right, bottom = (_half_up(v * options["scale"]) for v in region[1:])
        corner = np.array([top, left])
        cell = np.array([max(bottom - top + 1, 1) / rows, max(right - left + 1, 1) / columns])
        for i in range(rows):
            for j in range(columns):
                low = corner + np.floor(cell * (i, j)).astype(int)
                high = corner + np.ceil(cell * (i + 1, j + 1)).astype(int)
                (y0, x0), (y1, x1) = (np.clip(v, 0, x.shape[2:]) for v in (low, high))
                part = x[batch, :, y0:y1, x0:x1]
                if part.size:
                    result[r, :, i, j] = part.max((1, 2))
    return (result,)


def _half_up(value: float) -> int:
    return int(np.floor(value + 0.5))


@host(ROI_ALIGN)
def roi_align(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """(x [N, C, H, W], regions [R, 4] of x1, y1, x2, y2, batch index [R]) -> [R, C, *size].

    Options: mode (avg or max), sampling_ratio (0: as many as cells are large), scale, half_pixel.
    """
    x, regions, batches = values
    rows, columns = options["size"]
    result = np.empty((len(regions), x.shape[1], rows, columns), x.dtype)
    for r, region in enumerate(regions):
        # In f32, whatever the dtype: the number of samples jumps where a cell's size is whole.
        corners = region.astype(np.float32) * np.float32(options["scale"])
        left, top, right, bottom = corners - np.float32(0.5 if options["half_pixel"] else 0)
        extent = np.array([bottom - top, right - left])
        if not options["half_pixel"]:
            extent = np.maximum(extent, 1.0)
        cell = extent / (rows, columns)
        ratio = options["sampling_ratio"]
        counts = [ratio or max(int(np.ceil(c)), 1) for c in cell]
        ys, xs = (
            start + (np.arange(n * k) + 0.5) * (size / k)
            for start, n, k, size in zip((top, left), (rows, columns), counts, cell, strict=True)
        )
        plane = x[int(batches[r])].astype(np.float64)
        samples, weights = _bilinear(plane, ys, xs)
        cells = (x.shape[1], rows, counts[0], columns, counts[1])
        if options["mode"] == "max":
            # The standard's maximum is over the four weighted corners of each sample.
            corner = (samples * weights).max(0).reshape(cells)
            result[r] = corner.max((2, 4))
        else:
            result[r] = (samples * weights).sum(0).reshape(cells).mean((2, 4))
    return (result,)


def _bilinear(plane: Array, ys: Array, xs: Array) -> tuple[Array, Array]:
    """The four values [4, C, Y, X] round each sample point and their weights [4, 1, Y, X]."""
    parts = []
    for places, size in ((ys, plane.shape[1]), (xs, plane.shape[2])):
        outside = (places < -1.0) | (places > size)
        inner = np.clip(places, 0, None)
        low = np.minimum(np.floor(inner).astype(int), size - 1)
        high = np.minimum(low + 1, size - 1)
        share = np.where(low >= size - 1, 0.0, inner - low)
        parts.append((low, high, share, ~outside))
    (y0, y1, fy, in_y), (x0, x1, fx, in_x) = parts
    inside = in_y[:, None] & in_x[None, :]
    samples = np.stack([plane[:, a][:, :, b] for a in (y0, y1) for b in (x0, x1)])
    shares = [a[:, None] * b[None, :] for a in (1 - fy, fy) for b in (1 - fx, fx)]
    return samples, (np.stack(shares) * inside)[:, None]
