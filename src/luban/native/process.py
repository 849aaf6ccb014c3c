"""The compile process as its parent sees it: starting it, giving it work, and noticing its end.

It is a plain child that runs `compile_worker` with this interpreter, isolated: neither the user's
script nor site hooks run in it, so no `__main__` guard is needed. Several threads may share it.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luban.core.errors import InternalError, LubanError
from luban.native.messages import Message, receive, send

if TYPE_CHECKING:
    from luban.native.target import Target

__all__ = ["CompileProcess", "EndedIdleError", "NotStartedError", "why_not_here"]

_BOOTSTRAP = (
    "import sys; sys.path += sys.argv[1:-1]; from luban.native.compile_worker import main; main()"
)
_STOP_S = 2.0


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
            # A session of its own: Ctrl-C is for the parent to handle.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise NotStartedError(str(error)) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._numbers = itertools.count()
        self._targets: dict[Target, int] = {}
        self._sending = threading.Lock()
        self._news = threading.Condition()
        self._texts: dict[int, str] = {}  # sent, not yet answered
        self._answered: dict[int, Message] = {}
        self._ready = self._broken = False
        self._ended = False
        threading.Thread(target=self._read, name="luban-compile", daemon=True).start()

    @property
    def id(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it answers no more."""
        return self._ended

    def submit(self, ir_text: str, target: Target) -> int:
        """Begin to compile a text; the number to give to `result`. Raises EndedIdleError."""
        with self._sending:
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

    def drop(self, numbers: Iterable[int]) -> None:
        """Forget submitted texts: those not yet begun are not compiled."""
        with contextlib.suppress(EndedIdleError), self._sending:
            self._send({"do": "drop", "numbers": list(numbers)})
        with self._news:
            for number in numbers:
                self._texts.pop(number, None)
                self._answered.pop(number, None)

    def stop(self) -> None:
        """End it, whatever it is doing."""
        with contextlib.suppress(OSError):
            self._requests.close()
        try:
            self._process.wait(_STOP_S)
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

    def _send(self, fields: dict[str, Any], payload: bytes = b"") -> None:
        try:
            send(self._requests.fileno(), fields, payload)
        except (OSError, ValueError) as error:  # ValueError: it is closed
            raise self._why_ended() from error
        except BaseException:  # Ctrl-C, maybe in the middle of a message: nobody can go on
            self._broken = True
            self._process.kill()
            raise

    def _wait(self, number: int) -> Message:
        with self._news:
            while number not in self._answered and not self._ended:
                self._news.wait()
            found = self._answered.pop(number, None)
        if found is None:
            raise self._why_ended()
        return found

    def _read(self) -> None:
        """Collect answers until the process ends."""
        while True:
            try:
                message = receive(self._answers.fileno())
            except (OSError, ValueError):
                message = None
            with self._news:
                if message is None:
                    self._ended = True
                elif "ready" in message[0]:
                    self._ready = True
                else:
                    self._texts.pop(message[0]["number"], None)
                    self._answered[message[0]["number"]] = message
                self._news.notify_all()
            if message is None:
                self._process.wait()  # no zombie stays
                return

    def _why_ended(self) -> Exception:
        code = self._process.wait()
        if not self._ready:
            return NotStartedError(f"it ended with exit code {code} before it was ready")
        if code == 0 or self._broken:
            return EndedIdleError()
        ended = f"exit code {code}" if code > 0 else f"signal {signal.Signals(-code).name}"
        with self._news:
            texts = list(self._texts.values())
        kernels = [name for text in texts for name in _defined(text)]
        return LubanError(
            f"the compile process ended with {ended} while it had these kernels to compile: "
            f"{', '.join(kernels) or 'none'}",
            hint="SIGKILL mostly means that the system ran out of memory; anything else is a bug, "
            "please report it with what LLVM printed",
        )


def _defined(ir_text: str) -> list[str]:
    """The functions of a module that others can call."""
    return re.findall(r"^define (?!internal).*?@([\w.$-]+)\(", ir_text, re.MULTILINE)
