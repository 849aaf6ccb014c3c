"""The kernel language: Python source to block programs in the tile IR.

A kernel is a Python function whose syntax tree is run once with the types of its arguments. What
is known then is computed; everything else becomes operations on blocks.
"""

from luban.frontend.kernel.build import ArgumentType, PointerTo, ScalarOf, build
from luban.frontend.kernel.constexpr import Constexpr
from luban.frontend.kernel.errors import KernelError
from luban.frontend.kernel.source import KernelSource, source_of
from luban.frontend.kernel.table import BUILTINS, Builtin
from luban.frontend.kernel.types import BY_NAME, ElementType, PointerType

__all__ = [
    "BUILTINS",
    "BY_NAME",
    "ArgumentType",
    "Builtin",
    "Constexpr",
    "ElementType",
    "KernelError",
    "KernelSource",
    "PointerTo",
    "PointerType",
    "ScalarOf",
    "build",
    "source_of",
]
