"""Arithmetic on known scalars, in Python integers: what the builder computes while it builds.

Integers and bool only: float arithmetic is left to the program. The results are those of the ops'
meaning in `evaluate`.
"""

from __future__ import annotations

from luban.core.dtypes import DType

__all__ = ["fold_binary", "fold_compare", "fold_identity"]

Number = bool | int | float


def _wrap(value: int, elem: DType) -> int:
    value &= (1 << elem.bits) - 1
    return value - (1 << elem.bits) if value > elem.highest else value


def _divide(x: int, y: int) -> int:
    if y == 0:
        return 0
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def fold_binary(kind: str, elem: DType, x: Number, y: Number) -> int | bool | None:
    """The value of `x kind y`, or None when it is not for us to compute.

    >>> from luban.core.dtypes import dtype
    >>> fold_binary("div", dtype("i64"), -7, 2), fold_binary("add", dtype("i8"), 127, 1)
    (-3, -128)
    """
    if isinstance(x, float) or isinstance(y, float):
        return None
    if elem.kind == "bool":
        match kind:
            case "and":
                return bool(x and y)
            case "or":
                return bool(x or y)
            case "xor":
                return x != y
        return None
    match kind:
        case "add":
            return _wrap(x + y, elem)
        case "sub":
            return _wrap(x - y, elem)
        case "mul":
            return _wrap(x * y, elem)
        case "div":
            return _wrap(_divide(x, y), elem)
        case "rem":
            return x - y * _divide(x, y) if y else 0
        case "min":
            return min(x, y)
        case "max":
            return max(x, y)
        case "and":
            return _wrap(x & y, elem)
        case "or":
            return _wrap(x | y, elem)
        case "xor":
            return _wrap(x ^ y, elem)
        case "shl":
            return _wrap(x << y, elem) if 0 <= y < elem.bits else 0
    return None


def fold_identity(kind: str, x: Number | None, y: Number | None) -> str | None:
    """Which operand an integer result equals when one is known: "x", "y", "zero" or None.

    >>> fold_identity("mul", None, 1), fold_identity("add", 0, None), fold_identity("mul", None, 0)
    ('x', 'y', 'zero')
    """
    if kind == "mul" and (x == 0 or y == 0):
        return "zero"
    if kind == "rem" and y == 1:
        return "zero"
    if y == 0 and kind in ("add", "sub", "or", "xor", "shl", "shr_logical", "shr_arithmetic"):
        return "x"
    if y == 1 and kind in ("mul", "div"):
        return "x"
    if (x == 0 and kind in ("add", "or", "xor")) or (x == 1 and kind == "mul"):
        return "y"
    return None


def fold_compare(predicate: str, x: Number, y: Number) -> bool:
    """The value of a comparison of known numbers.

    >>> fold_compare("le", 3, 3)
    True
    """
    match predicate:
        case "eq":
            return x == y
        case "ne":
            return x != y
        case "lt":
            return x < y
        case "le":
            return x <= y
        case "gt":
            return x > y
    return x >= y
