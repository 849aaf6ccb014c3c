"""The reference page is the one that the tables give, and leaves no primitive out."""

from pathlib import Path

import pytest

from luban.graph.ops import PRIMITIVES
from luban.graph.reference import reference, undocumented

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "graph.md"


def test_the_page_is_up_to_date(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(reference(), encoding="utf-8")
    expected = PAGE.read_text(encoding="utf-8")
    assert expected == reference(), "run: python -m luban.graph.reference > docs/reference/graph.md"


def test_every_primitive_is_documented() -> None:
    assert undocumented() == []
    assert all(op.__doc__ for op in PRIMITIVES.values())
