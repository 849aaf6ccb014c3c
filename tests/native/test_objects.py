"""Object code and linked libraries by their text: compiled once, made again when damaged."""

import ctypes
from pathlib import Path

import pytest

from luban.core.errors import InternalError
from luban.native import compiler, objects
from luban.native.cache import Cache
from luban.native.objects import library_of, object_key, objects_of
from luban.native.target import host_target, named_target

MEGABYTE = 1 << 20
TEXT = "define i64 @f() {\n  ret i64 NUMBER\n}\n"
CALLS = "declare i64 @outside()\ndefine i64 @f() {\n  %x = call i64 @outside()\n  ret i64 %x\n}\n"
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", 100 * MEGABYTE)


@pytest.fixture
def no_compiler(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the cache holds by now is all there is."""

    def refuse(texts: object, target: object) -> list[bytes]:
        raise AssertionError("something was compiled")

    objects_of([TEXT.replace("NUMBER", str(number)) for number in (1, 2, 1)], host_target(), cache)
    monkeypatch.setattr(compiler, "compile_many", refuse)


def test_objects_come_in_order_and_the_same_text_once(cache: Cache) -> None:
    found = objects_of([TEXT.replace("NUMBER", n) for n in "121"], host_target(), cache)
    assert found[0] == found[2] != found[1]
    assert cache.stats().num_entries == 2


@pytest.mark.usefixtures("no_compiler")
def test_objects_are_compiled_once(cache: Cache) -> None:
    again = Cache(cache.directory, MEGABYTE)
    assert len(objects_of([TEXT.replace("NUMBER", n) for n in "12"], host_target(), again)) == 2
    with pytest.raises(AssertionError, match="something was compiled"):
        objects_of([TEXT.replace("NUMBER", "3")], host_target(), again)


def test_keys_tell_texts_targets_and_versions_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {object_key("a", host_target()), object_key("b", host_target())}
    keys.add(object_key("a", named_target("avx2")))
    monkeypatch.setattr("llvmlite.__version__", "0.0")
    keys.add(object_key("a", host_target()))
    monkeypatch.setattr(objects, "FORMAT", 99)
    keys.add(object_key("a", host_target()))
    assert len(keys) == 5


def test_a_library_is_linked_once_and_takes_its_imports_each_time(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        outside = FUNCTION(lambda number=number: number)
        address = ctypes.cast(outside, ctypes.c_void_p).value
        assert address is not None
        library = library_of(CALLS, ["f"], {"outside": address}, cache)
        assert FUNCTION(library.address("f"))() == number
        monkeypatch.setattr(objects, "objects_of", None)  # the second comes from the cache
    with pytest.raises(InternalError, match="needs outside, which nobody defines"):
        library_of(CALLS, ["f"], {}, cache)


def test_a_damaged_library_is_made_again(cache: Cache) -> None:
    text = TEXT.replace("NUMBER", "7")
    library_of(text, ["f"], {}, cache)
    (entry,) = cache.directory.glob("code/*/*")
    whole = entry.read_bytes()
    entry.unlink()  # never changed in place: the pages of a loaded library are the file's
    entry.write_bytes(whole[:-100] + bytes(100))
    assert FUNCTION(library_of(text, ["f"], {}, cache).address("f"))() == 7
    assert entry.read_bytes() == whole


def test_what_our_linker_does_not_understand_is_left_to_llvm(cache: Cache) -> None:
    counting = (
        "@count = internal global i64 0\n"
        "define i64 @f() {\n  %n = load i64, ptr @count\n  %m = add i64 %n, 1\n"
        "  store i64 %m, ptr @count\n  ret i64 %m\n}\n"
    )
    function = FUNCTION(library_of(counting, ["f"], {}, cache).address("f"))
    assert [function(), function()] == [1, 2]
    assert not list(cache.directory.glob("code/*/*"))
