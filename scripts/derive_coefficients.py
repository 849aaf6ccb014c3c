"""Derive the polynomial coefficients of src/luban/codegen/coefficients.py with the Remez algorithm.

Needs mpmath. Prints the module to standard output:

    python scripts/derive_coefficients.py > src/luban/codegen/coefficients.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import mpmath  # type: ignore[import-untyped]
import numpy as np
from mpmath import mpf

mpmath.mp.dps = 60

Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    """`function` on [low, high]; `weight` turns an error of it into one of the final result."""

    name: str
    what: str
    function: Function
    low: mpf
    high: mpf
    weight: Function


def odd(function: Function) -> Function:
    """(f(x) - x) / x**3 as a function of z = x**2, for an odd f with f'(0) = 1."""
    return lambda z: (function(mpmath.sqrt(z)) - mpmath.sqrt(z)) / mpmath.sqrt(z) ** 3


def odd_weight(function: Function) -> Function:
    """What an error of `odd(function)` becomes relative to the function."""
    return lambda z: mpmath.sqrt(z) ** 3 / function(mpmath.sqrt(z))


def erf_tail(t: mpf) -> mpf:
    """q with erf(t) = 1 - exp(-t - t q)."""
    return -mpmath.log(mpmath.erfc(t)) / t - 1


def erf_tail_weight(t: mpf) -> mpf:
    """d(erf)/dq = t * erfc(t)."""
    return t * mpmath.erfc(t) / mpmath.erf(t)


HALF_LN2 = mpmath.log(2) / 2 * mpf("1.002")
TINY = mpf("1e-9")

