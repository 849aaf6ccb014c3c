"""Host function that draws a key for random bits: another at every run."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from luban.graph.host import host

__all__: list[str] = []


@host("random_key")
def random_key(_options: dict[str, Any], _values: list[Any]) -> tuple[Any, ...]:
    """u64[1] from the system's source of entropy."""
    return (np.array([secrets.randbits(64)], np.uint64),)
