"""Which ATen operators PyTorch itself breaks into simpler ones before we see them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

from luban.frontend.torch import ops, registry
from luban.frontend.torch.names import name_of

__all__ = ["decompositions"]

_ATEN = torch.ops.aten
_NOT_PLAIN = ("lift", "linalg_qr", "diagonal_scatter", "as_strided_scatter")
_LEFT_WHOLE = (
    # Its gradient, which PyTorch does not break up, needs what it gives.
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
    # What PyTorch 2.13 makes of it gives the sum over the batch in the place of the mean.
    _ATEN.multilabel_margin_loss_forward.default,
)


def _is_plain(op: Any) -> bool:
    """Whether an operator computes something and writes to nothing.

    Those that lift constants into a graph are PyTorch's own business while it captures one, and
    what it makes of a few writes, although they do not.
    """
    return not op._schema.is_mutable and not name_of(op).startswith(_NOT_PLAIN)


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table that AOTAutograd takes: the core set, and all that has no handler here."""
    ops.register_all()
    handled = set(registry.names())
    table = dict(core_aten_decompositions())
    for op, function in decomposition_table.items():
        if isinstance(op, torch._ops.OpOverload) and _is_plain(op) and name_of(op) not in handled:
            table.setdefault(op, function)
    for op in _LEFT_WHOLE:
        table.pop(op, None)
    return table
