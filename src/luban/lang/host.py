"""What kernels' callers compute with: rounding up of sizes."""

from __future__ import annotations

__all__ = ["cdiv", "next_power_of_2"]


def cdiv(x: int, div: int) -> int:
    """x / div, rounded up.

    >>> cdiv(10, 4)
    3
    """
    return -(-x // div)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below n.

    >>> next_power_of_2(100), next_power_of_2(64)
    (128, 64)
    """
    return 1 << max(n - 1, 0).bit_length()
