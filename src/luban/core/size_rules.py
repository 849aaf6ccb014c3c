"""What must hold between sizes that only a call makes known: checked once for each new combination.

Kernels trust the sizes that they are given. What inference could not prove (two symbols that meet
in a matrix product, a slice of a symbolic axis) stands in a list of rules beside the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.errors import ShapeError
from luban.core.loc import Loc

__all__ = ["SizeRule", "check_sizes"]


@dataclass(frozen=True, slots=True)
class SizeRule:
    """Two sizes and what must hold between them.

    relation  "equal", "at_most" (left <= right) or "repeats_to" (left is 1 or equals right)
    what      the operation and which sizes these are, in words
    """

    relation: str
    left: DimLike
    right: DimLike
    what: str
    loc: Loc | None = None

    @property
    def symbols(self) -> frozenset[str]:
        """The names of the symbols in both sizes."""
        return frozenset(s.name for d in (self.left, self.right) for s in dims.symbols(d))

    @property
    def is_proved(self) -> bool:
        """True if it holds for every choice of the symbols."""
        if self.left == self.right or (self.relation == "repeats_to" and self.left == 1):
            return True
        return self.relation == "at_most" and dims.bounds(self.right - self.left)[0] >= 0

    def holds(self, left: int, right: int) -> bool:
        """True if it holds for these sizes."""
        match self.relation:
            case "equal":
                return left == right
            case "at_most":
                return left <= right
            case _:
                return left in (1, right)


def check_sizes(rules: Iterable[SizeRule], sizes: Mapping[str, int]) -> None:
    """Raises ShapeError for the first rule that is broken; rules with open symbols are left out.

    >>> n, m = dims.symbol("n"), dims.symbol("m")
    >>> rule = SizeRule("equal", n, m, "matmul: columns of a and rows of b")
    >>> check_sizes([rule], {"n": 3, "m": 3})
    >>> check_sizes([rule], {"n": 3, "m": 4})
    Traceback (most recent call last):
    luban.core.errors.ShapeError: matmul: columns of a and rows of b must be equal: n is 3, m is 4
    """
    for rule in rules:
        if not rule.symbols <= sizes.keys():
            continue
        left, right = (dims.evaluate(d, sizes) for d in (rule.left, rule.right))
        if not rule.holds(left, right):
            given = [
                str(value) if isinstance(size, int) else f"{size} is {value}"
                for size, value in ((rule.left, left), (rule.right, right))
            ]
            raise ShapeError(
                f"{rule.what} {_MUST[rule.relation]}: {given[0]}, {given[1]}", loc=rule.loc
            )


_MUST = {
    "equal": "must be equal",
    "at_most": "must be at most",
    "repeats_to": "must be 1 or equal",
}
