"""The generated pages are those of the code as it is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from luban.cli.main import COMMANDS
from luban.cli.reference import commands_page, settings_page
from luban.core.settings import SETTINGS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize(
    ("name", "page"), [("cli.md", commands_page), ("settings.md", settings_page)]
)
def test_the_page_is_up_to_date(
    name: str, page: Callable[[], str], request: pytest.FixtureRequest
) -> None:
    path = REFERENCE / name
    if request.config.getoption("--update-golden"):
        path.write_text(page(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == page(), "run with --update-golden"


def test_the_pages_are_complete() -> None:
    assert all(f"\n## luban {name}\n" in commands_page() for name in COMMANDS)
    assert all(f"| `{setting.variable}` |" in settings_page() for setting in SETTINGS)
