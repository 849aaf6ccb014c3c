"""Operators of com.microsoft against ONNX Runtime, which defines them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from luban.core.errors import ModelError, UnsupportedError
from luban.frontend.onnx import import_model
from luban.graph.evaluate import evaluate
from luban.graph.ops.coded import CodedDot
from tests.frontend.onnx.ops.comparison import SYMBOLIC, Array, model, run, run_elsewhere

RNG = np.random.default_rng(7)


def assert_agree(
    op: str,
    inputs: Sequence[Array | None],
    num_outputs: int = 1,
    *,
    bound: float = 2e-5,
    steps: int = 0,
    constants: Sequence[int] = (),
    domain: str = "com.microsoft",
    symbolic: bool = True,
    **attributes: Any,
) -> None:
    """Equal dtypes and shapes; floats within `bound` of the largest, integers within `steps`."""
    options = {"results": num_outputs, "known": constants, "domain": domain, **attributes}
    wanted = run_elsewhere(op, inputs, **options)
    for sizes in ("static", SYMBOLIC) if symbolic else ("static",):
        for got, want in zip(run(op, inputs, sizes=sizes, **options), wanted, strict=True):
            assert_near(got, want, bound, steps)


def assert_near(got: Array, want: Array, bound: float, steps: int) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype.kind == "f":
        wide = want.astype(np.float64)
        limit = bound * max(float(np.abs(wide).max(initial=0)), 1e-6)
        np.testing.assert_allclose(got.astype(np.float64), wide, rtol=0, atol=limit)
    else:
        apart = np.abs(got.astype(np.int64) - want.astype(np.int64)).max(initial=0)
        assert apart <= steps, f"{apart} steps apart"


def f32(*shape: int, scale: float = 1.0) -> Array:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def u8(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> Array:
    return RNG.integers(-127, 128, shape).astype(np.int8)


def scalar(value: float, element: Any = np.float32) -> Array:
    return np.array(value, element)


@pytest.mark.parametrize("op", ["Gelu", "QuickGelu", "FastGelu"])
def test_activations(op: str) -> None:
    assert_agree(op, [f32(3, 17)])


def test_activations_with_bias() -> None:
    assert_agree("BiasGelu", [f32(2, 3, 8), f32(8)])
    assert_agree("FastGelu", [f32(2, 3, 8), f32(8)])


@pytest.mark.parametrize(
    "options",
    [
        {"transA": 1, "alpha": 0.5},
        {"transB": 1},
        {"transA": 1, "transB": 1},
    ],
)
def test_fused_matmul(options: dict[str, Any]) -> None:
    a, b = f32(2, 5, 5), f32(2, 5, 5)
    assert_agree("FusedMatMul", [a, b], **options)


def test_fused_matmul_moves_the_batch() -> None:
    assert_agree("FusedMatMul", [f32(4, 2, 3), f32(2, 3, 5)], transBatchA=1)


def test_fused_gemm_and_conv() -> None:
    assert_agree("FusedGemm", [f32(3, 4), f32(4, 5), f32(5)], activation="Relu", alpha=0.5)
    given = [f32(1, 3, 8, 8), f32(4, 3, 3, 3), f32(4)]
    assert_agree("FusedConv", given, activation="Relu", constants=[1, 2])
    assert_agree(
        "FusedConv",
        given,
        constants=[1, 2],
        activation="LeakyRelu",
        activation_params=[0.2],
        pads=[1, 1, 1, 1],
    )


def test_layer_norms() -> None:
    x, skip, gamma, beta, bias = f32(2, 3, 8), f32(2, 3, 8), f32(8), f32(8), f32(8)
    assert_agree("SkipLayerNormalization", [x, skip, gamma, beta, bias], epsilon=1e-5)
    given = [x, skip, gamma, beta, None]
    assert_agree("SkipLayerNormalization", given[:4])
    assert_agree("SkipSimplifiedLayerNormalization", [x, skip, gamma], epsilon=1e-6)
    assert_agree("SkipSimplifiedLayerNormalization", [x, skip, gamma, bias])
    assert_agree("SimplifiedLayerNormalization", [x, gamma], domain="", axis=-1, epsilon=1e-6)


def test_embed_layer_norm() -> None:
    ids = RNG.integers(0, 10, (2, 4)).astype(np.int32)
    kinds = RNG.integers(0, 2, (2, 4)).astype(np.int32)
    mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    tables = [f32(10, 8), f32(6, 8), f32(2, 8), f32(8), f32(8)]
    assert_agree("EmbedLayerNormalization", [ids, kinds, *tables, mask], 2)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary(interleaved: int) -> None:
    places = np.array([[0, 1, 2], [3, 4, 5]], np.int64)
    cos, sin = f32(8, 4), f32(8, 4)
    assert_agree("RotaryEmbedding", [f32(2, 3, 16), places, cos, sin], interleaved=interleaved)
    start = np.array([2], np.int64)
    assert_agree("RotaryEmbedding", [f32(2, 2, 3, 8), start, cos, sin], interleaved=interleaved)


def test_rotary_of_a_part_of_the_head() -> None:
    places = np.array([[0, 1, 2]], np.int64)
    given = [f32(1, 3, 16), places, f32(8, 2), f32(8, 2)]
    assert_agree("RotaryEmbedding", given, num_heads=2, rotary_embedding_dim=4)


MASKS: dict[str, Array | None] = {
    "none": None,
    "lengths": np.array([4, 2], np.int32),
    "raw": np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.int32),
    "ends and starts": np.array([4, 3, 1, 0], np.int32),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask: str, causal: int) -> None:
    given = [f32(2, 4, 6), f32(6, 24), f32(24), MASKS[mask]]
    # A symbolic number of ends and starts cannot be told from one of lengths.
    is_clear = mask != "ends and starts"
    assert_agree("Attention", given, num_heads=2, unidirectional=causal, symbolic=is_clear)


def test_attention_with_a_past_and_a_bias() -> None:
    past = f32(2, 2, 2, 3, 4)
    mask = np.ones((2, 5), np.int32)
    given = [f32(2, 2, 6), f32(6, 24), f32(24), mask, past]
    assert_agree("Attention", given, 2, num_heads=2, unidirectional=1)
    added = [f32(2, 4, 6), f32(6, 24), f32(24), None, None, f32(2, 2, 4, 4)]
    assert_agree("Attention", added, num_heads=2)


def test_multi_head_attention() -> None:
    q, k, v = f32(2, 3, 8), f32(2, 5, 8), f32(2, 5, 8)
    assert_agree("MultiHeadAttention", [q, k, v], num_heads=2)
    assert_agree("MultiHeadAttention", [q, k, v, f32(24)], num_heads=2, scale=0.3)
    mask = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32)
    assert_agree("MultiHeadAttention", [q, k, v, None, mask], num_heads=2)
    assert_agree("MultiHeadAttention", [q, k, v, None, None, f32(2, 2, 3, 5)], num_heads=2)
    past = [f32(2, 2, 4, 4), f32(2, 2, 4, 4)]
    given = [q, q, q, None, None, None, *past]
    assert_agree("MultiHeadAttention", given, 3, num_heads=2)
    assert_agree("MultiHeadAttention", given, 3, num_heads=2, unidirectional=1)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("length", [1, 3])
def test_multi_head_attention_with_room_in_the_cache(causal: int, length: int) -> None:
    q, k, v = f32(2, length, 8), f32(2, length, 8), f32(2, length, 8)
    room = [f32(2, 2, 8, 4), f32(2, 2, 8, 4)]
    given = [q, k, v, None, None, None, *room, np.array([4], np.int32)]
    assert_agree("MultiHeadAttention", given, 3, num_heads=2, unidirectional=causal)


def test_the_cache_behind_the_new_keys_stays_and_is_not_seen() -> None:
    q, k, v = f32(2, 2, 8), f32(2, 2, 8), f32(2, 2, 8)
    room = [f32(2, 2, 8, 4), f32(2, 2, 8, 4)]
    options: dict[str, Any] = {"domain": "com.microsoft", "num_heads": 2, "results": 3}
    mask = np.ones((2, 6), np.int32)
    mask[1, :3] = 0  # keys of the past that are padding
    added = f32(2, 2, 2, 6)
    last = np.array([4], np.int32)
    got = run("MultiHeadAttention", [q, k, v, None, mask, added, *room, last], **options)
    full = [q, k, v, None, mask, added, *(old[:, :, :4] for old in room)]
    want = run("MultiHeadAttention", full, **options)
    np.testing.assert_allclose(got[0], want[0], atol=1e-6)
    for now, grown, old in zip(got[1:], want[1:], room, strict=True):
        np.testing.assert_array_equal(now, np.concatenate([grown, old[:, :, 6:]], 2))


def test_a_past_length_needs_a_cache_and_beams_cannot_share_one() -> None:
    q = f32(2, 1, 8)
    options: dict[str, Any] = {"domain": "com.microsoft", "num_heads": 2}
    last, cache = np.array([4], np.int32), f32(2, 2, 8, 4)
    with pytest.raises(ModelError, match="past_sequence_length needs past_key and past_value"):
        run("MultiHeadAttention", [q, q, q, *[None] * 5, last], **options)
    beams = np.zeros((2, 1, 8), np.int32)
    given = [q, q, q, None, None, None, cache, cache, last, beams]
    with pytest.raises(UnsupportedError, match="beams that share a cache"):
        run("MultiHeadAttention", given, **options)


def test_packed_queries_keys_and_values() -> None:
    packed = f32(2, 3, 2, 3, 4)
    apart = [packed[:, :, :, i].reshape(2, 3, 8) for i in range(3)]
    options = {"domain": "com.microsoft", "num_heads": 2}
    got, want = (run("MultiHeadAttention", inputs, **options) for inputs in ([packed], apart))
    np.testing.assert_array_equal(got[0], want[0])


@pytest.mark.parametrize("window", [-1, 2])
@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize(("batch", "length"), [(1, 3), (2, 1)])
def test_group_query_attention(window: int, rotary: int, batch: int, length: int) -> None:
    past = 4
    total = past + length
    given = [
        f32(batch, length, 64),
        f32(batch, length, 32),
        f32(batch, length, 32),
        f32(batch, 2, past, 16),
        f32(batch, 2, past, 16),
        np.full(batch, total - 1, np.int32),
        np.array(total, np.int32),
    ]
    if rotary:
        given += [f32(16, 8), f32(16, 8)]
    assert_agree(
        "GroupQueryAttention",
        given,
        3,
        constants=[6],
        num_heads=4,
        kv_num_heads=2,
        do_rotary=rotary,
        local_window_size=window,
    )


def test_group_query_attention_of_a_prompt() -> None:
    given = [
        f32(1, 5, 64),
        f32(1, 5, 32),
        f32(1, 5, 32),
        None,
        None,
        np.full(1, 4, np.int32),
        np.array(5, np.int32),
    ]
    assert_agree("GroupQueryAttention", given, 3, num_heads=4, kv_num_heads=2, softcap=5.0)


@pytest.mark.parametrize("form", ["smooth", "sink"])
@pytest.mark.parametrize("past", [0, 7])
def test_group_query_attention_whose_softmax_has_a_sink(form: str, past: int) -> None:
    """One more term in the denominator: exp(0), or exp of a number of each head."""
    batch = 1 if past else 2  # all that the reference runs
    given = [
        f32(batch, 3, 64),
        f32(batch, 3, 32),
        f32(batch, 3, 32),
        f32(batch, 2, past, 16) if past else None,
        f32(batch, 2, past, 16) if past else None,
        np.full(batch, past + 2, np.int32),
        np.array(past + 3, np.int32),
    ]
    attributes: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "softcap": 3.0}
    if form == "sink":
        given += [None, None, None, None, f32(4)]
    else:
        attributes["smooth_softmax"] = 1
    assert_agree("GroupQueryAttention", given, 3, constants=[6], **attributes)


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_qlinear_binary(op: str) -> None:
    scales = [scalar(0.02), scalar(0.03), scalar(0.05)]
    zeros = [scalar(z, np.uint8) for z in (120, 130, 128)]
    given = [u8(2, 9), scales[0], zeros[0], u8(2, 9), scales[1], zeros[1], scales[2], zeros[2]]
    assert_agree(op, given, steps=1)


def test_qlinear_unary() -> None:
    x, s, z = u8(1, 4, 6, 6), scalar(0.05), scalar(128, np.uint8)
    out = [scalar(0.004), scalar(0, np.uint8)]
    assert_agree("QLinearSigmoid", [x, s, z, *out], steps=1, constants=[1, 2, 3, 4])
    leaky = [x, s, z, scalar(0.04), scalar(60, np.uint8)]
    assert_agree("QLinearLeakyRelu", leaky, steps=1, alpha=0.1, constants=[1, 2, 3, 4])
    pooled = [x, s, z, scalar(0.04), scalar(128, np.uint8)]
    assert_agree("QLinearGlobalAveragePool", pooled, steps=1)
    assert_agree("QLinearAveragePool", pooled, steps=1, kernel_shape=[2, 2], strides=[2, 2])


def test_qlinear_softmax() -> None:
    """Its attribute `opset` says how axes are meant, as of that version of Softmax."""
    given = [u8(3, 10), scalar(0.05), scalar(128, np.uint8), scalar(1 / 256), scalar(0, np.uint8)]
    proto = model("QLinearSoftmax", given, domain="com.microsoft", known=[1, 2, 3, 4], axis=-1)
    proto.graph.node[0].attribute.append(helper.make_attribute("opset", 13))
    (got,) = evaluate(import_model(proto).graph, [given[0]])
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    assert_near(got, session.run(None, {"x0": given[0]})[0], 0, 1)


def test_qlinear_concat() -> None:
    s, z = [scalar(0.02), scalar(0.03)], [scalar(10, np.uint8), scalar(20, np.uint8)]
    given = [s[1], z[1], u8(2, 3), s[0], z[0], u8(2, 4), s[1], z[1]]
    assert_agree("QLinearConcat", given, steps=1, axis=1, constants=[0, 1, 3, 4, 6, 7])


@pytest.mark.parametrize("element", [np.uint8, np.int8])
def test_integer_products(element: Any) -> None:
    a = u8(3, 8)
    b = u8(8, 5) if element is np.uint8 else i8(8, 5)
    zero = scalar(3, element)
    given = [a, b, scalar(0.02), scalar(0.01), scalar(120, np.uint8), zero, f32(5)]
    assert_agree("MatMulIntegerToFloat", given)
    columns = [f32(3, 8), b, f32(5, scale=0.1), np.full(5, 2, element), f32(5)]
    assert_agree("DynamicQuantizeMatMul", columns)


def test_qgemm() -> None:
    bias = RNG.integers(-100, 100, 5).astype(np.int32)
    given = [u8(3, 8), scalar(0.02), scalar(100, np.uint8), i8(5, 8), scalar(0.01)]
    given += [scalar(0, np.int8), bias]
    assert_agree("QGemm", given, transB=1)
    given += [scalar(0.05), scalar(120, np.uint8)]
    assert_agree("QGemm", given, steps=1, transB=1)


def packed(codes: Array) -> Array:
    """4-bit codes along the last axis, the lower half of a byte first."""
    found: Array = (codes[..., 0::2] | (codes[..., 1::2] << 4)).astype(np.uint8)
    return found


@pytest.mark.parametrize("zeros", ["none", "packed", "float"])
def test_matmul_nbits(zeros: str) -> None:
    rows, depth, block = 6, 40, 16
    count = -(-depth // block)
    codes = RNG.integers(0, 16, (rows, count, block)).astype(np.uint8)
    scales = np.abs(f32(rows * count)) + 0.1
    point: Array | None = None
    if zeros == "packed":
        wide = np.zeros((rows, count + count % 2), np.uint8)
        wide[:, :count] = RNG.integers(0, 16, (rows, count))
        point = packed(wide).reshape(-1)
    elif zeros == "float":
        point = RNG.integers(0, 16, rows * count).astype(np.float32)
    given = [f32(2, 3, depth), packed(codes), scales, point]
    options: dict[str, Any] = {"K": depth, "N": rows, "bits": 4, "block_size": block}
    constants = [1, 2, 3] if point is not None else [1, 2]
    assert_agree("MatMulNBits", given, constants=constants, **options)


def test_matmul_nbits_with_a_large_block() -> None:
    """K 2048, N 4, block 512: codes 2, zero point 3, scale 0.5 of ones give -1024 each."""
    codes = np.full((4, 4, 512), 2, np.uint8)
    zeros = packed(np.full((4, 4), 3, np.uint8)).reshape(-1)
    given = [np.ones((1, 2048), np.float32), packed(codes), np.full(16, 0.5, np.float32), zeros]
    options: dict[str, Any] = {"K": 2048, "N": 4, "bits": 4, "block_size": 512}
    assert_agree("MatMulNBits", given, constants=[1, 2, 3], **options)


def nbits(bits: int, rows: int, depth: int, block: int) -> tuple[list[Any], dict[str, Any]]:
    """Packed weights and scales of a product, and its attributes."""
    count = -(-depth // block)
    weights = u8(rows, count, block * bits // 8)
    options: dict[str, Any] = {"K": depth, "N": rows, "bits": bits, "block_size": block}
    return [weights, np.abs(f32(rows * count)) / 8 + 0.1], options


@pytest.mark.parametrize(("bits", "block"), [(4, 16), (4, 32), (4, 128), (8, 32)])
def test_matmul_nbits_with_rows_rounded_to_8_bits(bits: int, block: int) -> None:
    """Where the model allows it: the same rounding as ONNX Runtime's, then exact integers."""
    weights, options = nbits(bits, 6, 256, block)
    options["accuracy_level"] = 4
    assert_agree("MatMulNBits", [f32(3, 256), *weights], constants=[1, 2], **options)


