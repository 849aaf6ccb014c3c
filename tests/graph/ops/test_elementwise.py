"""Elementwise primitives are made from rows; they must still behave like classes of the module."""

from __future__ import annotations

import pickle

import pytest

from luban.graph.ops import elementwise
from luban.graph.ops.elementwise import BINARY, COMPARE, UNARY, UNARY_BOOL, ElementwiseOp

MADE = {**UNARY, **UNARY_BOOL, **BINARY, **COMPARE}


@pytest.mark.parametrize("kind", MADE.values(), ids=MADE)
def test_a_made_primitive_survives_pickling(kind: type[ElementwiseOp]) -> None:
    copy = pickle.loads(pickle.dumps(kind()))
    assert type(copy) is kind
    assert copy == kind()


def test_no_made_primitive_hides_another_name_of_the_module() -> None:
    names = [kind.__name__ for kind in MADE.values()]
    assert len(set(names)) == len(names)
    assert not set(names) & set(elementwise.__all__)
    assert all(getattr(elementwise, kind.__name__) is kind for kind in MADE.values())
