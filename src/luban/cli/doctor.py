"""`luban doctor`: what is on this machine, what is used of it, and what is missing."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from luban.cli.output import emit, heading, progress

if TYPE_CHECKING:
    from luban.engine.doctor import Diagnosis

SUMMARY = "look at this machine: versions, features, threads, cache, and what is missing"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure what this machine can do, in some seconds, and keep it",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Print the diagnosis; exit code 1 if kernels cannot run here."""
    from luban.engine.doctor import diagnose

    with progress():
        found = diagnose(measure=arguments.measure)
    emit(found.to_json(), arguments.json, lambda: _text(found))
    return int(not found.works)


def _text(found: Diagnosis) -> Iterator[str]:
    topics = ("versions", "machine", "target", "threads", "cache", "limits", "settings", "optional")
    for topic in topics:
        lines: dict[str, str] = getattr(found, topic)
        if lines:
            yield heading("optional packages" if topic == "optional" else topic)
            width = max(map(len, lines))
            yield from (f"{name.ljust(width)}  {value}" for name, value in lines.items())
    yield heading("verdict")
    for problem in found.problems:
        yield f"{'!' if problem.fatal else '-'} {problem.what}"
        if problem.hint:
            yield f"  hint: {problem.hint}"
    yield "a kernel was compiled and gave the right answer" if found.works else "kernels do not run"
