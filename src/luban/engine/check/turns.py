"""Which turns of a loop are held against float64: all of a short one, a sample of a long one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Turns", "in_sample"]

_FIRST = 8  # turns that are always taken
_EACH_DOUBLING = 4


def in_sample(turn: int) -> bool:
    """True for the first turns, and for some of each further doubling.

    So the work grows with the logarithm of the turns, and what goes wrong late, when states have
    grown, is still looked at.

    >>> [turn for turn in range(40) if in_sample(turn)]
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32]
    >>> sum(map(in_sample, range(320))), sum(map(in_sample, range(10_000)))
    (29, 49)
    """
    if turn < _FIRST:
        return True
    return turn % ((1 << turn.bit_length() - 1) // _EACH_DOUBLING) == 0


@dataclass(slots=True)
class Turns:
    """The turns of one walk through a loop: which to judge, which were judged, how many there were.

    to_the_end   judge the last turn too, whichever it is
    """

    wanted: Callable[[int], bool]
    to_the_end: bool = True
    judged: list[int] = field(default_factory=list)
    count: int = 0

    def passed_over(self) -> range:
        """The turns between the last two that were judged."""
        before = self.judged[-2] if len(self.judged) > 1 else -1
        return range(before + 1, self.judged[-1] if self.judged else 0)
