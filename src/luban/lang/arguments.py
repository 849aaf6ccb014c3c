"""Arguments of a kernel launch: what is compiled in, what is handed over, and in which memory."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from luban.core.dtypes import DTYPES, DType, dtype
from luban.core.errors import InputError
from luban.engine.arrays import as_array
from luban.frontend.kernel import ArgumentType, ElementType, PointerTo, ScalarOf

__all__ = ["Call", "Memory", "specialise"]

_INT32 = range(-(1 << 31), 1 << 31)
_INT64 = range(-(1 << 63), 1 << 63)
_TORCH = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8",
    "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16",
    "uint32": "u32", "uint64": "u64", "bool": "bool", "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2", "float8_e4m3fnuz": "f8e4m3fnuz", "float8_e5m2fnuz": "f8e5m2fnuz",
}  # fmt: skip

_BY_NUMPY = {
    found.numpy: found for found in DTYPES.values() if found.kind not in ("complex", "string")
}


@dataclass(slots=True)
class Memory:
    """Where an array argument lies.

    address    of its first element
    start, end the whole of the memory that it is part of
    owner      keeps it alive
    """

    dtype: DType
    address: int
    start: int
    end: int
    writeable: bool
    owner: object

    def elements(self) -> NDArray[Any]:
        """The memory from the first element on, as one line of elements."""
        size = max(self.end - self.address, 0) // self.dtype.size_bytes
        if size == 0:
            return np.empty(0, self.dtype.numpy)
        raw = (ctypes.c_uint8 * (size * self.dtype.size_bytes)).from_address(self.address)
        found = np.ctypeslib.as_array(raw).view(self.dtype.numpy)
        found.flags.writeable = self.writeable
        return found


@dataclass(slots=True)
class Call:
    """One launch's arguments.

    key        what the compiled kernel depends on, besides the source
    types      of the parameters that the run is given
    constants  values of the others
    slots      8 bytes for each run-time parameter: addresses, numbers, bits of floats
    values     the same as memory and numbers, for the evaluator
    """

    key: tuple[Any, ...]
    types: dict[str, ArgumentType]
    constants: dict[str, Any]
    slots: list[int]
    values: list[Memory | int | float | bool]


def _memory(value: Any, name: str) -> Memory | None:
    """The memory of an array argument; None for what is no array."""
    kind = type(value)
    if kind.__module__.partition(".")[0] == "torch" and hasattr(value, "data_ptr"):
        return _torch_memory(value, name)
    if kind is np.ndarray or isinstance(value, np.ndarray) or hasattr(value, "__dlpack__"):
        array = as_array(value, name)
        found = _BY_NUMPY.get(array.dtype) or _numpy_dtype(array, name)
        address, read_only = array.__array_interface__["data"]
        whole = array
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        if whole.flags.c_contiguous:
            low = address if whole is array else whole.__array_interface__["data"][0]
            high = low + whole.nbytes
        else:
            low, high = np.lib.array_utils.byte_bounds(whole)
        return Memory(found, address, low, high, not read_only, array)
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        return _view(value, name)
    return None


_UNKNOWN = range(1 << 63)  # where memory may be that says no more than its address


def _view(value: Any, name: str) -> Memory:
    """The memory of an object that has an address and a type: a reinterpreted tensor, or alike."""
    given = value.dtype
    word = _TORCH.get(str(given).removeprefix("torch."), "")
    found = given.dtype if isinstance(given, ElementType) else DTYPES.get(word)
    if found is None:
        raise InputError(f"argument {name!r} is memory of {given}, expected real numbers")
    inner = getattr(value, "base", getattr(value, "_base", None))
    memory = None if inner is None else _memory(inner, name)
    address = int(value.data_ptr())
    if memory is None:
        return Memory(found, address, _UNKNOWN.start, _UNKNOWN.stop, True, value)
    return replace(memory, dtype=found, address=address, owner=value)


def _numpy_dtype(array: NDArray[Any], name: str) -> NoReturn:
    raise InputError(
        f"argument {name!r} is an array of {array.dtype}, expected numbers",
        hint="kernels take bool, integers and floats up to 64 bits",
    )


def _torch_memory(value: Any, name: str) -> Memory:
    if value.device.type != "cpu":
        raise InputError(
            f"argument {name!r} is a tensor on {value.device}, expected the CPU",
            hint="copy it with .cpu(), or run the script under luban.lang.compat with a device map",
        )
    word = str(value.dtype).removeprefix("torch.")
    if word not in _TORCH:
        raise InputError(f"argument {name!r} is a tensor of {value.dtype}, expected real numbers")
    storage = value.untyped_storage()
    start = storage.data_ptr()
    return Memory(
        dtype(_TORCH[word]), value.data_ptr(), start, start + storage.nbytes(), True, value
    )


def _scalar(value: bool | int | float) -> tuple[str, int]:
    """The type of a number at run time, and its 8 bytes."""
    if isinstance(value, bool):
        return "bool", int(value)
    if isinstance(value, int):
        for name, fits in (("i32", _INT32), ("i64", _INT64)):
            if value in fits:
                return name, value
        if 0 <= value < 1 << 64:
            return "u64", value - (1 << 64)
        raise InputError(f"the number {value} does not fit 64 bits")
    return "f32", struct.unpack("<i", struct.pack("<f", _f32(value)))[0]


def _f32(value: float) -> float:
    try:
        struct.pack("<f", value)
    except OverflowError:
        return float("inf") if value > 0 else -float("inf")
    return value


def specialise(
    names: Sequence[str],
    given: Mapping[str, Any],
    constexprs: frozenset[str],
    general: frozenset[str] = frozenset(),
) -> Call:
    """Sort a launch's arguments into compiled-in and handed over.

    constexprs  parameters that are compiled in, whatever they are
    general     integers among these are not compiled in when they are 1

    Arrays become pointers, 1 and None are compiled in, other numbers are handed over. Arrays that
    share memory get one alias group. Raises InputError for what no kernel takes.
    """
    call = Call((), {}, {}, [], [])
    memories: list[tuple[str, Memory]] = []
    key: list[Any] = []
    for name in names:
        value = given[name]
        if name in constexprs:
            call.constants[name] = value
            key.append(_frozen(value))
            continue
        _sort(call, key, memories, name, value, general)
    groups = _groups([memory for _, memory in memories])
    for (name, memory), group in zip(memories, groups, strict=True):
        call.types[name] = PointerTo(memory.dtype, f"m{group}")
    call.key = (*key, tuple(groups))
    return call


def _sort(
    call: Call,
    key: list[Any],
    memories: list[tuple[str, Memory]],
    name: str,
    value: Any,
    general: frozenset[str],
) -> None:
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    if value is None or (type(value) is int and value == 1 and name not in general):
        call.constants[name] = value
        key.append(_frozen(value))
    elif isinstance(value, (bool, int, float)):
        kind, slot = _scalar(value)
        call.types[name] = ScalarOf(DTYPES[kind])
        call.slots.append(slot)
        call.values.append(value)
        key.append(kind)
    elif (memory := _memory(value, name)) is not None:
        memories.append((name, memory))
        call.types[name] = PointerTo(memory.dtype)
        call.slots.append(memory.address)
        call.values.append(memory)
        key.append(memory.dtype.name)
    else:
        call.constants[name] = value
        key.append(_frozen(value))


def _frozen(value: Any) -> Any:
    """A constant as part of a key: 1, 1.0 and True are different constants."""
    inner = getattr(value, "value", value)
    if isinstance(inner, (tuple, list)):
        return (type(inner).__name__, *map(_frozen, inner))
    return (
        type(inner).__name__,
        inner if isinstance(inner, (bool, int, float, str)) else repr(inner),
    )


def _groups(memories: Sequence[Memory]) -> list[int]:
    """A number for each memory; those that overlap share one."""
    groups: list[int] = []
    for place, memory in enumerate(memories):
        found = place
        for earlier in range(place):
            other = memories[earlier]
            if memory.start < other.end and other.start < memory.end:
                found = groups[earlier]
                break
        groups.append(found)
    return groups
