"""Attention and rotary embeddings of the standard, by formulas in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luban.core.errors import ModelError
from tests.frontend.onnx.ops.comparison import Array, run

RNG = np.random.default_rng(3)


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def expected(q: Array, k: Array, v: Array, allowed: Array | None = None) -> Array:
    """softmax(q k' / sqrt(size)) v over the allowed keys; 0 where none is."""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    top = np.maximum(scores.max(-1, keepdims=True), -1e300)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    found: Array = weights / np.where(total == 0, 1, total) @ v
    return found


def near(got: Array, want: Array) -> None:
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_heads_that_share_keys() -> None:
    q, k, v = f32(2, 6, 3, 4), f32(2, 2, 5, 4), f32(2, 2, 5, 7)
    near(run("Attention", [q, k, v], opset=24)[0], expected(q, k, v))


def test_flat_inputs_are_split_into_heads() -> None:
    q, k, v = f32(2, 4, 3, 8), f32(2, 2, 5, 8), f32(2, 2, 5, 8)
    flat = [x.transpose(0, 2, 1, 3).reshape(2, x.shape[2], -1) for x in (q, k, v)]
    options: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2, "opset": 24}
    wanted = expected(q, k, v).transpose(0, 2, 1, 3).reshape(2, 3, 32)
    near(run("Attention", flat, **options)[0], wanted)


@pytest.mark.parametrize("past", [0, 3])
def test_causal_with_a_cache_sees_what_came_before(past: int) -> None:
    q, k, v = f32(1, 1, 2, 4), f32(1, 1, 2, 4), f32(1, 1, 2, 4)
    old = [f32(1, 1, past, 4), f32(1, 1, past, 4)]
    options: dict[str, Any] = {"is_causal": 1, "opset": 24, "results": 3}
    got, key, value = run("Attention", [q, k, v, None, *old], **options)
    np.testing.assert_array_equal(key, np.concatenate([old[0], k], 2))
    np.testing.assert_array_equal(value, np.concatenate([old[1], v], 2))
    allowed = np.arange(past + 2)[None] <= np.arange(2)[:, None] + past
    near(got, expected(q, key, value, allowed))


def test_a_short_mask_shuts_the_other_keys_off() -> None:
    q, k, v = f32(1, 1, 2, 4), f32(1, 1, 5, 4), f32(1, 1, 5, 4)
    mask = np.array([[True, False, True], [False, False, False]])
    (got,) = run("Attention", [q, k, v, mask], opset=24)
    allowed = np.pad(mask, ((0, 0), (0, 2)))
    near(got, expected(q, k, v, allowed))
    assert not got[0, 0, 1].any()


def test_valid_keys_and_windows() -> None:
    q, k, v = f32(2, 1, 2, 4), f32(2, 1, 6, 4), f32(2, 1, 6, 4)
    valid = np.array([6, 3], np.int64)
    options: dict[str, Any] = {"is_causal": 1, "opset": 26}
    inputs = [q, k, v, None, None, None, valid]
    place = (valid - 2)[:, None, None] + np.arange(2)[:, None]
    key = np.arange(6)
    allowed = (key <= place) & (key < valid[:, None, None])
    near(run("Attention", inputs, **options)[0], expected(q, k, v, allowed[:, None]))
    near_by = allowed & (place - key <= 1)
    got = run("Attention", inputs, left_window_size=1, **options)[0]
    near(got, expected(q, k, v, near_by[:, None]))


def test_what_is_refused() -> None:
    q = f32(1, 1, 2, 4)
    with pytest.raises(ModelError, match="past_key and past_value must be given together"):
        run("Attention", [q, q, q, None, q], opset=24)
    with pytest.raises(ModelError, match="nonpad_kv_seqlen does not go with past_key"):
        run("Attention", [q, q, q, None, q, q, np.array([1])], opset=24)
    with pytest.raises(ModelError, match=r"attn_mask is f32.*, but there are 2 keys"):
        run("Attention", [q, q, q, f32(2, 3)], opset=24)
    with pytest.raises(ModelError, match="qk_matmul_output_mode is 9, expected 0 to 3"):
        run("Attention", [q, q, q], opset=24, qk_matmul_output_mode=9)
    with pytest.raises(ModelError, match="windows are -2 and -1, expected -1 or more"):
        run("Attention", [q, q, q], opset=26, left_window_size=-2)
    with pytest.raises(ModelError, match="Attention has no attribute 'q_num_heads'"):
        run("Attention", [f32(1, 2, 4)] * 3, opset=24)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("part", [0, 4])
def test_rotary_turns_pairs(interleaved: int, part: int) -> None:
    x = f32(1, 2, 3, 8)
    size = part or 8
    angles = RNG.uniform(0, 6, (10, size // 2)).astype(np.float32)
    places = np.array([[4, 0, 9]], np.int64)
    inputs = [x, np.cos(angles), np.sin(angles), places]
    options: dict[str, Any] = {"interleaved": interleaved, "rotary_embedding_dim": part}
    (got,) = run("RotaryEmbedding", inputs, opset=24, **options)
    turned = x[..., :size].astype(np.float64)
    first, second = (
        (turned[..., 0::2], turned[..., 1::2]) if interleaved else np.split(turned, 2, axis=-1)
    )
    complex_pairs = (first + 1j * second) * np.exp(1j * angles[places[0]])
    if interleaved:
        wanted = np.stack([complex_pairs.real, complex_pairs.imag], -1).reshape(turned.shape)
    else:
        wanted = np.concatenate([complex_pairs.real, complex_pairs.imag], -1)
    near(got, np.concatenate([wanted, x[..., size:]], -1))