def test_matmul_nbits_with_a_bias_keeps_its_codes() -> None:
    weights, options = nbits(4, 40, 64, 32)
    given = [f32(3, 64), *weights, None, None, f32(40)]
    assert_agree("MatMulNBits", given, constants=[1, 2, 5], **options)
    built = model("MatMulNBits", given, known=[1, 2, 5], domain="com.microsoft", **options)
    assert any(isinstance(n.op, CodedDot) for n in import_model(built).graph.nodes())


def test_matmul_nbits_with_columns_in_another_order_is_unpacked() -> None:
    weights, options = nbits(4, 6, 64, 32)
    order = RNG.permutation(np.repeat([0, 1], 32)).astype(np.int32)
    given = [f32(3, 64), *weights, None, order]
    assert_agree("MatMulNBits", given, constants=[1, 2, 4], **options)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_dynamic_quantize_lstm(direction: str) -> None:
    steps, batch, inputs, hidden = 4, 1, 5, 3
    n = 2 if direction == "bidirectional" else 1
    given = [
        f32(steps, batch, inputs),
        i8(n, inputs, 4 * hidden),
        i8(n, hidden, 4 * hidden),
        f32(n, 8 * hidden),
        None,
        f32(n, batch, hidden),
        f32(n, batch, hidden),
        None,
        np.full(n, 0.01, np.float32),
        np.zeros(n, np.int8),
        np.full(n, 0.02, np.float32),
        np.zeros(n, np.int8),
    ]
    assert_agree(
        "DynamicQuantizeLSTM",
        given,
        3,
        constants=[1, 2, 8, 9, 10, 11],
        hidden_size=hidden,
        direction=direction,
        bound=1e-3,
    )


