"""Who compiles: a process of its own where there can be one, else this process.

LLVM then takes no memory here, cannot crash what calls it, and its threads never wait for this
interpreter's lock.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from luban.core import settings
from luban.core.errors import LubanError, LubanWarning
from luban.core.progress import report
from luban.native.process import (
    CompileProcess,
    EndedIdleError,
    NotStartedError,
    functions_in,
    why_not_here,
)
from luban.native.threads import available_threads

if TYPE_CHECKING:
    from luban.native.target import Target

__all__ = ["ask_for_host", "begin", "compile_many", "run", "start", "why_in_this_process"]

_MOST_ENDS = 5


class _Current:
    """The compile process of this process, if one runs."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: CompileProcess | None = None
        self.refusal: str | None = None  # why none was to be had


_current = _Current()


def why_in_this_process() -> str | None:
    """Why LLVM runs in this process, for `luban doctor`; None if it runs in its own."""
    if not settings.COMPILE_PROCESS.get():
        return f"{settings.COMPILE_PROCESS.variable}=0"
    return why_not_here() or _current.refusal


def start() -> None:
    """Start the compile process now if there is none: it comes up while other work goes on."""
    _running()


def begin(ir_text: str, target: Target) -> None:
    """Begin to compile what `compile_many` will be asked for soon, if that needs no waiting."""
    process = _running()
    if process is not None:
        with contextlib.suppress(EndedIdleError, NotStartedError):  # it will be sent again
            process.begin(ir_text, target)


def run(function: str, payload: bytes, subject: str, clean: Callable[[int], None]) -> bytes | None:
    """What a function of ours, `module:name`, makes of some bytes in the compile process.

    clean   is given the id of a process that ended in the middle of it

    None if there is no such process. Raises LubanError, which names `subject`, if it crashes.
    """
    paths = [path for path in sys.path if os.path.isabs(path)]
    for _ in range(_MOST_ENDS):
        process = _running()
        if process is None:
            return None
        try:
            return process.run(function, payload, subject, paths)
        except EndedIdleError:
            continue
        except NotStartedError as error:
            _refused(error)
        except BaseException:
            if process.has_ended:
                process.stop()
                clean(process.id)
            raise
    raise _ended_always(subject)


def _running() -> CompileProcess | None:
    """The process, started if need be; None if this process has to compile itself."""
    if why_in_this_process() is not None:
        return None
    with _current.lock:
        if _current.process is None or _current.process.has_ended:
            if _current.process is not None:
                _current.process.stop()
            try:
                _current.process = CompileProcess(available_threads())
            except NotStartedError as error:
                _current.process = None
                _refused(error)
        return _current.process


def _refused(error: NotStartedError) -> None:
    _current.refusal = f"no compile process could be started: {error}"
    warnings.warn(
        f"{_current.refusal}; compiling in this process, which takes more memory\n"
        f"hint: {settings.COMPILE_PROCESS.variable}=0 says that this is meant",
        LubanWarning,
        stacklevel=5,
    )


def _in_this_process() -> Any:
    return import_module("luban.native.compile")  # loads LLVM


def ask_for_host() -> dict[str, str]:
    """The fields of native.host.Host."""
    while (process := _running()) is not None:
        try:
            return process.describe_host()
        except EndedIdleError:
            continue
        except NotStartedError as error:
            _refused(error)
    found: dict[str, str] = _in_this_process().describe_host()
    return found


def compile_many(ir_texts: Iterable[str], target: Target) -> list[bytes]:
    """Objects of several modules, in order, compiled at the same time.

    A generator is drawn from while earlier texts are being compiled; without texts nothing is
    started. On an error or Ctrl-C what is not yet begun is dropped. Raises InternalError if LLVM
    refuses a text, LubanError if the compile process is killed.
    """
    batch = _Batch(target)
    try:
        for text in ir_texts:
            batch.add(text)
        return batch.objects()
    except BaseException:
        batch.drop()
        raise


_Sent = tuple[CompileProcess, int]


class _Batch:
    """The texts of one call, each with the process that has it and its number there."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._texts: list[str] = []
        self._sent: list[_Sent] = []

    def add(self, text: str) -> None:
        """Begin to compile one more text."""
        if len(self._sent) == len(self._texts):  # else one before is left for this process
            sent = self._submitted(text)
            if sent is not None:
                self._sent.append(sent)
        self._texts.append(text)

    def objects(self) -> list[bytes]:
        """Wait for all of them."""
        found: list[bytes] = []
        for number, sent in enumerate(self._sent):
            report("compiling", number, len(self._texts))
            data = self._result(sent, self._texts[number])
            if data is None:
                break
            found.append(data)
        rest = self._texts[len(found) :]
        if rest:
            found += _in_this_process().compile_many(rest, self._target)
        return found

    def drop(self) -> None:
        """Let go of what is not done."""
        numbers: dict[CompileProcess, list[int]] = {}
        for process, number in self._sent:
            numbers.setdefault(process, []).append(number)
        for process, theirs in numbers.items():
            process.abort(theirs)

    def _submitted(self, text: str) -> _Sent | None:
        """Where the text is being compiled; None if this process has to do it."""
        while (process := _running()) is not None:
            try:
                return process, process.submit(text, self._target)
            except EndedIdleError:
                continue
            except NotStartedError as error:
                _refused(error)
        return None

    def _result(self, sent: _Sent | None, text: str) -> bytes | None:
        for _ in range(_MOST_ENDS):
            if sent is None:
                return None
            process, number = sent
            try:
                return process.result(number)
            except EndedIdleError:
                sent = self._submitted(text)
            except NotStartedError as error:
                _refused(error)
                return None
        raise _ended_always(", ".join(functions_in(text)) or "a kernel")


def _ended_always(subject: str) -> LubanError:
    """Where SIGCHLD is ignored a crash looks like an end for want of work."""
    return LubanError(
        f"the compile process ended {_MOST_ENDS} times while compiling {subject}",
        hint="compile in this process, LUBAN_COMPILE_PROCESS=0, to see what happens there",
    )


def _stop() -> None:
    if _current.process is not None:
        _current.process.stop()
        _current.process = None


def _after_fork_in_child() -> None:
    _current.lock = threading.Lock()
    if _current.process is not None:
        _current.process.abandon()
        _current.process = None


atexit.register(_stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
