"""The exception tree.

Exception
  LubanError              everything raised on purpose: catch this
    ModelError            the model file is broken or missing (truncated, cyclic, missing data)
    UnsupportedError      valid, but not supported here; `items` lists every case found
    InputError            wrong name, dtype, rank or shape given at a call
    ShapeError            shapes that do not fit inside a model
    DTypeError            dtypes that do not fit inside a model
    OptionError           an option, setting or argument out of its range
    CacheError            the cache could not be used and the user asked that it must
    CheckError            a verifier found a violation (memory plan, IR, numerics)
  InternalError           our own bug: report it
"""

from __future__ import annotations

from collections.abc import Sequence

from luban.core.loc import Loc

__all__ = [
    "CacheError",
    "CheckError",
    "DTypeError",
    "InputError",
    "InternalError",
    "LubanError",
    "LubanWarning",
    "ModelError",
    "OptionError",
    "ShapeError",
    "UnsupportedError",
]


class LubanError(Exception):
    """A problem that the user can act on: what was given, what was expected, what to do.

    >>> print(LubanError("x is f32[3], expected f32[4]", hint="pad x"))
    x is f32[3], expected f32[4]
    hint: pad x
    """

    def __init__(self, message: str, *, hint: str | None = None, loc: Loc | None = None) -> None:
        self.message = message
        self.hint = hint
        self.loc = loc
        super().__init__(message)

    def __str__(self) -> str:
        lines = [self.message]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        if self.loc:
            lines.append(f"at {self.loc}")
        return "\n".join(lines)

    def located(self, loc: Loc | None) -> LubanError:
        """Add a location if there is none yet; returns self, so it can be raised again."""
        if self.loc is None:
            self.loc = loc
        return self


class ModelError(LubanError):
    """The model file is broken, incomplete or not a model."""


class UnsupportedError(LubanError):
    """Valid, but not supported here. `items` holds one line for each case found."""

    def __init__(
        self,
        message: str,
        *,
        items: Sequence[str] = (),
        hint: str | None = None,
        loc: Loc | None = None,
    ) -> None:
        self.items = tuple(items)
        super().__init__("\n  ".join([message, *self.items]), hint=hint, loc=loc)


class InputError(LubanError):
    """A call with a wrong name, dtype, rank or shape."""


class ShapeError(LubanError):
    """Shapes that do not fit together inside a model."""


class DTypeError(LubanError):
    """Dtypes that do not fit together inside a model."""


class OptionError(LubanError):
    """An option, setting or argument outside its range."""


class CacheError(LubanError):
    """The cache could not be used though it was required."""


class CheckError(LubanError):
    """A verifier found a violation."""


class InternalError(Exception):
    """A bug in Luban itself: never the user's fault."""

    def __init__(self, message: str, *, loc: Loc | None = None) -> None:
        where = f"\nat {loc}" if loc else ""
        self.message = message
        super().__init__(
            f"internal error: {message}{where}\nhint: please report this with the model or a repro"
        )


class LubanWarning(UserWarning):
    """Something the user should know of that does not stop the work."""
