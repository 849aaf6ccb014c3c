"""Kernels from Python source to results: the usual ones, on numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luban.lang as tl
from luban.core.errors import InputError
from luban.lang.wrappers import reinterpret
from luban.tile.memory import OutOfBounds, Race
from tests.lang.kernels import (
    add_kernel,
    attention_kernel,
    dropout_kernel,
    layer_norm_kernel,
    matmul_kernel,
    softmax_kernel,
)

Array = np.ndarray[Any, np.dtype[Any]]


def numbers(*shape: int, seed: int = 0) -> Array:
    """Ordinary f32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("check", [False, True])
def test_vector_add(check: bool) -> None:
    n = 1000
    x, y, out = numbers(n), numbers(n, seed=1), np.zeros(n, np.float32)
    add_kernel[lambda meta: (tl.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=256, check=check)
    np.testing.assert_array_equal(out, x + y)


def test_softmax() -> None:
    x = numbers(20, 300)
    out = np.zeros_like(x)
    softmax_kernel[(20,)](out, x, 300, 300, 300, BLOCK=tl.next_power_of_2(300))
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("act", ["", "leaky"])
def test_matmul(act: str) -> None:
    m, n, k = 100, 90, 70
    a, b, c = numbers(m, k), numbers(k, n, seed=1), np.zeros((m, n), np.float32)
    grid = (tl.cdiv(m, 32) * tl.cdiv(n, 32),)
    matmul_kernel[grid](
        a, b, c, m, n, k, k, 1, n, 1, n, 1, BM=32, BN=32, BK=16, GROUP=8, ACT=act, num_warps=4
    )
    wanted = a @ b
    if act:
        wanted = np.where(wanted >= 0, wanted, wanted * np.float32(0.01))
    np.testing.assert_allclose(c, wanted, rtol=1e-4, atol=1e-4)


def test_layer_norm() -> None:
    x, w, b = numbers(7, 600), numbers(600, seed=1), numbers(600, seed=2)
    y = np.zeros_like(x)
    layer_norm_kernel[(7,)](x, y, w, b, 600, 600, 1e-5, BLOCK=256)
    mean = x.mean(axis=1, keepdims=True)
    wanted = (x - mean) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5) * w + b
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)


def test_attention() -> None:
    length, d = 100, 32
    q, k, v = (numbers(length, d, seed=seed) for seed in range(3))
    out = np.zeros_like(q)
    attention_kernel[(tl.cdiv(length, 32),)](q, k, v, out, d**-0.5, length, D=d, BM=32, BN=32)
    scores = q @ k.T * d**-0.5
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(
        out, powers / powers.sum(axis=1, keepdims=True) @ v, rtol=1e-4, atol=1e-5
    )


def test_dropout_repeats_with_its_seed() -> None:
    x = np.ones(1000, np.float32)
    one, two, other = (np.zeros_like(x) for _ in range(3))
    for out, seed in ((one, 7), (two, 7), (other, 8)):
        dropout_kernel[(4,)](x, out, 1000, 0.25, seed, BLOCK=256)
    np.testing.assert_array_equal(one, two)
    assert (one != other).any()
    assert 0.7 < (one > 0).mean() < 0.8


def test_checks_find_an_access_out_of_bounds() -> None:
    x, y, out = numbers(100), numbers(100), np.zeros(100, np.float32)
    with pytest.raises(OutOfBounds, match=r"element 100 of %x_ptr, expected 0 to 99") as caught:
        add_kernel[(1,)](x, y, out, 128, BLOCK=128, check=True)
    assert "kernels.py" in str(caught.value)


def test_checks_find_a_race() -> None:
    x = numbers(256)
    with pytest.raises(Race, match=r"program 1 writes element 0 of %out_ptr, program 0 wrote it"):
        softmax_kernel[(2,)](np.zeros(128, np.float32), x, 128, 0, 128, BLOCK=128, check=True)


def test_read_only_memory_is_refused() -> None:
    x, out = numbers(64), np.zeros(64, np.float32)
    out.flags.writeable = False
    with pytest.raises(InputError, match="writes to 'out_ptr', which is read-only memory"):
        add_kernel[(1,)](x, x, out, 64, BLOCK=64)


def test_a_call_without_a_grid_is_refused() -> None:
    with pytest.raises(InputError, match="add_kernel is a kernel, called without a grid"):
        add_kernel(numbers(3))


def test_a_reinterpreted_tensor_has_the_type_it_is_read_as() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([-1, -2, 3], dtype=torch.int32)
    y, out = torch.zeros(3, dtype=torch.int32), torch.zeros(3, dtype=torch.int64)
    add_kernel[(1,)](reinterpret(x, tl.uint32), reinterpret(y, tl.uint32), out, 3, BLOCK=4)
    assert out.tolist() == [2**32 - 1, 2**32 - 2, 3]
    with pytest.raises(InputError, match=r"reinterpret of a tensor of torch.int32 as uint8"):
        reinterpret(x, tl.uint8)


def test_objects_with_an_address_and_a_type_are_memory() -> None:
    torch = pytest.importorskip("torch")

    class Window:
        def __init__(self, base: Any, start: int) -> None:
            self._base, self.start, self.dtype = base, start, base.dtype

        def data_ptr(self) -> int:
            return int(self._base.data_ptr() + self.start * self._base.element_size())

    x, out = torch.arange(8.0), torch.zeros(4)
    add_kernel[(1,)](Window(x, 4), x, out, 4, BLOCK=4)
    assert out.tolist() == [4, 6, 8, 10]


def test_a_kernel_tells_its_parameters_and_launches_from_its_compiled_form() -> None:
    assert [(p.num, p.name, p.is_constexpr) for p in add_kernel.params][2:] == [
        (2, "out_ptr", False),
        (3, "n", False),
        (4, "BLOCK", True),
    ]
    x, out = numbers(4), np.zeros(4, np.float32)
    compiled = add_kernel.warmup(x, x, out, 4, BLOCK=4, grid=(1,))
    assert compiled is not None
    assert not out.any()
    assert compiled.metadata.name == "add_kernel"
    compiled[(1,)](x, x, out, 4, 4)
    compiled[(1,)](x, x, out, 4)  # what is compiled in may be left out
    np.testing.assert_array_equal(out, x + x)
