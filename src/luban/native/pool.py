"""The thread pool: generated code that runs step tables, and Python threads parked inside it.

The runner is `pool_code`. A worker is a daemon thread that stays in one native call, without the
GIL, until the process ends; between runs it spins for a moment, then sleeps in the kernel and uses
no CPU. Where there is no futex (macOS, Windows) it returns to Python and sleeps there, a few
milliseconds at a time: correct, but a run after a pause starts with fewer threads.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import os
import sys
import threading
import time
import warnings
from typing import Any

import numpy as np

from luban.core.errors import LubanError, LubanWarning, OptionError
from luban.native import pool_code, table
from luban.native.cache import default_cache
from luban.native.link import Library
from luban.native.objects import library_of
from luban.native.target import host_target

__all__ = ["HAS_FUTEX", "MAX_THREADS", "Pool", "default_pool", "pool_library"]

MAX_THREADS = 1024

_SPIN_LOOKS = 20_000  # about 0.2 ms
_LONGEST_REST_S = 0.005
_pool_numbers = itertools.count(1)

# Every pool's context: never freed, as a worker may look at it until the process is gone.
_contexts: list[Any] = []


HAS_FUTEX = sys.platform.startswith("linux")


def _address_of(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


@functools.cache
def pool_library(futex: bool) -> Library:
    """The runner, linked; never unloaded."""
    if sys.platform == "win32":
        imports = {"yield_cpu": _address_of(ctypes.WinDLL("kernel32").SwitchToThread)}
    else:
        libc = ctypes.CDLL(None)
        imports = {"yield_cpu": _address_of(libc.sched_yield)}
        if futex:
            imports["syscall"] = _address_of(libc.syscall)
    imports["memmove"] = _address_of(ctypes.memmove)
    text = pool_code.pool_text(host_target(), futex)
    return library_of(text, pool_code.ENTRY_POINTS, imports, default_cache())


class Pool:
    """Worker threads and the context they share with the thread that calls `replay`.

    Any number of threads may replay different tables at the same time: one of them gets the
    workers, the others run their table alone. After a fork the child starts its own workers when it
    first needs them.
    """

    def __init__(self, *, spin_looks: int = _SPIN_LOOKS, futex: bool | None = None) -> None:
        self.futex: bool = HAS_FUTEX if futex is None else futex
        library = pool_library(self.futex)
        memory = np.zeros(pool_code.CONTEXT_BYTES + 64, np.uint8)
        start = -memory.ctypes.data % 64
        self._context = memory[start : start + pool_code.CONTEXT_BYTES]
        _contexts.append(memory)
        self.context_address: int = self._context.ctypes.data
        one, two = (ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * n) for n in (1, 2))
        self.replay_address = library.address("replay")
        self.nested_address: int = library.address("run_nested")  # a kernel: see control_code
        # The plain native functions: results as numbers, nothing attended to.
        self.replay_native: Any = two(self.replay_address)
        self.replay_entered: Any = two(library.address("replay_entered"))
        self.enter: Any = one(library.address("enter"))
        self._resume: Any = one(library.address("resume"))
        self._worker = ctypes.CFUNCTYPE(
            ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
        )(library.address("worker"))
        self._wake = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address("wake"))
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._set(pool_code.GENERATION, 1)
        self._context[pool_code.SPIN :].view(np.int64)[0] = spin_looks
        # Two pools must not give one table the same run number.
        self._set(pool_code.EPOCH, next(_pool_numbers) % 128 << 24)
        atexit.register(self.stop)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork_in_child)

    @property
    def num_workers(self) -> int:
        """Worker threads that exist now; the calling thread comes on top."""
        return len(self._threads)

    @property
    def num_sleeping(self) -> int:
        """Workers that sleep now."""
        return self._get(pool_code.SLEEPERS)

    def replay(self, table_address: int, ticks_address: int | None = None) -> None:
        """Run the table at `table_address` once, on as many threads as it asks for.

        ticks_address   of i64[num_steps + 1]: the tick counter before each step and at the end

        Raises LubanError if the same table is being replayed on another thread.
        """
        result = self.replay_native(table_address, ticks_address)
        if result:
            self.attend(result, table_address)

    def attend(self, result: int, table_address: int) -> None:
        """Act on a result of the native replay that is not plain success.

        A table that was paused is resumed. One that was stopped says why in its stop cell, which is
        its owner's to read.
        """
        if result >= pool_code.PAUSED:
            result = self.resume(table_address)
        if result in (pool_code.RAN, pool_code.STOPPED):
            return
        if result == pool_code.REFUSED_BUSY:
            raise LubanError(
                "this program is being run by another thread, expected one run at a time",
                hint="take a lock round the call, or give each thread its own copy of the program",
            )
        # It ran, and right, but with fewer workers than asked for: have them for the next run.
        wanted = ctypes.c_int32.from_address(table_address + table.NUM_THREADS).value
        self.ensure_threads(wanted)

    def resume(self, table_address: int) -> int:
        """Go on with a paused replay up to its end: the result. Ctrl-C arrives on the way."""
        result: int = pool_code.PAUSED
        while result >= pool_code.PAUSED:
            result = self._resume(table_address)
        return result

    def ensure_threads(self, num_threads: int) -> None:
        """Start workers so that `num_threads` threads, the calling one included, can take part.

        Raises OptionError if the number is out of range.
        """
        if not 1 <= num_threads <= MAX_THREADS:
            raise OptionError(
                f"{num_threads} threads were asked for, expected 1 to {MAX_THREADS}",
                hint="leave the thread count out to use the cores of this machine",
            )
        with self._lock:
            while len(self._threads) < num_threads - 1:
                index = len(self._threads) + 1
                seen = self._get(pool_code.EPOCH)
                thread = threading.Thread(
                    target=self._live, args=(index, seen), name=f"luban-{index}", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    warnings.warn(
                        f"running on {index} threads instead of {num_threads}: {error}",
                        LubanWarning,
                        stacklevel=2,
                    )
                    return
                self._threads.append(thread)
                self._set(pool_code.NUM_WORKERS, len(self._threads))

    def stop(self) -> None:
        """End the workers and wait for them. A later `ensure_threads` starts new ones."""
        with self._lock:
            self._set(pool_code.NUM_WORKERS, 0)
            self._set(pool_code.STOP, 1)
            self._wake(self.context_address)
            for thread in self._threads:
                thread.join()
            self._threads.clear()
            self._set(pool_code.STOP, 0)

    def _live(self, index: int, seen: int) -> None:
        """A worker thread's life. `seen` is the last run number that it need not look at."""
        rest_s = 0.0
        while True:
            result = self._worker(self.context_address, index, seen)
            if result >> pool_code.STOPPED_BIT:
                return
            latest = ctypes.c_int32(result).value
            rest_s = 0.0 if latest != seen else min(_LONGEST_REST_S, 2 * rest_s + 1e-4)
            seen = latest
            time.sleep(rest_s)

    def _after_fork_in_child(self) -> None:
        """The child has no workers, nobody holds its locks, and runs are of a new generation."""
        self._lock = threading.Lock()
        self._threads = []
        for word in (pool_code.LOCK, pool_code.SLEEPERS, pool_code.NUM_WORKERS, pool_code.STOP):
            self._set(word, 0)
        self._set(pool_code.GENERATION, self._get(pool_code.GENERATION) + 1)

    def _word(self, offset: int) -> Any:
        return self._context[offset : offset + 4].view(np.int32)

    def _get(self, offset: int) -> int:
        return int(self._word(offset)[0])

    def _set(self, offset: int, value: int) -> None:
        self._word(offset)[0] = value


_default: list[Pool] = []
_default_lock = threading.Lock()


def default_pool() -> Pool:
    """The pool that all models of this process share."""
    with _default_lock:
        if not _default:
            _default.append(Pool())
        return _default[0]
