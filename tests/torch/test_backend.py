"""torch.compile with our back end against eager PyTorch: forward, backward, sizes, options."""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the back end needs PyTorch")

import torch
from torch import nn
from torch.nn import functional

from luban.core.errors import LubanWarning, OptionError
from luban.torch import backend


@pytest.fixture(autouse=True)
def _afresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


class Convolutions(nn.Module):
    """A window, a depthwise one with a stride, a normalisation, pooling, a product."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8)
        self.norm = nn.BatchNorm2d(8)
        self.last = nn.Linear(8 * 4 * 4, 5)

    def forward(self, x: Any) -> Any:
        y = functional.relu(self.norm(self.depthwise(self.first(x))))
        return self.last(functional.max_pool2d(y, 2).flatten(1))


class Letters(nn.Module):
    """A small GPT: embedding, causal attention, products."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 16)
        self.mixed = nn.Linear(16, 48)
        self.norm = nn.LayerNorm(16)
        self.last = nn.Linear(16, 11)

    def forward(self, tokens: Any) -> Any:
        x = self.table(tokens)
        q, k, v = (
            part.unflatten(-1, (2, 8)).transpose(1, 2)
            for part in self.mixed(self.norm(x)).chunk(3, -1)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.last(x + y.transpose(1, 2).flatten(2))


def compare(
    model: Any,
    inputs: list[Any],
    loss: Callable[[Any], Any],
    *,
    bound: float = 2e-6,
    **options: Any,
) -> None:
    """Outputs, gradients of inputs and parameters, and buffers."""
    ours, theirs = copy.deepcopy(model), model
    compiled: Any = torch.compile(ours, backend=backend, fullgraph=True, **options)
    mine = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    yours = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    got, want = compiled(*mine), theirs(*yours)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=bound)
    loss(got).backward()
    loss(want).backward()
    pairs = [
        *zip(mine, yours, strict=True),
        *zip(ours.parameters(), theirs.parameters(), strict=True),
    ]
    for a, b in pairs:
        if b.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=bound)
    for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=bound)


def square(result: Any) -> Any:
    return (result**2).mean()


def test_products_and_activations() -> None:
    model = nn.Sequential(
        nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.SiLU()
    )
    compare(model, [torch.randn(3, 8)], square)


@pytest.mark.parametrize("layout", ["contiguous_format", "channels_last"])
def test_convolutions_and_running_statistics(layout: str) -> None:
    x = torch.randn(2, 3, 16, 16).to(memory_format=getattr(torch, layout))
    wanted = torch.tensor([1, 4])
    compare(Convolutions(), [x], lambda y: functional.cross_entropy(y, wanted))


def test_attention_and_embedding() -> None:
    tokens = torch.randint(11, (2, 7))
    loss = lambda y: functional.cross_entropy(y.flatten(0, 1), tokens.flatten())  # noqa: E731
    compare(Letters(), [tokens], loss)


def test_views_and_inputs_that_are_handed_through() -> None:
    def model(x: Any, y: Any) -> Any:
        return x, x.t(), (x + y)[1:], 3, None

    x, y = torch.randn(3, 4), torch.randn(3, 4).t().contiguous().t()
    compiled: Any = torch.compile(model, backend=backend)
    found = compiled(x, y)
    assert found[0] is x
    for a, b in zip(found[:3], model(x, y)[:3], strict=True):
        torch.testing.assert_close(a, b)
    assert found[3:] == (3, None)


def test_an_input_that_is_written_to() -> None:
    def model(x: Any) -> Any:
        x.mul_(2)
        x[0] = 7.0
        return x + 1

    mine, yours = torch.ones(3, 2), torch.ones(3, 2)
    torch.testing.assert_close(torch.compile(model, backend=backend)(mine), model(yours))
    torch.testing.assert_close(mine, yours)


def test_half_precision() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(torch.bfloat16)
    x = torch.randn(3, 8, dtype=torch.bfloat16)
    with torch.no_grad():
        found = torch.compile(model, backend=backend)(x)
        torch.testing.assert_close(found, model(x), rtol=2e-2, atol=2e-2)
    assert found.dtype == torch.bfloat16


