"""`luban cache`: what is in the compile cache, and clearing it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from luban.cli.output import bytes_text, emit

SUMMARY = "show the compile cache, or clear it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("action", choices=("stats", "clear"), nargs="?", default="stats")


def execute(arguments: argparse.Namespace) -> int:
    """Count or clear."""
    from luban.native.cache import default_cache

    store = default_cache()
    freed = store.clear() if arguments.action == "clear" else 0
    stats = store.stats()
    document = {
        "folder": stats.directory,
        "entries": stats.num_entries,
        "size_bytes": stats.size_bytes,
        "limit_bytes": stats.limit_bytes,
        "freed_bytes": freed,
    }

    def text() -> Iterator[str]:
        if arguments.action == "clear":
            yield f"freed {bytes_text(freed)}"
        yield f"{stats.num_entries} entries in {stats.directory}"
        limit = bytes_text(stats.limit_bytes)
        yield f"{bytes_text(stats.size_bytes)} of at most {limit} (LUBAN_CACHE_SIZE)"

    emit(document, arguments.json, text)
    return 0
