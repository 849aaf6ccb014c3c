"""Object code by its LLVM text: from the cache, or compiled and kept there."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module

import llvmlite

from luban.native.cache import Cache
from luban.native.entry import FORMAT
from luban.native.host import host
from luban.native.link import Library, image_of, keep_image, kept_image, link, load_library
from luban.native.target import Target, host_target

__all__ = ["begin_library", "library_of", "object_key", "objects_of"]


def object_key(ir_text: str, target: Target) -> str:
    """What the object code of `ir_text` depends on: text, target, versions, our format."""
    parts = (repr(target), llvmlite.__version__, host().llvm_version, str(FORMAT), ir_text)
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def objects_of(ir_texts: Iterable[str], target: Target, cache: Cache) -> list[bytes]:
    """The object code of each text: from the cache, or compiled at the same time and stored.

    Compiling begins with the first text, while a generator is still making the next ones.
    """
    keys: list[str] = []
    found: dict[str, bytes] = {}
    pending: dict[str, None] = {}

    def missing() -> Iterator[str]:
        for text in ir_texts:
            key = object_key(text, target)
            keys.append(key)
            if key in found or key in pending:
                continue
            data = cache.get("objects", key)
            if data is None:
                pending[key] = None
                yield text
            else:
                found[key] = data

    uncompiled = missing()
    first = next(uncompiled, None)
    if first is not None:
        compiler = import_module(
            "luban.native.compiler"
        )  # a start from the cache has no use for it
        compiled = compiler.compile_many(itertools.chain([first], uncompiled), target)
        for key, data in zip(pending, compiled, strict=True):
            found[key] = data
            cache.put("objects", key, data)
    return [found[key] for key in keys]


def begin_library(ir_text: str, cache: Cache) -> None:
    """Have a text compiled while other work goes on, if `library_of` will not find it compiled."""
    target = host_target()
    key = object_key(ir_text, target)
    if kept_image(cache, key) is None and cache.get("objects", key) is None:
        import_module("luban.native.compiler").begin(ir_text, target)


def library_of(
    ir_text: str, symbols: Sequence[str], imports: Mapping[str, int], cache: Cache
) -> Library:
    """The library of one text for this machine, linked, from the cache if it was there before.

    Raises InternalError if a symbol or an import is missing.
    """
    target = host_target()
    key = object_key(ir_text, target)
    image = kept_image(cache, key)
    if image is None:
        objects = objects_of([ir_text], target, cache)
        image = image_of(objects)
        if image is None:
            return link(objects, symbols, imports)
        keep_image(cache, key, image)
    return load_library(image, symbols, imports)
