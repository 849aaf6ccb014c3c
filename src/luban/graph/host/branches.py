"""Host functions that stop a run which would take the branch that was not compiled."""

from __future__ import annotations

from typing import Any

from luban.core import dims
from luban.core.errors import InputError
from luban.graph.host import host

__all__: list[str] = []


@host("taken_branch")
def taken_branch(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """(condition, value) -> value. Raises InputError unless the condition is options["then"]."""
    condition, value = values
    if bool(condition) is not options["then"]:
        raise _other_branch(options["what"])
    return (value,)


@host("sizes_as_compiled")
def sizes_as_compiled(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """(value, others..) -> value, if sizes pass options["checks"].

    A check is (size, size, whether they must be equal, what relies on it); options["sizes"] says
    which axis of which operand each symbol is. Raises InputError if one fails.
    """
    sizes = {name: values[i].shape[axis] for name, i, axis in options["sizes"]}
    for left, right, equal, what in options["checks"]:
        if (dims.evaluate(left, sizes) == dims.evaluate(right, sizes)) is not equal:
            raise _other_branch(what)
    return (values[0],)


def _other_branch(what: str) -> InputError:
    return InputError(
        f"this input takes the other branch of {what}",
        hint="use input sizes that keep the branch, or fix them: shapes={...}",
    )
