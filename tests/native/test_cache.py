"""The cache on disk: hits, damage, writers killed and at once, the bound, disks that refuse."""

import errno
import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from luban.core.errors import InternalError, LubanWarning, OptionError
from luban.native.cache import Cache, cache_directory, default_cache
from luban.native.objects import objects_of
from luban.native.target import host_target

MEGABYTE = 1 << 20
KEY = "ab" * 32
TEXT = "define i64 @f() {\n  ret i64 NUMBER\n}\n"


def key(number: int) -> str:
    return f"{number:064x}"[::-1]


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", 100 * MEGABYTE)


def entry_file(cache: Cache, kind: str = "weights") -> Path:
    (path,) = cache.directory.glob(f"{kind}/*/*")
    return path


def test_what_was_put_is_found(cache: Cache) -> None:
    assert cache.get("weights", KEY) is None
    assert cache.put("weights", KEY, b"abc")
    assert cache.get("weights", KEY) == b"abc"
    assert cache.get("other", KEY) is None
    assert cache.put("weights", KEY, b"new")
    assert cache.get("weights", KEY) == b"new"
    assert cache.put("weights", KEY, b"")
    assert cache.get("weights", KEY) == b""


def test_another_process_finds_it(cache: Cache) -> None:
    cache.put("weights", KEY, b"abc")
    assert Cache(cache.directory, MEGABYTE).get("weights", KEY) == b"abc"


@pytest.mark.parametrize("durable", [False, True])
def test_mapped_entries_start_on_a_page(cache: Cache, durable: bool) -> None:
    data = bytes(range(256)) * 100
    cache.put("weights", KEY, data, durable=durable)
    mapped = cache.map("weights", KEY)
    assert mapped is not None
    assert mapped == data
    assert mapped.readonly
    assert mapped.nbytes == len(data)
    assert cache.map("weights", key(1)) is None


@pytest.mark.parametrize("where", [0, 9, 20, 40, 4096, -1])
def test_a_changed_byte_is_noticed_dropped_and_rebuilt(cache: Cache, where: int) -> None:
    cache.put("weights", KEY, b"x" * 1000)
    path = entry_file(cache)
    damaged = bytearray(path.read_bytes())
    damaged[where] ^= 1
    path.write_bytes(damaged)
    assert cache.get("weights", KEY) is None
    assert not path.exists()
    assert cache.stats().dropped == 1
    cache.put("weights", KEY, b"again")
    assert cache.get("weights", KEY) == b"again"


@pytest.mark.parametrize("size", [0, 1, 100, 4096, 5000])
@pytest.mark.parametrize("durable", [False, True])
def test_a_cut_file_is_noticed_even_when_trusted(cache: Cache, size: int, durable: bool) -> None:
    cache.put("weights", KEY, b"x" * 1000, durable=durable)
    path = entry_file(cache)
    os.truncate(path, size)
    assert cache.map("weights", KEY) is None
    assert not path.exists()


def test_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 10 * 104_096)
    for number in range(10):
        cache.put("weights", key(number), bytes(100_000))
        path = cache.path_of("weights", key(number))
        os.utime(path, (number, number))
    cache.get("weights", key(0))  # used just now
    cache.put("weights", key(10), bytes(100_000))
    stats = cache.stats()
    assert stats.size_bytes <= stats.limit_bytes
    assert cache.get("weights", key(0)) is not None
    assert cache.get("weights", key(10)) is not None
    assert cache.get("weights", key(1)) is None


def test_the_bound_holds_for_what_others_wrote(tmp_path: Path) -> None:
    first, second = Cache(tmp_path, MEGABYTE), Cache(tmp_path, MEGABYTE)
    for number in range(40):
        (first, second)[number % 2].put("weights", key(number), bytes(60_000))
    assert second.stats().size_bytes <= 2 * MEGABYTE  # each knows its own writes at once
    second._writes_until_scan = 0
    second.put("weights", key(99), b"")
    assert second.stats().size_bytes <= MEGABYTE


def test_what_is_larger_than_the_bound_is_not_stored(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 10_000)
    assert not cache.put("weights", KEY, bytes(20_000))
    assert cache.stats().num_entries == 0


def test_a_bound_of_zero_turns_it_off(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "none", 0)
    assert not cache.put("weights", KEY, b"abc")
    assert cache.get("weights", KEY) is None
    assert not (tmp_path / "none").exists()


def test_stats_and_clear(cache: Cache) -> None:
    for number in range(3):
        cache.put("weights", key(number), bytes(1000))
    cache.get("weights", key(0))
    cache.get("weights", key(7))
    stats = cache.stats()
    assert (stats.num_entries, stats.hits, stats.misses) == (3, 1, 1)
    assert stats.size_bytes == 3 * 5096
    assert cache.clear() == stats.size_bytes
    assert cache.stats().num_entries == 0
    assert cache.get("weights", key(0)) is None


