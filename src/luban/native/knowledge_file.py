"""Where measurements of machines lie, and whether they changed: all that a start has to know."""

from __future__ import annotations

import hashlib
from pathlib import Path

from luban.core import settings
from luban.native.cache import cache_directory

__all__ = ["knowledge_digest", "knowledge_path"]


def knowledge_path() -> Path:
    """LUBAN_KNOWLEDGE, or `knowledge.json` in the cache's folder."""
    chosen = settings.KNOWLEDGE.get()
    return Path(chosen).expanduser() if chosen else cache_directory() / "knowledge.json"


def knowledge_digest() -> str:
    """Changes when the file does; empty if there is none."""
    try:
        return hashlib.sha256(knowledge_path().read_bytes()).hexdigest()
    except OSError:
        return ""
