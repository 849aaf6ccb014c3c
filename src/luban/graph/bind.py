"""What a call gives against what a program expects: names, dtypes, and sizes from shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from luban.core import dims
from luban.core.dims import Dim, Symbol
from luban.core.dtypes import DType, from_numpy
from luban.core.errors import InputError, LubanError, ShapeError
from luban.core.types import OptionalType, SequenceType, TensorType, TupleType, Type

if TYPE_CHECKING:
    from luban.graph.meaning.context import Value  # running a program loads no meanings

__all__ = ["bind_all", "bind_inputs", "bind_symbols"]


def bind_inputs(
    name: str,
    labels: Sequence[str],
    types: Sequence[Type],
    inputs: Mapping[str, Any] | Sequence[Any],
) -> list[Value]:
    """The inputs of program `name` in its order, as arrays of the declared dtypes.

    Raises InputError for missing or unknown names, a wrong count, another dtype, or numbers that
    the dtype cannot hold. Shapes are `bind_all`'s matter.

    >>> from luban.core.types import tensor
    >>> bind_inputs("f", ["x"], [tensor("f32", "n")], {"x": [1, 2]})
    [array([1., 2.], dtype=float32)]
    """
    if isinstance(inputs, Mapping):
        missing = [label for label in labels if label not in inputs]
        unknown = [label for label in inputs if label not in labels]
        if missing or unknown:
            raise InputError(
                f"{name}: given inputs {list(inputs)}, expected {list(labels)}",
                hint="; ".join(
                    f"{kind}: {', '.join(map(str, names))}"
                    for kind, names in (("missing", missing), ("unknown", unknown))
                    if names
                ),
            )
        values = [inputs[label] for label in labels]
    else:
        values = list(inputs)
        if len(values) != len(labels):
            raise InputError(
                f"{name}: given {len(values)} inputs, expected {len(labels)}: {', '.join(labels)}"
            )
    return [_as_declared(*row) for row in zip(values, types, labels, strict=True)]


def _as_declared(value: Value, expected: Type, label: str) -> Value:
    if not isinstance(expected, TensorType):
        return value
    if not isinstance(value, np.ndarray | np.generic):
        return _numbers(value, expected.dtype, label)
    if from_numpy(value.dtype) is not expected.dtype:
        raise InputError(
            f"input {label!r} is {from_numpy(value.dtype)}{list(value.shape)}, expected {expected}",
            hint=f"convert it to {expected.dtype}",
        )
    array = np.asarray(value)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _numbers(value: Any, expected: DType, label: str) -> np.ndarray[Any, Any]:
    """Nested Python numbers as an array; they must not lose what they say."""
    try:
        found = np.asarray(value)
        loses = found.size > 0 and (
            (found.dtype.kind in "fc" and not expected.is_float and expected.kind != "complex")
            or (found.dtype.kind == "c" and expected.kind != "complex")
            or (found.dtype.kind in "US") != (expected.kind == "string")
            or (found.dtype.kind == "O" and expected.kind != "string")
        )
        if not loses:
            return np.asarray(value, dtype=expected.numpy)
        given = f"of numpy dtype {found.dtype}"
    except (ValueError, TypeError, OverflowError) as error:
        given = f"no array of {expected}: {error}"
    raise InputError(
        f"input {label!r} is a {type(value).__name__} {given}, expected numbers of {expected}",
        hint=f"give numpy.asarray(..., {expected.numpy.name!r}) to say what you mean",
    )


def bind_symbols(
    type_: Type, value: Value, sizes: dict[str, int], *, what: str = "value", given: bool = True
) -> None:
    """Check a value's shape against its type and add the symbols that it settles to `sizes`.

    Raises InputError (ShapeError unless `given` by a caller) that names the axis, what was given
    and what was expected.

    >>> import numpy as np
    >>> from luban.core.types import tensor
    >>> sizes = {}
    >>> bind_symbols(tensor("f32", "batch", "2*h+1"), np.zeros((4, 7), np.float32), sizes)
    >>> sizes
    {'batch': 4, 'h': 3}
    """
    bind_all([(what, type_, value)], sizes, given=given)


def bind_all(
    values: Iterable[tuple[str, Type, Value]], sizes: dict[str, int], *, given: bool = True
) -> None:
    """`bind_symbols` for several (what, type, value): one may settle what another needs."""
    error = InputError if given else ShapeError
    open_axes: list[tuple[str, int, Dim, int]] = []
    for what, type_, value in values:
        for tensor_type, array in _tensors(type_, value):
            shape = array.shape
            if len(shape) != tensor_type.rank:
                raise error(
                    f"{what} has shape {list(shape)}, "
                    f"expected {tensor_type.rank} axes: {tensor_type}"
                )
            for axis, (size, dim) in enumerate(zip(shape, tensor_type.shape, strict=True)):
                if isinstance(dim, int):
                    if dim != size:
                        raise error(
                            f"{what}: axis {axis} is {size}, expected {dim} as in {tensor_type}"
                        )
                elif not _settle(dim, size, sizes, what, axis, error):
                    open_axes.append((what, axis, dim, size))
    while open_axes:
        rest = [
            (what, axis, dim, size)
            for what, axis, dim, size in open_axes
            if not _settle(dim, size, sizes, what, axis, error)
        ]
        if len(rest) == len(open_axes):
            return  # too few equations: whoever needs the symbol says that it has no size
        open_axes = rest


def _tensors(type_: Type, value: Value) -> Iterable[tuple[TensorType, Value]]:
    match type_:
        case TensorType():
            yield type_, value
        case TupleType():
            for item, part in zip(type_.items, value, strict=True):
                yield from _tensors(item, part)
        case SequenceType() | OptionalType():
            return  # their items may differ in size


def _settle(
    dim: Dim, size: int, sizes: dict[str, int], what: str, axis: int, error: type[LubanError]
) -> bool:
    """Check a known dimension, or solve it for its only unknown. False if that is not possible."""
    unknown = {s.name: s for s in dims.symbols(dim) if s.name not in sizes}
    if not unknown:
        expected = dims.evaluate(dim, sizes)
        if expected != size:
            used = {s.name: sizes[s.name] for s in dims.symbols(dim)}
            where = ", ".join(f"{name} = {value}" for name, value in sorted(used.items()))
            raise error(f"{what}: axis {axis} is {size}, expected {dim} = {expected} for {where}")
        return True
    if len(unknown) > 1:
        return False
    ((name, symbol),) = unknown.items()
    linear = _linear(dim, symbol, sizes)
    if linear is None:
        return False
    factor, rest = linear
    if factor == 0:
        return False
    found, remainder = divmod(size - rest, factor)
    if remainder or not symbol.low <= found <= symbol.high:
        bounds = f"{symbol.low} to {symbol.high}" if symbol.high < dims.UNBOUNDED else "any size"
        if symbol.high == dims.UNBOUNDED and symbol.low:
            bounds = f"at least {symbol.low}"
        raise error(f"{what}: axis {axis} is {size}, expected {dim} with {name} {bounds}")
    sizes[name] = found
    return True


def _linear(dim: Dim, unknown: Symbol, sizes: Mapping[str, int]) -> tuple[int, int] | None:
    """(factor, rest) with dim = factor * unknown + rest, or None if it is not of that form."""
    factor = rest = 0
    for monomial, coefficient in dim.terms:
        count = sum(atom == unknown for atom in monomial)
        others = tuple(atom for atom in monomial if atom != unknown)
        remaining = Dim(((others, 1),)) if others else 1
        if count > 1 or unknown in dims.symbols(remaining):
            return None
        value = coefficient * dims.evaluate(remaining, sizes)
        if count:
            factor += value
        else:
            rest += value
    return factor, rest
