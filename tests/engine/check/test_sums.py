"""The part of the bound that knows reduction lengths."""

from __future__ import annotations

import numpy as np
import pytest

from luban.engine.check.sums import length, sums_of_step
from luban.graph.evaluate import evaluate
from luban.graph.ops.fusion import Fusion
from luban.ir.node import Graph, node
from tests.lower.test_winograd import tiled
from tests.programs import p


@pytest.mark.parametrize("tile", [2, 4])
def test_convolutions_in_tiles_sum_over_channels_of_transformed_images(tile: int) -> None:
    """Above what rounding does (2e-6 of the largest result), far below what a bug does."""
    x = p("x", 1, 8, 8, 64)
    body = Graph("body", (x,), (tiled(x, 16, tile),))
    assert length(body.results[0], {}) == 64
    image = np.maximum(np.random.default_rng(0).standard_normal((1, 8, 8, 64)), 0)
    (exact,) = evaluate(body, [image.astype(np.float32)], precision="float64")
    bound = sums_of_step(node(Fusion("contraction", body), x), [image], {}, exact)
    assert 2e-6 < bound / np.abs(exact).max() < 2e-4
