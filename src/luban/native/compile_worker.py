"""The compile process: takes LLVM texts from its parent, answers with object code.

    python -I -S -c "..." PATHS      started by native/process.py only

It loads LLVM and a few small modules, no numpy and none of the user's code. It ends when the parent
is gone, however that went, and by itself after a while without work.
"""

from __future__ import annotations

import functools
import os
import select
import sys
import threading
from queue import SimpleQueue
from typing import Any

from luban.core.errors import InternalError
from luban.native.compile import compile_object, describe_host
from luban.native.messages import receive, send
from luban.native.target import Target

__all__ = ["main"]

_IDLE_S = 10.0  # without work, until it ends by itself
_LOOK_S = 1.0  # between looks for the parent, which forked children may keep the pipe of


class _Server:
    """Threads that compile, and what is waiting for them."""

    def __init__(self, answers: int, num_threads: int) -> None:
        self._answers = answers
        self._sending = threading.Lock()
        self._jobs: SimpleQueue[tuple[int, Target, str]] = SimpleQueue()
        self._dropped: set[int] = set()
        self._targets: dict[int, Target] = {}
        self.waiting = 0
        for _ in range(num_threads):
            threading.Thread(target=self._work, daemon=True).start()

    def handle(self, request: dict[str, Any], payload: bytes) -> None:
        """Act on one message of the parent."""
        match request["do"]:
            case "target":
                self._targets[request["number"]] = Target(**request["target"])
            case "compile":
                with self._sending:
                    self.waiting += 1
                target = self._targets[request["target"]]
                self._jobs.put((request["number"], target, payload.decode()))
            case "drop":
                self._dropped.update(request["numbers"])
            case "host":
                self.answer({"number": request["number"], "host": describe_host()})

    def answer(self, fields: dict[str, Any], payload: bytes = b"") -> None:
        """Send one message to the parent; without a parent, end."""
        with self._sending:
            try:
                send(self._answers, fields, payload)
            except OSError:
                os._exit(1)

    def _work(self) -> None:
        while True:
            number, target, text = self._jobs.get()
            if number not in self._dropped:
                self._compile(number, target, text)
            with self._sending:
                self.waiting -= 1

    def _compile(self, number: int, target: Target, text: str) -> None:
        try:
            code = compile_object(text, target)
        except InternalError as error:
            self.answer({"number": number, "error": error.message})
        except Exception as error:  # noqa: BLE001  # whatever it is: the parent raises it
            self.answer({"number": number, "error": f"{type(error).__name__}: {error}"})
        else:
            self.answer({"number": number}, code)


def main() -> None:
    """Serve the parent until it or the work ends. Arguments: paths, then the thread count."""
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what LLVM prints must not end up between two answers
    parent = os.getppid()
    server = _Server(answers, int(sys.argv[-1]))
    server.answer({"ready": True})
    idle_s = 0.0
    look = functools.partial(select.select, [requests], [], [], _LOOK_S)
    while idle_s < _IDLE_S:
        if not look()[0]:
            if os.getppid() != parent:
                break
            idle_s = 0.0 if server.waiting else idle_s + _LOOK_S
            continue
        message = receive(requests)
        if message is None:
            break
        server.handle(*message)
        idle_s = 0.0
    os._exit(0)  # threads may be deep inside LLVM
