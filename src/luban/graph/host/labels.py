"""Host functions that look values up in a table of keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from luban.graph.host import host

__all__ = ["ENCODE"]

ENCODE = "encode_labels"


@host(ENCODE)
def encode_labels(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:  # noqa: ARG001
    """(x, keys [K], values [K], default []) -> the value of each key; NaN finds a NaN key."""
    x, keys, targets, default = values
    table = dict(zip(map(_key, keys.tolist()), targets.tolist(), strict=True))
    fallback = default.item()
    found = [table.get(_key(item), fallback) for item in x.ravel().tolist()]
    result = np.empty(len(found), targets.dtype)
    result[:] = found
    return (result.reshape(x.shape),)


def _key(item: Any) -> Any:
    """None in place of NaN, which is not equal to itself."""
    return None if isinstance(item, float) and item != item else item
