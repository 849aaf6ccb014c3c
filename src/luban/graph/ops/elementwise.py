"""Elementwise maths: one value from those at the same place. Shapes are equal: broadcast first.

NaN, -0.0, integer division, shifts and casts follow docs/concepts/numerics.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from luban.core.dtypes import DTYPES, DType
from luban.core.errors import DTypeError, ShapeError
from luban.core.types import TensorType, Type
from luban.graph.infer import same_shape, tensor_operand, tensor_operands
from luban.ir.node import Op

__all__ = [
    "OPS",
    "BINARY",
    "COMPARE",
    "TRANSCENDENTAL",
    "UNARY",
    "Bitcast",
    "Cast",
    "ElementwiseOp",
    "Select",
]

_FLOAT = frozenset({"float"})
_INTEGER = frozenset({"int", "uint"})
_NUMERIC = _FLOAT | _INTEGER
_BITS = _INTEGER | {"bool"}
_ANY = _NUMERIC | {"bool"}


@dataclass(frozen=True, slots=True)
class ElementwiseOp(Op):
    """Base of every elementwise primitive: the result has the operands' shape."""

    arity: ClassVar[int] = 1
    kinds: ClassVar[frozenset[str]] = _NUMERIC
    gives_bool: ClassVar[bool] = False

    def infer(self, *operands: Type) -> Type:
        """Equal shapes and dtypes of an accepted kind give that type (bool for predicates)."""
        first = same_shape(tensor_operands(operands, self.arity))
        if first.dtype.kind not in self.kinds:
            accepted = ", ".join(sorted(self.kinds))
            raise DTypeError(f"operand is {first}, expected a dtype of kind {accepted}")
        return first.with_dtype("bool") if self.gives_bool else first


def _define(
    rows: dict[str, tuple[frozenset[str], str]], arity: int, gives_bool: bool = False
) -> dict[str, type[ElementwiseOp]]:
    """One class per row: they differ in nothing but name, accepted kinds and meaning.

    They have no fields, so the methods of their base, a dataclass, are theirs as they are.
    """
    made: dict[str, type[ElementwiseOp]] = {}
    for name, (kinds, doc) in rows.items():
        class_name = "".join(part.capitalize() for part in name.split("_"))
        body = {
            "__doc__": doc,
            "__slots__": (),
            "__module__": __name__,
            "name": name,
            "arity": arity,
            "kinds": kinds,
            "gives_bool": gives_bool,
        }
        made[name] = type(class_name, (ElementwiseOp,), body)
        globals()[class_name] = made[name]  # an artifact's pickle looks classes up by name
    return made


UNARY = _define(
    {
        "negative": (_NUMERIC, "-x; wraps for the lowest integer"),
        "abs": (_NUMERIC, "|x|; wraps for the lowest integer"),
        "sign": (_NUMERIC, "-1, 0 or 1; keeps NaN and -0.0"),
        "sqrt": (_FLOAT, "square root; NaN below zero"),
        "rsqrt": (_FLOAT, "1 / sqrt(x), each step rounded"),
        "exp": (_FLOAT, "e**x"),
        "expm1": (_FLOAT, "e**x - 1 without cancellation"),
        "log": (_FLOAT, "natural logarithm"),
        "log1p": (_FLOAT, "log(1 + x) without cancellation"),
        "sin": (_FLOAT, "sine of x radians"),
        "cos": (_FLOAT, "cosine of x radians"),
        "tan": (_FLOAT, "tangent of x radians"),
        "asin": (_FLOAT, "inverse sine in radians"),
        "acos": (_FLOAT, "inverse cosine in radians"),
        "atan": (_FLOAT, "inverse tangent in radians"),
        "sinh": (_FLOAT, "hyperbolic sine"),
        "cosh": (_FLOAT, "hyperbolic cosine"),
        "tanh": (_FLOAT, "hyperbolic tangent"),
        "asinh": (_FLOAT, "inverse hyperbolic sine"),
        "acosh": (_FLOAT, "inverse hyperbolic cosine"),
        "atanh": (_FLOAT, "inverse hyperbolic tangent"),
        "erf": (_FLOAT, "error function"),
        "logistic": (_FLOAT, "1 / (1 + exp(-x))"),
        "floor": (_FLOAT, "largest whole number <= x"),
        "ceil": (_FLOAT, "smallest whole number >= x"),
        "round": (_FLOAT, "nearest whole number, ties to even"),
        "trunc": (_FLOAT, "whole number towards zero"),
        "bitwise_not": (_BITS, "every bit flipped; logical not for bool"),
    },
    arity=1,
)
UNARY_BOOL = _define(
    {
        "is_nan": (_FLOAT, "true where x is NaN"),
        "is_inf": (_FLOAT, "true where x is infinite"),
    },
    arity=1,
    gives_bool=True,
)
BINARY = _define(
    {
        "add": (_NUMERIC, "x + y; integers wrap"),
        "subtract": (_NUMERIC, "x - y; integers wrap"),
        "multiply": (_NUMERIC, "x * y; integers wrap"),
        "divide": (_NUMERIC, "x / y; integers truncate towards zero, x / 0 is 0"),
        "remainder": (_NUMERIC, "x - trunc(x / y) * y: the sign of x; integer x % 0 is 0"),
        "floor_mod": (_NUMERIC, "x - floor(x / y) * y: the sign of y; integer x % 0 is 0"),
        "power": (
            _NUMERIC,
            "x**y; integers wrap; a negative integer exponent gives trunc(1 / x**-y)",
        ),
        "maximum": (_NUMERIC, "the larger; NaN if either is NaN"),
        "minimum": (_NUMERIC, "the smaller; NaN if either is NaN"),
        "atan2": (_FLOAT, "angle of the point (y, x) in radians: operands (y, x)"),
        "bitwise_and": (_BITS, "bitwise and; logical and for bool"),
        "bitwise_or": (_BITS, "bitwise or; logical or for bool"),
        "bitwise_xor": (_BITS, "bitwise exclusive or; logical for bool"),
        "shift_left": (_INTEGER, "x << y; 0 for y >= bits"),
        "shift_right": (
            _INTEGER,
            "x >> y: sign fill for int, zero fill for uint; all fill for y >= bits",
        ),
    },
    arity=2,
)
COMPARE = _define(
    {
        "equal": (_ANY, "x == y; false if either is NaN"),
        "not_equal": (_ANY, "x != y; true if either is NaN"),
        "less": (_ANY, "x < y"),
        "less_equal": (_ANY, "x <= y"),
        "greater": (_ANY, "x > y"),
        "greater_equal": (_ANY, "x >= y"),
    },
    arity=2,
    gives_bool=True,
)


