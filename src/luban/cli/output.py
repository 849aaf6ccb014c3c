"""Printing: tables and JSON to stdout; notes, warnings and progress to stderr."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["bytes_text", "emit", "heading", "note", "progress", "table"]

_SHOW_AFTER_S = 0.5


def note(text: str) -> None:
    """A line for people: to stderr, so that data can be piped."""
    print(text, file=sys.stderr)


def emit(document: Mapping[str, Any], as_json: bool, text: Callable[[], Iterator[str]]) -> None:
    """Print the document as JSON, or the lines of `text`."""
    if as_json:
        import json

        print(json.dumps(document, indent=2, default=str))
    else:
        for line in text():
            print(line)


def heading(text: str) -> str:
    """An empty line, a title and a rule.

    >>> print(heading("kernels").lstrip())
    kernels
    -------
    """
    return f"\n{text}\n{'-' * len(text)}"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Lines of a table: columns as wide as needed, numbers to the right.

    >>> for line in table(["name", "count"], [["Conv", 12], ["Relu", 3]]):
    ...     print(line)
    name  count
    Conv     12
    Relu      3
    """
    cells = [[_cell(value) for value in row] for row in rows]
    right = [all(isinstance(row[i], int | float) for row in rows) for i in range(len(header))]
    widths = [max(len(line[i]) for line in [list(header), *cells]) for i in range(len(header))]
    for line in [list(header), *cells]:
        columns = zip(line, widths, right, strict=True)
        padded = (text.rjust(w) if to_right else text.ljust(w) for text, w, to_right in columns)
        yield "  ".join(padded).rstrip()


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def bytes_text(size: int | None) -> str:
    """A size for people.

    >>> bytes_text(1536), bytes_text(12), bytes_text(None)
    ('1.5 KiB', '12 B', '-')
    """
    if size is None:
        return "-"
    value, units = float(size), iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while value >= 1024 and unit != "TiB":
        value, unit = value / 1024, next(units)
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


@contextmanager
def progress() -> Iterator[None]:
    """Within the block, long work shows how far it is, and warnings are lines on stderr.

    A bar appears after half a second, and only on a terminal.
    """
    before = warnings.showwarning
    warnings.showwarning = _show_warning
    try:
        if sys.stderr.isatty():
            with _bar():
                yield
        else:
            yield
    finally:
        warnings.showwarning = before


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    note(f"warning: {message}")


@contextmanager
def _bar() -> Iterator[None]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from luban.core.progress import listening

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[parts]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=None, parts="")
    began, shown = time.monotonic(), False

    def listen(stage: str, done: int, total: int) -> None:
        nonlocal shown
        if not shown and time.monotonic() - began > _SHOW_AFTER_S:
            bar.start()
            shown = True
        parts = f"{done}/{total}" if total else ""
        bar.update(task, description=stage, completed=done, total=total or None, parts=parts)

    try:
        with listening(listen):
            yield
    finally:
        if shown:
            bar.stop()
