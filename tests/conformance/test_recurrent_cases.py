"""Reports about recurrent operators with rows of different lengths (CASES O19)."""

import numpy as np
import pytest

from tests.conformance.case import PATHS, Array, Run, model_of

LENGTHS = (7, 4, 2)
GATES = {"GRU": 3, "LSTM": 4}
INPUT, HIDDEN = 3, 5


def text(operator: str, direction: str, layout: int) -> str:
    """A model with one recurrent node that gives all steps and the last state."""
    count, gates = (2 if direction == "bidirectional" else 1), GATES[operator] * HIDDEN
    return (
        f"g (float[p, q, {INPUT}] x, float[{count}, {gates}, {INPUT}] w, "
        f"float[{count}, {gates}, {HIDDEN}] r, int32[rows] lengths) "
        "=> (float[a, b, c, d] steps, float[e, f, h] last) "
        f'{{ steps, last = {operator} <hidden_size = {HIDDEN}, direction = "{direction}", '
        f"layout = {layout}> (x, w, r, , lengths) }}"
    )


def weights(operator: str, directions: int) -> tuple[Array, Array]:
    random = np.random.default_rng(1)
    gates = GATES[operator] * HIDDEN
    return (
        random.standard_normal((directions, gates, INPUT), np.float32),
        random.standard_normal((directions, gates, HIDDEN), np.float32),
    )


def one_row(operator: str, run: Run, row: Array, w: Array, r: Array) -> Array:
    """All steps of a forward run over one whole row: f32[length, HIDDEN]."""
    inputs = {
        "x": row[:, None],
        "w": w[None],
        "r": r[None],
        "lengths": np.array([len(row)], np.int32),
    }
    steps, _ = run(model_of(text(operator, "forward", 0)), inputs)
    return np.asarray(steps[:, 0, 0])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
@pytest.mark.parametrize("operator", GATES)
def test_o19_each_row_is_reversed_inside_its_own_length(
    operator: str, direction: str, layout: int, path: str
) -> None:
    run = PATHS[path]
    x = np.random.default_rng(0).standard_normal((7, 3, INPUT), np.float32)
    w, r = weights(operator, 2 if direction == "bidirectional" else 1)
    inputs: dict[str, Array] = {
        "x": x.swapaxes(0, 1) if layout else x,
        "w": w,
        "r": r,
        "lengths": np.array(LENGTHS, np.int32),
    }
    steps, last = run(model_of(text(operator, direction, layout)), inputs)
    if layout:  # to [step, direction, row, hidden] and [direction, row, hidden]
        steps, last = steps.transpose(1, 2, 0, 3), last.swapaxes(0, 1)
    for row, length in enumerate(LENGTHS):
        backward = one_row(operator, PATHS["meaning"], x[:length, row][::-1], w[-1], r[-1])
        np.testing.assert_allclose(steps[:length, -1, row], backward[::-1], rtol=0, atol=2e-6)
        np.testing.assert_allclose(last[-1, row], backward[-1], rtol=0, atol=2e-6)
        assert not steps[length:, :, row].any()
        if direction == "bidirectional":
            forward = one_row(operator, PATHS["meaning"], x[:length, row], w[0], r[0])
            np.testing.assert_allclose(steps[:length, 0, row], forward, rtol=0, atol=2e-6)
            np.testing.assert_allclose(last[0, row], forward[-1], rtol=0, atol=2e-6)
