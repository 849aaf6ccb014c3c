from __future__ import annotations

from pathlib import Path

from luban.tile.reference import reference_page
from luban.tile.table import BY_MNEMONIC, OPS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tile.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference_page(), "run: python -m luban.tile.reference"


def test_the_page_names_every_op_and_kind() -> None:
    text = reference_page()
    for op in OPS:
        assert f"### {op.name}\n" in text
    for mnemonic, (_, said) in BY_MNEMONIC.items():
        assert not said or mnemonic in text
