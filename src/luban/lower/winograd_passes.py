"""The 1-D passes of Winograd's transforms on vectors: a matrix times a list, in few operations.

Points come in pairs of opposite sign, so two rows of the image's matrix share their even and their
odd part, and two columns of the result's matrix differ in the sign of the odd rows only.
"""

from __future__ import annotations

from collections.abc import Sequence

from luban.graph.ops.winograd import Transforms
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["filter_pass", "image_pass", "result_pass"]


def image_pass(b: FunctionBuilder, given: Sequence[Expr], matrices: Transforms) -> list[Expr]:
    """matrices.image @ given: 12 operations for tiles of 4, 4 for tiles of 2."""
    first, *pairs, last = matrices.image
    values = [_combined(b, given, first)]
    for number, point in enumerate(matrices.points):
        row = pairs[2 * number]
        even = _combined(b, given, [c if k % 2 == 0 else 0.0 for k, c in enumerate(row)])
        odd = _combined(b, given, [c / point if k % 2 else 0.0 for k, c in enumerate(row)])
        values += [_plus(b, even, odd, sign * point) for sign in (1, -1)]
    return [*values, _combined(b, given, last)]


def filter_pass(b: FunctionBuilder, given: Sequence[Expr], matrices: Transforms) -> list[Expr]:
    """matrices.filters @ given: 11 operations for tiles of 4, 5 for tiles of 2."""
    first, *pairs, last = matrices.filters
    values = [_combined(b, given, first)]
    for row in pairs[::2]:
        even = _combined(b, given, (row[0], 0.0, row[2]))
        odd = given[1] * row[1]
        values += [even + odd, even - odd]
    return [*values, _combined(b, given, last)]


def result_pass(b: FunctionBuilder, given: Sequence[Expr], matrices: Transforms) -> list[Expr]:
    """matrices.result @ given: 11 operations for tiles of 4, 4 for tiles of 2."""
    first, *pairs, last = given
    both = [(x + y, x - y) for x, y in zip(pairs[::2], pairs[1::2], strict=True)]
    values = []
    for k, row in enumerate(matrices.result):
        parts = [sums[k % 2] for sums in both]
        coefficients = list(row[1:-1:2])
        if row[0]:
            parts, coefficients = [first, *parts], [row[0], *coefficients]
        if row[-1]:
            parts, coefficients = [last, *parts], [row[-1], *coefficients]
        values.append(_combined(b, parts, coefficients))
    return values


def _combined(b: FunctionBuilder, values: Sequence[Expr], coefficients: Sequence[float]) -> Expr:
    """The sum of coefficient * value, from a value without coefficient on if there is one."""
    terms = [(c, v) for c, v in zip(coefficients, values, strict=True) if c]
    terms.sort(key=lambda term: term[0] != 1)
    (coefficient, total), *others = terms
    total = total if coefficient == 1 else total * coefficient
    for coefficient, value in others:
        total = _plus(b, total, value, coefficient)
    return total


def _plus(b: FunctionBuilder, total: Expr, value: Expr, coefficient: float) -> Expr:
    if coefficient == 1:
        return total + value
    return total - value if coefficient == -1 else b.fma(value, coefficient, total)
