"""Host functions on matrices that have no sensible form in primitives."""

from __future__ import annotations

from typing import Any

import numpy as np

from luban.graph.host import host

__all__ = ["DETERMINANT"]

DETERMINANT = "determinant"


@host(DETERMINANT)
def determinant(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:  # noqa: ARG001
    """(x [*B, n, n]) -> [*B], computed in float64."""
    (x,) = values
    return (np.asarray(np.linalg.det(x.astype(np.float64))).astype(x.dtype),)
