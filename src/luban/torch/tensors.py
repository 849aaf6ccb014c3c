"""Tensors as arrays and back, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from luban.core.dtypes import from_numpy

__all__ = ["array_of", "tensor_of"]

# What numpy has no dtype for travels as integers of the same width.
_AS_INTEGERS = {torch.bfloat16: torch.int16}
_FROM_INTEGERS = {"bf16": (np.int16, torch.bfloat16)}


def array_of(tensor: torch.Tensor, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The tensor's memory as a row-major array; a copy only if it is not row-major.

    >>> array_of(torch.ones(2), np.dtype(np.float32))
    array([1., 1.], dtype=float32)
    """
    plain = tensor.detach()
    if not plain.is_contiguous():
        plain = plain.contiguous()
    if plain.is_conj() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg()
    stand_in = _AS_INTEGERS.get(plain.dtype)
    found: np.ndarray[Any, Any]
    if stand_in is None:
        found = plain.numpy()
    else:
        found = plain.view(stand_in).numpy().view(dtype)
    return found


def tensor_of(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """The array's memory as a tensor.

    >>> tensor_of(np.ones(2, np.float32))
    tensor([1., 1.])
    """
    if array.dtype.kind != "V":
        return torch.from_numpy(array)
    stand_in, element = _FROM_INTEGERS[from_numpy(array.dtype).name]
    return torch.from_numpy(array.view(stand_in)).view(element)
