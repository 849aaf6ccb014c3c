"""First loads in the compile process: this one only maps and runs what came out.

The front end, the passes, lowering and LLVM take far more memory than running a model, and memory
that an interpreter has used once is its own for good. So a model that is to be kept in the cache is
compiled elsewhere, from the file to packed weights, and opened here as if it had been in the cache.
"""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from luban.core import errors, settings
from luban.core.errors import InternalError, LubanWarning
from luban.core.numerics import Numerics
from luban.engine.artifact import open_artifact

if TYPE_CHECKING:
    from luban.engine.executor import Executor
    from luban.native.cache import Cache
    from luban.native.target import Target

__all__ = ["Answer", "Raised", "Request", "compile_apart", "raised", "rebuilt"]

_FUNCTION = "luban.engine.apart_worker:compile_model"


class Request(NamedTuple):
    """A model to compile. Paths are relative to `folder`; `variables` are Luban's settings."""

    source: str | bytes
    without: tuple[str, ...]
    shapes: dict[str, Any]
    target: Target
    numerics: Numerics
    num_threads: int | None
    key: str
    folder: str
    variables: dict[str, str]


class Raised(NamedTuple):
    """An exception as it goes from one process to another, and where it was raised if by a bug."""

    kind: type[BaseException]
    arguments: tuple[Any, ...]
    state: dict[str, Any]
    trace: str


class Answer(NamedTuple):
    """What came of a request: `record` and `names` as in Written, or an exception.

    told   categories and texts of the warnings
    """

    record: bytes
    names: dict[str, tuple[str, str]]
    told: list[tuple[str, str]]
    error: Raised | None = None


def compile_apart(
    source: str | os.PathLike[str] | bytes,
    without: Collection[str],
    shapes: Mapping[str, Sequence[int | str]],
    target: Target,
    numerics: Numerics,
    num_threads: int | None,
    key: str,
    stored: Cache,
) -> Executor | None:
    """The model, compiled in the compile process; None where that cannot be.

    Raises what compiling it here would raise, and LubanError if the process crashes over it.
    """
    compiler = import_module("luban.native.compiler")  # a start from the cache has no use for it
    if compiler.why_in_this_process() is not None or not stored.can_write():
        return None
    variables = settings.given() | {
        settings.CACHE_DIR.variable: str(stored.directory.absolute()),
        settings.CACHE_SIZE.variable: str(stored.limit_bytes),
        settings.COMPILE_PROCESS.variable: "0",
    }
    try:
        given = source if isinstance(source, bytes) else os.fspath(source)
        request = Request(
            given,
            tuple(without),
            dict(shapes),
            target,
            numerics,
            num_threads,
            key,
            os.getcwd(),
            variables,
        )
        payload = pickle.dumps(request, 5)
    except (OSError, TypeError, ValueError, pickle.PicklingError, AttributeError):
        return None  # a folder that is gone, options that are none: the compiler here says which
    subject = "a model" if isinstance(given, bytes) else f"the model {given}"

    def clean(pid: int) -> None:
        import_module("luban.native.draft").remove_drafts(stored, pid)

    found = compiler.run(_FUNCTION, payload, subject, clean)
    if found is None:
        return None
    answer: Answer = pickle.loads(found)
    for category, text in answer.told:
        warnings.warn(text, _category(category), stacklevel=4)  # at the call of luban.load
    if answer.error is not None:
        raise rebuilt(answer.error)
    map_draft = import_module("luban.native.draft").map_draft

    def mapped(kind: str) -> memoryview | None:
        names = answer.names.get(kind)
        return None if names is None else map_draft(names)

    opened = open_artifact(answer.record, key, num_threads, stored, mapped)
    return None if opened is None else opened[0]


def _category(name: str) -> type[Warning]:
    """The category of a warning by its name; ours or one of Python's."""
    known = {"LubanWarning": LubanWarning, "RuntimeWarning": RuntimeWarning}
    return known.get(name, UserWarning)


def raised(error: Exception, trace: str) -> Raised:
    """An exception to be raised again elsewhere; one that cannot go there, as our bug."""
    expected = isinstance(error, errors.LubanError | MemoryError)
    found = Raised(type(error), error.args, dict(error.__dict__), "" if expected else trace)
    try:
        pickle.loads(pickle.dumps(found, 5))
    except Exception:  # noqa: BLE001  # whatever refuses to be pickled
        return raised(InternalError(f"{type(error).__name__}: {error}"), trace)
    return found


def rebuilt(told: Raised) -> BaseException:
    """The exception that `raised` was given, with a note of where it came from if it is a bug."""
    error = told.kind.__new__(told.kind)
    error.args = told.arguments
    error.__dict__.update(told.state)
    if told.trace:
        error.add_note(f"in the compile process:\n{told.trace}")
    return error
