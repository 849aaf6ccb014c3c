"""Symbolic dimensions: small integer expressions over named sizes, in one canonical form.

A dimension is an `int` or a `Dim`. A `Dim` is a polynomial: a sum of integer multiples of products
of atoms, where an atom is a symbol (`batch`) or an opaque term (`h // 2`, `h % 2`, `min(h, 8)`,
`max(h, 8)`). Arithmetic keeps the canonical form and gives back an `int` as soon as nothing
symbolic is left, so `==` on dimensions proves equality; it does not disprove it (`a` and `b` may be
equal at run time).

>>> h = symbol("h")
>>> (h + 1) * 2 - 1
2*h+1
>>> (h + 1) * 2 - 2 * h
2
>>> evaluate(h * h // 4, {"h": 6})
9
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd

from luban.core.errors import ShapeError

__all__ = [
    "Dim",
    "DimLike",
    "Shape",
    "bounds",
    "broadcast",
    "ceil_div",
    "evaluate",
    "floor_div",
    "maximum",
    "minimum",
    "modulo",
    "num_elements",
    "parse",
    "substitute",
    "symbol",
    "symbol_bounds",
    "symbols",
]

UNBOUNDED = 1 << 62
_NUMBER_AND_NAME = re.compile(r"(?<!\w)\d+[A-Za-z_]")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named size, known when a call comes in; `low <= size <= high`."""

    name: str
    low: int = field(default=0, compare=False)
    high: int = field(default=UNBOUNDED, compare=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Term:
    """An expression that the polynomial treats as one unknown. kind: // % min max broadcast."""

    kind: str
    left: Dim | int
    right: Dim | int

    def __str__(self) -> str:
        if self.kind in ("//", "%"):
            return f"({_bracketed(self.left)}{self.kind}{_bracketed(self.right)})"
        return f"{self.kind}({self.left},{self.right})"


def _bracketed(value: Dim | int) -> str:
    """The text of an operand: bracketed unless it is one number, symbol or bracketed term."""
    if isinstance(value, Dim):
        (monomial, coefficient), *others = value.terms
        plain = not others and coefficient == 1 and len(monomial) == 1
    else:
        plain = value >= 0
    return str(value) if plain else f"({value})"


Atom = Symbol | Term
Monomial = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Dim:
    """A symbolic size. Built by `symbol` and arithmetic, never directly."""

    terms: tuple[tuple[Monomial, int], ...]  # sorted by text, coefficients never 0

    def __add__(self, other: DimLike) -> DimLike:
        return _from_terms([*self.terms, *_terms(other)])

    __radd__ = __add__

    def __neg__(self) -> DimLike:
        return self * -1

    def __sub__(self, other: DimLike) -> DimLike:
        return self + other * -1

    def __rsub__(self, other: DimLike) -> DimLike:
        return self * -1 + other

    def __mul__(self, other: DimLike) -> DimLike:
        product: list[tuple[Monomial, int]] = []
        for left, a in self.terms:
            for right, b in _terms(other):
                product.append((tuple(sorted((*left, *right), key=str)), a * b))
        return _from_terms(product)

    __rmul__ = __mul__

    def __floordiv__(self, other: DimLike) -> DimLike:
        return floor_div(self, other)

    def __rfloordiv__(self, other: int) -> DimLike:
        return floor_div(other, self)

    def __mod__(self, other: DimLike) -> DimLike:
        return modulo(self, other)

    def __rmod__(self, other: int) -> DimLike:
        return modulo(other, self)

    def __str__(self) -> str:
        text = ""
        for monomial, coefficient in self.terms:
            body = "*".join(str(atom) for atom in monomial)
            if not monomial:
                text += f"{coefficient:+d}"
            elif abs(coefficient) == 1:
                text += ("+" if coefficient > 0 else "-") + body
            else:
                text += f"{coefficient:+d}*{body}"
        return text.removeprefix("+")

    __repr__ = __str__


DimLike = int | Dim
Shape = tuple[DimLike, ...]


def symbol(name: str, low: int = 0, high: int = UNBOUNDED) -> Dim:
    """A new named size with inclusive bounds. Symbols of the same name are equal.

    Raises ShapeError if the bounds are empty or negative, or the name is not an identifier.
    """
    if not name.isidentifier():
        raise ShapeError(
            f"dimension name {name!r} is not an identifier", hint="use letters, digits and _"
        )
    if low < 0 or high < low:
        raise ShapeError(f"dimension {name}: bounds [{low}, {high}] are empty or negative")
    return Dim((((Symbol(name, low, high),), 1),))


def _terms(value: DimLike) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(value, Dim):
        return value.terms
    return (((), int(value)),) if value else ()


def _from_terms(terms: Iterable[tuple[Monomial, int]]) -> DimLike:
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    kept = [(m, c) for m, c in total.items() if c]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    kept.sort(key=lambda item: (not item[0], [str(atom) for atom in item[0]]))
    return Dim(tuple(kept))


def _opaque(kind: str, left: DimLike, right: DimLike) -> Dim:
    return Dim((((Term(kind, left, right),), 1),))


def floor_div(left: DimLike, right: DimLike) -> DimLike:
    """left // right, rounding down. Raises ShapeError for a constant zero divisor.

    >>> h = symbol("h")
    >>> floor_div(4 * h, 2), floor_div(h + 1, 2), floor_div(2 * h + 3, 2)
    (2*h, ((h+1)//2), h+1)
    """
    if right == 0:
        raise ShapeError(f"dimension ({left})//0 divides by zero")
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    if right == 1:
        return left
    if left == right and bounds(left)[0] > 0:
        return 1
    if isinstance(right, int) and isinstance(left, Dim):
        whole = [(m, c // right) for m, c in left.terms if m and c % right == 0]
        rest = [(m, c) for m, c in left.terms if not m or c % right]
        constant = sum(c for m, c in rest if not m)
        carried = constant // right
        rest = [(m, c) for m, c in rest if m] + (
            [((), constant - carried * right)] if constant % right else []
        )
        remainder = _from_terms(rest)
        low, high = bounds(remainder)
        tail: DimLike = 0 if 0 <= low and high < right else _opaque("//", remainder, right)
        return _from_terms(whole) + carried + tail
    if isinstance(right, Dim) and len(right.terms) == 1 and isinstance(left, Dim):
        exact = _exact_quotient(left, right)
        if exact is not None:
            return exact
    return _opaque("//", left, right)


def _exact_quotient(left: Dim, right: Dim) -> DimLike | None:
    """left / right when right is one monomial that is at least 1 and divides every term of left."""
    (monomial, coefficient), *_ = right.terms
    if bounds(right)[0] < 1:
        return None
    quotient: list[tuple[Monomial, int]] = []
    for m, c in left.terms:
        remaining = list(m)
        for atom in monomial:
            if atom not in remaining:
                return None
            remaining.remove(atom)
        if c % coefficient:
            return None
        quotient.append((tuple(remaining), c // coefficient))
    return _from_terms(quotient)


def modulo(left: DimLike, right: DimLike) -> DimLike:
    """left % right with the sign of right. Raises ShapeError for a constant zero divisor.

    >>> h = symbol("h")
    >>> modulo(4 * h, 2), modulo(h + 3, 2)
    (0, ((h+1)%2))
    """
    if right == 0:
        raise ShapeError(f"dimension ({left})%0 divides by zero")
    if isinstance(left, int) and isinstance(right, int):
        return left % right
    if right == 1 or left == right:
        return 0
    if isinstance(right, int) and isinstance(left, Dim):
        kept = _from_terms((m, c % right) for m, c in left.terms)
        low, high = bounds(kept)
        if 0 <= low and high < right:
            return kept
        return kept % right if isinstance(kept, int) else _opaque("%", kept, right)
    return _opaque("%", left, right)


def ceil_div(left: DimLike, right: DimLike) -> DimLike:
    """left / right, rounding up.

    >>> ceil_div(7, 2)
    4
    """
    return -floor_div(-left, right)


def minimum(left: DimLike, right: DimLike) -> DimLike:
    """The smaller of both, simplified where bounds decide it."""
    return _extreme("min", left, right)


def maximum(left: DimLike, right: DimLike) -> DimLike:
    """The larger of both, simplified where bounds decide it.

    >>> maximum(symbol("n", 1), 1)
    n
    """
    return _extreme("max", left, right)


def _extreme(kind: str, left: DimLike, right: DimLike) -> DimLike:
    low, high = bounds(left - right)
    if low >= 0:
        return left if kind == "max" else right
    if high <= 0:
        return right if kind == "max" else left
    first, second = sorted((left, right), key=str)
    return _opaque(kind, first, second)


def broadcast(left: DimLike, right: DimLike) -> DimLike:
    """The size of two axes broadcast together: equal sizes, or one of them 1.

    Raises ShapeError if two constants do not fit; symbolic sizes are checked when they are known.

    >>> broadcast(symbol("n"), 1), broadcast(4, symbol("n"))
    (n, broadcast(4,n))
    """
    if left == right or right == 1:
        return left
    if left == 1:
        return right
    if isinstance(left, int) and isinstance(right, int):
        raise ShapeError(
            f"sizes {left} and {right} do not broadcast: expected equal sizes, or one of them 1"
        )
    first, second = sorted((left, right), key=str)
    return _opaque("broadcast", first, second)


def _broadcast_sizes(left: int, right: int) -> int:
    if left != right and 1 not in (left, right):
        raise ShapeError(
            f"sizes {left} and {right} do not broadcast: expected equal sizes, or one of them 1"
        )
    return right if left == 1 else left


_APPLY: dict[str, Callable[[int, int], int]] = {
    "//": lambda a, b: a // b if b else 0,
    "%": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
    "broadcast": _broadcast_sizes,
}
_BUILD: dict[str, Callable[[DimLike, DimLike], DimLike]] = {
    "//": lambda a, b: floor_div(a, b) if b != 0 else 0,
    "%": lambda a, b: modulo(a, b) if b != 0 else 0,
    "min": minimum,
    "max": maximum,
    "broadcast": broadcast,
}


def evaluate(dim: DimLike, sizes: Mapping[str, int]) -> int:
    """The size when every symbol has the given size. x // 0 and x % 0 are 0: empty axes give them.

    Raises ShapeError for a symbol without a size.
    """
    if isinstance(dim, int):
        return dim
    total = 0
    for monomial, coefficient in dim.terms:
        product = coefficient
        for atom in monomial:
            if isinstance(atom, Symbol):
                if atom.name not in sizes:
                    raise ShapeError(
                        f"dimension {atom.name} has no size yet", hint="known: " + ", ".join(sizes)
                    )
                product *= sizes[atom.name]
            else:
                product *= _APPLY[atom.kind](
                    evaluate(atom.left, sizes), evaluate(atom.right, sizes)
                )
        total += product
    return total


def substitute(dim: DimLike, sizes: Mapping[str, DimLike]) -> DimLike:
    """The dimension with symbols replaced by other dimensions.

    >>> substitute(parse("2*h+w"), {"h": parse("w-1")})
    3*w-2
    """
    if isinstance(dim, int):
        return dim
    total: DimLike = 0
    for monomial, coefficient in dim.terms:
        product: DimLike = coefficient
        for atom in monomial:
            if isinstance(atom, Symbol):
                factor: DimLike = sizes.get(atom.name, Dim((((atom,), 1),)))
            else:
                factor = _BUILD[atom.kind](
                    substitute(atom.left, sizes), substitute(atom.right, sizes)
                )
            product = product * factor
        total = total + product
    return total


def symbols(dim: DimLike) -> frozenset[Symbol]:
    """Every symbol in the expression.

    >>> sorted(s.name for s in symbols(parse("max(h//2,w)")))
    ['h', 'w']
    """
    if isinstance(dim, int):
        return frozenset()
    found: set[Symbol] = set()
    for monomial, _ in dim.terms:
        for atom in monomial:
            found |= (
                {atom} if isinstance(atom, Symbol) else symbols(atom.left) | symbols(atom.right)
            )
    return frozenset(found)


def bounds(dim: DimLike) -> tuple[int, int]:
    """Inclusive lower and upper bound, by interval arithmetic over the symbols' bounds.

    >>> bounds(symbol("n", 1, 8) * 2 - 1)
    (1, 15)
    """
    if isinstance(dim, int):
        return dim, dim
    return _dim_bounds(dim, symbol_bounds(dim))


def symbol_bounds(dim: Dim) -> tuple[tuple[str, int, int], ...]:
    """(name, low, high) of every symbol, which equality of dimensions leaves out.

    >>> symbol_bounds(symbol("n", 1, 8) * 2)
    (('n', 1, 8),)
    """
    return tuple(sorted((s.name, s.low, s.high) for s in symbols(dim)))


@lru_cache(maxsize=8192)
def _dim_bounds(dim: Dim, _symbol_bounds: tuple[tuple[str, int, int], ...]) -> tuple[int, int]:
    low = high = 0
    for monomial, coefficient in dim.terms:
        interval = (coefficient, coefficient)
        for atom in monomial:
            interval = _interval_product(interval, _atom_bounds(atom))
        low, high = low + interval[0], high + interval[1]
    return max(low, -UNBOUNDED), min(high, UNBOUNDED)


def _interval_product(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    corners = [max(-UNBOUNDED, min(UNBOUNDED, x * y)) for x in a for y in b]
    return min(corners), max(corners)


def _atom_bounds(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Symbol):
        return atom.low, atom.high
    (a_low, a_high), (b_low, b_high) = bounds(atom.left), bounds(atom.right)
    if atom.kind == "min":
        return min(a_low, b_low), min(a_high, b_high)
    if atom.kind == "max":
        return max(a_low, b_low), max(a_high, b_high)
    if atom.kind == "broadcast":
        return min(a_low, b_low), max(a_high, b_high)
    if b_low < 1:
        return -UNBOUNDED, UNBOUNDED
    if atom.kind == "%":
        return 0, b_high - 1
    corners = [x // y for x in (a_low, a_high) for y in (b_low, b_high)]
    return min(corners), max(corners)


def num_elements(shape: Iterable[DimLike]) -> DimLike:
    """The product of the sizes; 1 for no axes.

    >>> num_elements((2, symbol("n"), 3))
    6*n
    """
    total: DimLike = 1
    for size in shape:
        total = total * size
    return total


def common_divisor(dim: DimLike) -> int:
    """The largest integer that divides the size for every choice of the symbols.

    >>> common_divisor(parse("4*h+8"))
    4
    """
    return abs(dim) if isinstance(dim, int) else gcd(*(c for _, c in dim.terms))


def parse(text: str, known: Mapping[str, Dim] | None = None) -> DimLike:
    """Read the printed form back; names not in `known` become symbols without bounds.

    Raises ShapeError for anything else than integers, names, + - * // % min max broadcast and
    brackets.

    >>> parse("2*h+1")
    2*h+1
    """
    try:
        if _NUMBER_AND_NAME.search(text):  # Python only warns
            raise SyntaxError("a number runs into a name")
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ShapeError(f"dimension {text!r} cannot be read: {error.msg}") from error
    return _parsed(tree, text, known or {})


def _parsed(tree: ast.expr, text: str, known: Mapping[str, Dim]) -> DimLike:
    match tree:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return known[name] if name in known else symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_parsed(operand, text, known)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _parsed(left, text, known), _parsed(right, text, known)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv():
                    return floor_div(a, b)
                case ast.Mod():
                    return modulo(a, b)
        case ast.Call(func=ast.Name(id=name), args=[left, right]) if name in _BUILD:
            return _BUILD[name](_parsed(left, text, known), _parsed(right, text, known))
    raise ShapeError(
        f"dimension {text!r} cannot be read",
        hint="use integers, names, + - * // % min(a,b) max(a,b) and brackets",
    )
