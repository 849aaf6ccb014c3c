"""Hold the answer of a kernel, and its gradients, against a reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

__all__ = ["agree", "agree_with_gradients"]

_TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 3e-2, torch.float32: 2e-3, torch.float64: 1e-6}


def agree(given: Any, expected: Any, tolerance: float | None = None, what: str = "result") -> None:
    """Raise AssertionError unless tensors, or nested lists and dictionaries of them, are close.

    tolerance  relative to the largest value of a tensor; by its dtype if None
    """
    if isinstance(expected, dict):
        assert given.keys() == expected.keys(), f"{what}: other keys"
        for key, value in expected.items():
            agree(given[key], value, tolerance, f"{what}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        assert len(given) == len(expected), f"{what}: {len(given)} values, not {len(expected)}"
        for i, value in enumerate(expected):
            agree(given[i], value, tolerance, f"{what}[{i}]")
    elif isinstance(expected, torch.Tensor):
        _agree_tensors(given, expected, tolerance, what)
    elif isinstance(expected, np.ndarray):
        _agree_tensors(torch.from_numpy(given), torch.from_numpy(expected), tolerance, what)
    elif isinstance(expected, float):
        _agree_tensors(torch.tensor(given), torch.tensor(expected), tolerance, what)
    else:
        assert given == expected, f"{what}: {given!r}, expected {expected!r}"


def _agree_tensors(
    given: torch.Tensor, expected: torch.Tensor, tolerance: float | None, what: str
) -> None:
    assert tuple(given.shape) == tuple(expected.shape), (
        f"{what}: {tuple(given.shape)}, expected {tuple(expected.shape)}"
    )
    first, second = given.detach().double(), expected.detach().double()
    finite = second.isfinite()
    scale = max(float(second[finite].abs().max()) if finite.any() else 0.0, 1e-6)
    bound = _TOLERANCE.get(given.dtype, 0.0) if tolerance is None else tolerance
    torch.testing.assert_close(
        first, second, rtol=bound, atol=bound * scale, equal_nan=True, msg=lambda m: f"{what}: {m}"
    )


def agree_with_gradients(
    kernel: Callable[..., Any],
    reference: Callable[..., Any],
    inputs: Sequence[Any],
    tolerance: float | None = None,
) -> None:
    """Compare results and, for the float inputs, gradients of a weighted sum of the results.

    Inputs that are float tensors get gradients unless the reference gives None for them.
    """
    runs = []
    for function in (kernel, reference):
        own = [_leaf(value) for value in inputs]
        results = function(*own)
        several = results if isinstance(results, (list, tuple)) else [results]
        kept = [r for r in several if isinstance(r, torch.Tensor)]
        total = sum(
            (r.float() * _weights(r)).sum() for r in kept if r.is_floating_point() and r.grad_fn
        )
        if isinstance(total, torch.Tensor):
            total.backward()
        gradients = [x.grad for x in own if isinstance(x, torch.Tensor) and x.requires_grad]
        runs.append((kept, gradients))
    (given, gradients), (expected, wanted) = runs
    agree(given, expected, tolerance, "result")
    for i, (gradient, want) in enumerate(zip(gradients, wanted, strict=True)):
        if want is not None:
            assert gradient is not None, f"no gradient of input {i}"
            agree(gradient, want, tolerance, f"gradient {i}")


def _leaf(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        copy = value.detach().clone()
        return copy.requires_grad_() if copy.is_floating_point() else copy
    return value


def _weights(result: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(result.numel())
    return torch.randn(result.shape, generator=generator)
