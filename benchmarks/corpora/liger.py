"""liger-kernel: operators for training language models, forward and backward."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.corpora.compare import agree_with_gradients
from benchmarks.corpora.modes import stand_in
from benchmarks.corpora.units import Corpus, Unit

__all__ = ["corpus"]

_CASES: list[Unit] = []
Tensors = Sequence[Any]


def _case(
    function: str, inputs: Callable[[], Tensors], *options: Any, name: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compare `module.Function` with the decorated reference on some inputs.

    options  go to the kernel after the inputs
    """

    def register(reference: Callable[..., Any]) -> Callable[..., Any]:
        def run() -> None:
            torch.manual_seed(0)
            module, _, attribute = function.rpartition(".")
            operator = getattr(import_module(f"liger_kernel.ops.{module}"), attribute)
            agree_with_gradients(
                lambda *given: operator.apply(*given, *options), reference, inputs()
            )

        _CASES.append(Unit(name or function.rpartition(".")[0], run))
        return reference

    return register


def corpus(path: Path) -> Corpus:
    """The operators of the package in a folder."""

    def prepare() -> None:
        stand_in()
        sys.path.insert(0, str(path))
        import_module("liger_kernel.ops")

    return Corpus("liger-kernel 0.8.5", "pypi liger-kernel", 1.0, tuple(_CASES), prepare)


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def _classes(count: int, upper: int) -> torch.Tensor:
    return torch.randint(0, upper, (count,))


