"""What a corpus consists of: units, each a function that raises unless its answer is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Corpus", "Unit"]


@dataclass(frozen=True, slots=True)
class Unit:
    """One script or operator. `run` imports what it needs, computes and compares."""

    name: str
    run: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Corpus:
    """A named set of units.

    floor     how many of a hundred units are asked to pass
    prepare   called once in the process that all units are forked from, such as imports
    """

    name: str
    source: str
    floor: float
    units: tuple[Unit, ...]
    prepare: Callable[[], None] = field(default=lambda: None)
