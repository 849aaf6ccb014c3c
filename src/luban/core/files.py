"""Files that are whole or not there: written aside, then moved into place."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from luban.core.errors import OptionError

__all__ = ["written_whole"]


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to; it appears at `path` when the block ends well, and not at all otherwise.

    Raises OptionError if it cannot be written.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with written_whole(Path(folder) / "x") as file:
    ...         _ = file.write(b"luban")
    ...     os.listdir(folder)
    ['x']
    """
    name = ""
    try:
        handle, name = tempfile.mkstemp(prefix=".luban-", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            yield file
        os.replace(name, path)
    except BaseException as error:  # also Ctrl-C: nothing half-written stays
        if name:
            with contextlib.suppress(OSError):
                os.unlink(name)
        if isinstance(error, OSError):
            raise OptionError(
                f"{path} cannot be written: {error.strerror or error}",
                hint="choose a folder that exists, has room and may be written to",
            ) from error
        raise
