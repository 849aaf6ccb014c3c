"""The translations of ATen's operators, a family a file. Importing one registers its handlers."""

from __future__ import annotations

import importlib
import pkgutil

__all__ = ["register_all"]


def register_all() -> None:
    """Import every family."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
