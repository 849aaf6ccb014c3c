"""Object code to callable addresses, and who keeps the memory alive."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module

from luban.core.errors import InternalError
from luban.native.cache import Cache
from luban.native.image import Image, images_run_here, load_image
from luban.native.target import host_target

__all__ = ["Library", "image_of", "keep_image", "kept_image", "link", "load_library"]

# Behind an image and its names in the cache: the size of its content, and its table_offset.
_ENDING = struct.Struct("<QQ")

# Unloading code that a thread is inside of, or that a stored pointer still names, is a crash. So
# every library lives until the process ends, unless its owner says otherwise with `close`.
_alive: set[Library] = set()


class Library:
    """Linked code. Its addresses are valid until `close`, which nobody needs to call."""

    def __init__(self, addresses: Mapping[str, int], unload: Callable[[], None]) -> None:
        self._addresses = dict(addresses)
        self._unload = unload
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
        self._unload()


def image_of(objects: Sequence[bytes]) -> Image | None:
    """The objects linked together, to be kept and loaded later; None where that cannot be.

    It cannot be on systems whose object files are not ELF, nor for what our linker does not
    understand. Raises InternalError if two objects define the same name.
    """
    if not images_run_here():
        return None
    elf = import_module("luban.native.elf")  # a start from the cache has no use for it
    try:
        made: Image = elf.link_objects(objects, host_target().architecture)
    except elf.NotUnderstoodError:
        return None
    return made


def keep_image(cache: Cache, key: str, image: Image) -> bool:
    """Put an image into the cache; whether it is there now."""
    symbols = [f"{name} {offset}" for name, offset in image.symbols.items()]
    notes = "\n".join([*symbols, "", *image.imports]).encode()
    end = _ENDING.pack(len(image.content), image.table_offset)
    return cache.put("code", key, image.content, notes, end)


def kept_image(cache: Cache, key: str) -> Image | None:
    """The image in the cache: its content is a view of the file, on a page boundary."""
    entry = cache.map("code", key)
    if entry is None:
        return None
    size, table_offset = _ENDING.unpack_from(entry, entry.nbytes - _ENDING.size)
    notes = bytes(entry[size : entry.nbytes - _ENDING.size]).decode().split("\n")
    end = notes.index("")
    rows = (line.split(" ") for line in notes[:end])
    symbols = {name: int(offset) for name, offset in rows}
    return Image(entry[:size], symbols, tuple(notes[end + 1 :]), table_offset)


def load_library(
    image: Image, symbols: Iterable[str], imports: Mapping[str, int] | None = None
) -> Library:
    """Bring an image into memory, give it `imports` (name to address), and find `symbols`.

    Raises InternalError if a symbol or an import is missing.
    """
    wanted = tuple(symbols)
    if missing := [symbol for symbol in wanted if symbol not in image.symbols]:
        raise InternalError(
            f"the generated code could not be linked: no object defines {', '.join(missing)}"
        )
    mapped = [load_image(image, imports or {})]
    start = mapped[0].address
    return Library({name: start + image.symbols[name] for name in wanted}, mapped.clear)


def link(
    objects: Sequence[bytes],
    symbols: Iterable[str],
    imports: Mapping[str, int] | None = None,
) -> Library:
    """Link `objects` together, give them `imports` (name to address), and find `symbols`.

    Raises InternalError if an object is not for this machine or a symbol is missing.
    """
    image = image_of(objects)
    if image is not None:
        return load_library(image, symbols, imports)
    jit = import_module("luban.native.jit")  # loads LLVM
    return Library(*jit.link_with_llvm(objects, tuple(symbols), imports or {}))
