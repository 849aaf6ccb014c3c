"""`triton.runtime.driver`: what scripts ask of the device, answered for this machine's CPUs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from luban.lang.testing import do_bench
from luban.native.threads import available_threads

__all__ = ["DRIVER", "GPUTarget"]

# Kernels choose their block sizes by the shared memory of a GPU: this much keeps them moderate.
_SHARED_MEMORY_BYTES = 1 << 17


@dataclass(frozen=True)
class GPUTarget:
    """What code is generated for."""

    backend: str
    arch: int | str
    warp_size: int


class _Utilities:
    def get_device_properties(self, device: int = 0) -> dict[str, int]:  # noqa: ARG002
        """The figures by which scripts size their launches."""
        return {
            "multiprocessor_count": available_threads(),
            "max_shared_mem": _SHARED_MEMORY_BYTES,
            "max_num_regs": 1 << 16,
            "warpSize": 1,
            "sm_clock_rate": 1_000_000,
            "mem_clock_rate": 1_000_000,
            "mem_bus_width": 128,
        }


class _Active:
    """The one device: the CPUs of this process."""

    def __init__(self) -> None:
        self.utils = _Utilities()

    def get_current_target(self) -> GPUTarget:
        """The CPU."""
        return GPUTarget("cpu", 0, 1)

    def get_current_device(self) -> int:
        """There is one."""
        return 0

    def set_current_device(self, device: int) -> None:
        """There is one."""

    def get_current_stream(self, device: int = 0) -> int:  # noqa: ARG002  # as Triton calls it
        """Launches return when they are done: there is one stream."""
        return 0

    def get_active_torch_device(self) -> Any:
        """PyTorch's name of the device."""
        return import_module("torch").device("cpu")

    def get_device_interface(self) -> Any:
        """PyTorch's module of the device, and what it lacks of streams."""
        return SimpleNamespace(**{**vars(import_module("torch").cpu), "set_stream": _nothing})

    def get_benchmarker(self) -> Any:
        """How calls are timed."""
        return do_bench

    def get_empty_cache_for_benchmark(self) -> Any:
        """A buffer larger than caches."""
        return import_module("torch").empty(1 << 22, dtype=import_module("torch").int32)

    def clear_cache(self, cache: Any) -> None:
        """Write to the buffer."""
        cache.zero_()

    def map_python_to_cpp_type(self, kind: str) -> str:
        """The type's own name: no C++ is generated."""
        return kind


def _nothing(*_: Any, **__: Any) -> None:
    return None


DRIVER = SimpleNamespace(
    active=_Active(),
    set_active=_nothing,
    reset_active=_nothing,
    set_active_to_cpu=_nothing,
    set_active_to_gpu=_nothing,
    get_active_gpus=list,
)