def test_quantised_attention() -> None:
    given = [u8(2, 4, 6), i8(6, 24), f32(24), scalar(0.02), scalar(0.01)]
    given += [np.array([4, 2], np.int32), scalar(120, np.uint8), scalar(0, np.int8)]
    assert_agree("QAttention", given, num_heads=2, constants=[1, 2, 3, 4, 6, 7])


def test_qlinear_where() -> None:
    flags = RNG.integers(0, 2, (2, 5)).astype(bool)
    x, y = [u8(2, 5), scalar(0.02), scalar(3, np.uint8)], [u8(2, 5), scalar(0.03)]
    y.append(scalar(9, np.uint8))
    out = [scalar(0.04), scalar(1, np.uint8)]
    assert_agree("QLinearWhere", [flags, *x, *y, *out], steps=1, constants=[2, 3, 5, 6, 7, 8])


def microsoft(op: str, inputs: Sequence[Any], **options: Any) -> Array:
    """One result of an operator that ONNX Runtime has for accelerators only."""
    (got,) = run(op, inputs, domain="com.microsoft", **options)
    return got


@pytest.mark.parametrize("op", ["NhwcConv", "NhwcFusedConv"])
def test_convolution_with_channels_last(op: str) -> None:
    x, filters, bias = f32(1, 3, 6, 7), f32(4, 3, 3, 3), f32(4)
    pads = [1, 1, 1, 1]
    (want,) = run("Conv", [x, filters, bias], known=[1, 2], pads=pads)
    got = microsoft(op, [x.transpose(0, 2, 3, 1), filters, bias], known=[1, 2], pads=pads)
    np.testing.assert_allclose(got, want.transpose(0, 2, 3, 1), rtol=1e-6)


