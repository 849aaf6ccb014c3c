"""The language's rules for mixed types, and arithmetic under them.

Python's numbers are weak: they take the type of the other operand unless their kind (bool, integer,
float) is higher. Numbers of the run are strong, scalars too.
"""

from __future__ import annotations

from luban.core.errors import LubanError
from luban.frontend.kernel.types import BY_NAME, ElementType
from luban.frontend.kernel.values import Tensor, is_number
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["ARITHMETIC", "COMPARISONS", "arithmetic", "common_type", "compare", "number_type",
           "to_tensor", "together"]  # fmt: skip

_FLOATS = ("fp64", "fp32", "fp16", "bf16")
ARITHMETIC = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "//": "div", "%": "rem",
    "&": "and", "|": "or", "^": "xor", "<<": "shl", ">>": "shr",
}  # fmt: skip
COMPARISONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def number_type(value: bool | int | float) -> ElementType:
    """The type that a Python number takes by itself. Raises LubanError beyond 64 bits."""
    if isinstance(value, bool):
        return BY_NAME["int1"]
    if isinstance(value, float):
        return BY_NAME["fp32"] if _fits_fp32(value) else BY_NAME["fp64"]
    for name in ("int32", "uint32", "int64", "uint64"):
        found = BY_NAME[name]
        if found.dtype.lowest <= value <= found.dtype.highest:
            return found
    raise LubanError(f"the number {value} does not fit 64 bits")


def _fits_fp32(value: float) -> bool:
    return value != value or value in (float("inf"), -float("inf")) or abs(value) <= 3.4028235e38


def _kind(found: ElementType) -> int:
    """bool < integer < float."""
    return 0 if found.is_bool() else 2 if found.is_floating() else 1


def common_type(x: ElementType, y: ElementType, *, divides: bool = False) -> ElementType:
    """The type that two strong operands compute in.

    divides   for / and %: floats of 16 bits compute in fp32

    >>> common_type(BY_NAME["fp16"], BY_NAME["bf16"])
    fp16
    >>> common_type(BY_NAME["int32"], BY_NAME["uint32"])
    uint32
    """
    for name in ("fp64", "fp32"):
        if name in (x.name, y.name):
            return BY_NAME[name]
    if "fp16" in (x.name, y.name):
        return BY_NAME["fp32" if divides else "fp16"]
    if "bf16" in (x.name, y.name):
        both = x.name == y.name
        return BY_NAME["bf16" if both and not divides else "fp32"]
    if x.is_fp8() or y.is_fp8():
        if x.is_fp8() and y.is_fp8():
            return x if x == y else BY_NAME["fp16"]
        return BY_NAME["fp16"]
    if x.is_bool() and y.is_bool():
        return x
    return _common_integer(x, y)


def _common_integer(x: ElementType, y: ElementType) -> ElementType:
    signed = x.is_int_signed(), y.is_int_signed()
    if signed[0] == signed[1]:
        return x if x.primitive_bitwidth >= y.primitive_bitwidth else y
    plain, other = (y, x) if signed[0] else (x, y)
    return plain if plain.primitive_bitwidth >= other.primitive_bitwidth else other


def _weak_type(number: bool | int | float, strong: ElementType) -> ElementType:
    """What a Python number becomes beside a strong operand."""
    own = number_type(number)
    if _kind(own) <= _kind(strong):
        return strong
    return own


def to_tensor(
    b: FunctionBuilder, value: Tensor | bool | int | float, wanted: ElementType | None = None
) -> Tensor:
    """A value as a tensor; a Python number takes its own type or the wanted one.

    Raises LubanError for an integer that does not fit.
    """
    if isinstance(value, Tensor):
        return value
    found = wanted or number_type(value)
    dtype = found.dtype
    number: bool | int | float
    if dtype.is_float:
        return Tensor(_float(b, float(value), found))
    if dtype.kind == "bool":
        number = bool(value)
    else:
        number = int(value)
        if not dtype.lowest <= number <= dtype.highest:
            raise LubanError(f"the number {number} does not fit {found}")
    return Tensor(b.constant(number, dtype))


