"""Images in memory: never writable and executable at once, in place from a file where allowed."""

import ctypes
from pathlib import Path

import pytest

from luban.core.errors import InternalError
from luban.native import image as images
from luban.native.cache import Cache
from luban.native.compile import compile_object
from luban.native.image import Image, images_run_here, load_image
from luban.native.link import image_of, keep_image, kept_image, load_library
from luban.native.target import host_target

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64)
KEY = "ab" * 32

pytestmark = pytest.mark.skipif(not images_run_here(), reason="no ELF objects here")


@pytest.fixture
def image() -> Image:
    text = "define i64 @f() {\n  ret i64 42\n}\n"
    made = image_of([compile_object(text, host_target())])
    assert made is not None
    return made


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", 1 << 20)


def mapping_of(address: int) -> str:
    """The line of /proc/self/maps that has the address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(text, 16) for text in line.split(" ")[0].split("-"))
        if start <= address < end:
            return line
    raise AssertionError(f"{address:#x} is not mapped")


def kept(image: Image, cache: Cache) -> Image:
    assert keep_image(cache, KEY, image)
    found = kept_image(cache, KEY)
    assert found is not None
    assert (dict(found.symbols), found.imports) == (dict(image.symbols), image.imports)
    assert (bytes(found.content), found.table_offset) == (image.content, image.table_offset)
    return found


def test_fresh_code_is_executable_and_not_writable(image: Image) -> None:
    address = load_library(image, ["f"]).address("f")
    assert FUNCTION(address)() == 42
    assert " r-xp " in mapping_of(address)


def test_code_from_the_cache_is_executed_in_place(image: Image, cache: Cache) -> None:
    address = load_library(kept(image, cache), ["f"]).address("f")
    assert FUNCTION(address)() == 42
    line = mapping_of(address)
    assert " r-x" in line
    assert line.endswith(KEY[2:])


def test_code_is_copied_where_files_cannot_be_executed(
    image: Image, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = images._made_executable
    answers = iter([False, True])
    monkeypatch.setattr(images, "_made_executable", lambda *at: next(answers) and allowed(*at))
    address = load_library(kept(image, cache), ["f"]).address("f")
    assert FUNCTION(address)() == 42
    assert not mapping_of(address).endswith(KEY[2:])


def test_a_content_between_pages_is_copied(image: Image) -> None:
    shifted = memoryview(bytes(8) + bytes(image.content))[8:]
    moved = Image(shifted, image.symbols, (), len(shifted))
    assert FUNCTION(load_library(moved, ["f"]).address("f"))() == 42


def test_a_system_without_executable_memory_is_named(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "_made_executable", lambda *at: False)
    with pytest.raises(InternalError, match="this system refuses executable memory"):
        load_image(image, {})


def test_a_closed_library_gives_its_memory_back(image: Image) -> None:
    library = load_library(image, ["f"])
    address = library.address("f")
    library.close()
    with pytest.raises(AssertionError, match="is not mapped"):
        mapping_of(address)
