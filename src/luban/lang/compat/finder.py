"""The import hook: modules under the name `triton` that consist of entries of one table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["ROOT", "StandInFinder"]

ROOT = "triton"


class StandInFinder(MetaPathFinder):
    """Finds the modules of `luban.lang.compat.modules` and no others under `triton`."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  # the signatures are importlib's
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """The module's specification, or None: no stand-in."""
        if fullname != ROOT and not fullname.startswith(f"{ROOT}."):
            return None
        # The table imports the compiler: only the first `import triton` asks for it.
        modules = import_module("luban.lang.compat.modules").MODULES
        if fullname not in modules:
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in modules)
        return ModuleSpec(fullname, _TableLoader(), origin="luban", is_package=is_package)


class _TableLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:  # noqa: ARG002
        return None

    def exec_module(self, module: ModuleType) -> None:
        table = import_module("luban.lang.compat.modules")
        module.__file__ = table.__file__
        vars(module).update(table.MODULES[module.__name__]())
        for name in table.SUBMODULES.get(module.__name__, ()):
            setattr(module, name, import_module(f"{module.__name__}.{name}"))
        module.__getattr__ = _missing(module.__name__)  # type: ignore[method-assign]


def _missing(module: str) -> Callable[[str], object]:
    def explain(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"{module}.{name} has no stand-in in Luban (luban.lang.compat), "
            f"imported as {sys.modules[module]!r}"
        )

    return explain
