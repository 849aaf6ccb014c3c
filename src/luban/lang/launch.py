"""Compiling and launching kernels: one compiled form for each kind of arguments, kept on disk."""

from __future__ import annotations

import functools
import hashlib
import json
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from luban.codegen.llvm import emit_named, scratch_bytes
from luban.core import settings
from luban.core.errors import InputError, LubanWarning
from luban.engine.artifact import versions_digest
from luban.engine.kernels import registers_of
from luban.frontend.kernel import KernelSource, build
from luban.lang.arguments import Call, Memory
from luban.lower.blocks import lower_blocks
from luban.lower.trace import Declined
from luban.native.cache import default_cache
from luban.native.link import Library
from luban.native.objects import library_of
from luban.native.target import host_target
from luban.native.threads import available_threads
from luban.runtime.program import Arguments, Step, StepTable
from luban.tile.block_ops import Print
from luban.tile.evaluate import run
from luban.tile.function import Module
from luban.tile.memory_ops import AtomicCas, AtomicRmw, Scatter

__all__ = ["Compiled", "compile_kernel", "evaluate_kernel"]

Grid = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Code:
    """What the cache keeps of a compiled kernel: its text and what a launch must know."""

    symbol: str
    text: str
    scratch_bytes: int
    written: tuple[int, ...]  # places of the pointer parameters that are written to
    reason: str = ""  # why it runs in the evaluator instead; no code then

    def packed(self) -> bytes:
        """As bytes."""
        return json.dumps(
            [self.symbol, self.text, self.scratch_bytes, list(self.written), self.reason]
        ).encode()

    @staticmethod
    def unpacked(data: bytes) -> _Code:
        """From bytes."""
        symbol, text, scratch, written, reason = json.loads(data)
        return _Code(symbol, text, scratch, tuple(written), reason)


def _written(module: Module) -> tuple[int, ...]:
    pointers = [param.value for param in module.kernel.params]
    return tuple(
        sorted(
            {
                pointers.index(operation.operands[0])
                for operation in module.kernel.operations()
                if isinstance(operation.op, (Scatter, AtomicRmw, AtomicCas))
            }
        )
    )


def _generate(source: KernelSource, call: Call) -> _Code:
    module = build(source, call.types, call.constants)
    written = _written(module)
    ops = {type(operation.op) for operation in module.kernel.operations()}
    if Print in ops:
        return _Code("", "", 0, written, "it prints")
    target = host_target()
    try:
        lowered = lower_blocks(module, registers_of(target))
    except Declined as reason:
        return _Code("", "", 0, written, str(reason))
    name, text = emit_named(lowered, target, source.name)
    functions = tuple(
        replace(f, name=name) if f.name == lowered.entry else f for f in lowered.functions
    )
    return _Code(name, text, scratch_bytes(Module(functions, name)), written)


