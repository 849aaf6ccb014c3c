"""LLVM text to object code: no IR passes, in parallel, each module in its own context.

Loads LLVM into this process. The rest of Luban goes through `compiler`, which runs this module in a
process of its own.
"""

from __future__ import annotations

import ctypes
import functools
import re
import threading
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from luban.core.errors import InternalError, LubanWarning
from luban.core.progress import report
from luban.native.threads import available_threads

if TYPE_CHECKING:
    from luban.native.target import Target

__all__ = [
    "assembly",
    "compile_many",
    "compile_object",
    "count_spills",
    "describe_host",
    "llvm_version",
    "target_machine",
]

# Measured: IR passes change nothing for generated SSA text, O1 = O2 = O3, O0 is 1.3-2.6x slower.
_CODEGEN_LEVEL = 2
_ASSEMBLY, _OBJECT = 0, 1


class _UnlockedLlvm:
    """The functions of llvmlite's own library, without the lock that it takes round each call.

    LLVM is thread-safe as long as no context and no target machine is shared, which holds here;
    ctypes drops the GIL during a call, so threads compile truly at the same time. This needs two
    attributes that llvmlite does not document: building one raises AttributeError if they go.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL(ffi.lib._name, handle=ffi.lib._handle)
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        error = ctypes.POINTER(ctypes.c_void_p)

        def function(name: str, result: Any, *arguments: Any) -> Any:
            found = getattr(library, f"LLVMPY_{name}")
            found.restype, found.argtypes = result, arguments
            return found

        self.create_context = function("ContextCreate", pointer)
        self.dispose_context = function("ContextDispose", None, pointer)
        self.parse = function("ParseAssembly", pointer, pointer, text, error)
        self.verify = function("VerifyModule", ctypes.c_int, pointer, error)
        self.emit = function(
            "TargetMachineEmitToMemory", pointer, pointer, pointer, ctypes.c_int, error
        )
        self.buffer_start = function("GetBufferStart", pointer, pointer)
        self.buffer_size = function("GetBufferSize", ctypes.c_size_t, pointer)
        self.dispose_buffer = function("DisposeMemoryBuffer", None, pointer)
        self.dispose_module = function("DisposeModule", None, pointer)
        self.dispose_string = function("DisposeString", None, pointer)

    def compile(self, ir_text: str, machine: Any, kind: int) -> bytes:
        context = self.create_context()
        message = ctypes.c_void_p()
        module = buffer = None
        try:
            module = self.parse(context, ir_text.encode(), ctypes.byref(message))
            if not module:
                raise _rejected("parse", self._take(message), ir_text)
            if self.verify(module, ctypes.byref(message)):
                raise _rejected("verify", self._take(message), ir_text)
            self._take(message)
            buffer = self.emit(machine, module, kind, ctypes.byref(message))
            if not buffer:
                raise _rejected("compile", self._take(message), ir_text)
            return ctypes.string_at(self.buffer_start(buffer), self.buffer_size(buffer))
        finally:
            if buffer:
                self.dispose_buffer(buffer)
            if module:
                self.dispose_module(module)
            self.dispose_context(context)

    def _take(self, message: ctypes.c_void_p) -> str:
        """The text of an error, and free it."""
        if not message.value:
            return ""
        text = ctypes.string_at(message.value).decode(errors="replace")
        self.dispose_string(message)
        message.value = None
        return text


class _LockedLlvm:
    """The same through llvmlite's public API: one thread at a time."""

    def compile(self, ir_text: str, machine: Any, kind: int) -> bytes:
        context = llvm.create_context()
        try:
            module = llvm.parse_assembly(ir_text, context)
        except RuntimeError as error:
            raise _rejected("parse", str(error), ir_text) from error
        with module:
            try:
                module.verify()
            except RuntimeError as error:
                raise _rejected("verify", str(error), ir_text) from error
            if kind == _OBJECT:
                return bytes(machine.emit_object(module))
            return str(machine.emit_assembly(module)).encode()


def _rejected(action: str, message: str, ir_text: str) -> InternalError:
    """An error that shows the offending line: generated text that LLVM refuses is our own bug."""
    shown = message.strip()
    if found := re.search(r":(\d+):\d+: error", message):
        line = int(found[1])
        shown += f"\nline {line}: {ir_text.splitlines()[line - 1].strip()}"
    return InternalError(f"LLVM could not {action} the generated code: {shown}")


