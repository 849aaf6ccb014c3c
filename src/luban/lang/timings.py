"""What autotuning has measured, on disk: for a kernel and a key, the seconds of each configuration.

An entry is one of the compile cache, so it is bounded, checked and safe for many processes. It
stands under the machine, the kernel's source and the key, and holds configurations one by one: what
is new is added, what is known stays.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from luban.core import settings
from luban.native.cache import Cache, default_cache
from luban.native.knowledge import fingerprint
from luban.native.target import default_target
from luban.native.threads import available_threads

__all__ = ["Timings"]

_KIND = "autotune"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Timings:
    """The entry of one kernel, key and machine."""

    cache: Cache
    name: str

    @classmethod
    def of(cls, fn: Any, source_key: str | None, key: tuple[Any, ...]) -> Timings:
        """The entry of a kernel.

        fn          its Python function
        source_key  a hash of its source and of all it reaches; the function's own text if None
        key         what the configuration depends on; told apart by its text
        """
        source = source_key or _text_of(fn)
        threads = settings.NUM_THREADS.get() or available_threads()
        machine = f"{fingerprint(default_target())}, {threads} threads"
        words = [f"{_FORMAT}", machine, getattr(fn, "__qualname__", ""), source, repr(key)]
        return cls(default_cache(), hashlib.sha256("\n".join(words).encode()).hexdigest())

    def read(self) -> dict[str, float]:
        """Seconds by configuration; what cannot be read counts as not measured."""
        data = self.cache.get(_KIND, self.name)
        if data is None:
            return {}
        try:
            found = {str(words): float(seconds) for words, seconds in json.loads(data).items()}
        except (ValueError, TypeError, AttributeError):
            return {}
        return {words: seconds for words, seconds in found.items() if math.isfinite(seconds)}

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add measurements, or replace them; the others stay."""
        known = self.read()
        if known != {**known, **seconds}:
            self.cache.put(_KIND, self.name, json.dumps({**known, **seconds}).encode())


def _text_of(fn: Any) -> str:
    try:
        return inspect.getsource(fn)
    except (OSError, TypeError):
        return repr(fn)