class Compiled:
    """A kernel for one kind of arguments, ready to be launched.

    It holds one set of argument slots: a lock keeps launches from several threads apart.
    """

    def __init__(self, source: KernelSource, code: _Code, num_slots: int) -> None:
        self.source = source
        self.code = code
        self.run: Callable[..., Any] | None = None  # of its JITFunction, to launch by grid
        self._lock = threading.Lock()
        self._num_slots = num_slots
        self._library: Library | None = None
        if code.reason:
            warnings.warn(
                f"{source.name} runs in the evaluator, slowly: {code.reason}",
                LubanWarning,
                stacklevel=5,
            )
            return
        self._library = library_of(code.text, [code.symbol], {}, default_cache())
        self._arguments = Arguments(num_slots + 3 + bool(code.scratch_bytes))
        step = Step(self._library.address(code.symbol), self._arguments.address(), 0)
        self._threads = available_threads()
        self._table = StepTable([step], self._threads)
        self._programs = 0
        if code.scratch_bytes:
            self._scratch = _scratch(code.scratch_bytes * self._threads)
            self._arguments.slots[-1] = self._scratch.ctypes.data

    # What scripts made for GPUs ask of a kernel to size their grids. Registers are not scarce here.

    n_regs = 32
    n_spills = 0

    @property
    def metadata(self) -> SimpleNamespace:
        """`shared`: bytes of scratch memory of a thread, at least 1; `name`."""
        return SimpleNamespace(
            shared=max(self.code.scratch_bytes, 1), name=self.source.name, num_warps=1
        )

    @property
    def asm(self) -> dict[str, str]:
        """The kernel's text by stage: `llir`."""
        return {"llir": self.code.text}

    def _init_handles(self) -> None:
        """Loaded already."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """A launch through the kernel that this was compiled from."""
        if self.run is None:
            raise InputError(f"{self.source.name} was compiled apart: launch its kernel instead")
        return functools.partial(self.run, grid=grid)

    @property
    def text(self) -> str:
        """The LLVM text of the kernel, empty if it runs in the evaluator."""
        return self.code.text

    def bound(self, grid: Grid, call: Call) -> Callable[[], None]:
        """A function that launches on these arguments without looking at them again."""
        if self._library is None:
            raise InputError(
                f"{self.source.name} runs in the evaluator: {self.code.reason}",
                hint="launch it with kernel[grid](...)",
            )
        self._refuse_read_only(call)
        self._arguments.slots[: self._num_slots + 3] = [*call.slots, *grid]
        self._table.set_num_programs([grid[0] * grid[1] * grid[2]])
        replay, kept = self._table.replay, (self, call)

        def launch() -> None:
            replay()

        self._table.keep(kept)
        return launch

    def launch(self, grid: Grid, call: Call) -> None:
        """Run every program of the grid. Raises InputError for memory that may not be written."""
        self._refuse_read_only(call)
        programs = grid[0] * grid[1] * grid[2]
        if programs == 0:
            return
        if self._library is None:
            evaluate_kernel(self.source, grid, call, check=False)
            return
        with self._lock:
            self._arguments.slots[: self._num_slots + 3] = [*call.slots, *grid]
            if programs != self._programs:
                self._table.set_num_programs([programs])
                self._programs = programs
            self._table.replay()

    def _refuse_read_only(self, call: Call) -> None:
        for place in self.code.written:
            value = call.values[place]
            if isinstance(value, Memory) and not value.writeable:
                names = list(call.types)
                raise InputError(
                    f"{self.source.name} writes to {names[place]!r}, which is read-only memory",
                    hint="pass a copy",
                )


def _scratch(size_bytes: int) -> Any:
    memory = np.empty(size_bytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size_bytes]


def compile_kernel(source: KernelSource, call: Call) -> Compiled:
    """The compiled kernel for these kinds of arguments: from the cache, or compiled and kept.

    Raises KernelError, with the line, for what the language does not have.
    """
    cache = default_cache()
    parts = (source.digest(), source.name, call.key, versions_digest(), host_target())
    key = hashlib.sha256(repr(parts).encode()).hexdigest()
    found = cache.get("kernels", key)
    if found is not None:
        code = _Code.unpacked(found)
    else:
        code = _generate(source, call)
        cache.put("kernels", key, code.packed())
    return Compiled(source, code, len(call.slots))


def evaluate_kernel(source: KernelSource, grid: Grid, call: Call, *, check: bool) -> None:
    """Run the block program in the evaluator, with every check if asked.

    Raises the errors of luban.tile.memory: out of bounds, races, uninitialised reads, overflow.
    """
    module = build(source, call.types, call.constants, checks=check)
    arguments = [v.elements() if isinstance(v, Memory) else v for v in call.values]
    run(module, [*arguments, *grid], grid[0] * grid[1] * grid[2], check=check)


def wants_checks(options: Sequence[str], given: dict[str, Any]) -> bool:
    """Whether a launch is to be checked: asked for by the call, or by the environment."""
    asked = given.pop("check", None) if "check" not in options else None
    return settings.KERNEL_CHECK.get() if asked is None else bool(asked)
