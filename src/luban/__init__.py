"""Luban: compile, check and run AI models and kernels, in Python.

>>> import luban
>>> luban.__version__.count(".")
2
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from luban.engine.check import CheckReport as CheckReport
    from luban.engine.check import check as check
    from luban.engine.model import Model as Model
    from luban.engine.model import compile as compile  # noqa: A004  # the public name
    from luban.engine.model import load as load
    from luban.engine.session import ExecutionMode as ExecutionMode
    from luban.engine.session import GraphOptimizationLevel as GraphOptimizationLevel
    from luban.engine.session import InferenceSession as InferenceSession
    from luban.engine.session import NodeArg as NodeArg
    from luban.engine.session import SessionOptions as SessionOptions
    from luban.engine.session import get_available_providers as get_available_providers
    from luban.engine.session import get_device as get_device
    from luban.lang.autotune import Config as Config
    from luban.lang.autotune import autotune as autotune
    from luban.lang.autotune import heuristics as heuristics
    from luban.lang.jit import jit as jit

__version__ = "0.1.0"

__all__ = [
    "CheckReport",
    "Config",
    "ExecutionMode",
    "GraphOptimizationLevel",
    "InferenceSession",
    "Model",
    "NodeArg",
    "SessionOptions",
    "__version__",
    "autotune",
    "check",
    "compile",
    "get_available_providers",
    "get_device",
    "heuristics",
    "jit",
    "load",
]

# Looked up when first used: `import luban` and `luban --help` must not load LLVM.
_LAZY = {
    "CheckReport": "luban.engine.check",
    "check": "luban.engine.check",
    "Model": "luban.engine.model",
    "compile": "luban.engine.model",
    "load": "luban.engine.model",
    "ExecutionMode": "luban.engine.session",
    "GraphOptimizationLevel": "luban.engine.session",
    "InferenceSession": "luban.engine.session",
    "NodeArg": "luban.engine.session",
    "SessionOptions": "luban.engine.session",
    "get_available_providers": "luban.engine.session",
    "get_device": "luban.engine.session",
    "Config": "luban.lang",
    "autotune": "luban.lang",
    "heuristics": "luban.lang",
    "jit": "luban.lang",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'luban' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
