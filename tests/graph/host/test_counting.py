"""Ranges counted at run time."""

from __future__ import annotations

import numpy as np
import pytest

from luban.core.errors import ShapeError
from luban.graph.host import host_function
from luban.graph.host.counting import COUNT_RANGE


@pytest.mark.parametrize(
    ("start", "limit", "step", "count"),
    [(2, 11, 3, 3), (2, 12, 3, 4), (10, 4, -2, 3), (3, 3, 1, 0), (5, 1, 1, 0), (0.0, 1.0, 0.3, 4)],
)
def test_count(start: float, limit: float, step: float, count: int) -> None:
    values = [np.asarray(v) for v in (start, limit, step)]
    (counted,) = host_function(COUNT_RANGE)({}, values)
    np.testing.assert_array_equal(counted, np.arange(count))


def test_large_integers_are_exact() -> None:
    values = [np.asarray(v) for v in (2**62, 2**62 + 3, 1)]
    assert len(host_function(COUNT_RANGE)({}, values)[0]) == 3


def test_no_step_is_an_error() -> None:
    with pytest.raises(ShapeError, match="the step is 0, expected another number"):
        host_function(COUNT_RANGE)({}, [np.asarray(0), np.asarray(1), np.asarray(0)])
