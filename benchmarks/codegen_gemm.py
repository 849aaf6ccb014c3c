"""How close compiled tile programs come to the FMA peak: a register tile of C over a loop of k.

    python -m benchmarks.codegen_gemm

The peak is measured in the same run by a program that does nothing but FMAs in registers.
"""

import ctypes
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from luban.codegen import emit
from luban.native.compile import assembly, compile_object, count_spills
from luban.native.link import link
from luban.native.target import Target, host_target, named_target
from luban.tile import Function, FunctionBuilder

K = 512
# rows x vectors of the register tile, by vector width in bits
TILES = {512: [(6, 4), (8, 3), (14, 2)], 256: [(6, 2), (4, 3)]}


def gemm_program(rows: int, columns: int, unroll: int = 8) -> Function:
    """C[rows, columns] = A[rows, k] B[k, columns]: A as it is, B a packed panel."""
    b = FunctionBuilder(f"gemm_{rows}x{columns}")
    a = b.pointer("a", "f32", access="read", noalias="a")
    panel = b.pointer("panel", "f32", access="read", noalias="panel", alignment=64)
    c = b.pointer("c", "f32", access="write", noalias="c", alignment=64)
    start = b.full((rows, columns), 0.0, "f32")
    with b.for_(0, K, 1, carried=[start], unroll=unroll) as loop:
        (acc,) = loop.carried
        left = b.load(a, loop.index, (rows, 1), (K, 1))
        right = b.load(panel, loop.index * columns, (columns,), align=64)
        loop.yield_(b.fma(left, right, acc))
    b.store(c, b.program_id() * 0, loop.results[0], align=64)
    return b.finish()


def peak_program(vectors: int, lanes: int) -> Function:
    """`vectors` independent chains of FMAs, K steps each."""
    b = FunctionBuilder("peak")
    x, y = b.pointer("x", "f32", noalias="x"), b.pointer("y", "f32", noalias="y")
    factor = b.broadcast(b.load(x, 0, (lanes,)), (vectors, lanes))
    start = b.load(x, lanes, (vectors, lanes))
    with b.for_(0, K, 1, carried=[start], unroll=8) as loop:
        loop.yield_(b.fma(loop.carried[0], factor, factor))
    b.store(y, 0, loop.results[0])
    return b.finish()


def best_seconds(
    program: Function, arrays: Sequence[Any], target: Target, runs: int = 2000
) -> float:
    """Fastest of many short windows, for one run of the program."""
    symbol = f"{program.name}_range"
    library = link([compile_object(emit(program, target, range_entry=True), target)], [symbol])
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    call = kind(library.address(symbol))
    slots = (ctypes.c_uint64 * (len(arrays) + 1))(*[a.ctypes.data for a in arrays])
    address = ctypes.addressof(slots)
    best = float("inf")
    for _ in range(100):
        start = time.perf_counter()
        call(address, 0, runs, 0)
        best = min(best, (time.perf_counter() - start) / runs)
    return best


def aligned(count: int) -> Any:
    """Random f32 at a multiple of 64 bytes."""
    raw = np.zeros(count * 4 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    result = raw[start : start + count * 4].view(np.float32)
    result[:] = np.random.default_rng(0).random(count)
    return result


def report(target: Target) -> None:
    """Print one line a tile."""
    lanes = target.lanes(32)
    chains = 12 if target.num_vector_registers == 16 else 24
    flop = 2 * chains * lanes * K
    data = aligned((chains + 1) * lanes)
    data *= np.float32(1e-3)
    peak = flop / best_seconds(peak_program(chains, lanes), [data, aligned(chains * lanes)], target)
    print(f"{target.name}: peak {peak / 1e9:.0f} GFLOP/s")
    for rows, vectors in TILES[target.vector_bits]:
        columns = vectors * lanes
        program = gemm_program(rows, columns)
        arrays = [aligned(rows * K), aligned(K * columns), aligned(rows * columns)]
        rate = 2 * rows * columns * K / best_seconds(program, arrays, target, 500)
        spilled = count_spills(assembly(emit(program, target), target))
        share = f"{rate / 1e9:6.0f} GFLOP/s {rate / peak:6.0%}"
        print(f"  {rows:>2} x {columns:<3} {share}  {spilled} spills")


def main() -> None:
    """Measure the host and AVX2."""
    for target in (host_target(), named_target("avx2")):
        if target.runs_here and target.vector_bits in TILES:
            report(target)


if __name__ == "__main__":
    main()
