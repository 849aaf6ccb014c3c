"""Run scripts that say `import triton` on the CPU, with or without Triton installed.

`install()` adds an import hook under which `triton`, `triton.language` and their kin are Luban's
own modules. It is opt-in: nothing of Luban calls it unasked, and a real Triton stays visible unless
`shadow=True` says otherwise.

    from luban.lang import compat

    compat.install(device_map="cuda=cpu")
    import script_with_kernels
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from luban.core.errors import OptionError
from luban.lang.compat.finder import ROOT, StandInFinder

__all__ = ["install", "installed", "standing_in", "uninstall"]


class _State:
    """What `install` has put in place."""

    finder: StandInFinder | None = None
    device_map: Any = None


def install(*, device_map: str | None = None, shadow: bool = False) -> None:
    """Make `import triton` give Luban's stand-in from now on, in this process.

    device_map  such as "cuda=cpu": PyTorch calls that name the first device use the second; needs
                PyTorch, and holds on the calling thread
    shadow      stand in even where Triton itself is installed

    Raises OptionError if Triton has been imported, or is installed and `shadow` is not set; or for
    a device map that is not understood. A second call changes nothing but the device map.
    """
    if _State.finder is None:
        _refuse_to_hide_the_real_one(shadow)
        _State.finder = StandInFinder()
        sys.meta_path.insert(0, _State.finder)
    if device_map is not None:
        _leave_device_map()
        # PyTorch is optional and slow to import: only a map asks for it.
        devices = import_module("luban.lang.compat.devices")
        _State.device_map = devices.DeviceMap(*devices.parse_device_map(device_map))
        _State.device_map.__enter__()


def uninstall() -> None:
    """Undo `install`: later imports find what is installed. Modules in use keep working."""
    _leave_device_map()
    if _State.finder is not None:
        sys.meta_path.remove(_State.finder)
        _State.finder = None
        for name in [n for n in sys.modules if n == ROOT or n.startswith(f"{ROOT}.")]:
            del sys.modules[name]


def installed() -> bool:
    """Whether `import triton` gives the stand-in."""
    return _State.finder is not None


@contextmanager
def standing_in(*, device_map: str | None = None, shadow: bool = False) -> Iterator[None]:
    """`install` for the length of a block."""
    install(device_map=device_map, shadow=shadow)
    try:
        yield
    finally:
        uninstall()


def _leave_device_map() -> None:
    if _State.device_map is not None:
        _State.device_map.__exit__(None, None, None)
        _State.device_map = None


def _refuse_to_hide_the_real_one(shadow: bool) -> None:
    if ROOT in sys.modules:
        raise OptionError(
            f"{ROOT} has been imported already, from {sys.modules[ROOT].__file__}",
            hint="call luban.lang.compat.install() before anything imports it",
        )
    if shadow:
        return
    found = find_spec(ROOT)
    if found is not None:
        raise OptionError(
            f"{ROOT} is installed, in {found.origin}: the stand-in would hide it",
            hint="pass shadow=True to run kernels on the CPU all the same",
        )