@dataclass(frozen=True, slots=True)
class Select(Op):
    """(bool[S], T[S], T[S]) -> T[S]: the second where the predicate is true, else the third."""

    name: ClassVar[str] = "select"

    def infer(self, *operands: Type) -> Type:
        """The type of the two values, which must be equal."""
        predicate, *values = tensor_operands(operands, 3)
        result = same_shape(tuple(values))
        if predicate.dtype is not DTYPES["bool"]:
            raise DTypeError(f"predicate is {predicate}, expected bool")
        if predicate.shape != result.shape:
            raise ShapeError(f"predicate is {predicate}, expected the shape of {result}")
        return result


@dataclass(frozen=True, slots=True)
class Cast(Op):
    """Another dtype, same value as near as it can hold: ties to even.

    Float to integer truncates towards zero and NaN gives 0; with `saturate` it clamps, else it
    clamps to i64 (u64 for u64) and keeps the low bits. Integer to integer keeps the low bits. To
    8-bit and 4-bit floats: with `saturate` clamps to the largest finite value, else overflow gives
    infinity or NaN as the format has. To bool: anything but zero is true. With `flush`, subnormal
    numbers may become zero, as products of bf16 pairs take them.
    """

    name: ClassVar[str] = "cast"
    dtype: DType
    saturate: bool = True
    flush: bool = False

    def infer(self, *operands: Type) -> Type:
        """The operand's shape with the new dtype."""
        given = tensor_operand(operands)
        if "string" in (given.dtype.kind, self.dtype.kind):
            raise DTypeError(f"operand is {given}, a cast to {self.dtype} needs a host operator")
        return given.with_dtype(self.dtype)


@dataclass(frozen=True, slots=True)
class Bitcast(Op):
    """The same bits read as another dtype of the same width."""

    name: ClassVar[str] = "bitcast"
    dtype: DType

    def infer(self, *operands: Type) -> Type:
        """The operand's shape with the new dtype; widths must agree."""
        given = tensor_operand(operands)
        if given.dtype.bits != self.dtype.bits:
            raise DTypeError(
                f"operand is {given}, expected {self.dtype.bits} bits to read as {self.dtype}"
            )
        return TensorType(self.dtype, given.shape)


TRANSCENDENTAL = frozenset(
    [
        "exp",
        "expm1",
        "log",
        "log1p",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "logistic",
        "power",
        "atan2",
    ]
)
"""Primitives that cost many instructions an element: not to be computed twice."""

OPS: tuple[type[Op], ...] = (
    *UNARY.values(),
    *UNARY_BOOL.values(),
    *BINARY.values(),
    *COMPARE.values(),
    Select,
    Cast,
    Bitcast,
)
