"""The kernel language: write a kernel in Python, launch it on arrays.

>>> import numpy as np
>>> import luban.lang as tl
>>> x = np.arange(5, dtype=np.float32)

The names are those of the Triton language, and so is what they mean: `tl.load`, `tl.arange`,
`tl.float32`, `tl.constexpr`. `tl.jit` makes a kernel, `kernel[grid](...)` launches it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from luban.frontend.kernel import BUILTINS, BY_NAME, Constexpr, KernelError, PointerType
from luban.lang.autotune import Config, autotune, heuristics
from luban.lang.host import cdiv, next_power_of_2
from luban.lang.jit import JITFunction, jit

if TYPE_CHECKING:
    constexpr = Any  # so that a type checker takes `BLOCK: tl.constexpr` for any value
else:
    constexpr = Constexpr

__all__ = [
    "Config",
    "JITFunction",
    "KernelError",
    "autotune",
    "cdiv",
    "constexpr",
    "heuristics",
    "jit",
    "next_power_of_2",
]

pointer_type = PointerType

int1, int8, int16, int32, int64 = (BY_NAME[f"int{bits}"] for bits in (1, 8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (BY_NAME[f"uint{bits}"] for bits in (8, 16, 32, 64))
float16, bfloat16, float32, float64 = (BY_NAME[name] for name in ("fp16", "bf16", "fp32", "fp64"))
float8e4nv, float8e5 = BY_NAME["fp8e4nv"], BY_NAME["fp8e5"]
float8e4b8, float8e5b16 = BY_NAME["fp8e4b8"], BY_NAME["fp8e5b16"]

_PLAIN = {name: row for name, row in BUILTINS.items() if "." not in name}
math = SimpleNamespace(**{name: row for name, row in _PLAIN.items() if row.family == "maths"})
libdevice = SimpleNamespace(
    **{
        name.partition(".")[2]: row
        for name, row in BUILTINS.items()
        if name.startswith("libdevice.")
    }
)
extra = SimpleNamespace(libdevice=libdevice, cuda=SimpleNamespace(libdevice=libdevice))


def __getattr__(name: str) -> Any:
    if name not in _PLAIN:
        raise AttributeError(f"module 'luban.lang' has no attribute {name!r}")
    return _PLAIN[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLAIN})
