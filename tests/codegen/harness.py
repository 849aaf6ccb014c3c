"""Run tile programs as compiled code on numpy buffers."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luban.codegen import emit, scratch_bytes
from luban.native.compile import assembly, compile_object, count_spills
from luban.native.link import link
from luban.native.target import Target, host_target, named_target
from luban.tile import Function, Module

__all__ = ["TARGETS", "aligned", "run_compiled", "spills"]

Array = NDArray[Any]

# Every target this machine can run.
TARGETS = [t for t in (host_target(), named_target("avx512"), named_target("avx2")) if t.runs_here]


def aligned(array: Array, align: int = 64) -> Array:
    """A copy whose address is a multiple of `align`."""
    raw = np.zeros(array.nbytes + align, np.uint8)
    start = -raw.ctypes.data % align
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _slot(function: Function, number: int, value: Array | int | float) -> int:
    """One 8-byte argument slot."""
    kind = function.params[number].type
    if isinstance(value, np.ndarray):
        return value.ctypes.data
    raw = np.array(value).astype(kind.dtype.numpy).tobytes()
    return int(struct.unpack("<Q", raw.ljust(8, b"\0"))[0])


def run_compiled(
    program: Module | Function,
    args: Sequence[Array | int | float],
    num_programs: int = 1,
    target: Target | None = None,
    thread: int = 0,
) -> None:
    """Compile, link and run programs 0 .. num_programs - 1; arrays change in place."""
    target = target or host_target()
    module = Module.of(program)
    entry = f"{module.entry}_range"
    library = link([compile_object(emit(program, target), target)], [module.entry, entry])
    slots = [_slot(module.kernel, number, value) for number, value in enumerate(args)]
    scratch = np.empty(scratch_bytes(program) * (thread + 1) + 64, np.uint8)
    slots.append((scratch.ctypes.data + 63) & -64)
    packed = (ctypes.c_uint64 * len(slots))(*slots)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    kind(library.address(entry))(ctypes.addressof(packed), 0, num_programs, thread)
    library.close()


def spills(program: Module | Function, target: Target) -> int:
    """Vector registers that the compiled program spills."""
    return count_spills(assembly(emit(program, target), target))
