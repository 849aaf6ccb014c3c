"""Fourier transforms against numpy's."""

from __future__ import annotations

import numpy as np
import pytest

import luban
from tests.frontend.onnx.ops.comparison import SYMBOLIC, Array, compare, model, run

rng = np.random.default_rng(13)


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def pairs(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1)


@pytest.mark.parametrize("count", [1, 7, 64, 65, 128, 194, 1000])
def test_lengths(count: int) -> None:
    """Short ones by a matrix, long ones split where they have a divisor."""
    x = normal(2, count, 2)
    wanted = np.fft.fft(x[..., 0].astype(np.float64) + 1j * x[..., 1], axis=1)
    (result,) = run("DFT", [x], opset=20)
    np.testing.assert_allclose(result, pairs(wanted), atol=2e-6 * count)
    (back,) = run("DFT", [result], opset=20, inverse=1)
    np.testing.assert_allclose(back, x, atol=1e-5)


@pytest.mark.parametrize("length", [6, 16])
def test_cut_or_filled_to_a_length(length: int) -> None:
    x = normal(2, 10, 1)
    wanted = np.fft.fft(x[..., 0], n=length, axis=1)
    for known in ((1,), ()):
        (result,) = run("DFT", [x, np.int64(length)], opset=20, known=known)
        np.testing.assert_allclose(result, pairs(wanted), atol=1e-5)


@pytest.mark.parametrize("count", [9, 10])
def test_one_sided(count: int) -> None:
    x = normal(2, count, 1)
    (half,) = run("DFT", [x], opset=20, onesided=1)
    np.testing.assert_allclose(half, pairs(np.fft.rfft(x[..., 0], axis=1)), atol=1e-5)
    (back,) = run("DFT", [half, np.int64(count)], opset=20, known=[1], onesided=1, inverse=1)
    np.testing.assert_allclose(back, x, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, -2, -3])
def test_axes(axis: int) -> None:
    x = normal(3, 4, 5, 2)
    wanted = np.fft.fft(x[..., 0] + 1j * x[..., 1], axis=axis + (axis < 0))
    for known in ((2,), ()):
        (result,) = run("DFT", [x, None, np.int64(axis)], opset=20, known=known)
        np.testing.assert_allclose(result, pairs(wanted), atol=1e-5)
    if axis >= 0:
        compare("DFT", [x], opset=17, axis=axis, atol=1e-4)


def test_a_symbolic_length_is_settled_at_run_time() -> None:
    x = normal(2, 10, 1)
    (result,) = run("DFT", [x], opset=20, sizes=SYMBOLIC)
    np.testing.assert_allclose(result, pairs(np.fft.fft(x[..., 0], axis=1)), atol=1e-5)


@pytest.mark.parametrize("known", [(1, 3), ()])
def test_short_time_transform(known: tuple[int, ...]) -> None:
    signal = normal(1, 64, 1)
    compare("STFT", [signal, np.int64(8), normal(16)], opset=17, known=known[:1], atol=1e-4)
    compare("STFT", [signal, np.int64(8), None, np.int64(16)], opset=17, known=known, atol=1e-4)
    two_sided = [signal, np.int64(5), normal(16), np.int64(16)]
    compare("STFT", two_sided, opset=17, known=known, onesided=0, atol=1e-4)


@pytest.mark.parametrize("count", [10, 20, 64, 66, 96, 200])
def test_the_ends_of_a_real_spectrum_have_no_imaginary_part(count: int) -> None:
    """A sign there decides the phase, 180 degrees or -180: Kokoro spoke 3.4 times as loud."""
    x = normal(3, count, 1) + 1
    (half,) = run("DFT", [x], opset=20, onesided=1)
    assert not half[:, [0, -1], 1].any()
    assert half[:, 1:-1, 1].all()
    signal = normal(1, 4 * count, 1)
    inputs = [signal, np.int64(3), np.hanning(count).astype(np.float32), np.int64(count)]
    (frames,) = run("STFT", inputs, opset=17, known=(1, 3))
    assert not frames[:, :, [0, -1], 1].any()


def test_the_last_frequency_of_an_odd_length_keeps_its_imaginary_part() -> None:
    x = normal(3, 75, 1)
    (half,) = run("DFT", [x], opset=20, onesided=1)
    assert not half[:, 0, 1].any()
    assert half[:, 1:, 1].all()
    np.testing.assert_allclose(half, pairs(np.fft.rfft(x[..., 0], axis=1)), atol=1e-5)


def test_frequencies_that_a_constant_signal_lacks_keep_the_digits_of_the_exact_sum() -> None:
    """Kokoro takes their phase. Two parts that were both 0 made its decoder NaN."""
    window = np.hanning(21)[:20].astype(np.float32)
    signal = np.full((1, 40, 1), -0.08271854, np.float32)
    signal[0, ::7] += np.float32(7.4e-9)
    framed = np.lib.stride_tricks.sliding_window_view(signal[0, :, 0].astype(np.float64), 20)[::5]
    wanted = pairs(np.fft.rfft(framed * window.astype(np.float64)))
    inputs = [signal, np.int64(5), window, np.int64(20)]
    proto = model("STFT", inputs, opset=17, known=(1, 2, 3))
    (evaluated,) = run("STFT", inputs, opset=17, known=(1, 2, 3))
    (compiled,) = luban.compile(proto)({"x0": signal}).values()
    for result in (evaluated, compiled):
        assert result.any(-1).all()
        np.testing.assert_allclose(result[0, :, 2:-1], wanted[:, 2:-1], rtol=1e-5)
        np.testing.assert_allclose(result[0, :, -1, 0], wanted[:, -1, 0], rtol=1e-5)
