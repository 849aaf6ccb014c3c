"""Kernels of the Triton language on the CPU, next to torch eager and to the machine's limits.

    python -m benchmarks.kernel_language [--threads 1 2]

The kernels are those that tests/lang holds against numpy. Rounds take turns, so both sides see the
same machine; a ratio is the median over rounds. Each thread count is a process of its own.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.report import table
from luban.lang.jit import JITFunction
from tests.lang.kernels import (
    add_kernel,
    attention_kernel,
    layer_norm_kernel,
    matmul_kernel,
    softmax_kernel,
)

ROUNDS = 15
HEADER = ["kernel", "threads", "luban ms", "torch ms", "x torch", "rate", "first launch ms"]


@dataclass(frozen=True)
class Contest:
    """A launch of ours, torch's answer to the same, and what the work amounts to."""

    name: str
    ours: Callable[[], object]
    torch: Callable[[], object]
    amount: float
    unit: str
    first_ms: float


def first_launch_ms(kernel: JITFunction, launch: Callable[[], object]) -> float:
    """What the first launch of this kind costs: building, lowering, LLVM or the cache."""
    del kernel
    start = time.perf_counter()
    launch()
    return 1e3 * (time.perf_counter() - start)


def contests() -> list[Contest]:
    """The tutorials' kernels at their usual sizes."""
    import torch

    random = np.random.default_rng(0)

    def numbers(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    found = []

    def add(
        name: str,
        kernel: JITFunction,
        launch: Callable[[], object],
        peer: Callable[[], object],
        amount: float,
        unit: str,
    ) -> None:
        first = first_launch_ms(kernel, launch)
        found.append(Contest(name, launch, peer, amount, unit, first))

    n = 1 << 24
    x, y, out = numbers(n), numbers(n), np.empty(n, np.float32)
    tx, ty, to = (torch.from_numpy(a) for a in (x, y, out))
    add(
        "add, 16 M",
        add_kernel,
        lambda: add_kernel[(n // 4096,)](x, y, out, n, BLOCK=4096),
        lambda: torch.add(tx, ty, out=to),
        12.0 * n,
        "GB/s",
    )
    rows, columns = 1823, 781
    s, so = numbers(rows, columns), np.empty((rows, columns), np.float32)
    ts = torch.from_numpy(s)
    add(
        f"softmax, {rows} x {columns}",
        softmax_kernel,
        lambda: softmax_kernel[(rows,)](so, s, columns, columns, columns, BLOCK=1024),
        lambda: torch.softmax(ts, 1),
        8.0 * rows * columns,
        "GB/s",
    )
    m, d = 1151, 2048
    w, b, lx, ly = numbers(d), numbers(d), numbers(m, d), np.empty((m, d), np.float32)
    tw, tb, tlx = (torch.from_numpy(a) for a in (w, b, lx))
    add(
        f"layer norm, {m} x {d}",
        layer_norm_kernel,
        lambda: layer_norm_kernel[(m,)](lx, ly, w, b, d, d, 1e-5, BLOCK=1024),
        lambda: torch.layer_norm(tlx, (d,), tw, tb, 1e-5),
        8.0 * m * d,
        "GB/s",
    )
    length, dims = 1024, 64
    q, k, v = (numbers(length, dims) for _ in range(3))
    o = np.empty_like(q)
    tq, tk, tv = (torch.from_numpy(a)[None, None] for a in (q, k, v))
    add(
        f"attention, {length} x {dims}",
        attention_kernel,
        lambda: attention_kernel[(length // 64,)](
            q, k, v, o, dims**-0.5, length, D=dims, BM=64, BN=64
        ),
        lambda: torch.nn.functional.scaled_dot_product_attention(tq, tk, tv),
        4.0 * length * length * dims,
        "GFLOP/s",
    )
    size = 1024
    a, e, c = numbers(size, size), numbers(size, size), np.empty((size, size), np.float32)
    ta, te, tc = (torch.from_numpy(t) for t in (a, e, c))
    for block in ((64, 64, 32), (128, 128, 64)):
        bm, bn, bk = block
        grid = (size // bm * (size // bn),)
        add(
            f"matmul {size}, blocks {bm} x {bn} x {bk}",
            matmul_kernel,
            lambda grid=grid, bm=bm, bn=bn, bk=bk: matmul_kernel[grid](  # type: ignore[misc]
                a, e, c, size, size, size, size, 1, size, 1, size, 1,
                BM=bm, BN=bn, BK=bk, GROUP=8, ACT="",
            ),
            lambda: torch.mm(ta, te, out=tc),
            2.0 * size**3,
            "GFLOP/s",
        )  # fmt: skip
    return found


def measure(contest: Contest) -> list[str]:
    """One row of the table."""
    times: list[tuple[float, float]] = []
    contest.ours(), contest.torch()
    for _ in range(ROUNDS):
        pair = []
        for run in (contest.ours, contest.torch):
            start = time.perf_counter()
            run()
            pair.append(time.perf_counter() - start)
        times.append((pair[0], pair[1]))
    ours, peer = (statistics.median(t[side] for t in times) for side in (0, 1))
    ratio = statistics.median(theirs / own for own, theirs in times)
    rate = contest.amount / ours / 1e9
    return [
        contest.name,
        os.environ["LUBAN_NUM_THREADS"],
        f"{1e3 * ours:.3f}",
        f"{1e3 * peer:.3f}",
        f"{ratio:.2f}",
        f"{rate:.1f} {contest.unit}",
        f"{contest.first_ms:.0f}",
    ]


def launch_cost() -> str:
    """Microseconds of a launch of one small program, and of one that is bound beforehand."""
    x, out = np.ones(256, np.float32), np.zeros(256, np.float32)

    def best(run: Callable[[], object]) -> float:
        run()
        times = []
        for _ in range(2000):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        return 1e6 * statistics.median(times)

    plain = best(lambda: add_kernel[(1,)](x, x, out, 256, BLOCK=256))
    bound = best(add_kernel.bound((1,), x, x, out, 256, BLOCK=256))
    return f"a launch takes {plain:.1f} us, one bound beforehand {bound:.2f} us"


def main() -> None:
    """Measure and print, a process for each thread count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.one:
        for count in options.threads:
            environment = {**os.environ, "LUBAN_NUM_THREADS": str(count)}
            command = [sys.executable, "-m", "benchmarks.kernel_language", "--one"]
            subprocess.run(command, env=environment, check=True)
        return
    import torch

    torch.set_num_threads(int(os.environ["LUBAN_NUM_THREADS"]))
    print(table(HEADER, [measure(contest) for contest in contests()]))
    print(launch_cost())


if __name__ == "__main__":
    main()
