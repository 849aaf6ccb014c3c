"""The source keeps the rules of source_rules.py, and each rule says no to a planted fault."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture import source_rules as rules

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_source_keeps_the_rule(rule: rules.Rule) -> None:
    assert list(rule(ROOT / "src")) == []


FAULTS: list[tuple[rules.Rule, str, str]] = [
    (rules.llvmlite_stays_in_native, "codegen/x.py", "import llvmlite.binding as llvm\n"),
    (rules.llvmlite_stays_in_native, "codegen/x.py", "from llvmlite import binding\n"),
    (rules.environment_is_read_in_settings, "core/x.py", "import os\nHOME = os.environ['HOME']\n"),
    (rules.environment_is_read_in_settings, "core/x.py", "import os\nHOME = os.getenv('HOME')\n"),
    (rules.environment_is_read_in_settings, "core/x.py", "from os import environ\n"),
    (rules.imports_in_functions_give_a_reason, "ir/x.py", "def f():\n    import json\n"),
    (rules.imports_in_functions_give_a_reason, "ir/x.py", "def f():\n    from json import loads\n"),
    (
        rules.imports_in_functions_give_a_reason,
        "ir/x.py",
        "def f():\n    import json  # noqa: PLC0415\n",
    ),
    (rules.files_stay_short, "ir/x.py", "\n" * 701),
    (rules.names_say_something, "ir/utils.py", ""),
    (rules.names_say_something, "common/__init__.py", ""),
]


def write_module(root: Path, path: str, text: str) -> None:
    """Write luban/<path> under `root`, in a proper package."""
    module = root / "luban" / path
    module.parent.mkdir(parents=True)
    for folder in (module.parent, root / "luban"):
        (folder / "__init__.py").touch()
    module.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(("rule", "path", "text"), FAULTS)
def test_rule_says_no(rule: rules.Rule, path: str, text: str, tmp_path: Path) -> None:
    write_module(tmp_path, path, text)
    (violation,) = rule(tmp_path)
    assert violation.startswith(f"{path}:")


def test_folder_without_init_is_found(tmp_path: Path) -> None:
    write_module(tmp_path, "attic/x.py", "")
    (tmp_path / "luban" / "attic" / "__init__.py").unlink()
    (violation,) = rules.folders_are_packages(tmp_path)
    assert violation == "attic:1: has modules but no __init__.py"


LAWFUL: list[tuple[str, str]] = [
    ("native/x.py", "import llvmlite.binding as llvm\n"),
    ("engine/x.py", "import llvmlite\nVERSION = llvmlite.__version__\n"),
    ("core/settings.py", "import os\nHOME = os.environ['HOME']\n"),
    ("core/x.py", "import os\nHERE = os.getcwd()\n"),
    ("cli/x.py", "def f():\n    import json\n"),
    ("frontend/x.py", "def f():\n    import torch  # noqa: PLC0415 - optional and takes seconds\n"),
    ("ir/x.py", "\n" * 700),
    ("ir/base64.py", ""),
]


@pytest.mark.parametrize(("path", "text"), LAWFUL)
def test_rules_let_lawful_source_pass(path: str, text: str, tmp_path: Path) -> None:
    write_module(tmp_path, path, text)
    assert [violation for rule in rules.RULES for violation in rule(tmp_path)] == []


def test_importing_luban_is_light() -> None:
    """`import luban` pulls in nothing heavy, so that `luban --help` can be instant."""
    heavy = {"llvmlite", "onnx", "numpy", "rich", "torch"}
    script = "import sys, luban; print(*{m.split('.')[0] for m in sys.modules})"
    output = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    ).stdout
    assert "luban" in output.split()
    assert not heavy & set(output.split())
