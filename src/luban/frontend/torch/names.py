"""What operators are called here."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["name_of"]


def name_of(target: Any) -> str:
    """The overload, such as `add.Tensor`; with its namespace in front if that is not ATen.

    >>> name_of(torch.ops.aten.add.Tensor), name_of(torch.ops.prims.iota.default)
    ('add.Tensor', 'prims.iota.default')
    """
    if isinstance(target, torch._ops.OpOverload):
        return str(target).removeprefix("aten.")
    return getattr(target, "__name__", str(target))
