"""How units of a corpus are run: under the stand-in, in the evaluator, at few points."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from luban.core import settings
from luban.core.errors import LubanWarning
from luban.lang import compat, testing

__all__ = ["evaluated", "first_points_only", "stand_in"]


def stand_in() -> None:
    """`import triton` is Luban's, "cuda" is the CPU."""
    compat.install(device_map="cuda=cpu")


@contextmanager
def evaluated() -> Iterator[None]:
    """Kernels run in the evaluator, with every check."""
    with settings.overridden(settings.KERNEL_CHECK, "1"):
        yield


@contextmanager
def only_compiled() -> Iterator[None]:
    """A kernel that falls back to the evaluator is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", LubanWarning)
        yield


@contextmanager
def first_points_only() -> Iterator[None]:
    """Benchmark sweeps stop after their first point, and time few calls."""
    points = testing.Benchmark.points
    bench = testing.do_bench

    def first(self: testing.Benchmark) -> list[dict[str, Any]]:
        return points(self)[:1]

    def briefly(fn: Any, *_: Any, **options: Any) -> Any:
        options.update(warmup=0, rep=1)
        return bench(fn, **options)

    testing.Benchmark.points = first  # type: ignore[method-assign]
    testing.do_bench = briefly
    try:
        yield
    finally:
        testing.Benchmark.points = points  # type: ignore[method-assign]
        testing.do_bench = bench
