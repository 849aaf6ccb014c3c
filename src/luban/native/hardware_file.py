"""Where the description of this machine is kept: one small file in the cache's folder.

Measured once, read by everything that prices work. Each machine stands under its fingerprint, so a
folder that several machines share holds them all.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from luban.core.errors import LubanWarning, OptionError
from luban.core.files import written_whole
from luban.core.hardware import Hardware
from luban.native.cache import cache_directory
from luban.native.knowledge import fingerprint
from luban.native.target import Target
from luban.native.threads import available_threads

__all__ = ["hardware_path", "machine_name", "read_hardware", "remember_hardware", "stored_hardware"]

_FORMAT = 1


def hardware_path() -> Path:
    """`hardware.json` in the cache's folder."""
    return cache_directory() / "hardware.json"


def machine_name(target: Target) -> str:
    """The fingerprint of the machine and how much of it this process may use.

    >>> from luban.native.target import host_target
    >>> machine_name(host_target()).split(", ")[-1].split()[1] in ("thread", "threads")
    True
    """
    count = available_threads()
    return f"{fingerprint(target)}, {count} thread{'s' * (count > 1)}"


def read_hardware(path: Path) -> dict[str, Hardware]:
    """All descriptions of a file by machine; none if there is no file.

    Raises OptionError if it cannot be read or is not such a file.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != _FORMAT:
            raise ValueError(f"its format is {document['format']!r}, expected {_FORMAT}")
        found = map(Hardware.from_json, document["machines"])
        return {hardware.machine: hardware for hardware in found}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OptionError(
            f"the description of machines in {path} cannot be read: {_what(error)}",
            hint="remove the file; luban doctor --measure writes it anew",
        ) from error


def _what(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)


def stored_hardware(target: Target) -> Hardware | None:
    """The description of this machine, None if it has not been measured. Warns if damaged."""
    try:
        return read_hardware(hardware_path()).get(machine_name(target))
    except OptionError as error:
        text = f"{error.message}; going on without it"
        warnings.warn(text, LubanWarning, stacklevel=2)
        return None


def remember_hardware(path: Path, measured: Hardware) -> Hardware:
    """Keep a measurement; the description as it is then, with the better of old and new rates.

    A file that cannot be read is replaced. Raises OptionError if it cannot be written.
    """
    try:
        machines = read_hardware(path)
    except OptionError:
        machines = {}
    old = machines.get(measured.machine)
    machines[measured.machine] = new = measured if old is None else old.merged(measured)
    rows = [machines[name].to_json() for name in sorted(machines)]
    document: dict[str, Any] = {"format": _FORMAT, "machines": rows}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="set LUBAN_CACHE_DIR to a folder you may write to",
        ) from error
    with written_whole(path) as file:
        file.write(json.dumps(document, indent=1).encode() + b"\n")
    return new
