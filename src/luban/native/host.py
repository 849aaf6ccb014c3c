"""What LLVM says of the machine this process runs on, remembered so that it need not be loaded.

The record in the cache is found by the processor's own description and by LLVM's version, so that
machines which share a cache have a record each.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
from dataclasses import astuple, dataclass
from importlib import import_module

import llvmlite

from luban.native.cache import default_cache
from luban.native.entry import FORMAT

__all__ = ["Host", "host", "is_known"]

# Lines of /proc/cpuinfo that say what the processor is, on x86 and on Arm. Others keep changing.
_PROCESSOR = {
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features",
}  # fmt: skip
_FIRST_BYTES = 1 << 13  # holds the first processor of the list


@dataclass(frozen=True, slots=True)
class Host:
    """The host in LLVM's words, and LLVM's own version, such as 22.1.0."""

    triple: str
    cpu: str
    features: str
    llvm_version: str


@functools.cache
def host() -> Host:
    """The host: from the cache, or from LLVM in its own process."""
    key = _record_key()
    if key is not None and (record := default_cache().get("hosts", key)) is not None:
        return Host(*record.decode().split("\n"))
    found = Host(**import_module("luban.native.compiler").ask_for_host())
    if key is not None:
        default_cache().put("hosts", key, "\n".join(astuple(found)).encode())
    return found


def is_known() -> bool:
    """Whether `host` needs no LLVM."""
    if host.cache_info().currsize:
        return True
    key = _record_key()
    return key is not None and default_cache().get("hosts", key) is not None


def _record_key() -> str | None:
    """The hash of what `host` depends on; None where the processor does not describe itself."""
    processor = _processor()
    if processor is None:
        return None
    parts = (FORMAT, processor, platform.machine(), sys.platform, llvmlite.__version__)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _processor(path: str = "/proc/cpuinfo") -> tuple[str, ...] | None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(descriptor, _FIRST_BYTES).decode(errors="replace")
    finally:
        os.close(descriptor)
    lines = text.split("\n\n")[0].splitlines()
    return tuple(line for line in lines if line.split("\t")[0].strip() in _PROCESSOR) or None
