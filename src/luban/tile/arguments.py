"""Arguments of a launch: from arrays and numbers to what the evaluator works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luban.core.errors import InputError, OptionError
from luban.tile.function import Function, Param
from luban.tile.memory import BrokenPromise, Buffer, shadows

__all__ = ["bind", "extent_elements"]

Array = NDArray[Any]


def extent_elements(extent: int | str, scalars: Mapping[str, int]) -> int:
    """The number that an extent stands for. Raises OptionError for a name that is no scalar.

    >>> extent_elements("m*k + 4", {"m": 3, "k": 5})
    19
    """
    if isinstance(extent, int):
        return extent
    total = 0
    for term in extent.split("+"):
        product = 1
        for factor in term.split("*"):
            word = factor.strip()
            if word.isdecimal():
                product *= int(word)
            elif word in scalars:
                product *= scalars[word]
            else:
                raise OptionError(
                    f"extent {extent!r}: {word!r} is neither a number nor an integer parameter",
                    hint=f"integer parameters are {', '.join(scalars) or 'none'}",
                )
        total += product
    return total


def bind(
    function: Function, arguments: Sequence[Array | int | float], *, check: bool
) -> list[Buffer | Array]:
    """A Buffer for each pointer, a 0-d array of the right dtype for each number.

    Raises InputError for what does not fit, BrokenPromise (check only) for what does but is not as
    declared: extents, divisibility, memory shared across noalias groups.
    """
    if len(arguments) != len(function.params):
        names = ", ".join(param.name for param in function.params)
        raise InputError(
            f"{function.name}: got {len(arguments)} arguments, expected {len(function.params)}",
            hint=f"parameters are {names}",
        )
    items: list[Buffer | Array] = []
    scalars: dict[str, int] = {}
    for param, argument in zip(function.params, arguments, strict=True):
        if param.is_pointer:
            items.append(_buffer(function, param, argument))
            continue
        item = _number(function, param, argument)
        items.append(item)
        if item.dtype.kind in "iu" and item.ndim == 0:
            scalars[param.name] = int(item)
    if check:
        _check_promises(function, items, scalars)
    return items


def _buffer(function: Function, param: Param, argument: Any) -> Buffer:
    wanted = param.type.pointee
    if not isinstance(argument, np.ndarray) or argument.dtype != wanted.numpy:
        given = argument.dtype if isinstance(argument, np.ndarray) else type(argument).__name__
        raise InputError(
            f"{function.name}: %{param.name} is {given}, expected an array of {wanted}",
            hint=f"convert it with astype({wanted.numpy!s})",
        )
    if not argument.flags.c_contiguous:
        raise InputError(
            f"{function.name}: %{param.name} has strides {argument.strides}, expected C order",
            hint="pass np.ascontiguousarray(x)",
        )
    if param.access != "read" and not argument.flags.writeable:
        raise InputError(
            f"{function.name}: %{param.name} is read-only, expected memory that can be written",
            hint="pass a copy",
        )
    data = argument.reshape(-1)
    alignment = max(param.alignment, data.itemsize)
    return Buffer(param.name, data, data.size, alignment, per_thread=param.per_thread)


def _number(function: Function, param: Param, argument: Any) -> Array:
    wanted = param.type.dtype
    item = np.asarray(argument)
    fits = item.shape == param.type.shape and item.dtype.kind in (
        "biu" if wanted.is_integer else "biuf"
    )
    if fits and wanted.is_integer:
        fits = bool(np.all((item >= wanted.lowest) & (item <= wanted.highest)))
    if not fits and item.dtype != wanted.numpy:
        raise InputError(
            f"{function.name}: %{param.name} is {argument!r}, expected {param.type}",
            hint="pass a number in range",
        )
    return item.astype(wanted.numpy)


def _check_promises(
    function: Function, items: Sequence[Buffer | Array], scalars: Mapping[str, int]
) -> None:
    pointers: list[tuple[Param, Buffer]] = []
    for param, item in zip(function.params, items, strict=True):
        if isinstance(item, Buffer):
            pointers.append((param, item))
            _check_extent(function, param, item, scalars)
        elif param.multiple_of > 1 and int(item) % param.multiple_of:
            raise BrokenPromise(
                f"{function.name}: %{param.name} is {item}, "
                f"expected a multiple of {param.multiple_of}"
            )
    for place, (param, buffer) in enumerate(pointers):
        for other_param, other in pointers[:place]:
            groups = {param.noalias, other_param.noalias}
            written = {param.access, other_param.access} != {"read"}
            apart = None not in groups and len(groups) == 2
            if apart and written and np.may_share_memory(buffer.data, other.data):
                raise BrokenPromise(
                    f"{function.name}: %{other_param.name} and %{param.name} share memory, "
                    "but are in different noalias groups",
                    hint="pass separate arrays, or put both in one group",
                )
    shadows([buffer for _, buffer in pointers], [param.access == "write" for param, _ in pointers])


def _check_extent(
    function: Function, param: Param, buffer: Buffer, scalars: Mapping[str, int]
) -> None:
    if param.extent is None:
        return
    extent = extent_elements(param.extent, scalars)
    if extent > buffer.data.size:
        raise BrokenPromise(
            f"{function.name}: %{param.name} has {buffer.data.size} elements, "
            f"its extent {param.extent} is {extent}",
            hint="pass a larger array",
        )
    buffer.limit = extent
