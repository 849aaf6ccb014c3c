"""LLVM's own linker, for what ours does not understand: other object formats, mostly."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm

from luban.core.errors import InternalError
from luban.native.compile import target_machine
from luban.native.target import host_target

__all__ = ["link_with_llvm"]

_numbers = itertools.count()


@functools.cache
def _jit() -> Any:
    # JITLink keeps one object's sections together, as small PIC code needs; for Windows' object
    # format it is incomplete, and the older linker serves.
    return llvm.create_lljit_compiler(
        target_machine(host_target()), use_jit_link=sys.platform != "win32"
    )


def link_with_llvm(
    objects: Sequence[bytes], symbols: Sequence[str], imports: Mapping[str, int]
) -> tuple[dict[str, int], Callable[[], None]]:
    """The addresses of `symbols` in the linked objects, and what unloads them.

    Raises InternalError if an object is not for this machine or a symbol is missing.
    """
    builder = llvm.JITLibraryBuilder()
    for data in objects:
        builder.add_object_img(data)
    for name, address in imports.items():
        builder.import_symbol(name, address)
    for symbol in symbols:
        builder.export_symbol(symbol)
    try:
        tracker = builder.link(_jit(), f"luban{next(_numbers)}")
    except RuntimeError as error:
        raise InternalError(f"the generated code could not be linked: {error}") from error
    return {symbol: tracker[symbol] for symbol in symbols}, tracker.close
