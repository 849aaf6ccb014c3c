"""fla-core: linear attention and its kin, forward and backward.

Each operator is held against the package's own plain PyTorch reference, or against its recurrent
form where that is the reference.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.corpora.compare import agree_with_gradients
from benchmarks.corpora.modes import stand_in
from benchmarks.corpora.units import Corpus, Unit

__all__ = ["corpus"]

_B, _T, _H, _D = 1, 64, 2, 32


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (_B, _T, _H, _D)))


def _gates(*shape: int) -> torch.Tensor:
    return F.logsigmoid(_normal(*shape))


def _unit_keys() -> torch.Tensor:
    return F.normalize(_normal(), dim=-1)


def _plain() -> list[Any]:
    return [_normal(), _normal(), _normal()]


def _gated() -> list[Any]:
    return [*_plain(), _gates(_B, _T, _H, _D)]


def _head_gated() -> list[Any]:
    return [*_plain(), _gates(_B, _T, _H)]


def _delta() -> list[Any]:
    return [_normal(), _unit_keys(), _normal(), torch.rand(_B, _T, _H)]


def _gated_delta() -> list[Any]:
    return [_normal(), _unit_keys(), _normal(), _gates(_B, _T, _H), torch.rand(_B, _T, _H)]


def _heads_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """An older reference, whose tensors are [B, H, T, D]."""

    def call(*given: torch.Tensor) -> torch.Tensor:
        found = function(*(x.transpose(1, 2).contiguous() for x in given))
        return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)

    return call


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _gate_last(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda q, k, v, gate, beta: function(q, k, v, beta, gate)


# module, function, its reference (in the package) and how that is called, inputs by position
_Case = tuple[str, str, str, Callable[..., Any], Callable[[], list[Any]]]
_CASES: tuple[_Case, ...] = (
    ("linear_attn", "chunk_linear_attn", "naive_recurrent_linear_attn", _as_it_is, _plain),
    ("linear_attn", "fused_recurrent_linear_attn", "naive_recurrent_linear_attn", _as_it_is,
     _plain),
    ("linear_attn", "fused_chunk_linear_attn", "naive_recurrent_linear_attn", _as_it_is, _plain),
    ("retention", "chunk_retention", "naive_retention", _heads_first, _plain),
    ("retention", "fused_recurrent_retention", "naive_retention", _heads_first, _plain),
    ("retention", "parallel_retention", "naive_retention", _heads_first, _plain),
    ("gla", "chunk_gla", "naive_recurrent_gla", _as_it_is, _gated),
    ("gla", "fused_recurrent_gla", "naive_recurrent_gla", _as_it_is, _gated),
    ("simple_gla", "chunk_simple_gla", "naive_recurrent_simple_gla", _as_it_is, _head_gated),
    ("simple_gla", "fused_recurrent_simple_gla", "naive_recurrent_simple_gla", _as_it_is,
     _head_gated),
    ("delta_rule", "chunk_delta_rule", "delta_rule_recurrence", _heads_first, _delta),
    ("delta_rule", "fused_recurrent_delta_rule", "delta_rule_recurrence", _heads_first, _delta),
    ("gated_delta_rule", "chunk_gated_delta_rule", "naive_recurrent_gated_delta_rule", _gate_last,
     _gated_delta),
    ("hgrn", "fused_recurrent_hgrn", "naive_recurrent_hgrn", _as_it_is,
     lambda: [_normal(_B, _T, _D), _gates(_B, _T, _D)]),
)  # fmt: skip


def corpus(path: Path) -> Corpus:
    """The operators of the package in a folder; einops must be importable."""

    def prepare() -> None:
        stand_in()
        sys.path.insert(0, str(path))
        import_module("fla.ops")

    units = tuple(Unit(function, partial(_run, *case)) for case in _CASES for function in [case[1]])
    return Corpus("fla-core 0.6.0", "pypi fla-core", 0.9, units, prepare)


def _run(
    module: str,
    function: str,
    reference: str,
    called: Callable[..., Any],
    inputs: Callable[[], list[Any]],
) -> None:
    torch.manual_seed(0)
    folder = f"fla.ops.{module}"
    operator = getattr(import_module(folder), function)
    if module == "linear_attn":
        operator = partial(operator, normalize=False)
    plain = called(getattr(import_module(f"{folder}.naive"), reference))
    given = inputs()
    if function == "chunk_delta_rule":  # takes no float32
        given = [x.bfloat16() for x in given]
    tolerance = 1e-2 if given[0].dtype == torch.float32 else 5e-2
    agree_with_gradients(_first(operator), _first(plain), given, tolerance)


def _first(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function's output without its state."""

    def call(*given: Any) -> Any:
        found = function(*given)
        return found[0] if isinstance(found, tuple) else found

    return call
