"""The fast way from Python to a replay: builtins made by the JIT, and ctypes where they cannot be.

A builtin reads numpy's array structs itself, so a call costs about 0.1 us besides its kernels; the
same checks in Python and ctypes cost several us. Both give the same results, as small integers:
0 is success, and everything else goes to `Pool.attend` or back to the caller's careful path.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from luban.native import call_code, pool_code
from luban.native.cache import default_cache
from luban.native.link import Library
from luban.native.objects import begin_library, library_of
from luban.native.pool import HAS_FUTEX, Pool, pool_library
from luban.native.target import host_target

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "DECLINED",
    "ArrayParameter",
    "bind_arrays",
    "bind_arrays_in_python",
    "begin_runtime",
    "prepare_runtime",
    "bind_replay",
    "why_no_builtins",
]

# What a call returns when an array was not as expected. Nothing has happened then.
DECLINED = call_code.DECLINED

_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
_METH_NOARGS, _METH_FASTCALL = 0x4, 0x80

# The records hold the addresses of these.
_dtypes: dict[int, np.dtype[Any]] = {}


@dataclass(frozen=True, slots=True)
class ArrayParameter:
    """An array that a call takes: what it must be, and where its data address goes.

    slots      (address of an i64 slot, bytes to add to the data address)
    writeable  whether the program writes to it
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    slots: tuple[tuple[int, int], ...]
    writeable: bool = False

    def accepts(self, array: object) -> bool:
        """Whether `array` is a plain, C-contiguous, aligned array of this dtype and shape."""
        if type(array) is not np.ndarray or array.dtype != self.dtype or array.shape != self.shape:
            return False
        flags = array.flags
        return flags.c_contiguous and flags.aligned and (flags.writeable or not self.writeable)


def bind_replay(pool: Pool, table_address: int) -> Callable[[], int]:
    """A function of no arguments that replays the table and returns pool_code's result."""
    library = _builtins(pool.futex)
    if library is None:
        return functools.partial(pool.replay_native, table_address, None)
    record = np.array([table_address], np.int64)
    return _builtin(library.address("call_replay"), b"replay", _METH_NOARGS, record)


def bind_arrays(
    pool: Pool, table_address: int, parameters: Sequence[ArrayParameter]
) -> Callable[..., int]:
    """A function of one array per parameter: check them, fill the slots, replay the table.

    It returns pool_code's result, or DECLINED if an array is not what its parameter says: no error
    is raised, so the caller can convert the array, re-plan, or explain. Safe from any thread: while
    one replays, the others are told that the table is busy, before a slot is touched.
    """
    library = _builtins(pool.futex)
    if library is None:
        return bind_arrays_in_python(pool, table_address, parameters)
    return _builtin(
        library.address("call_arrays"), b"call", _METH_FASTCALL, _record(table_address, parameters)
    )


def bind_arrays_in_python(
    pool: Pool, table_address: int, parameters: Sequence[ArrayParameter]
) -> Callable[..., int]:
    """The same as `bind_arrays` where builtins cannot be: some fifty times slower."""
    return functools.partial(_call_in_python, pool, table_address, tuple(parameters))


def _call_in_python(
    pool: Pool, table_address: int, parameters: Sequence[ArrayParameter], *arrays: Any
) -> int:
    if len(arrays) != len(parameters):
        return DECLINED
    for parameter, array in zip(parameters, arrays, strict=True):
        if not parameter.accepts(array):
            return DECLINED
    if not pool.enter(table_address):
        return pool_code.REFUSED_BUSY
    for parameter, array in zip(parameters, arrays, strict=True):
        for slot, offset in parameter.slots:
            ctypes.c_int64.from_address(slot).value = array.ctypes.data + offset
    return int(pool.replay_entered(table_address, None))


