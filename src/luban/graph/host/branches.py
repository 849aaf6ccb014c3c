"""Host function that stops a run which would take the branch that was not compiled."""

from __future__ import annotations

from typing import Any

from luban.core.errors import InputError
from luban.graph.host import host

__all__: list[str] = []


@host("taken_branch")
def taken_branch(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
    """(condition, value) -> value. Raises InputError unless the condition is options["then"]."""
    condition, value = values
    if bool(condition) is not options["then"]:
        raise InputError(
            f"this input takes the other branch of {options['what']}",
            hint="use input sizes that keep the branch, or fix them: shapes={...}",
        )
    return (value,)
