"""Scripts that say "cuda" on a machine without one: PyTorch calls are sent to another device.

`DeviceMap` is a torch function mode, so it sees every call of PyTorch on its thread and rewrites
the devices among the arguments. What asks the CUDA runtime itself, such as
`torch.cuda.synchronize()`, gets an answer from a table for as long as the map is active.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from luban.core.errors import OptionError

__all__ = ["DeviceMap", "parse_device_map"]

_MULTIPROCESSORS = max(1, os.cpu_count() or 1)


def parse_device_map(text: str) -> tuple[str, str]:
    """The two sides of a map such as cuda=cpu. Raises OptionError for other texts.

    >>> parse_device_map("cuda=cpu")
    ('cuda', 'cpu')
    """
    source, equals, target = text.partition("=")
    if not (source and equals and target == "cpu" and source != "cpu"):
        raise OptionError(
            f"device map {text!r} is not understood, expected FROM=cpu",
            hint="give one such as cuda=cpu: kernels run on the CPU",
        )
    return source, target


class DeviceMap(TorchFunctionMode):
    """While entered, PyTorch code that names `source` works on `target`.

    source, target  device types, such as "cuda" and "cpu"
    """

    def __init__(self, source: str = "cuda", target: str = "cpu") -> None:
        super().__init__()
        self.source = source
        self.target = target
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> Any:
        self._undo.enter_context(_runtime_answers(self.source))
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *reason: Any) -> None:
        super().__exit__(*reason)  # type: ignore[no-untyped-call]
        self._undo.close()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,  # the signature is PyTorch's
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name == self.source and args and isinstance(args[0], torch.Tensor):
            return args[0]  # x.cuda()
        if name == "pin_memory":
            return args[0]
        if name == "__get__" and func == _IS_CUDA and self.source == "cuda":
            return args[0].device.type == self.target
        args = tuple(map(self.mapped, args))
        named = {key: self.mapped(value) for key, value in (kwargs or {}).items()}
        # An index alone means a device of the accelerator, as in torch.empty(8, device=0).
        if isinstance(named.get("device"), int):
            named["device"] = torch.device(self.target)
        return func(*args, **named)

    def mapped(self, value: Any) -> Any:
        """The value, or the target's device in place of the source's."""
        if isinstance(value, str):
            kind, _, index = value.partition(":")
            if kind == self.source and (not index or index.isdigit()):
                return self.target
        elif isinstance(value, torch.device) and value.type == self.source:
            return torch.device(self.target)
        return value


_IS_CUDA = vars(torch._C.TensorBase)["is_cuda"].__get__


class _Nothing:
    """A stream, an event or a guard of a device that does all work before it returns."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._start = 0.0
        self.cuda_stream = 0
        self.device = torch.device("cpu")

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *reason: object) -> None:
        return None

    def record(self, *_: Any) -> None:
        """Remember the time, as an event does."""
        self._start = time.perf_counter()

    def elapsed_time(self, end: _Nothing) -> float:
        """Milliseconds between two events."""
        return (end._start - self._start) * 1e3

    def synchronize(self, *_: Any) -> None:
        """Everything is done."""

    wait = wait_event = wait_stream = record_stream = synchronize

    def query(self) -> bool:
        """Everything is done."""
        return True


class _Generator(torch.Generator):
    """`torch.Generator` whose device is the CPU, whichever is asked for."""

    def __new__(cls, device: object = "cpu") -> _Generator:  # noqa: ARG004
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]


def _properties(*_: Any) -> SimpleNamespace:
    return SimpleNamespace(
        name="CPU",
        major=8,
        minor=0,
        multi_processor_count=_MULTIPROCESSORS,
        total_memory=1 << 33,
        shared_memory_per_block=1 << 17,
        shared_memory_per_block_optin=1 << 17,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=1 << 16,
        warp_size=32,
        L2_cache_size=1 << 20,
        gcnArchName="",
    )


def _nothing(*_: Any, **__: Any) -> None:
    return None


class _PhiloxState:
    """The generator of a GPU: its state is a seed and an offset, 16 bytes."""

    def __init__(self) -> None:
        self._state = torch.tensor([0, 0], dtype=torch.int64)

    def get_state(self) -> torch.Tensor:
        """The seed and the offset, as bytes; the seed is PyTorch's."""
        self._state[0] = torch.initial_seed()
        return self._state.clone().view(torch.uint8)

    def set_state(self, state: torch.Tensor) -> None:
        """Take over an offset."""
        self._state = state.view(torch.int64).clone()


def _seed(number: int) -> torch.Generator:
    return torch.default_generator.manual_seed(int(number))


# What `torch.cuda.NAME` is while the map is active. A capability of 8.0 has bfloat16 and no
# instructions (TMA, warp groups) that kernels would use through inline assembly.
_CUDA: Mapping[str, Any] = {
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "is_bf16_supported": lambda *_, **__: True,
    "init": _nothing,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": _nothing,
    "synchronize": _nothing,
    "empty_cache": _nothing,
    "ipc_collect": _nothing,
    "reset_peak_memory_stats": _nothing,
    "reset_max_memory_allocated": _nothing,
    "max_memory_allocated": lambda *_: 0,
    "memory_allocated": lambda *_: 0,
    "mem_get_info": lambda *_: (1 << 33, 1 << 33),
    "manual_seed": _seed,
    "manual_seed_all": _seed,
    "get_device_name": lambda *_: "CPU",
    "get_device_capability": lambda *_: (8, 0),
    "get_device_properties": _properties,
    "current_stream": lambda *_: _Nothing(),
    "default_stream": lambda *_: _Nothing(),
    "stream": _Nothing,
    "Stream": _Nothing,
    "Event": _Nothing,
    "device": _Nothing,
    "device_of": _Nothing,
    "_DeviceGuard": _Nothing,
    "default_generators": (_PhiloxState(),),
}


def _own(name: str, answer: Any) -> Any:
    """An object of its own for each name: PyTorch's compiler keeps tables by identity."""
    if isinstance(answer, type):
        return type(name, (answer,), {})
    if not callable(answer):
        return answer

    def own(*args: Any, **kwargs: Any) -> Any:
        return answer(*args, **kwargs)

    return own


@contextlib.contextmanager
def _runtime_answers(source: str) -> Iterator[None]:
    """Answer for the CUDA runtime. PyTorch seeds all its devices: it must not ask us back."""
    if source != "cuda":
        yield
        return
    replaced: list[tuple[Any, str, Any]] = [
        (torch.cuda, name, _own(name, new)) for name, new in _CUDA.items()
    ]
    replaced += [
        (torch, "manual_seed", _seed),
        (torch, "Generator", _Generator),
        (torch._C, "_cuda_getCurrentRawStream", lambda *_: 0),
        (torch.cpu, "set_stream", _nothing),
    ]
    missing = object()
    before = [(owner, name, getattr(owner, name, missing)) for owner, name, _ in replaced]
    try:
        for owner, name, new in replaced:
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, old in before:
            if old is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
