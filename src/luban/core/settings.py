"""Every environment variable that Luban reads, in one table. No other module reads any."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from luban.core.errors import OptionError

__all__ = [
    "SETTINGS",
    "Setting",
    "adopt",
    "child_environment",
    "environment",
    "given",
    "overridden",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One setting: its environment variable, its default, its parser and what it does."""

    variable: str
    default: T
    parse: Callable[[str], T]
    doc: str

    def get(self) -> T:
        """The value now: the environment's if set and not empty, else the default.

        Raises OptionError if the text cannot be parsed.
        """
        text = os.environ.get(self.variable, "")
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise OptionError(
                f"{self.variable}={text!r} is not understood: {error}",
                hint=f"{self.doc}; default {self.default!r}",
            ) from error


def environment(name: str) -> str | None:
    """The raw value of a variable that others own (HOME, XDG_CACHE_HOME, OMP_NUM_THREADS, ...)."""
    return os.environ.get(name)


def child_environment(overrides: dict[str, str]) -> dict[str, str]:
    """This process's environment for a child process, with some variables replaced.

    >>> child_environment({"LUBAN_NUM_THREADS": "2"})["LUBAN_NUM_THREADS"]
    '2'
    """
    return {**os.environ, **overrides}


@contextmanager
def overridden(setting: Setting[Any], text: str) -> Iterator[None]:
    """The setting has another value while the block runs, for the whole process.

    >>> with overridden(NUM_THREADS, "1"):
    ...     NUM_THREADS.get()
    1
    """
    before = os.environ.get(setting.variable)
    os.environ[setting.variable] = text
    try:
        yield
    finally:
        if before is None:
            del os.environ[setting.variable]
        else:
            os.environ[setting.variable] = before


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError("expected a whole number >= 1")
    return value


def _size_bytes(text: str) -> int:
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
    plain = text.strip().lower().removesuffix("b").removesuffix("i")
    scale = units.get(plain[-1:], 1)
    value = float(plain[:-1] if scale > 1 else plain)
    if value < 0:
        raise ValueError("expected a size >= 0, such as 512M or 2G")
    return int(value * scale)


def _flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in {"1", "true", "yes", "on"}:
        return True
    if lowered in {"0", "false", "no", "off"}:
        return False
    raise ValueError("expected 1 or 0")


NUM_THREADS: Setting[int | None] = Setting(
    "LUBAN_NUM_THREADS",
    None,
    _positive,
    "threads of one model call; default: the CPUs this process may use",
)
CACHE_DIR: Setting[str | None] = Setting(
    "LUBAN_CACHE_DIR",
    None,
    str,
    "folder of the compile cache; default: the platform's cache folder",
)
CACHE_SIZE: Setting[int] = Setting(
    "LUBAN_CACHE_SIZE",
    2 << 30,
    _size_bytes,
    "upper bound of the compile cache, such as 512M or 2G; 0 turns it off",
)
KNOWLEDGE: Setting[str | None] = Setting(
    "LUBAN_KNOWLEDGE",
    None,
    str,
    "file of what `luban tune` has measured; default: knowledge.json in the cache's folder",
)
TARGET: Setting[str] = Setting(
    "LUBAN_TARGET", "host", str, "code generation target: host, avx512, avx2 or neon"
)
VERIFY: Setting[bool] = Setting(
    "LUBAN_VERIFY",
    False,
    _flag,
    "run every verifier (IR, memory plan) at every compile and re-plan",
)
COMPILE_PROCESS: Setting[bool] = Setting(
    "LUBAN_COMPILE_PROCESS",
    True,
    _flag,
    "compile in a process of its own, which keeps the compiler's memory and crashes to itself",
)
KERNEL_CHECK: Setting[bool] = Setting(
    "LUBAN_KERNEL_CHECK",
    False,
    _flag,
    "run kernels of luban.lang in the evaluator, which finds bad accesses, races and overflow",
)

SETTINGS: tuple[
    Setting[int | None] | Setting[str | None] | Setting[int] | Setting[str] | Setting[bool], ...
] = (
    NUM_THREADS,
    CACHE_DIR,
    CACHE_SIZE,
    KNOWLEDGE,
    TARGET,
    VERIFY,
    COMPILE_PROCESS,
    KERNEL_CHECK,
)


def given() -> dict[str, str]:
    """The settings that are set, as their variables."""
    return {s.variable: os.environ[s.variable] for s in SETTINGS if s.variable in os.environ}


def adopt(variables: dict[str, str]) -> None:
    """Have the settings of another process, as `given` gave them there, and no others."""
    for setting in SETTINGS:
        os.environ.pop(setting.variable, None)
    os.environ.update(variables)
