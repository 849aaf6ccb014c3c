"""Pages of mapped files: which maps an array belongs to, and giving their pages back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from luban.engine.mapped import mapped_files, release_pages

Array = np.ndarray[Any, Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "weights"
    np.arange(1 << 20, dtype=np.float32).tofile(found)
    return found


def resident_bytes(path: Path) -> int:
    """What this process holds of a mapped file."""
    text = Path("/proc/self/smaps").read_text()
    section = text[text.index(str(path)) :]
    return int(section[section.index("Rss:") :].split()[1]) * 1024


def test_views_of_one_map_are_one_map(path: Path) -> None:
    whole = np.memmap(path, np.uint8, "r")
    views = [np.asarray(whole)[4:], whole[:100].view(np.float32), whole[4:].reshape(2, -1)]
    assert len(mapped_files([whole, *views])) == 1
    assert len(mapped_files([whole, np.memmap(path, np.uint8, "r")])) == 2
    assert mapped_files([np.ones(3)]) == []


def test_private_changes_are_never_given_back(path: Path) -> None:
    changed = np.memmap(path, np.float32, "c")
    changed[0] = 7
    assert mapped_files([changed]) == []


def test_pages_are_given_back_and_still_read_the_same(path: Path) -> None:
    array = np.memmap(path, np.float32, "r")
    total = float(array.sum(dtype=np.float64))
    assert resident_bytes(path) == array.nbytes
    release_pages(mapped_files([array]))
    assert resident_bytes(path) == 0
    assert float(array.sum(dtype=np.float64)) == total