@pytest.mark.parametrize("last", [0, 1])
def test_group_norm(last: int) -> None:
    x, gamma, beta = f32(2, 3, 5, 4), f32(4), f32(4)
    grouped = x.reshape(2, 15, 2, 2).astype(np.float64)
    centred = grouped - grouped.mean((1, 3), keepdims=True)
    normal = centred / np.sqrt((centred**2).mean((1, 3), keepdims=True) + 1e-5)
    want = normal.reshape(x.shape) * gamma + beta
    want = want / (1 + np.exp(-want))
    given = x if last else x.transpose(0, 3, 1, 2)
    options: dict[str, Any] = {"groups": 2, "activation": 1, "channels_last": last}
    got = microsoft("GroupNorm", [given, gamma, beta], **options)
    want = want if last else want.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_qlinear_reduce_mean() -> None:
    x = u8(2, 3, 4)
    given = [x, scalar(0.02), scalar(120, np.uint8), scalar(0.01), scalar(128, np.uint8)]
    got = microsoft("QLinearReduceMean", given, axes=[1], keepdims=0)
    want = np.rint((x.astype(np.float64) - 120).mean(1) * 2) + 128
    assert np.abs(got - np.clip(want, 0, 255)).max() <= 1


def test_sums_with_a_bias() -> None:
    x, bias, skip = f32(2, 3, 8), f32(8), f32(2, 3, 8)
    np.testing.assert_array_equal(microsoft("BiasAdd", [x, bias, skip]), x + bias + skip)
    first, second = np.split(x + bias, 2, axis=-1)
    (gelu,) = run("Gelu", [second], domain="com.microsoft")
    np.testing.assert_array_equal(microsoft("BiasSplitGelu", [x, bias]), first * gelu)


