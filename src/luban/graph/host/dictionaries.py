"""Host functions on dictionaries from keys to numbers or texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from luban.core.dtypes import dtype
from luban.core.errors import InputError
from luban.graph.host import host

__all__ = ["CAST", "VECTORISE"]

CAST = "values_of_dictionary"
VECTORISE = "vectorise_dictionary"


@host(CAST)
def values_of_dictionary(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """The values as [1, N] of options["dtype"], in the order of their whole-number keys.

    With options["length"] L they are [1, L], each at the place of its key, and keys from L on are
    left out. Raises InputError for what is no dictionary of whole numbers, keys below 0 there, and
    texts that are no numbers.
    """
    given = _dictionary(values[0], int)
    length, element = options["length"], dtype(options["dtype"])
    if length is None:
        row = [given[key] for key in sorted(given)]
    else:
        if any(key < 0 for key in given):
            raise InputError(f"the dictionary has the key {min(given)}, expected none below 0")
        row = [given.get(key, "" if element.kind == "string" else 0) for key in range(length)]
    result = np.empty((1, len(row)), element.numpy)
    result[0, :] = [_as(element.kind, value) for value in row]
    return (result,)


def _as(kind: str, value: Any) -> Any:
    if kind == "string":
        return value if isinstance(value, str) else f"{value:f}"
    try:
        return float(value) if kind == "float" else int(float(value))
    except ValueError:
        raise InputError(f"the dictionary has the value {value!r}, expected a number") from None


@host(VECTORISE)
def vectorise_dictionary(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """(dictionary, vocabulary [K]) -> its values [1, K] of options["dtype"]; 0 or "" where none is.

    Raises InputError for what is no dictionary with keys of the vocabulary's type. Other keys than
    the vocabulary's are left out.
    """
    names = values[1].tolist()
    element = dtype(options["dtype"])
    given = _dictionary(values[0], str if values[1].dtype.kind == "O" else int)
    nothing = "" if element.kind == "string" else 0
    result = np.empty((1, len(names)), element.numpy)
    result[0, :] = [given.get(name, nothing) for name in names]
    return (result,)


def _dictionary(value: Any, kind: type[Any]) -> Mapping[Any, Any]:
    """The value if its keys are of that kind."""
    allowed = (int, np.integer) if kind is int else (str,)
    if isinstance(value, Mapping) and all(isinstance(key, allowed) for key in value):
        return value
    shown = "keys of other types" if isinstance(value, Mapping) else f"a {type(value).__name__}"
    raise InputError(
        f"given {shown}, expected a dictionary from {'whole numbers' if kind is int else 'texts'}"
    )
