"""Stand-ins for the function that the compile process runs: what may go wrong in the middle."""

import os
import pickle
import signal
import time
from collections.abc import Callable
from pathlib import Path

from luban.core.progress import report
from luban.engine import apart_worker
from luban.engine.apart import Request
from luban.native.cache import Cache
from luban.native.draft import start_draft


def _half_written(payload: bytes) -> None:
    request: Request = pickle.loads(payload)
    draft = start_draft(
        Cache(Path(request.variables["LUBAN_CACHE_DIR"]), 1 << 30), "packed", request.key, 9999
    )
    assert draft is not None


def killed(payload: bytes) -> tuple[bytes, None]:
    """As where the system has run out of memory."""
    _half_written(payload)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def interrupted(payload: bytes) -> tuple[bytes, None]:
    """As where somebody presses Ctrl-C."""
    _half_written(payload)
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(60)
    raise AssertionError


def broken(payload: bytes) -> tuple[bytes, None]:
    """A bug that nobody expected."""
    raise RuntimeError(f"{len(payload) > 0}")


def slow_to_store(payload: bytes) -> tuple[bytes, Callable[[], None] | None]:
    """As for a large model on a slow disk, whose answer comes before all is stored."""
    report("dawdling", 1, 2)
    answer, later = apart_worker.compile_model(payload)
    folder = Path(pickle.loads(payload).variables["LUBAN_CACHE_DIR"])

    def store() -> None:
        deadline = time.monotonic() + 60
        while not (folder / "used").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        if later is not None:
            later()
        (folder / "stored").touch()

    return answer, store
