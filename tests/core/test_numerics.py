"""The names of the modes, and what is told about another name."""

from __future__ import annotations

import pytest

import luban
from luban.core.errors import OptionError
from luban.core.numerics import MODES, numerics_mode
from luban.graph import build as g
from luban.ir.node import Graph
from tests.programs import p


@pytest.mark.parametrize("mode", MODES)
def test_modes_have_names(mode: str) -> None:
    assert numerics_mode(mode) == mode


def test_another_name_is_refused() -> None:
    x = p("x", "n")
    with pytest.raises(OptionError) as caught:
        luban.compile(Graph("g", (x,), (g.add(x, x),)), numerics="loose")
    assert str(caught.value).startswith(
        "numerics='loose' is not known, expected one of strict, fast"
    )
    assert "nothing in less precision than the model says" in str(caught.value)
