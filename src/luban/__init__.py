"""Luban: compile, check and run AI models and kernels, in Python.

>>> import luban
>>> luban.__version__.count(".")
2
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from luban.engine.model import Model as Model
    from luban.engine.model import compile as compile
    from luban.engine.model import load as load

__version__ = "0.1.0"

__all__ = ["Model", "__version__", "compile", "load"]

# Looked up when first used: `import luban` and `luban --help` must not load LLVM.
_LAZY = {
    "Model": "luban.engine.model",
    "compile": "luban.engine.model",
    "load": "luban.engine.model",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'luban' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
