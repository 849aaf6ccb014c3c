"""Object code to callable addresses: LLVM's JIT linker, and who keeps the memory alive."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm

from luban.core.errors import InternalError
from luban.native.compile import target_machine
from luban.native.target import host_target

__all__ = ["Library", "link"]

_numbers = itertools.count()

# Unloading code that a thread is inside of, or that a stored pointer still names, is a crash. So
# every library lives until the process ends, unless its owner says otherwise with `close`.
_alive: set[Library] = set()


class Library:
    """Linked code. Its addresses are valid until `close`, which nobody needs to call."""

    def __init__(self, tracker: Any, addresses: Mapping[str, int]) -> None:
        self._tracker = tracker
        self._addresses = dict(addresses)
        _alive.add(self)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names that have an address."""
        return tuple(self._addresses)

    def address(self, symbol: str) -> int:
        """Where `symbol` is in memory. Raises InternalError if it was not asked for in `link`."""
        if symbol not in self._addresses:
            raise InternalError(
                f"symbol {symbol!r} is not in this library, which has "
                f"{', '.join(sorted(self._addresses)) or 'none'}"
            )
        return self._addresses[symbol]

    def close(self) -> None:
        """Unload the code. The caller vouches that no address of it will be used again."""
        _alive.discard(self)
        self._addresses.clear()
        self._tracker.close()


@functools.cache
def _jit() -> Any:
    # JITLink keeps one object's sections together, as small PIC code needs; for Windows' object
    # format it is incomplete, and the older linker serves.
    return llvm.create_lljit_compiler(
        target_machine(host_target()), use_jit_link=sys.platform != "win32"
    )


def link(
    objects: Sequence[bytes],
    symbols: Iterable[str],
    imports: Mapping[str, int] | None = None,
) -> Library:
    """Link `objects` together, give them `imports` (name to address), and find `symbols`.

    Raises InternalError if an object is not for this machine or a symbol is missing.
    """
    builder = llvm.JITLibraryBuilder()
    for data in objects:
        builder.add_object_img(data)
    for name, address in (imports or {}).items():
        builder.import_symbol(name, address)
    wanted = tuple(symbols)
    for symbol in wanted:
        builder.export_symbol(symbol)
    try:
        tracker = builder.link(_jit(), f"luban{next(_numbers)}")
    except RuntimeError as error:
        raise InternalError(f"the generated code could not be linked: {error}") from error
    return Library(tracker, {symbol: tracker[symbol] for symbol in wanted})
