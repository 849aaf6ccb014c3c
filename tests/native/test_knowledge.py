"""The file of measurements: merged by machine, whole at every moment, refused when damaged."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from luban.core.errors import LubanWarning, OptionError
from luban.native import knowledge
from luban.native.knowledge import (
    Measurement,
    fingerprint,
    measured_widths,
    read_knowledge,
    remember,
)
from luban.native.knowledge_file import knowledge_digest, knowledge_path
from luban.native.target import named_target

HERE, THERE = named_target("avx2"), named_target("neon")
ONE, TWO = Measurement(3, 1.2, (4, 2), 2), Measurement(4, 1.0, (3,), 2)


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LUBAN_KNOWLEDGE", str(tmp_path / "deep" / "known.json"))
    return knowledge_path()


def test_what_is_remembered_is_read_again(path: Path) -> None:
    assert read_knowledge(path) == {}
    assert knowledge_digest() == ""
    remember(path, HERE, {"a": ONE})
    before = knowledge_digest()
    remember(path, THERE, {"a": TWO})
    remember(path, HERE, {"b": TWO})
    assert read_knowledge(path) == {
        fingerprint(HERE): {"a": ONE, "b": TWO},
        fingerprint(THERE): {"a": TWO},
    }
    assert knowledge_digest() != before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_only_what_won_decides_a_width(path: Path) -> None:
    remember(path, HERE, {"a": ONE, "b": TWO})
    assert measured_widths(HERE) == {"a": 3}
    assert measured_widths(THERE) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[1]",
        b'{"format": 2, "machines": {}}',
        b'{"format": 1}',
        b'{"format": 1, "machines": {"x": {"y": {"vectors": "many"}}}}',
    ],
)
def test_a_damaged_file_is_refused_and_kept(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(OptionError, match=r"the measurements in .* cannot be read: (?s:.*)remove"):
        remember(path, HERE, {"a": ONE})
    assert path.read_bytes() == content
    with pytest.warns(LubanWarning, match="compiling without them"):
        assert measured_widths(HERE) == {}


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OptionError, match=r"known.json cannot be written: .*"):
        remember(tmp_path / "file" / "known.json", HERE, {"a": ONE})


def test_a_failed_write_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(path, HERE, {"a": ONE})
    old = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OptionError, match=r"cannot be written: No space left on device"):
        remember(path, HERE, {"a": TWO})
    assert path.read_bytes() == old
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_the_default_place_is_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LUBAN_KNOWLEDGE")
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path))
    assert knowledge_path() == tmp_path / "knowledge.json"


def test_the_file_is_plain_json(path: Path) -> None:
    remember(path, HERE, {"a": ONE})
    document = json.loads(path.read_text())
    assert document["format"] == knowledge._FORMAT
    entry = document["machines"][fingerprint(HERE)]["a"]
    assert entry == {"vectors": 3, "speedup": 1.2, "tried": [4, 2], "threads": 2}
