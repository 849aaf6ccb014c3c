"""The import contracts of pyproject.toml bite: each is broken on purpose in a copy of src/."""

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
    contract: str, importer: str, imported: str, source: Path
) -> None:
    plant(source, importer, imported)
    result = lint(source, contract)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "0 kept, 1 broken" in result.stdout
    assert f"luban.{importer}.planted -> luban.{imported}" in result.stdout


def test_import_through_a_third_room_is_found(source: Path) -> None:
    """passes -> native -> runtime is no way round "compiling needs no device"."""
    plant(source, "native", "runtime")
    plant(source, "passes", "native.planted")
    result = lint(source, "compiling-needs-no-device")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "luban.native.planted -> luban.runtime" in result.stdout


@pytest.mark.parametrize(("importer", "imported"), [("passes", "graph"), ("engine", "runtime")])
def test_import_downwards_is_kept(importer: str, imported: str, source: Path) -> None:
    plant(source, importer, imported)
    result = lint(source, "layers")
    assert result.returncode == 0, result.stdout + result.stderr


def test_folder_without_a_place_is_found(source: Path) -> None:
    (source / "luban" / "attic").mkdir()
    (source / "luban" / "attic" / "__init__.py").touch()
    result = lint(source, "layers")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "attic" in result.stdout