FITS = [
    Fit(
        "exp",
        "(exp(r) - 1 - r) / r^2 in r",
        lambda r: (mpmath.exp(r) - 1 - r) / r**2,
        -HALF_LN2,
        HALF_LN2,
        abs,
    ),
    Fit(
        "log",
        "(log(1 + f) - f + f^2/2) / f^3 in f",
        lambda f: (mpmath.log(1 + f) - f + f * f / 2) / f**3,
        mpmath.sqrt(mpf(1) / 2) - 1 - mpf("1e-6"),
        mpmath.sqrt(mpf(2)) - 1 + mpf("1e-6"),
        lambda f: f**3 / mpmath.log(1 + f),
    ),
    Fit(
        "sin",
        "(sin(r) - r) / r^3 in r^2",
        odd(mpmath.sin),
        TINY,
        (mpmath.pi / 4 * mpf("1.001")) ** 2,
        odd_weight(mpmath.sin),
    ),
    Fit(
        "cos",
        "(cos(r) - 1 + r^2/2) / r^4 in r^2",
        lambda z: (mpmath.cos(mpmath.sqrt(z)) - 1 + z / 2) / z**2,
        TINY,
        (mpmath.pi / 4 * mpf("1.001")) ** 2,
        lambda z: z**2 / mpmath.cos(mpmath.sqrt(z)),
    ),
    Fit(
        "asin",
        "(asin(x) - x) / x^3 in x^2, |x| <= 1/2",
        odd(mpmath.asin),
        TINY,
        mpf("0.2501"),
        odd_weight(mpmath.asin),
    ),
    Fit(
        "atan",
        "(atan(x) - x) / x^3 in x^2, |x| <= 1",
        odd(mpmath.atan),
        TINY,
        mpf(1),
        odd_weight(mpmath.atan),
    ),
    Fit(
        "tanh",
        "(tanh(x) - x) / x^3 in x^2, |x| <= 0.625",
        odd(mpmath.tanh),
        TINY,
        mpf("0.626") ** 2,
        odd_weight(mpmath.tanh),
    ),
    Fit(
        "sinh",
        "(sinh(x) - x) / x^3 in x^2, |x| <= 1",
        odd(mpmath.sinh),
        TINY,
        mpf("1.001"),
        odd_weight(mpmath.sinh),
    ),
    Fit(
        "erf",
        "erf(x) / x - 1 in x^2, |x| <= 0.9375",
        lambda z: mpmath.erf(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1,
        TINY,
        mpf("0.938") ** 2,
        lambda z: mpmath.sqrt(z) / mpmath.erf(mpmath.sqrt(z)),
    ),
]

# The tail of erf is 1 - exp(-t - t q(t)); beyond `high` the result is 1 in that format.
ERF_TAIL = {
    "float": [Fit("erf_tail", "q(t)", erf_tail, mpf("0.93"), mpf(4), erf_tail_weight)],
    "double": [
        Fit("erf_tail", "q(t - 1.625)", erf_tail, mpf("0.93"), mpf("2.32"), erf_tail_weight),
        Fit("erf_tail_far", "q(t - 4.125)", erf_tail, mpf("2.31"), mpf(6), erf_tail_weight),
    ],
}  # fmt: skip
CENTRE = {("erf_tail", "double"): mpf("1.625"), ("erf_tail_far", "double"): mpf("4.125")}
GOAL = {"float": mpf(2) ** -27, "double": mpf(2) ** -57}


def chebyshev_nodes(count: int, low: mpf, high: mpf) -> list[mpf]:
    """Points that crowd towards both ends."""
    centre, half = (low + high) / 2, (high - low) / 2
    return [centre - half * mpmath.cos(mpmath.pi * i / (count - 1)) for i in range(count)]


def remez(fit: Fit, terms: int, centre: mpf) -> tuple[list[mpf], mpf]:
    """Minimax coefficients, low to high, in x - centre, and the largest weighted error."""
    span = (fit.high - fit.low) * mpf("1e-7")
    grid = chebyshev_nodes(60 * terms, fit.low + span, fit.high - span)
    values = [fit.function(x) for x in grid]
    weights = [fit.weight(x) for x in grid]
    picks = [round(i * (len(grid) - 1) / terms) for i in range(terms + 1)]
    for _ in range(12):
        rows = mpmath.matrix(terms + 1, terms + 1)
        right = mpmath.matrix(terms + 1, 1)
        for row, i in enumerate(picks):
            for k in range(terms):
                rows[row, k] = (grid[i] - centre) ** k
            rows[row, terms] = (-1) ** row / weights[i] if weights[i] else 0
            right[row] = values[i]
        solution = list(mpmath.lu_solve(rows, right))
        coefficients = solution[:-1]
        backwards = coefficients[::-1]
        errors = [
            (mpmath.polyval(backwards, x - centre) - v) * w
            for x, v, w in zip(grid, values, weights, strict=True)
        ]
        extrema = _alternating(errors, terms + 1)
        largest = max(abs(e) for e in errors)
        if len(extrema) != terms + 1 or extrema == picks:
            break
        picks = extrema
    return coefficients, largest


def _alternating(errors: list[mpf], count: int) -> list[int]:
    """Indices of the largest error of each run of one sign, cut to `count` of them."""
    runs: list[int] = []
    for i, error in enumerate(errors):
        if runs and (errors[runs[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[runs[-1]]):
                runs[-1] = i
        else:
            runs.append(i)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    return runs


def best(fit: Fit, elem: str) -> tuple[list[mpf], mpf]:
    """The fewest terms that reach the goal of the format."""
    centre = CENTRE.get((fit.name, elem), mpf(0))
    for terms in range(2, 30):
        coefficients, error = remez(fit, terms, centre)
        if error < GOAL[elem]:
            return coefficients, error
    raise SystemExit(f"{fit.name} {elem}: no polynomial of fewer than 30 terms is close enough")


def rounded(value: mpf, elem: str) -> str:
    """The coefficient in its format, as Python writes it."""
    exact = float(np.float32(float(value))) if elem == "float" else float(value)
    return repr(exact)


def main() -> None:
    """Print the module."""
    print(
        '"""Polynomial coefficients, low to high. Generated by scripts/derive_coefficients.py."""\n'
    )
    print("from __future__ import annotations\n")
    print('__all__ = ["COEFFICIENTS"]\n')
    print("COEFFICIENTS: dict[tuple[str, str], tuple[float, ...]] = {")
    for elem in GOAL:
        for fit in [*FITS, *ERF_TAIL[elem]]:
            coefficients, error = best(fit, elem)
            print(f"    # {fit.what}: error 2^{float(mpmath.log(error, 2)):.1f}")
            print(f'    ("{fit.name}", "{elem}"): (')
            for coefficient in coefficients:
                print(f"        {rounded(coefficient, elem)},")
            print("    ),")
            print(fit.name, elem, len(coefficients), file=sys.stderr)
    print("}")


if __name__ == "__main__":
    main()
