"""The compile process: takes LLVM texts from its parent, answers with object code.

    python -I -S -c "..." PATHS      started by native/process.py only

It loads LLVM and a few small modules, and what a function of ours needs that it is asked to run;
none of the user's code. It ends when the parent is gone, however that went, and by itself after a
while without work.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from luban.core.errors import InternalError
from luban.core.progress import listening
from luban.native.compile import compile_object, describe_host
from luban.native.messages import receive, send
from luban.native.target import Target

__all__ = ["main"]

_IDLE_S = 10.0  # without work, until it ends by itself
_LOOK_S = 1.0  # between looks for the parent, which forked children may keep the pipe of


class _Server:
    """Threads that take turns to read a request; who has read one compiles it.

    So a request that comes alone goes through one thread. There is one thread more than may
    compile at the same time: it reads ahead.
    """

    def __init__(self, requests: int, answers: int, num_threads: int) -> None:
        self._requests, self._answers = requests, answers
        self._reading, self._sending = threading.Lock(), threading.Lock()
        self._counting = threading.Lock()
        self._compiling = threading.BoundedSemaphore(num_threads)
        self._targets: dict[int, Target] = {}
        self._busy = 0
        self._later: set[int] = set()  # what functions still do after their answer
        self._finished = threading.Condition()
        self._last_work_s = time.monotonic()
        for _ in range(num_threads + 1):
            threading.Thread(target=self._live, daemon=True).start()

    @property
    def idle_s(self) -> float:
        """Seconds since there was anything to do."""
        return 0.0 if self._busy else time.monotonic() - self._last_work_s

    def answer(self, fields: dict[str, Any], payload: bytes = b"") -> None:
        """Send one message to the parent; without a parent, end."""
        with self._sending:
            try:
                send(self._answers, fields, payload)
            except OSError:
                os._exit(1)

    def _live(self) -> None:
        while True:
            with self._reading:
                message = receive(self._requests)
                if message is None:
                    with self._finished:
                        self._finished.wait_for(lambda: not self._later)
                    os._exit(0)  # threads may be deep inside LLVM
                request, payload = message
                if request["do"] == "target":
                    self._targets[request["number"]] = Target(**request["target"])
                    continue
                with self._counting:
                    self._busy += 1
            if request["do"] == "run":  # it has threads of its own
                self._run(request, payload)
            else:
                with self._compiling:
                    self._handle(request, payload)
            with self._counting:
                self._busy -= 1
                self._last_work_s = time.monotonic()

    def _handle(self, request: dict[str, Any], payload: bytes) -> None:
        number = request["number"]
        if request["do"] == "host":
            self.answer({"number": number, "host": describe_host()})
            return
        try:
            code = compile_object(payload.decode(), self._targets[request["target"]])
        except InternalError as error:
            self.answer({"number": number, "error": error.message})
        except Exception as error:  # noqa: BLE001  # whatever it is: the parent raises it
            self.answer({"number": number, "error": f"{type(error).__name__}: {error}"})
        else:
            self.answer({"number": number}, code)

    def _run(self, request: dict[str, Any], payload: bytes) -> None:
        """Run a function of ours, `module:name`: from bytes to bytes, and what it does later."""
        number = request["number"]
        sys.path += [path for path in request["paths"] if path not in sys.path]

        def tell(stage: str, done: int, total: int) -> None:
            self.answer({"number": number, "stage": stage, "done": done, "total": total})

        later: Callable[[], None] | None
        try:
            module, name = request["function"].split(":")
            with listening(tell):
                answer, later = getattr(import_module(module), name)(payload)
        except Exception as error:  # noqa: BLE001  # whatever it is: the parent raises it
            self.answer({"number": number, "error": f"{type(error).__name__}: {error}"})
            return
        if later is not None:
            with self._finished:
                self._later.add(number)
        self.answer({"number": number, "later": later is not None}, answer)
        if later is not None:
            try:
                later()
            finally:
                with self._finished:
                    self._later.discard(number)
                    self._finished.notify_all()


def main() -> None:
    """Serve the parent until it or the work ends. Arguments: paths, then the thread count."""
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what LLVM prints must not end up between two answers
    parent = os.getppid()
    server = _Server(requests, answers, int(sys.argv[-1]))
    server.answer({"ready": True})
    while server.idle_s < _IDLE_S and os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(0)
