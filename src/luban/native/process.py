"""The compile process as its parent sees it: starting it, giving it work, and noticing its end.

It is a plain child that runs `compile_worker` with this interpreter, isolated: neither the user's
script nor site hooks run in it, so no `__main__` guard is needed. Several threads may share it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luban.core import settings
from luban.core.errors import InternalError, LubanError
from luban.core.progress import report
from luban.native.messages import Message, packed, receive

if sys.platform == "linux":
    import fcntl

if TYPE_CHECKING:
    from luban.native.target import Target

__all__ = ["CompileProcess", "EndedIdleError", "NotStartedError", "functions_in", "why_not_here"]

_BOOTSTRAP = (
    "import sys; sys.path += sys.argv[1:-1]; from luban.native.compile_worker import main; main()"
)
_STOP_S = 2.0
_PIPE_BYTES = 1 << 20


class NotStartedError(Exception):
    """The process could not be started; the text says why."""


class EndedIdleError(Exception):
    """The process ended, for want of work, before it saw this request: ask a new one."""


def why_not_here() -> str | None:
    """Why no compile process can serve this one; None if one can."""
    if not sys.platform.startswith("linux"):
        return f"LLVM is needed here anyway, to link: {sys.platform} has no ELF objects"
    if getattr(sys, "frozen", False):
        return "this is a frozen application, not a Python interpreter"
    if not Path(sys.executable or "").name.startswith(("python", "pypy")):
        return f"Python is embedded: sys.executable is {sys.executable!r}, no Python interpreter"
    return None


def _command(num_threads: int) -> list[str]:
    paths: list[str] = []
    for package in ("luban", "llvmlite"):
        spec = find_spec(package)
        if spec is None or not spec.origin or not Path(spec.origin).is_file():
            raise NotStartedError(f"{package} does not lie in a folder")
        paths.append(str(Path(spec.origin).parents[1]))
    options = ["-I", "-S"]
    if sys.dont_write_bytecode:
        options.append("-B")
    if sys.pycache_prefix is not None:
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return [sys.executable, *options, "-c", _BOOTSTRAP, *dict.fromkeys(paths), str(num_threads)]


class CompileProcess:
    """One running compile process.

    Raises NotStartedError if the system refuses to start one.
    """

    def __init__(self, num_threads: int) -> None:
        command = _command(num_threads)
        try:
            # A process group of its own, as Ctrl-C is for the parent to handle; no session of its
            # own, as the scheduler would then weigh both against each other.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                process_group=0,
                bufsize=0,
                env=settings.child_environment({settings.COMPILE_PROCESS.variable: "0"}),
            )
        except OSError as error:
            raise NotStartedError(str(error)) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        for stream in (self._requests, self._answers):
            with contextlib.suppress(OSError):  # then it is smaller
                fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(self._requests.fileno(), False)
        self._numbers = itertools.count()
        self._targets: dict[Target, int] = {}
        self._sending = threading.Lock()
        self._news = threading.Condition()
        self._begun: dict[tuple[str, Target], int] = {}
        self._texts: dict[int, str] = {}  # sent, not yet answered
        self._subjects: dict[int, str] = {}  # of functions that are being run there
        self._answered: dict[int, Message] = {}
        self._collecting = False  # a thread is reading an answer
        self._ready = self._broken = self._ended = self._finishes = False
        # Nothing of it stays when it ends: no zombie.
        threading.Thread(target=self._process.wait, name="luban-compile", daemon=True).start()

    @property
    def id(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it answers no more."""
        return self._ended or self._broken or self._process.returncode is not None

    def begin(self, ir_text: str, target: Target) -> None:
        """Begin to compile a text that somebody will submit later. Raises EndedIdleError."""
        number = self.submit(ir_text, target)
        with self._sending:
            self._begun[ir_text, target] = number

    def submit(self, ir_text: str, target: Target) -> int:
        """Begin to compile a text; the number to give to `result`. Raises EndedIdleError."""
        with self._sending:
            if (ir_text, target) in self._begun:
                return self._begun.pop((ir_text, target))
            if target not in self._targets:
                number = self._targets[target] = len(self._targets)
                self._send({"do": "target", "number": number, "target": asdict(target)})
            number = next(self._numbers)
            self._texts[number] = ir_text
            fields = {"do": "compile", "number": number, "target": self._targets[target]}
            self._send(fields, ir_text.encode())
        return number

    def result(self, number: int) -> bytes:
        """The object code of a submitted text, once it is there.

        Raises InternalError if LLVM refused the text, LubanError if the process crashed over it,
        EndedIdleError if it has to be submitted again, NotStartedError if it never came up.
        """
        fields, payload = self._wait(number)
        if "error" in fields:
            raise InternalError(fields["error"])
        return payload

    def describe_host(self) -> dict[str, str]:
        """The fields of native.host.Host. Raises as `result`."""
        number = next(self._numbers)
        with self._sending:
            self._send({"do": "host", "number": number})
        found: dict[str, str] = self._wait(number)[0]["host"]
        return found

    def run(self, function: str, payload: bytes, subject: str, paths: Sequence[str]) -> bytes:
        """What a function of ours, `module:name`, makes of some bytes there; its progress is ours.

        subject  what it works on: an error says so if the process crashes over it
        paths    where modules are looked for behind those that it knows already

        Raises as `result`. If the wait is interrupted, by Ctrl-C say, the process ends.
        """
        number = next(self._numbers)
        fields = {"do": "run", "number": number, "function": function, "paths": list(paths)}
        with self._sending:
            self._subjects[number] = subject
            try:
                self._send(fields, payload)
            except KeyboardInterrupt:  # half a message may be there
                self._end()
                raise
        try:
            while True:
                told, answer = self._wait(number)
                if "stage" not in told:
                    break
                report(told["stage"], told["done"], told["total"])
        except (EndedIdleError, NotStartedError, LubanError):
            raise
        except BaseException:
            self._end()
            raise
        if "error" in told:
            raise InternalError(told["error"])
        self._finishes = self._finishes or told["later"]
        return answer

    def abort(self, numbers: Iterable[int]) -> None:
        """Forget submitted texts. If one is not done, the process ends."""
        with self._news:
            undone = [self._texts.pop(number, None) for number in numbers]
            for number in numbers:
                self._answered.pop(number, None)
        if any(text is not None for text in undone):
            self._end()

    def stop(self) -> None:
        """End it, whatever it is doing but what it promised to finish."""
        with contextlib.suppress(OSError):
            self._requests.close()
        try:
            self._process.wait(None if self._finishes and not self._broken else _STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(OSError):
            self._answers.close()

    def abandon(self) -> None:
        """In a child after a fork: it is the parent's. Close our copies, so that it sees it end."""
        self._process.returncode = 0  # it is not ours to wait for
        for stream in (self._requests, self._answers):
            with contextlib.suppress(OSError):
                stream.close()

    def _end(self) -> None:
        """End it at once: nobody can make sense of its messages, or wants them."""
        self._broken = True
        self._process.kill()

    def _send(self, fields: dict[str, Any], payload: bytes = b"") -> None:
        """Write a message, and read answers meanwhile: neither side waits for the other."""
        rest = memoryview(packed(fields, payload))
        try:
            requests, answers = self._requests.fileno(), self._answers.fileno()
            while rest:
                readable, writeable, _ = select.select([answers], [requests], [])
                if writeable:
                    rest = rest[os.write(requests, rest) :]
                if readable:
                    self._collect()
        except (OSError, ValueError) as error:  # ValueError: it is closed
            raise self._why_ended() from error
        except BaseException:  # Ctrl-C, maybe in the middle of a message
            self._end()
            raise

    def _wait(self, number: int) -> Message:
        while True:
            with self._news:
                if number in self._answered:
                    return self._answered.pop(number)
                if self._ended:
                    break
                if self._collecting:
                    self._news.wait()
                    continue
            self._collect()
        raise self._why_ended()

    def _collect_all(self) -> None:
        """Read what a process that has ended still said."""
        while True:
            with self._news:
                if self._ended:
                    return
                if self._collecting:
                    self._news.wait()
                    continue
            self._collect()

    def _collect(self) -> None:
        """Read one answer, or the end, unless another thread is doing so."""
        with self._news:
            if self._collecting or self._ended:
                return
            self._collecting = True
        message = None
        try:
            message = receive(self._answers.fileno())
        except (OSError, ValueError):  # closed: the end
            pass
        except BaseException:  # Ctrl-C, maybe in the middle of a message
            self._end()
            raise
        finally:
            with self._news:
                self._collecting = False
                self._ready = self._ready or message is not None
                if message is None:
                    self._ended = True
                elif "ready" not in message[0]:
                    self._take(message)
                self._news.notify_all()

    def _take(self, message: Message) -> None:
        """Keep an answer, or the latest progress, for whoever waits for it."""
        number = message[0]["number"]
        if "stage" not in message[0]:
            self._texts.pop(number, None)
            self._subjects.pop(number, None)
        self._answered[number] = message

    def _why_ended(self) -> Exception:
        code = self._process.wait()
        self._collect_all()
        if not self._ready and not self._broken:
            return NotStartedError(f"it ended with exit code {code} before it was ready")
        if code == 0 or self._broken:
            return EndedIdleError()
        ended = f"exit code {code}" if code > 0 else f"signal {signal.Signals(-code).name}"
        with self._news:
            texts, subjects = list(self._texts.values()), list(self._subjects.values())
        work = subjects + [name for text in texts for name in functions_in(text)]
        return LubanError(
            f"the compile process ended with {ended} while it had these to compile: "
            f"{', '.join(work) or 'none'}",
            hint="SIGKILL mostly means that the system ran out of memory; anything else is a bug, "
            "please report it with what LLVM printed",
        )


def functions_in(ir_text: str) -> list[str]:
    """The functions of a module that others can call."""
    return re.findall(r"^define (?!internal).*?@([\w.$-]+)\(", ir_text, re.MULTILINE)
