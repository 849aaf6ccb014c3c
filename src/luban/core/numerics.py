"""How exact a compiled model has to be: the two modes of docs/concepts/numerics.md."""

from __future__ import annotations

from typing import Literal, TypeAlias

from luban.core.errors import OptionError

__all__ = ["MODES", "Numerics", "numerics_mode"]

Numerics: TypeAlias = Literal["strict", "fast"]

MODES: tuple[Numerics, ...] = ("strict", "fast")


def numerics_mode(given: str) -> Numerics:
    """The mode called `given`. Raises OptionError for another name.

    >>> numerics_mode("fast")
    'fast'
    """
    if given not in MODES:
        raise OptionError(
            f"numerics={given!r} is not known, expected one of {', '.join(MODES)}",
            hint="strict, the default, computes nothing in less precision than the model says; "
            "fast may round the factors of products to bf16",
        )
    return given