def _record(table_address: int, parameters: Sequence[ArrayParameter]) -> npt.NDArray[np.int64]:
    """The record of call_code: fixed part, parameters, then the dims and slots they point to."""
    fixed_words = (call_code.RECORD_PARAMETERS + call_code.PARAMETER_BYTES * len(parameters)) // 8
    extra_words = sum(len(p.shape) + 2 * len(p.slots) for p in parameters)
    record = np.zeros(fixed_words + extra_words, np.int64)
    record[:3] = [table_address, len(parameters), id(np.ndarray)]
    start, free = record.ctypes.data, fixed_words
    for number, parameter in enumerate(parameters):
        _dtypes[id(parameter.dtype)] = parameter.dtype
        flags = _C_CONTIGUOUS | _ALIGNED | (_WRITEABLE if parameter.writeable else 0)
        dims_at, slots_at = free, free + len(parameter.shape)
        free = slots_at + 2 * len(parameter.slots)
        record[dims_at:slots_at] = parameter.shape
        record[slots_at:free] = np.array(parameter.slots, np.int64).reshape(-1)
        first = (call_code.RECORD_PARAMETERS + call_code.PARAMETER_BYTES * number) // 8
        record[first : first + 6] = [
            id(parameter.dtype),
            len(parameter.shape),
            start + 8 * dims_at,
            flags,
            len(parameter.slots),
            start + 8 * slots_at,
        ]
    return record


class _MethodDefinition(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@functools.cache
def _definition(address: int, name: bytes, flags: int) -> _MethodDefinition:
    """Kept for good, as CPython keeps a pointer to it."""
    return _MethodDefinition(name, address, flags, None)


def _builtin(
    address: int, name: bytes, flags: int, record: npt.NDArray[np.int64]
) -> Callable[..., int]:
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.POINTER(_MethodDefinition), ctypes.py_object, ctypes.c_void_p]
    made: Callable[..., int] = make(_definition(address, name, flags), record, None)
    return made


@functools.cache
def why_no_builtins() -> str | None:
    """Why calls go through ctypes in this process, for `luban doctor`; None if they do not."""
    if sys.implementation.name != "cpython":
        return f"the builtins are made for CPython, this is {sys.implementation.name}"
    if "t" in getattr(sys, "abiflags", ""):
        return "the builtins rely on the GIL, this Python was built without it"
    if struct.calcsize("P") != 8:
        return "the builtins are made for 64-bit Python"
    sample = np.zeros((3, 5), np.float32)

    def read(offset: int, kind: Any) -> Any:
        return kind.from_address(id(sample) + offset).value

    dims = read(call_code.ARRAY_DIMS, ctypes.c_int64)
    layout_holds = (
        read(call_code.ARRAY_TYPE, ctypes.c_int64) == id(np.ndarray)
        and read(call_code.ARRAY_DATA, ctypes.c_int64) == sample.ctypes.data
        and read(call_code.ARRAY_NUM_DIMS, ctypes.c_int32) == 2
        and tuple((ctypes.c_int64 * 2).from_address(dims)) == (3, 5)
        and read(call_code.ARRAY_DTYPE, ctypes.c_int64) == id(sample.dtype)
        and read(call_code.ARRAY_FLAGS, ctypes.c_int32) == sample.flags.num
    )
    return None if layout_holds else f"numpy {np.__version__} lays out its arrays in another way"


def begin_runtime() -> None:
    """Have what every first call needs compiled while other work goes on, if it is not cached."""
    if pool_library.cache_info().currsize:
        return
    begin_library(pool_code.pool_text(host_target(), HAS_FUTEX), default_cache())
    if why_no_builtins() is None:
        begin_library(call_code.call_text(pool_code.REFUSED_BUSY), default_cache())


def prepare_runtime() -> None:
    """Have what every first call needs in the cache."""
    pool_library(HAS_FUTEX)
    _builtins(HAS_FUTEX)


@functools.cache
def _builtins(futex: bool) -> Library | None:
    if why_no_builtins() is not None:
        return None
    names = ("PyEval_SaveThread", "PyEval_RestoreThread", "PyLong_FromLong")
    imports = {
        name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
        for name in names
    }
    runner = pool_library(futex)
    imports |= {name: runner.address(name) for name in ("replay", "enter", "replay_entered")}
    text = call_code.call_text(pool_code.REFUSED_BUSY)
    return library_of(text, call_code.ENTRY_POINTS, imports, default_cache())