def test_every_batch_and_length_from_one_compilation() -> None:
    model = Letters()
    compiles = 0

    def counting(*given: Any, **named: Any) -> Any:
        nonlocal compiles
        compiles += 1
        return backend(*given, **named)

    compiled = torch.compile(model, backend=counting, dynamic=True, fullgraph=True)
    compiled(torch.randint(11, (2, 7)))
    first = compiles  # PyTorch may begin anew within a compilation
    for batch, length in ((2, 7), (3, 5), (5, 2), (4, 30)):
        tokens = torch.randint(11, (batch, length))
        torch.testing.assert_close(compiled(tokens), model(tokens), rtol=1e-5, atol=2e-6)
    assert compiles == first
    for batch in (0, 1):  # PyTorch takes these for constants, and compiles for each
        tokens = torch.randint(11, (batch, 7))
        torch.testing.assert_close(compiled(tokens), model(tokens), rtol=1e-5, atol=2e-6)


def test_training_goes_as_in_eager() -> None:
    model = Letters()
    tokens = torch.randint(11, (4, 9))
    losses: list[list[float]] = []
    for compiled in (True, False):
        mine = copy.deepcopy(model)
        step = torch.compile(mine, backend=backend) if compiled else mine
        optimiser = torch.optim.AdamW(mine.parameters(), lr=1e-2)
        seen = []
        for _ in range(20):
            optimiser.zero_grad()
            loss = functional.cross_entropy(
                step(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
            )
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            seen.append(loss.item())
        losses.append(seen)
    assert losses[0][-1] < losses[0][0] / 2
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


def test_dropout_keeps_the_rate_and_obeys_the_seed() -> None:
    compiled = torch.compile(lambda x: functional.dropout(x, 0.25), backend=backend)
    x = torch.ones(20_000)
    torch.manual_seed(3)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(3)
    assert torch.equal(compiled(x), first)
    assert not torch.equal(first, second)
    kept = float((first != 0).float().mean())
    assert 0.73 < kept < 0.77
    assert set(first.tolist()) == {0.0, float(np.float32(1 / 0.75))}


def test_random_numbers_have_their_mean_and_deviation() -> None:
    def model() -> Any:
        return torch.rand(20_000), torch.randn(20_000)

    uniform, normal = torch.compile(model, backend=backend)()
    assert abs(float(uniform.mean()) - 0.5) < 0.01
    assert 0 <= float(uniform.min()) < float(uniform.max()) < 1
    assert abs(float(normal.mean())) < 0.03
    assert abs(float(normal.std()) - 1) < 0.03


def unsupported(x: Any) -> Any:
    return torch.linalg.eigvalsh(x @ x.t()) + torch.special.bessel_j0(x[0])


def test_what_has_no_translation_is_listed_with_its_line() -> None:
    compiled = torch.compile(unsupported, backend=backend)
    with pytest.raises(Exception, match="2 operations cannot be translated") as error:
        compiled(torch.randn(3, 3))
    text = str(error.value)
    assert "_linalg_eigh.default: has no translation" in text
    assert "prims.bessel_j0.default: has no translation" in text
    assert "test_backend.py" in text
    assert "fallback" in text


def test_what_has_no_translation_runs_in_pytorch_if_asked() -> None:
    x = torch.randn(3, 3)
    compiled = torch.compile(unsupported, backend=backend, options={"fallback": "eager"})
    with pytest.warns(LubanWarning, match=r"a graph runs in PyTorch: .*cannot be translated"):
        found = compiled(x)
    torch.testing.assert_close(found, unsupported(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speed": 1}, "option 'speed' of the back end is unknown, expected threads or fallback"),
        ({"fallback": "maybe"}, "option fallback is 'maybe', expected 'error' or 'eager'"),
        ({"threads": 0}, "option threads is 0, expected a number of at least 1"),
    ],
)
def test_options_that_are_none(options: dict[str, Any], message: str) -> None:
    module = torch.fx.symbolic_trace(nn.Identity())
    with pytest.raises(OptionError, match=message):
        backend(module, [torch.ones(1)], options=options)


def test_complex_numbers_are_refused_by_name() -> None:
    compiled = torch.compile(lambda x: x * 2, backend=backend)
    with pytest.raises(Exception, match=r"dtype torch\.complex64 is not supported"):
        compiled(torch.ones(2, dtype=torch.complex64))


def test_pytorch_finds_the_back_end() -> None:
    (found,) = entry_points(group="torch_dynamo_backends", name="luban")
    assert found.load() is backend