def _rms(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


@_case(
    "cross_entropy.LigerCrossEntropyFunction", lambda: [_normal(37, 301), _classes(37, 301)], None
)
def _cross_entropy(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target)


@_case(
    "cross_entropy.LigerCrossEntropyFunction",
    lambda: [_normal(37, 301), _classes(37, 301)],
    *(None, 5, 0.0, 0.1, "sum", 20.0),
    name="cross_entropy_smoothed",
)
def _cross_entropy_smoothed(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    capped = 20.0 * torch.tanh(x / 20.0)
    return F.cross_entropy(capped, target, ignore_index=5, label_smoothing=0.1, reduction="sum")


@_case("dyt.LigerDyTFunction", lambda: [_normal(6, 9, 130), _normal(1), _normal(130), _normal(130)])
def _dyt(
    x: torch.Tensor, alpha: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor
) -> torch.Tensor:
    return gamma * torch.tanh(alpha * x) + beta


@_case(
    "fused_add_rms_norm.LigerFusedAddRMSNormFunction",
    lambda: [_normal(3, 7, 130), _normal(3, 7, 130), _normal(130)],
    1e-6,
)
def _fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    total = x + residual
    return _rms(total) * weight, total


@_case(
    "fused_linear_cross_entropy.LigerFusedLinearCrossEntropyFunction",
    lambda: [_normal(48, 64), _normal(210, 64), _classes(48, 210)],
)
def _fused_linear_cross_entropy(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    return F.cross_entropy(x @ weight.T, target)


def _jsd(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The symmetric divergence of two log distributions, a mean over rows."""
    mean = (0.5 * first.exp() + 0.5 * second.exp()).log()
    terms = 0.5 * first.exp() * (first - mean) + 0.5 * second.exp() * (second - mean)
    return terms.sum(-1).mean()


@_case("fused_linear_jsd.LigerFusedLinearJSDFunction", lambda: _distillation(48, 32, 210))
def _fused_linear_jsd(
    x: torch.Tensor, weight: torch.Tensor, teacher_x: torch.Tensor, teacher: torch.Tensor
) -> torch.Tensor:
    student_log = (x @ weight.T).log_softmax(-1)
    return _jsd(student_log, (teacher_x @ teacher.T).log_softmax(-1).detach())


def _distillation(rows: int, width: int, classes: int) -> Tensors:
    return [
        _normal(rows, width) * 0.2,
        _normal(classes, width) * 0.2,
        _normal(rows, width) * 0.2,
        _normal(classes, width) * 0.2,
    ]


@_case("geglu.LigerGELUMulFunction", lambda: [_normal(5, 11, 130), _normal(5, 11, 130)])
def _geglu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(a, approximate="tanh") * b


@_case(
    "group_norm.LigerGroupNormFunction",
    lambda: [_normal(4, 12, 33), _normal(12), _normal(12)],
    *(12, 3, 1e-5),
)
def _group_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.group_norm(x, 3, weight, bias, 1e-5)


@_case(
    "jsd.LigerJSDFunction",
    lambda: [_normal(20, 210).log_softmax(-1), _normal(20, 210).log_softmax(-1)],
)
def _jsd_case(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return _jsd(x, target.detach())


@_case(
    "kl_div.LigerKLDivLossFunction",
    lambda: [_normal(20, 210).log_softmax(-1), _normal(20, 210).softmax(-1)],
)
def _kl_div(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.kl_div(x, target.detach(), reduction="batchmean")


@_case(
    "layer_norm.LigerLayerNormFunction", lambda: [_normal(9, 130), _normal(130), _normal(130)], 1e-5
)
def _layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (130,), weight, bias, 1e-5)


@_case(
    "rms_norm.LigerRMSNormFunction",
    lambda: [_normal(3, 9, 130), _normal(130)],
    *(1e-6, 0.0, "llama", False),
)
def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return _rms(x) * weight


@_case(
    "rms_norm.LigerRMSNormFunction",
    lambda: [_normal(3, 9, 130), _normal(130)],
    *(1e-6, 1.0, "gemma", False),
    name="rms_norm_gemma",
)
def _rms_norm_gemma(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return _rms(x) * (1.0 + weight)


def _angles(length: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    rates = 10000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.outer(torch.arange(length), rates)
    both = torch.cat([angles, angles], -1)[None]
    return both.cos(), both.sin()


def _rotate_half(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


@_case(
    "rope.LigerRopeFunction",
    lambda: [_normal(2, 4, 17, 64), _normal(2, 2, 17, 64), *_angles(17, 64)],
)
def _rope(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    cos, sin = cos.detach()[:, None], sin.detach()[:, None]
    return q * cos + _rotate_half(q) * sin, k * cos + _rotate_half(k) * sin


@_case("softmax.LigerSoftmaxFunction", lambda: [_normal(4, 9, 130)])
def _softmax(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(-1)


@_case("softmax.LigerSoftmaxFunction", lambda: [_normal(3, 9000)], name="softmax_long")
def _softmax_long(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(-1)


@_case("sparsemax.LigerSparsemaxFunction", lambda: [_normal(9, 130)], -1)
def _sparsemax(x: torch.Tensor) -> torch.Tensor:
    ordered = x.sort(-1, descending=True).values
    sums = ordered.cumsum(-1) - 1.0
    counts = torch.arange(1, x.shape[-1] + 1)
    size = (ordered * counts > sums).sum(-1, keepdim=True)
    return (x - sums.gather(-1, size - 1) / size).clamp_min(0.0)


@_case("swiglu.LigerSiLUMulFunction", lambda: [_normal(5, 11, 130), _normal(5, 11, 130)])
def _swiglu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.silu(a) * b


@_case("swiglu.LigerFusedGateUpSiLUMulFunction", lambda: [_normal(55, 260)], name="swiglu_fused")
def _swiglu_fused(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


@_case("relu_squared.LigerReLUSquaredFunction", lambda: [_normal(5, 11, 130)])
def _relu_squared(x: torch.Tensor) -> torch.Tensor:
    return F.relu(x).square()


@_case(
    "tvd.LigerTVDLossFunction", lambda: [_normal(20, 210).softmax(-1), _normal(20, 210).softmax(-1)]
)
def _tvd(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return 0.5 * (p - q.detach()).abs().sum(-1).mean()


@_case(
    "poly_norm.LigerPolyNormFunction",
    lambda: [_normal(9, 130), _normal(3), torch.tensor(0.3)],
    *(1e-6, False),
)
def _poly_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return weight[0] * _rms(x**3) + weight[1] * _rms(x**2) + weight[2] * _rms(x) + bias


@_case(
    "attn_res.LigerAttnResFunction", lambda: [_normal(3, 2, 7, 64), _normal(64), _normal(64)], 1e-6
)
def _attn_res(values: torch.Tensor, query: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
    scores = (_rms(values) * norm * query).sum(-1)
    return (scores.softmax(0)[..., None] * values).sum(0)


@_case("experimental.embedding.LigerEmbeddingFunction", lambda: [_normal(50, 64), _classes(31, 50)])
def _embedding(table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return F.embedding(rows, table)


@_case(
    "fused_linear_kl_div.LigerFusedLinearKLDivFunction",
    lambda: [_normal(24, 32), _normal(210, 32), _normal(24, 210).softmax(-1)],
)
def _fused_linear_kl_div(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    return F.kl_div((x @ weight.T).log_softmax(-1), target.detach(), reduction="batchmean")


@_case(
    "fused_ce_tvd.LigerFusedCETVDFunction",
    lambda: [_normal(24, 210), _normal(24, 210), _classes(24, 210)],
)
def _fused_ce_tvd(
    student: torch.Tensor, teacher: torch.Tensor, target: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    apart = (student.softmax(-1) - teacher.detach().softmax(-1)).abs()
    return F.cross_entropy(student, target, reduction="none"), 0.5 * apart.sum(-1)


@_case(
    "modulated_rms_norm.LigerModulatedRMSNormFunction",
    lambda: [_normal(2, 9, 130), _normal(130), _normal(2, 130), _normal(2, 130)],
    *(1e-6, 0.0, "llama", False),
)
def _modulated_rms_norm(
    x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor
) -> torch.Tensor:
    return _rms(x) * weight * (1.0 + scale[:, None]) + shift[:, None]


@_case("qwen2vl_mrope.LigerQwen2VLMRopeFunction", lambda: _three_angles(17, 64), [8, 12, 12])
def _qwen2vl_mrope(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    def chosen(x: torch.Tensor) -> torch.Tensor:
        parts = x.detach().split([8, 12, 12] * 2, -1)
        return torch.cat([part[i % 3] for i, part in enumerate(parts)], -1)[:, None]

    c, s = chosen(cos), chosen(sin)
    return q * c + _rotate_half(q) * s, k * c + _rotate_half(k) * s


def _three_angles(length: int, width: int) -> Tensors:
    half = torch.randn(3, 2, length, width // 2)
    both = torch.cat([half, half], -1)
    return [_normal(2, 4, length, width), _normal(2, 2, length, width), both.cos(), both.sin()]


@_case(
    "fused_neighborhood_attention.LigerFusedNeighborhoodAttentionFunction",
    lambda: [_normal(1, 2, 20, 32), _normal(1, 2, 20, 32), _normal(1, 2, 20, 32)],
    *(7, 1),
)
def _neighborhood(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    near = (torch.arange(20)[:, None] - torch.arange(20)).abs() <= 3
    return scores.masked_fill(~near, -math.inf).softmax(-1) @ v


@_case("llama4_rope.LigerLlama4RopeFunction", lambda: _complex_angles(17, 32))
def _llama4_rope(
    q: torch.Tensor, k: torch.Tensor, angles: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    def rotated(x: torch.Tensor) -> torch.Tensor:
        numbers = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(numbers * angles[None, :, None]).flatten(-2)

    return rotated(q), rotated(k)


def _complex_angles(length: int, width: int) -> Tensors:
    angles = torch.polar(torch.ones(length, width // 2), torch.randn(length, width // 2))
    return [_normal(2, length, 4, width), _normal(2, length, 2, width), angles]


@_case(
    "multi_token_attention.LigerMultiTokenAttentionFunction",
    lambda: [_normal(2, 4, 20, 20), _normal(4, 4, 3, 3), _normal(4)],
    *(1, 1),
)
def _multi_token_attention(
    scores: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    future = torch.ones(20, 20, dtype=torch.bool).triu(1)
    chances = scores.masked_fill(future, -1e9).softmax(-1)
    return F.conv2d(chances, weight, bias, padding=1).masked_fill(future, 0.0)


@_case(
    "mhc.LigerMHCPreFunction", lambda: [_normal(2, 9, 4, 64), torch.rand(2, 9, 4)], name="mhc_pre"
)
def _mhc_pre(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x * weight[..., None]).sum(-2)


@_case(
    "mhc.LigerMHCPostResFunction",
    lambda: [
        _normal(2, 9, 4, 64),
        _normal(2, 9, 64),
        torch.rand(2, 9, 4),
        torch.rand(2, 9, 4, 4),
    ],
    name="mhc_post_res",
)
def _mhc_post_res(
    x: torch.Tensor, out: torch.Tensor, post: torch.Tensor, mixed: torch.Tensor
) -> torch.Tensor:
    return mixed @ x + post[..., None] * out[..., None, :]


@_case(
    "fused_moe.LigerFusedMoEFunction",
    lambda: [
        _normal(24, 32),
        _normal(4, 128, 32) * 0.2,
        _normal(4, 32, 64) * 0.2,
        torch.stack([torch.randperm(4)[:2] for _ in range(24)]).int(),
        torch.rand(24, 2),
    ],
)
def _fused_moe(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:
    rows = []
    for t in range(x.shape[0]):
        total = torch.zeros_like(x[t])
        for slot in range(experts.shape[1]):
            expert = int(experts[t, slot])
            gate, up = (gate_up[expert] @ x[t]).chunk(2)
            total = total + weights[t, slot] * (down[expert] @ (F.silu(gate) * up))
        rows.append(total)
    return torch.stack(rows)