def test_what_is_refused() -> None:
    x = f32(2, 3, 8)
    with pytest.raises(UnsupportedError, match=r"activation 'Mystery'.*nearest: Relu, Tanh"):
        microsoft("FusedGemm", [f32(2, 3), f32(3, 4)], activation="Mystery")
    with pytest.raises(UnsupportedError, match=r"bits=3.*nearest: 2, 4 or 8 bits"):
        microsoft("MatMulNBits", [x, u8(4, 1, 3), f32(4)], K=8, N=4, bits=3, block_size=8)
    with pytest.raises(UnsupportedError, match="do_rotary=1"):
        microsoft("Attention", [x, f32(8, 24), f32(24)], num_heads=2, do_rotary=1)
    turned = [x, np.zeros(1, np.int64), f32(4, 4), f32(4, 4)]
    with pytest.raises(UnsupportedError, match="is_packed_batching=1"):
        microsoft("RotaryEmbedding", turned, is_packed_batching=1)
    with pytest.raises(ModelError, match=r"transBatch of .*: expected at least 3 axes"):
        microsoft("FusedMatMul", [f32(2, 2), f32(2, 2)], transBatchA=1)
    with pytest.raises(ModelError, match="2 inputs after the scale, expected triples"):
        microsoft("QLinearConcat", [scalar(1), scalar(0, np.uint8), u8(2), scalar(1)], axis=0)