def test_names_that_could_leave_the_folder_are_refused(cache: Cache) -> None:
    for kind, name in (("..", KEY), ("weights", "../../etc"), ("weights", "ab"), ("", KEY)):
        with pytest.raises(InternalError, match="expected names of letters, digits"):
            cache.put(kind, name, b"")


def test_writers_and_readers_at_once_see_whole_entries(cache: Cache) -> None:
    def work(number: int) -> None:
        own = Cache(cache.directory, 100 * MEGABYTE)
        for round_number in range(30):
            own.put("weights", key(round_number % 3), bytes([number]) * 50_000)
            found = own.get("weights", key(round_number % 3))
            assert found is not None
            assert found == found[:1] * 50_000
        assert own.stats().dropped == 0

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(work, range(4)))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_killed_writers_leave_no_damage(cache: Cache) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom luban.native.cache import Cache\n"
        "cache = Cache(Path(sys.argv[1]), 1 << 30)\nprint('ready', flush=True)\n"
        "n = 0\nwhile True:\n"
        "    n += 1\n    cache.put('weights', f'{n % 5:064x}', bytes([n % 256]) * 500_000)\n"
    )
    for delay_s in (0.005, 0.02, 0.05):
        command = [sys.executable, "-c", program, str(cache.directory)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(delay_s)
            writer.send_signal(signal.SIGKILL)
    for number in range(5):
        found = cache.get("weights", f"{number:064x}")
        assert found is None or found == found[:1] * 500_000
    assert cache.stats().dropped == 0


def test_half_written_files_are_swept_when_old(cache: Cache) -> None:
    cache.put("weights", KEY, b"abc")
    folder = entry_file(cache).parent
    old, fresh = folder / ".writing-old", folder / ".writing-new"
    for path in (old, fresh):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    assert cache.stats().num_entries == 1
    cache._writes_until_scan = 0
    cache.put("weights", KEY, b"abc")
    assert not old.exists()
    assert fresh.exists()
    cache.clear()
    assert not fresh.exists()


def test_a_folder_that_cannot_be_made_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file" / "cache", MEGABYTE)
    with pytest.warns(
        LubanWarning, match=r"the cache in .* cannot be used \(Not a directory\)"
    ) as w:
        assert not cache.put("weights", KEY, b"abc")
    assert "LUBAN_CACHE_DIR" in str(w[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not cache.put("weights", KEY, b"abc")
        assert cache.get("weights", KEY) is None
        assert len(objects_of([TEXT.replace("NUMBER", "1")], host_target(), cache)) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_full_or_read_only_disk_leaves_nothing_behind(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    cache.put("weights", key(1), b"before")

    def refuse(source: str, destination: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("os.replace", refuse)
    with pytest.warns(LubanWarning, match=os.strerror(code)):
        assert not cache.put("weights", KEY, b"abc")
    assert len([path for path in cache.directory.rglob("*") if path.is_file()]) == 1
    assert cache.get("weights", key(1)) == b"before"


def test_an_interrupt_while_writing_leaves_nothing_behind(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.put("weights", KEY, b"abc")
    assert not [path for path in cache.directory.rglob("*") if path.is_file()]


def test_reading_works_where_times_cannot_be_changed(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put("weights", KEY, b"abc")

    def refuse(path: Path) -> None:
        raise PermissionError

    monkeypatch.setattr("os.utime", refuse)
    assert cache.get("weights", KEY) == b"abc"


def test_the_folder_follows_setting_and_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUBAN_CACHE_DIR", "/somewhere/else")
    assert cache_directory() == Path("/somewhere/else")
    monkeypatch.delenv("LUBAN_CACHE_DIR")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_directory() == Path("/xdg/luban")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_directory() == Path.home() / ".cache" / "luban"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_directory() == Path.home() / "Library" / "Caches" / "luban"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert cache_directory() == Path("/local/luban/cache")


def test_the_default_cache_follows_the_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("LUBAN_CACHE_SIZE", "3M")
    cache = default_cache()
    assert (cache.directory, cache.limit_bytes) == (tmp_path, 3 * MEGABYTE)
    assert default_cache() is cache
    monkeypatch.setenv("LUBAN_CACHE_SIZE", "big")
    with pytest.raises(OptionError, match="LUBAN_CACHE_SIZE='big' is not understood"):
        default_cache()


def test_whether_entries_can_be_made(tmp_path: Path) -> None:
    assert Cache(tmp_path / "new", 1 << 20).can_write()
    assert not [path for path in (tmp_path / "new").rglob("*") if path.is_file()]
    assert not Cache(tmp_path / "off", 0).can_write()
    blocked = tmp_path / "a file"
    blocked.write_text("in the way")
    with pytest.warns(LubanWarning, match=r"the cache in .* cannot be used"):
        assert not Cache(blocked, 1 << 20).can_write()
