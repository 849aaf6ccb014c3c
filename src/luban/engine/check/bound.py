"""The bound: how far a result may be from the meaning before it is called wrong.

Floats: |result - exact| <= 8 * |plain - exact| + 4 ulp + sums, per tensor: the largest error of the
result against 8 times the largest error of the plain, unoptimised evaluation in the model's own
dtypes, plus 4 units in the last place of the largest value, plus what summing in another order may
cost: u * sqrt(K) * max sum |a * b| for each sum of K terms behind the result, u being half an ulp
of 1 in the accumulator (another order of K roundings is a random walk of K steps). NaN and
infinities stand where they stand in the plain or in the exact evaluation. Where rounding decides
the very sizes (the plain and the exact evaluation differ in shape) no bound can be stated: it is
infinite.

Integers and bools: equal to the plain or the exact evaluation. Where a float was rounded to an
integer on the way, up to 1 % of the elements may differ by 1: a value within rounding of a tie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from luban.core.dtypes import from_numpy

__all__ = ["Verdict", "judge"]

Array = np.ndarray[Any, Any]
_FACTOR = 8.0
_ULPS = 4.0
_TIES = 0.01


@dataclass(frozen=True, slots=True)
class Verdict:
    """One tensor's error against its bound, and where the error is largest."""

    error: float
    bound: float
    index: tuple[int, ...] = ()
    got: str = ""
    expected: str = ""
    why: str = ""

    @property
    def ok(self) -> bool:
        """True if the error stays inside the bound."""
        return not self.why

    def __str__(self) -> str:
        if self.ok:
            return f"error {self.error:.2e} within {self.bound:.2e}"
        place = list(self.index)
        return f"{self.why}: element {place} is {self.got}, expected {self.expected}"


def judge(
    result: Any, exact: Any, plain: Any, *, rounded: bool = False, sums: float = 0.0
) -> Verdict:
    """Compare a result with the float64 meaning and the plain evaluation.

    rounded  a float was rounded to an integer on the way to an integer result
    sums     the part of the bound that the sums behind the result add

    >>> import numpy as np
    >>> judge(np.float32([1, 2]), np.float64([1, 2]), np.float32([1, 2])).ok
    True
    >>> print(judge(np.float32([1, 5]), np.float64([1, 2]), np.float32([1, 2])))
    error 3.00e+00 above 9.54e-07: element [1] is 5.0, expected 2.0
    """
    if not isinstance(result, np.ndarray | np.generic):
        same = _equal_values(result, plain)
        return (
            Verdict(0, 0)
            if same
            else Verdict(1, 0, (), repr(result)[:60], repr(plain)[:60], "differs")
        )
    got, want, model = np.asarray(result), np.asarray(exact), np.asarray(plain)
    if model.shape != want.shape:  # rounding decides the sizes
        return Verdict(np.inf, np.inf)
    if got.shape != want.shape:
        why = f"has shape {list(got.shape)}, expected {list(want.shape)}"
        return Verdict(np.inf, 0, (), str(list(got.shape)), str(list(want.shape)), why)
    if not got.size:
        return Verdict(0, 0)
    if got.dtype.kind == "O":
        return _first_difference(got, model, got != model, "differs")
    if not from_numpy(got.dtype).is_float:
        return _integers(got, want, model, rounded)
    return _floats(got, want.astype(np.float64), model, sums)


def _equal_values(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_equal_values, a, b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return (
            a.shape == b.shape
            and judge(a, b.astype(np.float64) if b.dtype.kind == "f" else b, b).ok
        )
    return bool(a is b or a == b)


def _integers(got: Array, exact: Array, plain: Array, rounded: bool) -> Verdict:
    wrong = (got != plain) & (got != exact.astype(got.dtype))
    if not wrong.any():
        return Verdict(0, 0)
    far = np.abs(got.astype(np.int64) - plain.astype(np.int64)) > 1
    if rounded and got.dtype.kind != "b" and not (wrong & far).any() and wrong.mean() <= _TIES:
        return Verdict(1, 1)
    count = int(wrong.sum())
    return _first_difference(got, plain, wrong, f"{count} of {got.size} elements differ")


def _floats(got: Array, exact: Array, plain: Array, sums: float) -> Verdict:
    result, model = got.astype(np.float64), plain.astype(np.float64)
    usual = np.isfinite(exact) & np.isfinite(model)
    special = ~usual & ~_same(result, exact) & ~_same(result, model)
    stray = usual & ~np.isfinite(result)
    if special.any() or stray.any():
        return _first_difference(got, exact, special | stray, "NaN or infinity out of place")
    error = np.where(usual, np.abs(np.where(usual, result - np.where(usual, exact, 0), 0)), 0)
    legit = float(np.max(np.where(usual, np.abs(np.where(usual, model - exact, 0)), 0)))
    largest = float(np.max(np.where(usual, np.abs(exact), 0)))
    info: Any = ml_dtypes.finfo(got.dtype)  # type: ignore[no-untyped-call]
    ulp = max(float(info.eps) * largest, float(info.smallest_subnormal))
    bound = _FACTOR * legit + _ULPS * ulp + sums
    worst = float(error.max())
    if worst <= bound:
        return Verdict(worst, bound)
    place = np.unravel_index(int(error.argmax()), error.shape)
    index = tuple(int(i) for i in place)
    why = f"error {worst:.2e} above {bound:.2e}"
    return Verdict(worst, bound, index, str(got[place]), str(exact[place]), why)


def _same(a: Array, b: Array) -> Array:
    same: Array = (a == b) | (np.isnan(a) & np.isnan(b))
    return same


def _first_difference(got: Array, want: Array, wrong: Array, why: str) -> Verdict:
    place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    index = tuple(int(i) for i in place)
    return Verdict(float("inf"), 0, index, str(got[place]), str(want[place]), why)
