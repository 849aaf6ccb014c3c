"""Constants, elementwise arithmetic, comparisons, selection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luban.codegen import integers, vector_math
from luban.codegen.addresses import Addresses
from luban.codegen.emitter import Emitter
from luban.codegen.narrow import round_carrier
from luban.codegen.registers import (
    RegisterTile,
    at_least,
    constant_tile,
    first_lanes,
    register_elem,
    scalar_tile,
)
from luban.codegen.table import emits
from luban.codegen.writer import BITS, Value, Writer
from luban.core.dtypes import DType
from luban.tile.function import Operation
from luban.tile.ops import (
    Arange,
    Binary,
    Compare,
    Constant,
    Fma,
    ProgramId,
    Select,
    ThreadId,
    Unary,
)

__all__ = ["affine", "elementwise", "float_binary"]

PartFunction = Callable[..., Value]


def elementwise(f: Emitter, operation: Operation, compute: PartFunction) -> tuple[RegisterTile]:
    """Apply `compute` to the parts of the operands; equal parts are computed once."""
    result = operation.result
    if not result.type.shape:
        return (scalar_tile(compute(*[f.scalar(value) for value in operation.operands])),)
    lanes = f.lanes(result)
    tiles = [f.tile(value) for value in operation.operands]
    uniform = [tile.uniform for tile in tiles if tile.uniform is not None]
    if len(uniform) == len(tiles):
        return (f.splat(compute(*uniform), result.type, lanes),)
    columns = [f.tile_in(value, lanes).parts for value in operation.operands]
    done: dict[tuple[Value, ...], Value] = {}
    parts = []
    for row in zip(*columns, strict=True):
        found = done.get(row)
        if found is None:
            found = done[row] = compute(*row)
        parts.append(found)
    return f.result(operation, parts)


# Constants and indices


def _numbers(value: Any, dtype: DType) -> NDArray[Any]:
    """Constant values as an array; types that only move, as their bytes."""
    numbers = np.asarray(value).astype(dtype.numpy)
    if dtype.is_float and dtype.bits < 16:
        return numbers.view(np.uint8)
    return numbers.astype(np.int8) if dtype.is_integer and dtype.bits < 8 else numbers


@emits(Constant)
def emit_constant(op: Constant, f: Emitter, _operation: Operation) -> Sequence[RegisterTile]:
    """A number needs no instruction."""
    return [constant_tile(f.w, register_elem(op.dtype), 1, _numbers(op.value, op.dtype))]


@emits(Arange)
def emit_arange(op: Arange, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """A constant vector."""
    numbers = _numbers(np.arange(op.n), op.dtype)
    lanes = f.lanes(operation.result)
    return [constant_tile(f.w, register_elem(op.dtype), lanes, numbers)]


@emits(ProgramId)
def emit_program_id(_op: ProgramId, f: Emitter, _operation: Operation) -> Sequence[RegisterTile]:
    """An argument of the function."""
    return [scalar_tile(f.program_id)]


@emits(ThreadId)
def emit_thread_id(_op: ThreadId, f: Emitter, _operation: Operation) -> Sequence[RegisterTile]:
    """An argument of the function."""
    return [scalar_tile(f.thread_id)]


# Arithmetic


@emits(Unary)
def emit_unary(op: Unary, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """By kind; maths goes to `vector_math`."""
    dtype = operation.operands[0].type.dtype
    w = f.w
    if dtype.is_float:
        compute = _FLOAT_UNARY.get(op.kind)
        if compute is not None:
            return elementwise(f, operation, lambda x: compute(w, x))
        count = _count_parts(f, operation)
        return elementwise(
            f,
            operation,
            lambda x: round_carrier(w, dtype, vector_math.apply(op.kind, f, x, num_parts=count)),
        )
    return elementwise(f, operation, lambda x: integers.unary(w, op.kind, dtype, x))


def _count_parts(f: Emitter, operation: Operation) -> int:
    """How many different parts the first operand has."""
    tile = f.tile(operation.operands[0])
    return 1 if tile.uniform is not None else len(dict.fromkeys(tile.parts))


def _sign(w: Writer, x: Value) -> Value:
    unit = w.intrinsic("copysign", w.number(1.0, x), x)
    zero = w.number(0.0, x)
    signed = w.select(w.compare("oeq", x, zero), zero, unit)
    return w.select(w.compare("uno", x, zero), x, signed)


def _is_inf(w: Writer, x: Value) -> Value:
    return w.compare("oeq", w.intrinsic("fabs", x), w.number(float("inf"), x))


# Exact in every format: nothing to round.
_FLOAT_UNARY: dict[str, Callable[[Writer, Value], Value]] = {
    "neg": lambda w, x: w.unary("fneg", x),
    "abs": lambda w, x: w.intrinsic("fabs", x),
    "sign": _sign,
    "floor": lambda w, x: w.intrinsic("floor", x),
    "ceil": lambda w, x: w.intrinsic("ceil", x),
    "round": lambda w, x: w.intrinsic("roundeven", x),
    "trunc": lambda w, x: w.intrinsic("trunc", x),
    "is_nan": lambda w, x: w.compare("uno", x, x),
    "is_inf": _is_inf,
}

_INDEX = {"add": Addresses.add, "sub": Addresses.subtract, "mul": Addresses.multiply}
_FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}


@emits(Binary)
def emit_binary(op: Binary, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """By kind and element type; i64 scalars go through the address arithmetic."""
    result = operation.results[0].type
    dtype = result.dtype
    if dtype.kind == "float":
        return elementwise(f, operation, float_binary(op.kind, f, dtype))
    is_index = dtype.name == "i64" and op.kind in _INDEX
    if is_index and not result.shape:
        a, b = operation.operands
        return [scalar_tile(_INDEX[op.kind](f.addresses, f.scalar(a), f.scalar(b)))]
    tiles = [f.tile(value) for value in operation.operands]
    if (folded := _fold(op.kind, tiles)) is not None:
        lanes = f.lanes(operation.result)
        return [constant_tile(f.w, register_elem(dtype), lanes, folded)]
    if is_index:
        (found,) = elementwise(f, operation, lambda a, b: f.w.binary(op.kind, a, b))
        return [found._replace(affine=_affine_binary(f, op.kind, *tiles))]
    return elementwise(f, operation, lambda a, b: integers.binary(f.w, op.kind, dtype, a, b))


def float_binary(kind: str, f: Emitter, dtype: DType) -> PartFunction:
    """The function of two parts of a float type, rounding included."""
    w = f.w
    if kind in _FLOAT_BINARY:
        opcode = _FLOAT_BINARY[kind]
        return lambda a, b: round_carrier(w, dtype, w.binary(opcode, a, b))
    if kind in ("min", "max"):
        return lambda a, b: _extreme(w, kind, a, b)
    if kind in ("minnum", "maxnum"):
        return lambda a, b: _extreme_number(w, kind, a, b)
    return lambda a, b: round_carrier(w, dtype, vector_math.apply(kind, f, a, b))


def _extreme(w: Writer, kind: str, a: Value, b: Value) -> Value:
    """The smaller or larger; NaN wins, -0.0 < 0.0. Against a constant, one compare and blend."""
    if a.is_constant and not b.is_constant:
        a, b = b, a
    if b.is_constant and _plain_scalar(b):
        # Of two zeros the constant wins where it is the larger (or smaller) one.
        inclusive = _is_zero(b, negative=kind == "min")
        predicate = {"max": "ol", "min": "og"}[kind] + ("e" if inclusive else "t")
        return w.select(w.compare(predicate, a, b), b, a)
    if w.target.has("avx512dq"):
        # The instruction orders zeros but drops a NaN; adding the operands brings it back.
        wide_a, wide_b = (at_least(w, v, 128 // BITS[v.elem]) for v in (a, b))
        unordered = w.compare("uno", wide_a, wide_b)
        total = w.binary("fadd", wide_a, wide_b)
        found = w.select(unordered, total, _range(w, kind, wide_a, wide_b))
        return first_lanes(w, found, a.lanes)
    return w.intrinsic("maximum" if kind == "max" else "minimum", a, b)


def _range(w: Writer, kind: str, a: Value, b: Value) -> Value:
    """`vrangeps` or `vrangepd`: the smaller or larger, -0.0 < 0.0."""
    total_bits = a.lanes * BITS[a.elem]
    mask = "i16" if a.lanes == 16 else "i8"
    rounding = ", i32 4" if total_bits == 512 else ""
    short = "ps" if a.elem == "float" else "pd"
    name = f"llvm.x86.avx512.mask.range.{short}.{total_bits}"
    types = [a.type, a.type, "i32", a.type, mask, *(["i32"] if rounding else [])]
    w.declarations[name] = f"declare {a.type} @{name}({', '.join(types)})"
    choice = {"min": 4, "max": 5}[kind]  # sign of the chosen operand, as it is
    operands = f"{a.typed}, {b.typed}, i32 {choice}, {a.typed}, {mask} -1{rounding}"
    return w.result(f"call {a.type} @{name}({operands})", a.elem, a.lanes)


def _plain_scalar(value: Value) -> bool:
    """Whether a float constant is one number, and not NaN, in every lane."""
    text = _scalar_text(value)
    if text is None:
        return False
    return int(text, 16) & (1 << 63) - 1 <= 0x7FF << 52


def _is_zero(value: Value, negative: bool) -> bool:
    return _scalar_text(value) == (f"0x{1 << 63:016X}" if negative else f"0x{0:016X}")


def _scalar_text(value: Value) -> str | None:
    """The hexadecimal text of a float constant that is the same in every lane."""
    if value.lanes and not value.text.startswith("splat ("):
        return None
    return value.text.removesuffix(")").rsplit(" ", 1)[-1]


def _extreme_number(w: Writer, kind: str, a: Value, b: Value) -> Value:
    """The smaller or larger number: a NaN loses, -0.0 < 0.0."""
    a_or_b = w.select(w.compare("uno", a, a), b, a)
    b_or_a = w.select(w.compare("uno", b, b), a, b)
    return w.intrinsic("maximum" if kind == "maxnum" else "minimum", a_or_b, b_or_a)


@emits(Fma)
def emit_fma(_op: Fma, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """a * b + c, rounded once."""
    dtype = operation.result.type.dtype
    return elementwise(f, operation, lambda a, b, c: round_carrier(f.w, dtype, f.w.fma(a, b, c)))


# Comparison and selection

_FLOAT_PREDICATE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_FOLDS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def _fold(kind: str, tiles: Sequence[RegisterTile]) -> NDArray[Any] | None:
    """The result for known integers or bools, so that constant masks disappear."""
    known = [tile.constant for tile in tiles if tile.constant is not None]
    if len(known) < len(tiles) or kind not in _FOLDS:
        return None
    with np.errstate(all="ignore"):
        return np.asarray(_FOLDS[kind](*known))


@emits(Compare)
def emit_compare(op: Compare, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """Signed or unsigned by the element type."""
    dtype = operation.operands[0].type.dtype
    tiles = [f.tile(value) for value in operation.operands]
    if (folded := _fold(op.predicate, tiles)) is not None:
        return [constant_tile(f.w, "i1", f.lanes(operation.result), folded)]
    if dtype.is_float:
        predicate = _FLOAT_PREDICATE[op.predicate]
    else:
        predicate = integers.predicate(op.predicate, dtype)
        if dtype.name == "i64" and operation.result.type.shape:
            found = _affine_compare(f, operation, op.predicate, *tiles)
            if found is not None:
                return [found]
    return elementwise(f, operation, lambda a, b: f.w.compare(predicate, a, b))


@emits(Select)
def emit_select(_op: Select, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """Element by element."""
    return elementwise(f, operation, f.w.select)


# Scalar + known numbers: the form of offsets and of bounds masks


def affine(tile: RegisterTile) -> tuple[Value, NDArray[Any]] | None:
    """(scalar, numbers) with tile = scalar + numbers, for an i64 tile of that form."""
    if tile.affine is not None:
        return tile.affine
    if tile.constant is not None:
        return Value("0", "i64"), tile.constant
    if tile.uniform is not None:
        return tile.uniform, np.zeros(tile.shape, np.int64)
    return None


def _affine_binary(
    f: Emitter, kind: str, a: RegisterTile, b: RegisterTile
) -> tuple[Value, NDArray[Any]] | None:
    left, right = affine(a), affine(b)
    if left is None or right is None:
        return None
    if kind == "mul":
        if a.constant is not None and b.constant is None:
            left, right, b = right, left, a
        if b.constant is None or b.constant.min() != b.constant.max():
            return None
        factor = int(b.constant.flat[0])
        scaled = f.addresses.multiply(left[0], Value(str(factor), "i64"))
        return scaled, left[1] * factor
    if kind == "add":
        return f.addresses.add(left[0], right[0]), left[1] + right[1]
    return f.addresses.subtract(left[0], right[0]), left[1] - right[1]


def _affine_compare(
    f: Emitter, operation: Operation, predicate: str, a: RegisterTile, b: RegisterTile
) -> RegisterTile | None:
    """scalar + numbers against scalar + numbers as one i32 compare of known numbers with a limit.

    The limit is cut to just outside the range of the numbers, so 32 bits hold it. The difference of
    two scalars saturates, so the result is right unless scalar + number itself overflows i64.
    """
    left, right = affine(a), affine(b)
    if left is None or right is None or (a.uniform is not None and b.uniform is not None):
        return None
    numbers = left[1] - right[1]
    low, high = int(numbers.min()) - 1, int(numbers.max()) + 1
    if low < -(1 << 30) or high > 1 << 30:
        return None
    w = f.w
    if left[0] == Value("0", "i64") or (left[0].is_constant and right[0].is_constant):
        limit = f.addresses.subtract(right[0], left[0])
    else:
        limit = w.intrinsic("ssub.sat", right[0], left[0])
    if not limit.is_constant:
        limit = w.intrinsic("smax", limit, Value(str(low), "i64"))
        limit = w.intrinsic("smin", limit, Value(str(high), "i64"))
        limit = w.convert("trunc", limit, "i32")
    else:
        limit = Value(str(min(max(int(limit.text), low), high)), "i32")
    signed = integers.predicate(predicate, operation.operands[0].type.dtype)
    lanes = f.lanes(operation.result)
    known = constant_tile(w, "i32", lanes, numbers.astype(np.int32))
    done: dict[Value, Value] = {}
    splats: dict[int, Value] = {}
    for part in known.parts:
        if part not in done:
            if part.lanes not in splats:
                splats[part.lanes] = w.splat(limit, part.lanes)
            done[part] = w.compare(signed, part, splats[part.lanes])
    shape = operation.result.type.shape
    return RegisterTile("i1", shape, lanes, tuple(done[part] for part in known.parts))