def _float(b: FunctionBuilder, value: float, found: ElementType) -> Expr:
    if found.dtype.bits >= 16:
        return b.constant(value, found.dtype)
    return b.cast(b.constant(value, "f32"), found.dtype)


def together(
    b: FunctionBuilder,
    x: Tensor | bool | int | float,
    y: Tensor | bool | int | float,
    *,
    divides: bool = False,
) -> tuple[Tensor, Tensor]:
    """Two operands in their common type; shapes are left to broadcasting."""
    if is_number(x) and is_number(y):
        left, right = to_tensor(b, x), to_tensor(b, y)
    elif isinstance(x, Tensor) and not isinstance(y, Tensor):
        left, right = x, to_tensor(b, y, _weak_type(y, x.type))
    elif isinstance(y, Tensor) and not isinstance(x, Tensor):
        left, right = to_tensor(b, x, _weak_type(x, y.type)), y
    else:
        left, right = to_tensor(b, x), to_tensor(b, y)
    wanted = common_type(left.type, right.type, divides=divides)
    return cast(b, left, wanted), cast(b, right, wanted)


def cast(b: FunctionBuilder, x: Tensor, wanted: ElementType) -> Tensor:
    """Numbers in another type: integers wrap, floats round to nearest even."""
    return x if x.type == wanted else Tensor(b.cast(x.expr, wanted.dtype))


def _computable(b: FunctionBuilder, x: Tensor) -> Tensor:
    """fp8 computes in fp16."""
    return cast(b, x, BY_NAME["fp16"]) if x.type.is_fp8() else x


def arithmetic(
    b: FunctionBuilder, sign: str, x: Tensor | bool | int | float, y: Tensor | bool | int | float
) -> Tensor:
    """`x sign y`. Raises LubanError for types that the operator does not take."""
    left, right = together(b, x, y, divides=sign in ("/", "%"))
    left, right = _computable(b, left), _computable(b, right)
    if left.type.is_bool() and sign in ("+", "-", "*", "/", "//", "%", "<<", ">>"):
        left, right = (cast(b, t, BY_NAME["int32"]) for t in (left, right))
    kind = ARITHMETIC[sign]
    found = left.type
    if sign == "/" and found.is_int():
        left, right = (cast(b, t, BY_NAME["fp32"]) for t in (left, right))
    elif sign in ("//", "&", "|", "^", "<<", ">>") and found.is_floating():
        raise LubanError(
            f"{sign} of {_said(x)} and {_said(y)}, expected integers",
            hint="use / for floats, and tl.floor for the whole part" if sign == "//" else None,
        )
    if sign in ("/", "//", "%") and found.is_int():
        _refuse_mixed_signs(sign, x, y)
    if sign == ">>":
        kind = "shr_arithmetic" if left.type.is_int_signed() else "shr_logical"
    return Tensor(b.binary(kind, left.expr, right.expr))  # type: ignore[arg-type]


def _refuse_mixed_signs(sign: str, x: object, y: object) -> None:
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        signed = {
            t.type.is_int_signed() for t in (x, y) if t.type.is_int() and not t.type.is_bool()
        }
        if len(signed) == 2 and sign != "/":
            raise LubanError(
                f"{sign} of {x} and {y}: signed and unsigned integers",
                hint="cast one of them with .to(...)",
            )


def _said(value: object) -> str:
    return str(value) if isinstance(value, Tensor) else repr(value)


def compare(
    b: FunctionBuilder, sign: str, x: Tensor | bool | int | float, y: Tensor | bool | int | float
) -> Tensor:
    """`x sign y` as int1."""
    left, right = (_computable(b, t) for t in together(b, x, y))
    if left.type.is_bool() and sign not in ("==", "!="):
        left, right = (cast(b, t, BY_NAME["int32"]) for t in (left, right))
    return Tensor(b.compare(COMPARISONS[sign], left.expr, right.expr))  # type: ignore[arg-type]
