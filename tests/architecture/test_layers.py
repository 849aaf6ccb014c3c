"""The import contracts of pyproject.toml bite: each is broken on purpose.

Most faults are planted in an empty package, so that this stays fast while src/ grows: the contracts
are the same. A few are planted in a copy of src/, where the real imports are in the way.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of src/ that a test may spoil."""
    return shutil.copytree(
        ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )


@pytest.fixture
def empty_source(tmp_path: Path) -> Path:
    """A src/ in which luban has no rooms yet."""
    (tmp_path / "luban").mkdir()
    (tmp_path / "luban" / "__init__.py").touch()
    return tmp_path


def lint(source: Path, contract: str) -> subprocess.CompletedProcess[str]:
    """Run one contract over `source`: the working directory comes first on lint-imports' path."""
    return subprocess.run(
        [LINT_IMPORTS, ROOT / "pyproject.toml", "--contract", contract, "--no-cache", "--no-logo"],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )


def plant(source: Path, importer: str, imported: str) -> None:
    """Add the module luban/<importer>/planted.py, whose one line imports luban.<imported>."""
    for room in (importer, imported):
        folder = source / "luban" / room.replace(".", "/")
        for package in (folder, *folder.parents):
            if package == source:
                break
            package.mkdir(parents=True, exist_ok=True)
            (package / "__init__.py").touch()
    (source / "luban" / importer.replace(".", "/") / "planted.py").write_text(
        f"import luban.{imported}\n", encoding="utf-8"
    )


BREAKS = [
    ("layers", "core", "ir"),
    ("layers", "ir", "engine"),
    ("layers", "engine", "cli"),
    ("layers", "graph", "tile"),
    ("layers", "frontend", "passes"),
    ("layers", "ops", "quant"),
    ("layers", "zoo", "tuner"),
    ("compiling-needs-no-device", "passes", "runtime"),
    ("compiling-needs-no-device", "ops", "runtime"),
    ("running-needs-no-compiler", "runtime", "graph"),
    ("running-needs-no-compiler", "comm", "tile"),
    ("native-knows-no-ir", "native", "ir"),
    ("operators-are-siblings", "ops.attention", "ops.norm"),
]


@pytest.mark.parametrize(("contract", "importer", "imported"), BREAKS)
def test_forbidden_import_is_found(
    contract: str, importer: str, imported: str, empty_source: Path
) -> None:
    plant(empty_source, importer, imported)
    result = lint(empty_source, contract)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "0 kept, 1 broken" in result.stdout
    assert f"luban.{importer}.planted -> luban.{imported}" in result.stdout


def test_import_through_a_third_room_is_found(empty_source: Path) -> None:
    """passes -> native -> runtime is no way round "compiling needs no device"."""
    plant(empty_source, "native", "runtime")
    plant(empty_source, "passes", "native.planted")
    result = lint(empty_source, "compiling-needs-no-device")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "luban.native.planted -> luban.runtime" in result.stdout


@pytest.mark.parametrize(("importer", "imported"), [("passes", "graph"), ("engine", "runtime")])
def test_import_downwards_is_kept(importer: str, imported: str, empty_source: Path) -> None:
    plant(empty_source, importer, imported)
    result = lint(empty_source, "layers")
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_source_as_it_is_keeps_its_layers_and_a_planted_import_breaks_them(
    source: Path,
) -> None:
    before = lint(source, "layers")
    assert before.returncode == 0, before.stdout + before.stderr
    plant(source, "core", "ir")
    after = lint(source, "layers")
    assert after.returncode == 1, after.stdout + after.stderr
    assert "luban.core.planted -> luban.ir" in after.stdout


def test_folder_without_a_place_is_found(source: Path) -> None:
    (source / "luban" / "attic").mkdir()
    (source / "luban" / "attic" / "__init__.py").touch()
    result = lint(source, "layers")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "attic" in result.stdout
