"""The stand-in's modules: under each name that scripts import, what of Luban they get.

One table by qualified name. What is not here does not exist for scripts, which is how those that
ask for features of other versions find out.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import luban.lang as tl
from luban import __version__
from luban.core.errors import LubanError
from luban.frontend.kernel import BUILTINS, BY_NAME, Constexpr, ElementType, KernelError
from luban.frontend.kernel.values import BlockPointer, Tensor
from luban.lang import testing
from luban.lang.autotune import Autotuner, Config, Heuristics, autotune, heuristics
from luban.lang.compat import knobs
from luban.lang.compat.driver import DRIVER, GPUTarget
from luban.lang.host import cdiv, next_power_of_2
from luban.lang.interface import KernelInterface
from luban.lang.jit import JITFunction, jit
from luban.lang.launch import Compiled
from luban.lang.wrappers import TensorDescriptor, TensorWrapper, reinterpret

__all__ = ["MODULES", "SUBMODULES", "VERSION"]

VERSION = "3.9.0"  # the level of the language; block pointers are kept

Names = Mapping[str, Any]


class OutOfResources(LubanError):
    """A kernel needs more memory than a device has. Never raised on CPUs."""


class PTXASError(LubanError):
    """The assembler of a GPU failed. Never raised on CPUs."""


class InterpreterError(LubanError):
    """A kernel failed in the interpreter."""


def _set_allocator(allocator: Callable[..., Any] | None = None) -> None:
    """Descriptors need no memory of their own: nothing to do."""
    del allocator


def _identity(value: Any = None, **_: Any) -> Any:
    """A decorator that changes nothing, with or without arguments."""
    return (lambda inner: inner) if value is None else value


def _constexpr_function(function: Any) -> Any:
    """A Python function that kernels may call with constants."""

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        plain = [getattr(x, "value", x) if isinstance(x, Constexpr) else x for x in arguments]
        return function(*plain, **keywords)

    return call


def _host_language() -> Names:
    plain = {name: row for name, row in BUILTINS.items() if "." not in name}
    types = {
        name: value
        for name, value in vars(tl).items()
        if isinstance(value, ElementType) or name in ("math", "pointer_type")
    }
    return {
        **plain,
        **types,
        "constexpr": Constexpr,
        "tensor": Tensor,
        "tensor_descriptor": BlockPointer,
        "CONSTEXPR_0": Constexpr(0),
        "dtype": ElementType,
        "void": None,
        "constexpr_function": _constexpr_function,
        "PropagateNan": SimpleNamespace(NONE=False, ALL=True),
        "TRITON_MAX_TENSOR_NUMEL": 1 << 20,
        "str_to_ty": _str_to_type,
        "_log2": lambda n: int(_plain(n)).bit_length() - 1,
        "get_int_dtype": lambda bits, signed: BY_NAME[f"{'' if signed else 'u'}int{bits}"],
        "_unwrap_if_constexpr": _plain,
        "tuple": tuple,
        **_DEVICE_WORDS,
    }


_DEVICE_WORDS: Names = {"builtin": _identity, "_aggregate": _identity}


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Constexpr) else value


def _str_to_type(name: str, _: Any = None) -> Any:
    """`fp32` or `*fp32` to a type."""
    if name.startswith("*"):
        return tl.pointer_type(_str_to_type(name[1:].removeprefix("k")))
    names = {"i1": "int1", "u1": "int1"} | {
        f"{s}{bits}": f"{full}{bits}"
        for s, full in (("i", "int"), ("u", "uint"))
        for bits in (8, 16, 32, 64)
    }
    return BY_NAME[names.get(name, name)]


def _libdevice() -> Names:
    rows = [(name.partition("."), row) for name, row in BUILTINS.items()]
    return {name: row for (family, _, name), row in rows if family == "libdevice"}


def _math() -> Names:
    plain = {name: row for name, row in BUILTINS.items() if "." not in name}
    return {**_libdevice(), **{n: row for n, row in plain.items() if row.family == "maths"}}


def _root() -> Names:
    return {
        "__version__": VERSION,
        "jit": jit,
        "autotune": autotune,
        "heuristics": heuristics,
        "Config": Config,
        "cdiv": cdiv,
        "next_power_of_2": next_power_of_2,
        "JITFunction": JITFunction,
        "KernelInterface": KernelInterface,
        "TensorWrapper": TensorWrapper,
        "reinterpret": reinterpret,
        "OutOfResources": OutOfResources,
        "InterpreterError": InterpreterError,
        "CompilationError": KernelError,
        "TritonError": LubanError,
        "MockTensor": TensorWrapper,
        "set_allocator": _set_allocator,
        "must_use_result": _identity,
        "constexpr_function": _constexpr_function,
    }


def _runtime() -> Names:
    return {
        "driver": DRIVER,
        "Autotuner": Autotuner,
        "Config": Config,
        "Heuristics": Heuristics,
        "JITFunction": JITFunction,
        "KernelInterface": KernelInterface,
        "TensorWrapper": TensorWrapper,
        "OutOfResources": OutOfResources,
        "autotune": autotune,
        "heuristics": heuristics,
        "reinterpret": reinterpret,
        "set_allocator": _set_allocator,
    }


_CANONICAL = {
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
    "bool": "i1", "int1": "i1", "float16": "fp16", "float32": "fp32", "float64": "fp64",
    "bfloat16": "bf16", "half": "fp16", "float": "fp32", "double": "fp64",
    "float8_e5m2": "fp8e5", "float8e5": "fp8e5", "float8_e4m3fn": "fp8e4nv",
    "float8e4nv": "fp8e4nv", "float8e4b15": "fp8e4b15", "float8e4b8": "fp8e4b8",
    "float8e5b16": "fp8e5b16",
}  # fmt: skip


def _testing() -> Names:
    return {
        **{name: getattr(testing, name) for name in testing.__all__},
        "do_bench_cudagraph": testing.do_bench,
        "nvsmi": lambda _: [0],
        "get_dram_gbps": lambda *_: 1.0,
        "get_max_tensorcore_tflops": lambda *_: 1.0,
        "get_max_simd_tflops": lambda *_: 1.0,
        "set_gpu_clock": contextlib.nullcontext,
        "cuda_memcheck": lambda **_: _identity,
    }


# Each module's names, made when it is first imported.
MODULES: Mapping[str, Callable[[], Names]] = {
    "triton": _root,
    "triton.language": _host_language,
    "triton.language.core": _host_language,
    "triton.language.standard": _host_language,
    "triton.language.random": _host_language,
    "triton.language.math": _math,
    "triton.language.libdevice": _libdevice,
    "triton.language.extra": dict,
    "triton.language.extra.libdevice": _libdevice,
    "triton.language.extra.cuda": dict,
    "triton.language.extra.cuda.libdevice": _libdevice,
    "triton.language.extra.hip": dict,
    "triton.language.extra.hip.libdevice": _libdevice,
    "triton.language.extra.cpu": dict,
    "triton.language.extra.cpu.libdevice": _libdevice,
    "triton.runtime": _runtime,
    "triton.runtime.driver": lambda: {**vars(DRIVER), "driver": DRIVER},
    "triton.runtime.jit": lambda: {
        **_runtime(),
        "jit": jit,
        "MockTensor": TensorWrapper,
        "type_canonicalisation_dict": _CANONICAL,
        "get_cuda_stream": lambda *_: 0,
    },
    "triton.runtime.autotuner": _runtime,
    "triton.runtime.errors": lambda: {
        "OutOfResources": OutOfResources,
        "PTXASError": PTXASError,
        "InterpreterError": InterpreterError,
    },
    "triton.runtime._allocation": lambda: {
        "set_allocator": _set_allocator,
        "NullAllocator": SimpleNamespace,
    },
    "triton.testing": _testing,
    "triton.tools": dict,
    "triton.tools.tensor_descriptor": lambda: {"TensorDescriptor": TensorDescriptor},
    "triton.compiler": lambda: {"CompiledKernel": Compiled, "CompilationError": KernelError},
    "triton.compiler.errors": lambda: {
        "CompilationError": KernelError,
        "CompileTimeAssertionFailure": KernelError,
        "UnsupportedLanguageConstruct": KernelError,
    },
    "triton.compiler.compiler": lambda: {
        "CompiledKernel": Compiled,
        "triton_key": lambda: f"luban {__version__}, level {VERSION}",
    },
    "triton.ops": dict,
    "triton.ops.matmul_perf_model": lambda: {
        "early_config_prune": lambda configs, *_, **__: configs,
        "estimate_matmul_time": lambda **_: 0.0,
    },
    "triton.errors": lambda: {"TritonError": LubanError},
    "triton.backends": lambda: {"backends": {}},
    "triton.backends.compiler": lambda: {"GPUTarget": GPUTarget},
    "triton.knobs": knobs.names,
}

# Submodules that come with their parent, as attributes.
SUBMODULES: Mapping[str, tuple[str, ...]] = {
    "triton": ("language", "runtime", "testing", "tools", "compiler", "knobs", "errors"),
    "triton.language": ("core", "standard", "random", "math", "extra"),
    "triton.language.extra": ("libdevice", "cuda", "hip", "cpu"),
    "triton.language.extra.cuda": ("libdevice",),
    "triton.language.extra.hip": ("libdevice",),
    "triton.language.extra.cpu": ("libdevice",),
    "triton.runtime": ("jit", "autotuner", "errors"),
    "triton.tools": ("tensor_descriptor",),
    "triton.compiler": ("compiler", "errors"),
}
