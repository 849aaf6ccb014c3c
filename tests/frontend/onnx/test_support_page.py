"""The page of supported operators is what the code does."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from luban.frontend.onnx import registry
from tests.frontend.onnx.support_page import page
from tests.frontend.onnx.type_sweep import row

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "onnx.md"
NOT_TRANSLATED = {("ai.onnx.preview.training", "Gradient")}


def test_every_version_of_every_operator_is_translated() -> None:
    missing = {
        (schema.domain, schema.name)
        for schema in onnx.defs.get_all_schemas_with_history()
        if registry.find(schema.domain, schema.name, schema.since_version) is None
        and not getattr(schema, "has_function", False)
        and not getattr(schema, "has_context_dependent_function", False)
    }
    assert missing == NOT_TRANSLATED


def test_a_row_names_all_types_that_run() -> None:
    found = row(("", "Add"))
    integers = {f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)}
    assert {*found.runs} == integers | {"f16", "f32", "f64", "bf16"}
    assert found.fails == ()
    assert not found.on_host


def test_a_row_names_what_does_not_run_and_what_was_not_tried() -> None:
    assert {"str", "c64"} <= set(row(("", "NonZero")).fails)
    assert row(("", "GRU")).untried == ("i32",)


def test_a_row_says_when_the_host_takes_part() -> None:
    assert row(("", "Det")).on_host


@pytest.mark.slow
def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run the command at the top of the page"
