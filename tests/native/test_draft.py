"""Entries that are filled in place: kept, discarded, sealed, refused."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luban
from luban.core.errors import LubanWarning
from luban.core.settings import child_environment
from luban.native.cache import Cache
from luban.native.draft import Draft, map_draft, remove_drafts, start_draft

KEY = "ab" * 32
pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="no drafts here")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", 1 << 24)


def started(cache: Cache, size_bytes: int = 10_000) -> Draft:
    draft = start_draft(cache, "packed", KEY, size_bytes)
    assert draft is not None
    draft.memory[:] = np.arange(size_bytes) % 251
    return draft


def kept(cache: Cache) -> bool:
    draft = start_draft(cache, "packed", KEY, 10_000)
    return draft is not None and draft.keep()


def files(cache: Cache) -> list[Path]:
    return [path for path in cache.directory.rglob("*") if path.is_file()]


def test_what_is_kept_is_an_entry_and_stays_readable(cache: Cache) -> None:
    draft = started(cache)
    assert cache.map("packed", KEY) is None
    draft.seal()
    assert draft.keep()
    assert cache.get("packed", KEY) == (np.arange(10_000) % 251).astype(np.uint8).tobytes()
    assert draft.memory[250] == 250
    assert cache.stats().num_entries == 1


def test_released_pages_read_the_same(cache: Cache) -> None:
    draft = started(cache)
    draft.release()
    draft.memory[3] = 7
    draft.release()
    assert draft.memory[:5].tolist() == [0, 1, 2, 7, 4]
    draft.discard()


def test_what_is_discarded_leaves_no_file(cache: Cache) -> None:
    draft = started(cache)
    draft.discard()
    assert files(cache) == []
    assert draft.memory[250] == 250  # a view of it may still be in use


def test_a_sealed_draft_cannot_be_written_to_even_natively(tmp_path: Path) -> None:
    script = (
        "import ctypes, pathlib\n"
        "from luban.native.cache import Cache\n"
        "from luban.native.draft import start_draft\n"
        f"cache = Cache(pathlib.Path({str(tmp_path)!r}), 1 << 24)\n"
        "draft = start_draft(cache, 'packed', 'abcd', 99)\n"
        "draft.seal()\n"
        "print(draft.memory.flags.writeable, flush=True)\n"
        "ctypes.c_int8.from_address(draft.memory.ctypes.data).value = 1\n"
    )
    source = str(Path(luban.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=child_environment({"PYTHONPATH": source}),
        capture_output=True,
        text=True,
    )
    assert done.stdout == "False\n"
    assert done.returncode == -signal.SIGSEGV


def test_there_is_none_without_room(tmp_path: Path) -> None:
    assert start_draft(Cache(tmp_path, 0), "packed", KEY, 100) is None
    assert start_draft(Cache(tmp_path, 5000), "packed", KEY, 1000) is None
    assert start_draft(Cache(tmp_path, 5000), "packed", KEY, 0) is None


@pytest.mark.parametrize("name", ["posix_fallocate", "fsync", "replace"])
def test_a_full_disk_leaves_nothing_behind(
    name: str, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, name, refuse)
    with pytest.warns(LubanWarning, match="No space left on device"):
        assert not kept(cache)
    assert files(cache) == []


def test_another_process_finds_a_draft_by_its_names_before_and_after_it_is_kept(
    cache: Cache,
) -> None:
    draft = started(cache)
    draft.seal()
    expected = (np.arange(10_000) % 251).astype(np.uint8).tobytes()
    before = map_draft(draft.names)
    assert draft.keep()
    after = map_draft(draft.names)
    for memory in (before, after):
        assert memory is not None
        assert memory.readonly
        assert bytes(memory) == expected


def test_a_discarded_draft_is_not_found(cache: Cache) -> None:
    draft = started(cache)
    draft.discard()
    assert map_draft(draft.names) is None


def test_drafts_of_one_process_are_removed_and_no_others(cache: Cache) -> None:
    started(cache)
    other = started(cache)
    theirs = Path(other.names[0])
    theirs.rename(theirs.with_name(f".writing-{os.getpid()}9-other"))
    remove_drafts(cache, os.getpid())
    assert [path.name for path in files(cache)] == [f".writing-{os.getpid()}9-other"]