@functools.cache
def _llvm() -> _UnlockedLlvm | _LockedLlvm:
    try:
        return _UnlockedLlvm()
    except AttributeError as error:
        warnings.warn(
            f"kernels compile on one thread only: llvmlite {llvm_version()} lacks {error}; "
            "expected a release such as 0.50",
            LubanWarning,
            stacklevel=2,
        )
        return _LockedLlvm()


def llvm_version() -> str:
    """LLVM's version, such as 22.1.0: it decides what bytes come out."""
    return ".".join(map(str, llvm.llvm_version_info))


def describe_host() -> dict[str, str]:
    """The fields of native.host.Host."""
    return {
        "triple": llvm.get_process_triple(),
        "cpu": llvm.get_host_cpu_name(),
        "features": llvm.get_host_cpu_features().flatten(),
        "llvm_version": llvm_version(),
    }


@functools.cache
def _initialise(foreign: bool) -> None:
    """Make LLVM ready for this machine, or for every architecture: that takes 10 MB more."""
    if foreign:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    else:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # inline assembly, for the host only


class _Machines(threading.local):
    """The TargetMachines of the current thread."""

    def __init__(self) -> None:
        self.held: dict[Target, Any] = {}


_machines = _Machines()


def target_machine(target: Target) -> Any:
    """LLVM's TargetMachine for `target`; one a thread, as it must not be shared between threads."""
    held = _machines.held
    if target not in held:
        here = llvm.get_process_triple().split("-", 1)[0].replace("arm64", "aarch64")
        _initialise(target.architecture != here)
        machine = llvm.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu,
            features=target.features,
            opt=_CODEGEN_LEVEL,
            reloc="pic",
            codemodel="small",
        )
        machine.set_asm_verbosity(True)  # the comments name the spills
        held[target] = machine
    return held[target]


def compile_object(ir_text: str, target: Target) -> bytes:
    """Object code of one LLVM module given as text.

    Raises InternalError, with LLVM's message, if the text does not parse or verify.
    """
    return _llvm().compile(ir_text, target_machine(target), _OBJECT)


def compile_many(
    ir_texts: Iterable[str], target: Target, num_threads: int | None = None
) -> list[bytes]:
    """Objects of several modules, in order, compiled at the same time on `num_threads` threads.

    A generator is drawn from while earlier texts are being compiled. The bytes are those of
    `compile_object`. The first error is raised once every running compilation has ended; those not
    yet begun are dropped (also on Ctrl-C).
    """
    workers = num_threads or available_threads()
    if workers <= 1:
        objects: list[bytes] = []
        for text in ir_texts:
            report("compiling", len(objects), len(objects) + 1)
            objects.append(compile_object(text, target))
        return objects
    # It loads logging, and a process whose kernels are all in the cache has no use for either.
    from concurrent.futures import (  # noqa: PLC0415 - keeps warm starts light
        ThreadPoolExecutor,
        as_completed,
    )

    executor = ThreadPoolExecutor(workers, thread_name_prefix="luban-compile")
    try:
        jobs = [executor.submit(compile_object, text, target) for text in ir_texts]
        for done, job in enumerate(as_completed(jobs), 1):
            report("compiling", done, len(jobs))
            job.result()
        return [job.result() for job in jobs]
    finally:
        executor.shutdown(cancel_futures=True)


def assembly(ir_text: str, target: Target) -> str:
    """The assembly text of one module, with LLVM's comments. Raises InternalError as above."""
    return _llvm().compile(ir_text, target_machine(target), _ASSEMBLY).decode()


_VECTOR_REGISTER = re.compile(r"%?\b([xyz]mm\d+|[qvz]\d+)\b")


def count_spills(assembly_text: str) -> int:
    """Vector registers stored to or reloaded from the stack because there were too few of them.

    Counts the instructions that LLVM itself marks as a spill or reload and that name a vector
    register; general registers, and the callee-saved d8-d15 of aarch64, are not counted.

    >>> count_spills("vmovaps %zmm1, 64(%rsp)   # 64-byte Spill")
    1
    >>> count_spills("movq %rbx, 8(%rsp)   # 8-byte Spill")
    0
    """
    return sum(
        1
        for line in assembly_text.splitlines()
        if ("Spill" in line or "Reload" in line) and _VECTOR_REGISTER.search(line)
    )
