"""RNN, GRU and LSTM against ONNX Runtime: directions, lengths, layouts, activations, clip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luban.core.errors import ModelError
from tests.frontend.onnx.ops.comparison import Array, compare, run

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 4, 2


def given(op: str, directions: int, *, bias: bool = True, lengths: bool = False) -> list[Any]:
    rng = np.random.default_rng(11)

    def f32(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    gates = GATES[op]
    return [
        f32(STEPS, BATCH, INPUTS),
        f32(directions, gates * HIDDEN, INPUTS),
        f32(directions, gates * HIDDEN, HIDDEN),
        f32(directions, 2 * gates * HIDDEN) if bias else None,
        np.array([5, 2, 3], np.int32) if lengths else None,
        f32(directions, BATCH, HIDDEN),
        *([f32(directions, BATCH, HIDDEN)] if op == "LSTM" else []),
    ]


def num_results(op: str) -> int:
    return 3 if op == "LSTM" else 2


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [False, True])
def test_directions_and_lengths(op: str, direction: str, lengths: bool) -> None:
    count = 2 if direction == "bidirectional" else 1
    inputs = given(op, count, lengths=lengths)
    options: dict[str, Any] = {"hidden_size": HIDDEN, "direction": direction}
    compare(op, inputs, results=num_results(op), known=[1, 2, 3], **options)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_layout_1_is_layout_0_with_the_batch_first(op: str, direction: str) -> None:
    """ONNX Runtime has no layout 1, so it is compared with our own layout 0."""
    count = 2 if direction == "bidirectional" else 1
    first = given(op, count, lengths=True)
    last = [x.swapaxes(0, 1) if i in (0, 5, 6) else x for i, x in enumerate(first)]
    options: dict[str, Any] = {"hidden_size": HIDDEN, "direction": direction}
    wanted = run(op, first, results=num_results(op), **options)
    got = run(op, last, results=num_results(op), layout=1, **options)
    np.testing.assert_array_equal(got[0], wanted[0].transpose(2, 0, 1, 3))
    for a, b in zip(got[1:], wanted[1:], strict=True):
        np.testing.assert_array_equal(a, b.swapaxes(0, 1))


@pytest.mark.parametrize("op", GATES)
def test_no_bias_and_no_start(op: str) -> None:
    inputs = given(op, 1, bias=False)[:3]
    compare(op, inputs, results=num_results(op), hidden_size=HIDDEN, known=[1, 2])


@pytest.mark.parametrize("op", GATES)
def test_clip(op: str) -> None:
    compare(
        op, given(op, 1), results=num_results(op), hidden_size=HIDDEN, clip=0.3, known=[1, 2, 3]
    )


def test_gru_with_linear_before_reset() -> None:
    options: dict[str, Any] = {"hidden_size": HIDDEN, "linear_before_reset": 1}
    compare("GRU", given("GRU", 1), results=2, known=[1, 2, 3], **options)


def test_lstm_with_peepholes_and_coupled_gates() -> None:
    inputs = given("LSTM", 1)
    peepholes = np.random.default_rng(2).standard_normal((1, 3 * HIDDEN)).astype(np.float32)
    compare("LSTM", [*inputs, peepholes], results=3, hidden_size=HIDDEN, known=[1, 2, 3])
    options: dict[str, Any] = {"hidden_size": HIDDEN, "input_forget": 1}
    compare("LSTM", inputs, results=3, known=[1, 2, 3], **options)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("Relu", {}),
        ("Softsign", {}),
        ("Softplus", {}),
        ("Affine", {"activation_alpha": [0.5], "activation_beta": [0.2]}),
        ("LeakyRelu", {"activation_alpha": [0.3]}),
        ("ThresholdedRelu", {"activation_alpha": [0.4]}),
        ("ScaledTanh", {"activation_alpha": [0.7], "activation_beta": [1.3]}),
        ("HardSigmoid", {"activation_alpha": [0.3], "activation_beta": [0.4]}),
        ("Elu", {"activation_alpha": [0.6]}),
    ],
)
def test_activations(name: str, numbers: dict[str, list[float]]) -> None:
    options: dict[str, Any] = {"hidden_size": HIDDEN, "activations": [name], **numbers}
    compare("RNN", given("RNN", 1), results=2, known=[1, 2, 3], **options)


def test_a_short_row_backwards_starts_at_its_own_end() -> None:
    """Three steps of padding change nothing: the row is reversed inside its own length."""
    full = given("GRU", 1)
    short = [full[0][:2].copy(), *full[1:]]
    padded = full[0].copy()
    padded[2:] = np.nan
    lengths = np.full(BATCH, 2, np.int32)
    options: dict[str, Any] = {"hidden_size": HIDDEN, "direction": "reverse", "results": 2}
    got = run("GRU", [padded, *full[1:4], lengths, full[5]], **options)
    wanted = run("GRU", [*short[:4], None, full[5]], **options)
    np.testing.assert_array_equal(got[0][:2], wanted[0])
    assert not got[0][2:].any()
    np.testing.assert_array_equal(got[1], wanted[1])


def test_what_is_refused() -> None:
    inputs = given("LSTM", 1)
    with pytest.raises(ModelError, match=r"weights are .* expected 2 directions"):
        run("LSTM", inputs, hidden_size=HIDDEN, direction="bidirectional")
    with pytest.raises(ModelError, match="activation 'Wobble' is unknown"):
        run("LSTM", inputs, hidden_size=HIDDEN, activations=["Wobble", "Tanh", "Tanh"])
    with pytest.raises(ModelError, match=r"activations are \['Tanh'\], expected 3 a direction"):
        run("LSTM", inputs, hidden_size=HIDDEN, activations=["Tanh"])
    with pytest.raises(ModelError, match="direction is 'sideways'"):
        run("LSTM", inputs, hidden_size=HIDDEN, direction="sideways")
