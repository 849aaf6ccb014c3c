"""Expressions over tile values: `x * 2 + y` appends operations to the block being built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from luban.core.dtypes import DTYPES, DType, dtype
from luban.core.errors import DTypeError, InternalError, ShapeError
from luban.core.loc import Loc
from luban.tile.fold import fold_binary, fold_compare, fold_identity
from luban.tile.function import Operation, Region, Value
from luban.tile.op import TileOp
from luban.tile.ops import (
    Arange,
    Binary,
    BinaryKind,
    Bitcast,
    Broadcast,
    Cast,
    Compare,
    Constant,
    Fma,
    Predicate,
    Select,
    Unary,
    UnaryKind,
)
from luban.tile.types import TileType, broadcast_shapes

__all__ = ["Block", "Emitter", "Expr", "Operand"]

Number = bool | int | float


class Expr:
    """A value inside a function that is being built.

    Operators broadcast by numpy's rule and take Python numbers. `//` and `%` truncate (they are
    meant for indices, which are not negative); `>>` fills with the sign for signed types. `<` and
    the like compare; use `eq` and `ne` for equality. An Expr has no truth value: the program is not
    running yet.
    """

    __slots__ = ("emitter", "value")

    def __init__(self, emitter: Emitter, value: Value) -> None:
        self.emitter = emitter
        self.value = value

    def __repr__(self) -> str:
        return f"Expr({self.value!r})"

    @property
    def type(self) -> TileType:
        """Element type and shape."""
        return self.value.type

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.value.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents, () for a scalar."""
        return self.value.type.shape

    @property
    def known(self) -> Number | None:
        """The number, where building already knows it."""
        return self.emitter.known(self.value)

    def __bool__(self) -> bool:
        raise DTypeError(
            f"{self!r} has no truth value while the program is being built",
            hint="use select, if_ or while_; for Python-time decisions use .known",
        )

    def __add__(self, other: Operand) -> Expr:
        return self.emitter.binary("add", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return self.emitter.binary("add", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return self.emitter.binary("sub", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return self.emitter.binary("sub", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return self.emitter.binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return self.emitter.binary("mul", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return self.emitter.divide(self, other, "/", want_float=True)

    def __rtruediv__(self, other: Operand) -> Expr:
        return self.emitter.divide(other, self, "/", want_float=True)

    def __floordiv__(self, other: Operand) -> Expr:
        return self.emitter.divide(self, other, "//", want_float=False)

    def __rfloordiv__(self, other: Operand) -> Expr:
        return self.emitter.divide(other, self, "//", want_float=False)

    def __mod__(self, other: Operand) -> Expr:
        return self.emitter.binary("rem", self, other)

    def __and__(self, other: Operand) -> Expr:
        return self.emitter.binary("and", self, other)

    def __or__(self, other: Operand) -> Expr:
        return self.emitter.binary("or", self, other)

    def __xor__(self, other: Operand) -> Expr:
        return self.emitter.binary("xor", self, other)

    def __lshift__(self, other: Operand) -> Expr:
        return self.emitter.binary("shl", self, other)

    def __rshift__(self, other: Operand) -> Expr:
        signed = self.dtype.kind == "int"
        return self.emitter.binary("shr_arithmetic" if signed else "shr_logical", self, other)

    def __neg__(self) -> Expr:
        return self.emitter.unary("neg", self)

    def __invert__(self) -> Expr:
        return self.emitter.unary("not", self)

    def __lt__(self, other: Operand) -> Expr:
        return self.emitter.compare("lt", self, other)

    def __le__(self, other: Operand) -> Expr:
        return self.emitter.compare("le", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return self.emitter.compare("gt", self, other)

    def __ge__(self, other: Operand) -> Expr:
        return self.emitter.compare("ge", self, other)

    def eq(self, other: Operand) -> Expr:
        """Elementwise ==."""
        return self.emitter.compare("eq", self, other)

    def ne(self, other: Operand) -> Expr:
        """Elementwise !=."""
        return self.emitter.compare("ne", self, other)

    def cast(self, to: str | DType, *, saturate: bool | None = None) -> Expr:
        """These numbers in another element type; see `Emitter.cast`."""
        return self.emitter.cast(self, to, saturate=saturate)


# Made once: these are what most programs consist of. The tables hold every kind.
_UNARY = {kind: Unary(kind) for kind in get_args(UnaryKind)}
_BINARY = {kind: Binary(kind) for kind in get_args(BinaryKind)}

Operand = Expr | bool | int | float


class Block:
    """Operations of a region under construction, and the keys of what is shared inside it."""

    __slots__ = ("body", "keys")

    def __init__(self) -> None:
        self.body: list[Operation] = []
        self.keys: list[object] = []

    def region(self, params: Sequence[Value], yields: Sequence[Value]) -> Region:
        """The finished region."""
        return Region(tuple(params), tuple(self.body), tuple(yields))


class Emitter:
    """Appends operations to the innermost block; folds known integers, shares equal scalars."""

    def __init__(self) -> None:
        self.blocks: list[Block] = [Block()]
        self._shared: dict[object, Value] = {}  # of all open blocks: no key is in two of them
        self.loc: Loc | None = None  # given to every operation built from now on
        self._known: dict[Value, Number] = {}
        self._offsets: dict[Value, tuple[Value, int]] = {}  # i64 value: (x, c) when it is x + c

    def known(self, value: Value) -> Number | None:
        """The number that a value is, when building knows it."""
        return self._known.get(value)

    def open_block(self) -> Block:
        """Append to a new block from now on."""
        block = Block()
        self.blocks.append(block)
        return block

    def close_block(self) -> None:
        """Go on in the block around; what was shared inside is not visible any more."""
        for key in self.blocks.pop().keys:
            del self._shared[key]

    def _share(self, key: object, value: Value) -> None:
        self._shared[key] = value
        self.blocks[-1].keys.append(key)

    def emit(
        self, op: TileOp, *operands: Value, regions: Sequence[Region] = ()
    ) -> tuple[Expr, ...]:
        """Append one operation as it is. Raises what the op's `infer` raises."""
        types = op.infer(*[operand.type for operand in operands])
        key = None
        if op.pure and _is_shareable(op, types):
            key = (op, operands)
            found = self._shared.get(key)
            if found is not None:
                return (Expr(self, found),)
        results = tuple([Value(given) for given in types])
        operation = Operation(op, operands, results, tuple(regions), self.loc)
        self.blocks[-1].body.append(operation)
        if key is not None:
            self._share(key, results[0])
        return tuple([Expr(self, result) for result in results])

    def constant(self, value: Number, elem: str | DType = "i64") -> Expr:
        """One number, rounded to a float type; DTypeError for an integer out of range."""
        elem = dtype(elem)
        if elem.is_float:
            value = float(elem.numpy.type(float(value)))
        key = (elem, value if type(value) is int else repr(value))  # 0.0 == -0.0 and 1 == True
        found = self._shared.get(key)
        if found is not None:
            return Expr(self, found)
        (result,) = self.emit(Constant(value, elem))
        self._known[result.value] = value
        self._share(key, result.value)
        return result

    def full(self, shape: Sequence[int], value: Number, elem: str | DType) -> Expr:
        """A tile of one number."""
        return self.broadcast(self.constant(value, elem), shape)

    def arange(self, n: int, elem: str | DType = "i64") -> Expr:
        """0 .. n - 1 as a tile<n>."""
        return self.emit(Arange(n, dtype(elem)))[0]

    def expr(self, given: Operand | Value, like: TileType | None = None) -> Expr:
        """An operand as an expression; a number takes the element type of `like` (i64 without)."""
        if isinstance(given, Expr):
            if given.emitter is not self:
                raise InternalError(f"{given!r} belongs to another function")
            return given
        if isinstance(given, Value):
            return Expr(self, given)
        return self.constant(given, like.dtype if like is not None else "i64")

    def index(self, given: Operand) -> Value:
        """An operand where an i64 scalar is wanted."""
        return self.expr(given).value

    def coerce(self, given: Operand, to: TileType) -> Value:
        """An operand where this type is wanted: numbers and smaller shapes are broadcast."""
        return self.broadcast(self.expr(given, to), to.shape).value

    def broadcast(self, given: Expr, shape: Sequence[int]) -> Expr:
        """Repeat by numpy's rule; nothing when the shape is there already."""
        shape = tuple(shape)
        if given.value.type.shape == shape:
            return given
        if given.value.type.shape:
            return self.emit(Broadcast(shape), given.value)[0]
        key = (given.value, shape)
        found = self._shared.get(key)
        if found is not None:
            return Expr(self, found)
        (result,) = self.emit(Broadcast(shape), given.value)
        self._share(key, result.value)
        return result

    def align_operands(self, *given: Operand) -> list[Value]:
        """Operands as values of one shape; numbers take the element type of the first Expr."""
        like = next((item.value.type for item in given if isinstance(item, Expr)), None)
        exprs = [self.expr(item, like) for item in given]
        shape: tuple[int, ...] | None = exprs[0].value.type.shape
        if all(item.value.type.shape == shape for item in exprs):
            return [item.value for item in exprs]
        shape = broadcast_shapes(*[item.value.type.shape for item in exprs])
        if shape is None:
            raise ShapeError(
                "shapes " + ", ".join(str(item.shape) for item in exprs) + " do not broadcast",
                hint="extents must be equal or 1 (numpy's rule)",
            )
        return [self.broadcast(item, shape).value for item in exprs]

    def _pair(self, x: Operand, y: Operand) -> Sequence[Value]:
        """`align_operands` of two, quick for the usual ones."""
        if type(x) is Expr and x.emitter is self:
            left = x.value
            if type(y) is Expr:
                right = y.value
                if y.emitter is self and left.type.shape == right.type.shape:
                    return left, right
            elif not left.type.shape and type(y) is int:
                return left, self.constant(y, left.type.dtype).value
        return self.align_operands(x, y)

    def unary(self, kind: UnaryKind, x: Expr) -> Expr:
        """One of the functions in the table `UNARY`."""
        known = self._known.get(x.value)
        if kind == "not" and isinstance(known, bool):
            return self.constant(not known, "bool")
        if kind == "neg" and type(known) is int and -known <= x.dtype.highest:
            return self.constant(-known, x.dtype) if x.dtype.kind == "int" else 0 - x
        return self.emit(_UNARY.get(kind) or Unary(kind), x.value)[0]

    def binary(self, kind: BinaryKind, x: Operand, y: Operand) -> Expr:
        """One of the functions in the table `BINARY`; broadcasts, folds known integers."""
        left, right = self._pair(x, y)
        if not left.type.shape and left.type == right.type and not left.type.dtype.is_float:
            folded = self._fold(kind, left, right)
            if folded is not None:
                return folded
        return self.emit(_BINARY.get(kind) or Binary(kind), left, right)[0]

    def _fold(self, kind: BinaryKind, left: Value, right: Value) -> Expr | None:
        elem = left.type.dtype
        x, y = self._known.get(left), self._known.get(right)
        if x is not None and y is not None:
            value = fold_binary(kind, elem, x, y)
            return None if value is None else self.constant(value, elem)
        if elem.kind == "bool":
            return None
        match fold_identity(kind, x, y):
            case "x":
                return Expr(self, left)
            case "y":
                return Expr(self, right)
            case "zero":
                return self.constant(0, elem)
        if kind in ("add", "sub") and elem is DTYPES["i64"]:
            return self._fold_offset(kind, left, right, x, y)
        return None

    def _fold_offset(
        self, kind: str, left: Value, right: Value, x: Number | None, y: Number | None
    ) -> Expr | None:
        """(v + c) + d -> v + (c + d): addresses share their varying part."""
        if kind == "add" and x is not None:
            left, right, y = right, left, x
        if y is None:
            return None
        start, offset = self._offsets.get(left, (left, 0))
        offset = int(offset + y if kind == "add" else offset - y)
        if offset == 0:
            return Expr(self, start)
        if abs(offset) >= 1 << 62:
            return None
        (result,) = self.emit(Binary("add"), start, self.constant(offset).value)
        self._offsets[result.value] = (start, offset)
        return result

    def divide(self, x: Operand, y: Operand, sign: str, *, want_float: bool) -> Expr:
        """`/` for floats and `//` for integers; DTypeError when the types say the other one."""
        elem = next(item.dtype for item in (x, y) if isinstance(item, Expr))
        if elem.is_float != want_float:
            raise DTypeError(
                f"{sign} of {elem}", hint="use / for floats and // (truncating) for integers"
            )
        return self.binary("div", x, y)

    def compare(self, predicate: Predicate, x: Operand, y: Operand) -> Expr:
        """Elementwise comparison to bool."""
        left, right = self._pair(x, y)
        known = self._known.get(left), self._known.get(right)
        if known[0] is not None and known[1] is not None:
            return self.constant(fold_compare(predicate, known[0], known[1]), "bool")
        return self.emit(Compare(predicate), left, right)[0]

    def min(self, x: Operand, y: Operand) -> Expr:
        """The smaller; NaN if either is NaN."""
        return self.binary("min", x, y)

    def max(self, x: Operand, y: Operand) -> Expr:
        """The larger; NaN if either is NaN."""
        return self.binary("max", x, y)

    def select(self, condition: Expr, x: Operand, y: Operand) -> Expr:
        """condition ? x : y, all three broadcast to one shape."""
        known = self._known.get(condition.value)
        left, right = self.align_operands(x, y)
        shape = broadcast_shapes(condition.shape, left.type.shape)
        if shape is None:
            raise ShapeError(f"condition {condition.type} does not broadcast with {left.type}")
        if known is not None:
            return Expr(self, left if known else right)
        left, right = (self.broadcast(Expr(self, item), shape).value for item in (left, right))
        return self.emit(Select(), self.broadcast(condition, shape).value, left, right)[0]

    def fma(self, x: Operand, y: Operand, z: Operand) -> Expr:
        """x * y + z, rounded once."""
        return self.emit(Fma(), *self.align_operands(x, y, z))[0]

    def cast(
        self, x: Expr, to: str | DType, *, saturate: bool | None = None, flush: bool = False
    ) -> Expr:
        """The same numbers in another element type; nothing when it is there already.

        saturate: clamp what does not fit. By default floats saturate and integers wrap.
        flush: subnormal numbers may become zero.
        """
        to = dtype(to)
        if to is x.dtype:
            return x
        known = self._known.get(x.value)
        if type(known) is int and to.is_integer and to.lowest <= known <= to.highest:
            return self.constant(known, to)
        clamped = x.dtype.is_float if saturate is None else saturate
        return self.emit(Cast(to, clamped, flush), x.value)[0]

    def bitcast(self, x: Expr, to: str | DType) -> Expr:
        """The same bits read as another element type of the same width."""
        return self.emit(Bitcast(dtype(to)), x.value)[0]


def _is_shareable(op: TileOp, types: Sequence[TileType]) -> bool:
    """Scalars and counts: sharing larger tiles would only lengthen their lives.

    Constants and splats are shared too, where they are made (`constant`, `broadcast`).
    """
    return isinstance(op, Arange) or not (types[0].shape or isinstance(op, Constant))
