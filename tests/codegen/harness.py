"""Run tile programs as compiled code on numpy buffers."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luban.codegen import emit, scratch_bytes
from luban.core.dtypes import dtype
from luban.native.compile import assembly, compile_object, count_spills
from luban.native.link import link
from luban.native.target import Target, host_target, named_target
from luban.tile import Function, Module
from luban.tile.evaluate import run

__all__ = [
    "TARGETS",
    "aligned",
    "assert_same_bits",
    "check",
    "interesting",
    "run_compiled",
    "spills",
]

Array = NDArray[Any]

# This machine at its best, and with the features of AVX2 where it has them.
TARGETS = [t for t in (host_target(), named_target("avx2")) if t.runs_here]


def aligned(array: Array, align: int = 64) -> Array:
    """A copy whose address is a multiple of `align`."""
    raw = np.zeros(array.nbytes + align, np.uint8)
    start = -raw.ctypes.data % align
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _slot(function: Function, number: int, value: Array | int | float) -> int:
    """One 8-byte argument slot; an int for a pointer is an address."""
    kind = function.params[number].type
    if isinstance(value, np.ndarray):
        return int(value.ctypes.data)
    if kind.is_pointer:
        return int(value)
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
    library = link(
        [compile_object(emit(program, target, range_entry=True), target)], [module.entry, entry]
    )
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


def check(
    program: Module | Function,
    args: Sequence[Array | int | float],
    num_programs: int = 1,
    targets: Sequence[Target] | None = None,
) -> list[Array]:
    """Compiled code must leave every buffer bit for bit as the evaluator does; NaN equals NaN."""
    expected = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    run(program, expected, num_programs)
    for target in targets or TARGETS:
        given = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        run_compiled(program, given, num_programs, target)
        for number, (got, wanted) in enumerate(zip(given, expected, strict=True)):
            if isinstance(got, np.ndarray) and isinstance(wanted, np.ndarray):
                assert_same_bits(got, wanted, f"{target.name}, argument {number}")
    return [a for a in expected if isinstance(a, np.ndarray)]


def assert_same_bits(got: Array, wanted: Array, where: str) -> None:
    """Equal bits, except that every NaN equals every other."""
    unsigned = f"u{got.dtype.itemsize}"
    same = got.view(unsigned) == wanted.view(unsigned)
    if got.dtype.kind not in "iub" and got.dtype.name[:3] not in ("int", "uin"):
        with np.errstate(all="ignore"):
            wide_got, wide_wanted = got.astype(np.float64), wanted.astype(np.float64)
        same |= np.isnan(wide_got) & np.isnan(wide_wanted)
    if not same.all():
        bad = np.flatnonzero(~same.reshape(-1))
        shown = [f"[{i}] {got.flat[i]!r} not {wanted.flat[i]!r}" for i in bad[:4]]
        raise AssertionError(f"{where}: {len(bad)} of {same.size} differ: {'; '.join(shown)}")


def interesting(name: str, count: int, seed: int = 0) -> Array:
    """Numbers of a dtype, corners among them: limits, zeros, NaN, infinities, subnormals."""
    elem = dtype(name)
    rng = np.random.default_rng(seed)
    if elem.kind == "bool":
        return rng.integers(0, 2, count).astype(np.bool_)
    bits = rng.integers(0, 1 << min(elem.bits, 62), count, dtype=np.uint64)
    raw: Array = bits.astype(f"u{elem.size_bytes}").view(elem.numpy)
    corners: Array
    if elem.is_integer and elem.bits >= 8:
        small = rng.integers(0 if elem.kind == "uint" else -9, 10, count).astype(elem.numpy)
        limits = [elem.lowest, elem.highest, 0, 1, elem.highest - 1, elem.highest // 2]
        corners = np.array([*limits, *([-1] if elem.kind == "int" else [])], elem.numpy)
    elif elem.is_float and elem.bits >= 16:
        with np.errstate(all="ignore"):
            small = (rng.standard_normal(count) * 4).astype(elem.numpy)
            plain = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -2.5, 3.5, 1e-7, 7e4])
            subnormal = np.array([1, 0x8001]).astype(f"u{elem.size_bytes}").view(elem.numpy)
            corners = np.concatenate([plain.astype(elem.numpy), subnormal])
    else:
        return raw
    result: Array = np.where(rng.random(count) < 0.5, raw, small).astype(elem.numpy)
    places = rng.permutation(count)[: len(corners)]
    result[places] = corners[: len(places)]
    return result
