"""Arrays of other libraries as numpy arrays, through DLPack, without a copy where that can be.

numpy reads most of them itself. What it does not know (bfloat16, float8) is read here from the
capsule: the struct is fixed by the DLPack specification, version 0.8.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from luban.core.dtypes import DTYPES
from luban.core.errors import InputError

__all__ = ["as_array"]

Array = np.ndarray[Any, Any]
_CPU = 1
_NAMED_CODES = {
    (4, 16): "bf16",
    (10, 8): "f8e4m3fn",
    (11, 8): "f8e4m3fnuz",
    (12, 8): "f8e5m2",
    (13, 8): "f8e5m2fnuz",
    (14, 8): "f8e8m0",
}


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("num_dims", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def as_array(value: Any, label: str = "") -> Any:
    """numpy arrays and plain numbers as they are, other array objects as numpy arrays.

    Raises InputError for memory that is not the CPU's, and where the object refuses.
    """
    if isinstance(value, np.ndarray | np.generic) or not hasattr(value, "__dlpack__"):
        return value
    what = f"input {label!r}" if label else "the array"
    device = value.__dlpack_device__() if hasattr(value, "__dlpack_device__") else (_CPU, 0)
    if device[0] != _CPU:
        raise InputError(
            f"{what} lies on device {tuple(map(int, device))} in DLPack's terms, expected the CPU",
            hint="copy it to the CPU first, for instance with tensor.cpu()",
        )
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as refusal:
        try:
            return _from_capsule(value)
        except (BufferError, RuntimeError, TypeError, ValueError):
            raise InputError(
                f"{what} is a {type(value).__name__} that cannot be read: {refusal}",
                hint="give a plain array; a tensor that needs gradients has to be detached",
            ) from refusal


def _from_capsule(value: Any) -> Array:
    """A view of the object's memory with a dtype that only ml_dtypes has."""
    capsule = value.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _Tensor.from_address(pointer(capsule, b"dltensor"))
    name = _NAMED_CODES.get((tensor.code, tensor.bits))
    if name is None or tensor.lanes != 1:
        raise TypeError(f"DLPack type code {tensor.code} of {tensor.bits} bits")
    dtype = DTYPES[name].numpy
    shape = tuple(tensor.shape[i] for i in range(tensor.num_dims))
    if 0 in shape:
        return np.empty(shape, dtype)
    dense = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    given = tuple(tensor.strides[i] for i in range(len(shape))) if tensor.strides else dense
    if min(given, default=0) < 0:
        raise ValueError("negative strides")
    span = 1 + sum((n - 1) * stride for n, stride in zip(shape, given, strict=True))
    memory = (ctypes.c_uint8 * (span * dtype.itemsize)).from_address(
        tensor.data + tensor.byte_offset
    )
    memory.capsule = capsule  # the object's memory lives as long as a view of it
    strides = tuple(stride * dtype.itemsize for stride in given)
    return np.ndarray(shape, dtype, memory, strides=strides)
