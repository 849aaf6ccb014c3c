from __future__ import annotations

from pathlib import Path

from luban.frontend.kernel import BUILTINS
from luban.frontend.kernel.reference import reference_page

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "language.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference_page(), "run: python -m luban.frontend.kernel.reference"


def test_every_function_is_documented() -> None:
    text = reference_page()
    for name, row in BUILTINS.items():
        assert f"{name}(" in text
        assert row.__doc__, name
