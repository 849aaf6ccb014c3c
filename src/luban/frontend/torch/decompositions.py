"""Which ATen operators PyTorch itself breaks into simpler ones before we see them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions

__all__ = ["decompositions"]

_ATEN = torch.ops.aten

# Beyond the core set: normalisations, losses and activations, whose parts fuse again here.
_MORE = (
    _ATEN._log_softmax,
    _ATEN._log_softmax_backward_data,
    _ATEN._native_batch_norm_legit_functional,
    _ATEN._softmax,
    _ATEN._softmax_backward_data,
    _ATEN.addmm,
    _ATEN.embedding_dense_backward,
    _ATEN.gelu,
    _ATEN.grid_sampler_2d,
    _ATEN.gelu_backward,
    _ATEN.leaky_relu,
    _ATEN.linalg_vector_norm,
    _ATEN.native_batch_norm_backward,
    _ATEN.native_group_norm,
    _ATEN.native_layer_norm,
    _ATEN.nll_loss_backward,
    _ATEN.nll_loss_forward,
    _ATEN.upsample_bilinear2d,
    _ATEN.upsample_nearest2d,
)


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table that AOTAutograd takes."""
    table = dict(core_aten_decompositions())
    # Attention stays whole: its gradient, which PyTorch does not break up, needs what it gives.
    table.pop(_ATEN._scaled_dot_product_flash_attention_for_cpu.default, None)

    table.update(get_decompositions(list(_MORE)))
    return table
