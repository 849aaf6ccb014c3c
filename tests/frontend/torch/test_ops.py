"""Each family of ATen's operators against eager PyTorch, the edges of their meaning above all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the front end needs PyTorch")

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from luban.frontend.torch import import_graph
from luban.frontend.torch.decompositions import decompositions
from luban.frontend.torch.importer import Computed, Given
from luban.graph.evaluate import evaluate

F = torch.tensor([-math.inf, -7.5, -2.5, -0.5, -0.0, 0.0, 0.5, 1.5, 3.0, math.inf, math.nan])
I = torch.tensor([-7, -3, -1, 0, 1, 2, 5])
B = torch.tensor([True, False, True])
M = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4) - 11


def run(call: Any, *inputs: Any) -> list[Any]:
    """What the evaluator makes of the translated graph."""
    graph = make_fx(call, decomposition_table=decompositions(), tracing_mode="fake")(*inputs)
    imported = import_graph(graph)
    given = [inputs[number].numpy() for number in imported.inputs]
    results = evaluate(imported.graph, given)
    found = []
    for output in imported.outputs:
        if isinstance(output, Computed):
            found.append(torch.from_numpy(np.array(results[output.number])))
        else:
            assert isinstance(output, Given)
            found.append(inputs[output.number])
    return found


def check(call: Any, *inputs: Any, rtol: float = 1e-6, atol: float = 1e-6) -> None:
    want = call(*inputs)
    listed = list(want) if isinstance(want, tuple | list) else [want]
    for a, b in zip(run(call, *inputs), listed, strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize(
    "call",
    [
        torch.sign, torch.relu, torch.round, torch.trunc, torch.floor, torch.reciprocal, torch.exp2,
        torch.log2, torch.log10, torch.isnan, torch.isinf, torch.logical_not, torch.sigmoid,
        lambda x: functional.gelu(x[1:-2]), lambda x: functional.silu(x),
        lambda x: functional.hardswish(x), torch.erfc, torch.neg, torch.abs,
        lambda x: torch.clamp(x, -1, 2), lambda x: torch.clamp(x, min=0), lambda x: x**3,
        lambda x: x**0.5, lambda x: x**-1, lambda x: 2**x, lambda x: torch.round(x, decimals=1),
        lambda x: torch.nan_to_num(x, 1, 2, 3), lambda x: torch.rsub(x, 3, alpha=2),
    ],
)  # fmt: skip
def test_one_operand(call: Any) -> None:
    check(call, F)


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        torch.remainder, torch.fmod, torch.fmax, torch.fmin, torch.maximum, torch.minimum,
        torch.atan2, torch.hypot, torch.copysign, torch.eq, torch.lt, torch.add, torch.mul,
        torch.div,
        lambda a, b: torch.where(a > b, a, b), lambda a, b: torch.add(a, b, alpha=3),
    ],
)  # fmt: skip
def test_two_operands(call: Any) -> None:
    check(call, F[:, None].contiguous(), F[1:-2])


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        torch.remainder, torch.fmod, torch.div, torch.bitwise_xor, torch.maximum, torch.mul,
        lambda a, b: a + 0.5 * b, lambda a, b: a < b + 0.5, lambda a, b: a // b,
    ],
)  # fmt: skip
def test_two_operands_of_integers(call: Any) -> None:
    check(call, I[:, None].contiguous(), I[I != 0])


def test_dtypes_that_meet() -> None:
    half = torch.tensor([1.5, 2.5], dtype=torch.float16)
    check(lambda x, y: (x + y, x * 2, y + 1.5, x > y, y == 2.0), half, torch.tensor([1, 2]))
    check(lambda x, y: (x < y, x == y), torch.tensor([200, 3], dtype=torch.uint8),
          torch.tensor([-56, 3], dtype=torch.int8))  # fmt: skip
    check(lambda x, y: (x + y, x | y, x & y, x.sum(), x.amax(), y * x), B, ~B)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum((0, 2)), lambda x: x.mean(1, keepdim=True), lambda x: x.amax((1, 2)),
        lambda x: x.prod(1), lambda x: x.var(2), lambda x: x.std((0, 1), correction=0),
        lambda x: torch.var_mean(x, 1, correction=2), lambda x: x.argmax(), lambda x: x.argmin(2),
        lambda x: x.max(1), lambda x: x.cumsum(1), lambda x: x.cumprod(2), lambda x: (x > 0).any(1),
        lambda x: (x > -20).all(), lambda x: x.sum(), lambda x: x[0, 0, 0].sum(0),
        lambda x: x.norm(),
        lambda x: torch.logsumexp(x, 1), lambda x: torch.softmax(x, 2), lambda x: x.sort(1),
        lambda x: x.median(2), lambda x: x.kthvalue(2, 1),
        lambda x: x.topk(2, 2), lambda x: x.topk(1, 1, largest=False),
    ],
)  # fmt: skip
def test_many_elements_to_one(call: Any) -> None:
    check(call, M, rtol=1e-5)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x[:, 1], lambda x: x[..., ::2], lambda x: x[:, -2:], lambda x: x[5:, :],
        lambda x: x[:, -9:9], lambda x: x.flip(0, 2), lambda x: x.roll(1, 1),
        lambda x: x.repeat(2, 1, 2),
        lambda x: x.transpose(0, 2).reshape(4, 6), lambda x: x.unbind(1), lambda x: x.split(2, 2),
        lambda x: x.chunk(2, 2), lambda x: torch.cat([x, x[:, :1]], 1),
        lambda x: torch.stack([x, x], 1),
        lambda x: functional.pad(x, (1, -1, 2, 0), value=3.0), lambda x: x.diagonal(1, 1, 2),
        lambda x: x.squeeze(0).unsqueeze(1), lambda x: torch.tril(x, 1),
        lambda x: x.expand(5, 2, 3, 4),
        lambda x: x.as_strided((2, 2), (4, 2), 3), lambda x: x.view(torch.int32),
        lambda x: torch.select_scatter(x, x[:, 0], 1, 2), lambda x: x.unfold(2, 2, 1),
        lambda x: torch.slice_scatter(x, x[..., :2], 2, 0, 4, 2),
        lambda x: torch.diagonal_scatter(x, x[:, 0, :2], -1, 1, 2), lambda x: torch.full_like(x, 2),
        lambda x: torch.arange(1, 9, 3) + x[0, 0, 0],
        lambda x: torch.linspace(0, 1, 5) + x[0, 0, 0],
    ],
)  # fmt: skip
def test_moving_elements(call: Any) -> None:
    check(call, M)


PLACES = torch.tensor([2, -1, 0])


@pytest.mark.parametrize(
    "call",
    [
        lambda x, i: x[:, i], lambda x, i: x[:, i, i], lambda x, i: x[i % 2, :, i],
        lambda x, i: x.index_select(1, i % 3), lambda x, i: x[:, i[:, None], i],
        lambda x, i: x.gather(2, (i % 3).expand(2, 1, 3)),
        lambda x, i: x.scatter(2, (i % 3).expand(2, 1, 3), 9.0),
        lambda x, i: x.scatter_add(1, (i % 2).expand(2, 3, 3), x),
        lambda x, i: x.scatter_reduce(1, (i % 2).expand(2, 3, 3), x, "mean"),
        lambda x, i: x.scatter_reduce(1, (i % 2).expand(2, 3, 3), x, "amax", include_self=False),
        lambda x, i: torch.ops.aten.index_put(x, [None, i], x[:, :1]),
        lambda x, i: torch.index_put(x, (i % 2, i), x[0, 0], accumulate=True),
        lambda x, i: torch.index_put(x, (x > 0,), x[0, 0, 0]),
        lambda x, i: x.masked_scatter(x > 0, x.flip(0)),
        lambda x, i: x.index_add(1, i % 3, x, alpha=2),
        lambda x, i: x.take_along_dim(i[None, :, None] % 3, 1),
        lambda x, i: functional.embedding(i % 3, x[0]), lambda x, i: functional.one_hot(i % 3, 4),
    ],
)  # fmt: skip
def test_places_that_other_tensors_name(call: Any) -> None:
    check(call, M, PLACES)


IMAGE = torch.sin(torch.arange(2 * 4 * 7 * 6, dtype=torch.float32)).reshape(2, 4, 7, 6)
FILTERS = torch.cos(torch.arange(6 * 2 * 3 * 2, dtype=torch.float32)).reshape(6, 2, 3, 2)


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"dilation": (2, 1)}])
def test_convolution_and_its_gradients(options: Any) -> None:
    def call(x: Any, w: Any) -> Any:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = functional.conv2d(x, w, groups=2, **options)
        return y.detach(), *torch.autograd.grad((y * y).sum(), [x, w])

    check(call, IMAGE, FILTERS, rtol=1e-4)


@pytest.mark.parametrize("options", [{}, {"stride": 2, "output_padding": 1, "padding": 1}])
def test_transposed_convolution_and_its_gradients(options: Any) -> None:
    def call(x: Any, w: Any) -> Any:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = functional.conv_transpose2d(x, w, groups=2, **options)
        return y.detach(), *torch.autograd.grad((y * y).sum(), [x, w])

    filters = torch.cos(torch.arange(4 * 3 * 9, dtype=torch.float32)).reshape(4, 3, 3, 3)
    check(call, IMAGE, filters, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: functional.max_pool2d(x, 3, 2, 1),
        lambda x: functional.max_pool2d(x, 2, ceil_mode=True),
        lambda x: functional.avg_pool2d(x, 3, 2, 1), lambda x: functional.adaptive_avg_pool2d(x, 1),
        lambda x: functional.avg_pool2d(x, 2, ceil_mode=True),
        lambda x: functional.adaptive_avg_pool2d(x, (3, 4)),
        lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
        lambda x: functional.interpolate(x, (9, 5), mode="bilinear", align_corners=True),
        lambda x: functional.interpolate(x, scale_factor=2),
        lambda x: functional.max_pool1d(x.flatten(2), 3, 2),
    ],
)  # fmt: skip
def test_pooling_and_its_gradients(pool: Any) -> None:
    def call(x: Any) -> Any:
        x = x.detach().requires_grad_()
        y = pool(x)
        (grad,) = torch.autograd.grad((y * y).sum(), [x])
        return y.detach(), grad

    check(call, IMAGE, rtol=1e-4)


def test_largest_of_windows_with_nan_and_nothing_but_infinity() -> None:
    image = torch.full((1, 1, 4, 4), -math.inf)
    image[0, 0, 1, 2] = math.nan
    check(lambda x: functional.max_pool2d(x, 2, 2, 1, return_indices=True), image)


def test_masked_attention_and_its_gradients() -> None:
    q = torch.sin(torch.arange(2 * 2 * 5 * 8, dtype=torch.float32)).reshape(2, 2, 5, 8)

    def call(x: Any, mask: Any) -> Any:
        x = x.detach().requires_grad_()
        y = functional.scaled_dot_product_attention(x, x.flip(3), x * 2, attn_mask=mask)
        (grad,) = torch.autograd.grad((y * y).sum(), [x])
        return y.detach(), grad

    check(call, q, torch.tril(torch.ones(5, 5)).log(), rtol=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: torch.special.bessel_j0(x), "prims.bessel_j0.default: has no translation"),
        (lambda x: x.t().as_strided((2,), (2,)), "of memory in another order than row-major"),
        (lambda x: x.reshape(-1)[:2].as_strided((3,), (1,)), "of memory beyond the tensor"),
    ],
)  # fmt: skip
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        run(call, torch.ones(3, 4))
