"""How far long work has come: stages report, and whoever shows it listens. Silent by default.

>>> seen = []
>>> with listening(lambda stage, done, total: seen.append((stage, done, total))):
...     report("lower", 1, 2)
>>> report("lower", 2, 2)
>>> seen
[('lower', 1, 2)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Listener", "listening", "report"]

# stage, parts that are done, parts in all (0: not known)
Listener = Callable[[str, int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("progress", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within the block, `listener` hears of work on this thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report(stage: str, done: int = 0, total: int = 0) -> None:
    """State that `done` of `total` parts of a stage are finished."""
    listener = _listener.get()
    if listener is not None:
        listener(stage, done, total)
