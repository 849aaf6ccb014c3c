"""The pages agree with the code: links lead somewhere, every room stands on the map."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "news").glob("*.md")])
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
ROOM = re.compile(r"`(\w+)`")


def rooms_on_the_map(page: str) -> dict[str, int]:
    """Room -> layer number, from the rows `| 4 | `graph` `tile` | ... |` of the map."""
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", page, flags=re.MULTILINE)
    return {room: int(layer) for layer, rooms in rows for room in ROOM.findall(rooms)}


def rooms_in_the_contract() -> dict[str, int]:
    """Room -> layer number, counted from the bottom, from the `layers` contract."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (
        contract
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["id"] == "layers"
    )
    lines = reversed(contract["layers"])
    return {room: n for n, line in enumerate(lines, 1) for room in re.findall(r"\w+", line)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_map_and_contract_place_the_same_rooms_on_the_same_layers() -> None:
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert rooms_on_the_map(page) == rooms_in_the_contract()


def test_every_folder_of_the_source_stands_on_the_map() -> None:
    folders = {path.parent.name for path in (ROOT / "src" / "luban").glob("*/__init__.py")}
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert folders <= set(rooms_on_the_map(page))


def test_every_decision_is_listed() -> None:
    records = {path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md")}
    listed = set(LINK.findall((ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")))
    assert records <= listed


@pytest.mark.parametrize("target", ["demo", "test"])
def test_readme_shows_the_lines_that_make_runs(target: str, tmp_path: Path) -> None:
    """Every line of a dry run in a folder without a .venv stands in the README."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    dry_run = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", target, "PYTHON=python3.11"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    silent = ("touch ", "python3.11 -c ")  # the stamp file and the check of the version
    shown = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    lines = [line for line in dry_run if not line.startswith(silent)]
    assert lines
    assert [line for line in lines if line not in shown] == []


def test_every_case_on_the_numerics_page_is_tested() -> None:
    """K cases belong to the kernel language, which is not there yet."""
    page = (ROOT / "docs" / "concepts" / "numerics.md").read_text(encoding="utf-8")
    named = {
        case
        for found in re.findall(r"\[((?:[A-Z]\d+(?:, )?)+)\]", page)
        for case in found.split(", ")
    }
    assert len(named) > 20
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "conformance").glob("*.py")
    )
    tested = set(re.findall(r'"([A-Z]\d+)"', sources))
    tested |= {case.upper() for case in re.findall(r"def test_([a-z]\d+)_", sources)}
    assert {case for case in named - tested if not case.startswith("K")} == set()
