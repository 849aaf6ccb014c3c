"""Host functions on lists (sequences) and maybe-values (optionals)."""

from __future__ import annotations

from typing import Any

import numpy as np

from luban.core.errors import InputError
from luban.graph.host import host

__all__: list[str] = []


def _place(position: Any, length: int, limit: int) -> int:
    """A position counted from the front. Raises InputError unless 0 <= place < limit then."""
    given = int(np.asarray(position).reshape(()))
    place = given + length if given < 0 else given
    if not 0 <= place < limit:
        raise InputError(f"position {given} is outside a sequence of {length} items")
    return place


@host("sequence_construct")
def sequence_construct(_options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """All operands as one list."""
    return (list(values),)


@host("sequence_at")
def sequence_at(_options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """(list, position) -> item"""
    items, position = values
    return (items[_place(position, len(items), len(items))],)


@host("sequence_insert")
def sequence_insert(_options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """(list, item[, position]) -> a new list with the item in front of the position."""
    items, item, *rest = values
    place = _place(rest[0], len(items), len(items) + 1) if rest else len(items)
    return ([*items[:place], item, *items[place:]],)


@host("sequence_erase")
def sequence_erase(_options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """(list[, position]) -> a new list without that item."""
    items, *rest = values
    place = _place(rest[0] if rest else -1, len(items), len(items))
    return ([*items[:place], *items[place + 1 :]],)


@host("sequence_length")
def sequence_length(_options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """The number of items as i64[]."""
    return (np.asarray(len(values[0]), np.int64),)


@host("split_to_sequence")
def split_to_sequence(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """(x[, sizes]) -> pieces along options["axis"]; a scalar size is that of all but the last.

    Raises InputError if the sizes do not add up to the axis.
    """
    x, *rest = values
    axis = options["axis"]
    length = x.shape[axis]
    sizes = np.asarray(rest[0] if rest else 1)
    if sizes.ndim:
        if int(sizes.sum()) != length or (sizes < 0).any():
            raise InputError(f"pieces of {sizes.tolist()} do not add up to {length} elements")
        ends = np.cumsum(sizes)[:-1]
    else:
        if sizes < 1:
            raise InputError(f"pieces of {int(sizes)} elements: expected at least 1")
        ends = np.arange(int(sizes), length, int(sizes))
    pieces = np.split(x, ends, axis) if length else []
    return ([p if options["keep_axis"] else p.squeeze(axis) for p in pieces],)


@host("concat_from_sequence")
def concat_from_sequence(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """The items joined along options["axis"], a new one if options["new_axis"].

    Raises InputError for an empty list.
    """
    (items,) = values
    if not items:
        raise InputError("an empty sequence cannot be joined: its shape is not known")
    join = np.stack if options["new_axis"] else np.concatenate
    return (join(items, axis=options["axis"]),)


@host("optional")
def optional(_options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """The value itself, or None for no operand."""
    return (values[0] if values else None,)


@host("optional_has_element")
def optional_has_element(_options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """bool[]: whether the optional holds a value."""
    return (np.asarray(values[0] is not None),)


@host("optional_get_element")
def optional_get_element(_options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """The value of an optional. Raises InputError if there is none."""
    if values[0] is None:
        raise InputError(
            "the optional is empty", hint="test it with OptionalHasElement before taking its value"
        )
    return (values[0],)
