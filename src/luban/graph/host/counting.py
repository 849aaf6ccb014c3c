"""Host functions that make a size of a value."""

from __future__ import annotations

from typing import Any

import numpy as np

from luban.core.errors import ShapeError
from luban.graph.host import host

__all__ = ["COUNT_RANGE"]

COUNT_RANGE = "count_range"


@host(COUNT_RANGE)
def count_range(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:  # noqa: ARG001
    """(start [], limit [], step []) -> 0, 1, .. as many as there are steps before the limit.

    Raises ShapeError for a step of 0.
    """
    start, limit, step = (v.item() for v in values)
    if not step:
        raise ShapeError("range: the step is 0, expected another number")
    span = limit - start
    count = -(-span // step) if isinstance(span, int) else np.ceil(span / step)
    return (np.arange(max(int(count), 0), dtype=np.int64),)
