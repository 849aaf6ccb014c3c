"""Speed of compiled elementary functions beside numpy, in L1, one thread.

python -m benchmarks.vector_maths [function ...]
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.codegen_gemm import aligned, best_seconds
from luban.codegen.vector_math import FUNCTIONS
from luban.native.target import host_target
from luban.tile import Function, FunctionBuilder

N = 4096
NUMPY: dict[str, Any] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log1p": np.log1p, "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sqrt": np.sqrt, "asinh": np.arcsinh,
}  # fmt: skip


def program(kind: str, width: int) -> Function:
    """N elements, `width` at a time."""
    b = FunctionBuilder(f"time_{kind}")
    x, y = b.pointer("x", "f32", noalias="x"), b.pointer("y", "f32", noalias="y")
    with b.for_(0, N, width) as loop:
        value = b.load(x, loop.index, (width,))
        b.store(y, loop.index, b.unary(kind, value))  # type: ignore[arg-type]
    return b.finish()


def numpy_seconds(function: Callable[..., Any], x: Any, y: Any) -> float:
    """Fastest of many calls."""
    best = float("inf")
    for _ in range(200):
        start = time.perf_counter()
        function(x, out=y)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Print ns an element and the ratio to numpy."""
    target = host_target()
    x, y = aligned(N), aligned(N)
    x[:] = np.random.default_rng(0).standard_normal(N) * 2
    kinds = sys.argv[1:] or [k for k in FUNCTIONS if k not in ("pow", "atan2", "rem")]
    for kind in kinds:
        if kind in ("log", "log2", "log1p", "sqrt", "acosh"):
            np.abs(x, out=x)
        ours = best_seconds(program(kind, target.lanes(32)), [x, y], target, 50) / N
        text = f"{kind:<9}{ours * 1e9:7.3f} ns"
        if kind in NUMPY:
            with np.errstate(all="ignore"):
                theirs = numpy_seconds(NUMPY[kind], x, y) / N
            text += f"   numpy {theirs * 1e9:7.3f} ns  {theirs / ours:5.1f}x"
        print(text)


if __name__ == "__main__":
    main()
