"""The machine that code is made for: the host, or a named one for cross-compiling and tests."""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass

from luban.core import settings
from luban.core.errors import OptionError, UnsupportedError
from luban.native.host import host

__all__ = ["TARGET_NAMES", "Target", "default_target", "host_target", "named_target"]

_ARCHITECTURES = ("x86_64", "aarch64")

# The x86-64 psABI levels and one Arm core, spelled out so that `Target.has` knows them.
_X86_64_V3 = (
    "+64bit,+cmov,+cx8,+cx16,+fxsr,+mmx,+sahf,+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,"
    "+crc32,+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave"
)
_X86_64_V4 = _X86_64_V3 + ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
_NEOVERSE_N1 = "+neon,+fp-armv8,+aes,+sha2,+crc,+lse,+fullfp16,+dotprod"


@dataclass(frozen=True, slots=True)
class Target:
    """What LLVM needs to know to make code, and what our generators need to choose tiles.

    triple, cpu, features     LLVM's own words; features is "+avx2,+fma,..."
    vector_bits               widest float vector worth using: 512, 256 or 128
    num_vector_registers      architectural vector registers: 32 or 16
    has_fma                   whether a * b + c with one rounding is an instruction

    >>> named_target("avx2").vector_bits
    256
    >>> named_target("avx512").num_vector_registers
    32
    >>> named_target("neon").lanes(32)
    4
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bits: int
    num_vector_registers: int
    has_fma: bool

    @property
    def architecture(self) -> str:
        """x86_64 or aarch64, from the triple (Apple says arm64)."""
        word = self.triple.split("-", 1)[0]
        return "aarch64" if word == "arm64" else word

    def lanes(self, element_bits: int) -> int:
        """Elements of `element_bits` bits in one vector register."""
        return self.vector_bits // element_bits

    def has(self, feature: str) -> bool:
        """Whether an LLVM feature such as "avx512vnni" is switched on.

        >>> named_target("avx2").has("avx512f")
        False
        """
        return feature in _enabled(self.features)

    @property
    def runs_here(self) -> bool:
        """Whether this process can execute code made for this target."""
        host = host_target()
        return self.architecture == host.architecture and _enabled(self.features) <= _enabled(
            host.features
        )

    @property
    def function_attributes(self) -> str:
        """Attributes that every kernel's `define` line needs to keep its vectors at full width."""
        width = self.vector_bits
        return f'nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'


@functools.cache
def _enabled(features: str) -> frozenset[str]:
    return frozenset(word[1:] for word in features.split(",") if word.startswith("+"))


def _from_features(name: str, triple: str, cpu: str, features: str) -> Target:
    """Derive the figures our generators need from LLVM's feature string."""
    on = _enabled(features)
    if triple.startswith(("aarch64", "arm64")):
        return Target(name, triple, cpu, features, 128, 32, has_fma=True)
    wide = {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= on
    if wide:
        # LLVM's tuning for several CPUs would split every 512-bit vector in two.
        features += ",-prefer-256-bit"
    vector_bits = 512 if wide else 256 if "avx" in on else 128
    return Target(name, triple, cpu, features, vector_bits, 32 if wide else 16, "fma" in on)


@functools.cache
def host_target() -> Target:
    """The CPU this process runs on, with every feature it has.

    Raises UnsupportedError if it is neither x86-64 nor 64-bit Arm.
    """
    found = host()
    target = _from_features("host", found.triple, found.cpu, found.features)
    if target.architecture not in _ARCHITECTURES:
        raise UnsupportedError(
            f"this machine is {found.triple}, expected one of {', '.join(_ARCHITECTURES)}",
            hint="the compiler itself runs anywhere; compile for a named target such as neon",
        )
    return target


def _system_triple(architecture: str) -> str:
    """The triple of this operating system on another architecture, so that objects link here."""
    system = {"darwin": "apple-darwin", "win32": "pc-windows-msvc"}
    return f"{architecture}-{system.get(sys.platform, 'unknown-linux-gnu')}"


def _x86(name: str, cpu: str, features: str) -> Target:
    on_x86 = platform.machine().lower() in {"x86_64", "amd64"}
    triple = host().triple if on_x86 else _system_triple("x86_64")
    return _from_features(name, triple, cpu, features)


_NAMED: dict[str, Callable[[], Target]] = {
    "host": host_target,
    "avx512": lambda: _x86("avx512", "x86-64-v4", _X86_64_V4),
    "avx2": lambda: _x86("avx2", "x86-64-v3", _X86_64_V3),
    "neon": lambda: _from_features("neon", _system_triple("aarch64"), "neoverse-n1", _NEOVERSE_N1),
}

TARGET_NAMES: tuple[str, ...] = tuple(_NAMED)


def named_target(name: str) -> Target:
    """The target called `name`: one of TARGET_NAMES. Raises OptionError for another name."""
    if name not in _NAMED:
        raise OptionError(
            f"target {name!r} is not known, expected one of {', '.join(TARGET_NAMES)}",
            hint="set LUBAN_TARGET or the target argument to one of them; host is the default",
        )
    return _NAMED[name]()


def default_target() -> Target:
    """The target that the setting LUBAN_TARGET names.

    Raises OptionError if it is not known, or if this machine could not run its code.
    """
    target = named_target(settings.TARGET.get())
    if not target.runs_here:
        missing = sorted(_enabled(target.features) - _enabled(host_target().features))
        raise OptionError(
            f"target {target.name!r} cannot run here: this {host_target().architecture} machine "
            f"lacks {', '.join(missing)}",
            hint="use LUBAN_TARGET=host; other targets can be compiled for, but not run",
        )
    return target
