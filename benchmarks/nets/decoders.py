"""Transformer decoders that carry their past: GPT-2, a Llama-like one, one with MLA and MoE.

One file serves prefill (past of length 0) and decode (one token, a past): both lengths are
symbolic. Only the last position's logits are computed, as generation needs.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def causal_bias(length: int, total: int, dtype: torch.dtype) -> Tensor:
    """[length, total]: 0 where query i may see key j (j <= i + past), else the lowest float."""
    query = torch.arange(length)[:, None] + (total - length)
    key = torch.arange(total)[None, :]
    return torch.where(key <= query, 0.0, torch.finfo(dtype).min).to(dtype)


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Causal attention: [N, H, T, D] with [N, H, S, D] and [N, H, S, V] -> [N, T, H * V]."""
    scores = query @ key.transpose(2, 3) * scale
    scores = scores + causal_bias(query.shape[2], key.shape[2], query.dtype)
    mixed = (scores.softmax(-1) @ value).transpose(1, 2)
    return mixed.reshape(mixed.shape[0], mixed.shape[1], -1)


class Gpt2Layer(nn.Module):
    """Radford et al. 2019: normalise, attend, add; normalise, feed forward, add."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.depth = heads, width // heads
        self.attention_norm = nn.LayerNorm(width)
        self.mixed = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.forward_norm = nn.LayerNorm(width)
        self.forward_part = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width)
        )

    def forward(
        self, x: Tensor, past: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x [N, T, D] and past key, value [N, H, P, D / H] -> x and the past longer by T."""
        batch, length, width = x.shape
        query, key, value = (
            part.reshape(batch, length, self.heads, self.depth).transpose(1, 2)
            for part in self.mixed(self.attention_norm(x)).split(width, 2)
        )
        key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        x = x + self.out(attend(query, key, value, 1 / math.sqrt(self.depth)))
        return x + self.forward_part(self.forward_norm(x)), (key, value)


class Gpt2(nn.Module):
    """The default sizes are GPT-2 small; the head shares the embedding's weights."""

    def __init__(
        self,
        layers: int = 12,
        width: int = 768,
        heads: int = 12,
        vocabulary: int = 50_257,
        positions: int = 1024,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(positions, width)
        nn.init.normal_(self.words.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)
        self.layers = nn.ModuleList(Gpt2Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(
        self, input_ids: Tensor, past: Sequence[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, ...]:
        """int64 [N, T], each layer's past -> logits [N, 1, vocabulary], each longer past."""
        length, before = input_ids.shape[1], past[0][0].shape[2]
        x = self.words(input_ids) + self.places(torch.arange(length) + before)
        present: list[Tensor] = []
        for layer, memory in zip(self.layers, past, strict=True):
            x, memory = layer(x, memory)
            present += memory
        return (self.norm(x[:, -1:]) @ self.words.weight.T, *present)


class RmsNorm(nn.Module):
    """x / sqrt(mean x**2 + eps) * scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.scale


def rotate(x: Tensor, before: int) -> Tensor:
    """Rotary position of Su et al. 2021, halves convention. [N, H, T, D] -> the same shape."""
    length, depth = x.shape[2], x.shape[3]
    frequency = 10_000.0 ** (-torch.arange(0, depth, 2, dtype=torch.float32) / depth)
    place = (torch.arange(length) + before).to(torch.float32)
    angle = place[:, None] * frequency[None, :]
    cosine, sine = torch.cat([angle.cos()] * 2, 1), torch.cat([angle.sin()] * 2, 1)
    low, high = x[..., : depth // 2], x[..., depth // 2 :]
    return x * cosine + torch.cat([-high, low], -1) * sine


class GatedForward(nn.Module):
    """SwiGLU of Shazeer 2020: down(silu(gate(x)) * up(x))."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[N, T, D] -> [N, T, D]."""
        result: Tensor = self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        return result


class LlamaLayer(nn.Module):
    """Grouped-query attention with rotary positions, gated feed-forward."""

    def __init__(self, width: int, heads: int, key_heads: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.key_heads, self.depth = heads, key_heads, width // heads
        self.attention_norm, self.forward_norm = RmsNorm(width), RmsNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key, self.value = (
            nn.Linear(width, key_heads * self.depth, bias=False) for _ in range(2)
        )
        self.out = nn.Linear(width, width, bias=False)
        self.forward_part = GatedForward(width, hidden)

    def forward(
        self, x: Tensor, past: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x [N, T, D] and past key, value [N, key_heads, P, depth] -> x and the longer past."""
        batch, length, _ = x.shape
        before = past[0].shape[2]
        y = self.attention_norm(x)

        def split(part: Tensor, heads: int) -> Tensor:
            return part.reshape(batch, length, heads, self.depth).transpose(1, 2)

        query = rotate(split(self.query(y), self.heads), before)
        key = rotate(split(self.key(y), self.key_heads), before)
        key = torch.cat([past[0], key], 2)
        value = torch.cat([past[1], split(self.value(y), self.key_heads)], 2)
        share = self.heads // self.key_heads
        mixed = attend(
            query,
            key.repeat_interleave(share, 1),
            value.repeat_interleave(share, 1),
            1 / math.sqrt(self.depth),
        )
        x = x + self.out(mixed)
        return x + self.forward_part(self.forward_norm(x)), (key, value)


class Llama(nn.Module):
    """Touvron et al. 2023; the default sizes give 125 million parameters."""

    def __init__(
        self,
        layers: int = 12,
        width: int = 768,
        heads: int = 12,
        key_heads: int = 4,
        hidden: int = 2048,
        vocabulary: int = 32_000,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(
            LlamaLayer(width, heads, key_heads, hidden) for _ in range(layers)
        )
        self.norm = RmsNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(
        self, input_ids: Tensor, past: Sequence[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, ...]:
        """int64 [N, T], each layer's past -> logits [N, 1, vocabulary], each longer past."""
        x = self.words(input_ids)
        present: list[Tensor] = []
        for layer, memory in zip(self.layers, past, strict=True):
            x, memory = layer(x, memory)
            present += memory
        return (self.head(self.norm(x[:, -1:])), *present)


class LatentAttention(nn.Module):
    """MLA of DeepSeek-V2 (2024): low-rank queries, keys and values from one small latent."""

    def __init__(
        self, width: int, heads: int, query_rank: int, latent: int, plain: int, rotary: int
    ) -> None:
        super().__init__()
        self.heads, self.latent, self.plain, self.rotary = heads, latent, plain, rotary
        self.query_down = nn.Linear(width, query_rank, bias=False)
        self.query_norm = RmsNorm(query_rank)
        self.query_up = nn.Linear(query_rank, heads * (plain + rotary), bias=False)
        self.latent_down = nn.Linear(width, latent + rotary, bias=False)
        self.latent_norm = RmsNorm(latent)
        self.latent_up = nn.Linear(latent, heads * 2 * plain, bias=False)
        self.out = nn.Linear(heads * plain, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[N, T, D] -> [N, T, D]."""
        batch, length, _ = x.shape
        query = self.query_up(self.query_norm(self.query_down(x)))
        query = query.reshape(batch, length, self.heads, -1).transpose(1, 2)
        query_plain, query_rotary = query.split([self.plain, self.rotary], 3)
        latent, key_rotary = self.latent_down(x).split([self.latent, self.rotary], 2)
        both = self.latent_up(self.latent_norm(latent))
        both = both.reshape(batch, length, self.heads, -1).transpose(1, 2)
        key_plain, value = both.split([self.plain, self.plain], 3)
        key_rotary = rotate(key_rotary[:, None], 0).expand(-1, self.heads, -1, -1)
        query = torch.cat([query_plain, rotate(query_rotary, 0)], 3)
        key = torch.cat([key_plain, key_rotary], 3)
        mixed = attend(query, key, value, 1 / math.sqrt(self.plain + self.rotary))
        result: Tensor = self.out(mixed)
        return result


class Mixture(nn.Module):
    """A shared expert and `experts` routed ones, the best `chosen` of them weighted, the rest zero.

    Every expert sees every token, so no shape depends on the data: what exporters write.
    """

    def __init__(self, width: int, hidden: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(width, experts, bias=False)
        self.shared = GatedForward(width, hidden)
        scale = 1 / math.sqrt(width)
        self.gate, self.up = (
            nn.Parameter(torch.empty(experts, width, hidden).uniform_(-scale, scale))
            for _ in range(2)
        )
        scale = 1 / math.sqrt(hidden)
        self.down = nn.Parameter(torch.empty(experts, hidden, width).uniform_(-scale, scale))

    def forward(self, x: Tensor) -> Tensor:
        """[N, T, D] -> [N, T, D]."""
        tokens = x.reshape(-1, x.shape[2])
        chance = self.router(tokens).softmax(-1)
        best, index = chance.topk(self.chosen, -1)
        weight = torch.zeros_like(chance).scatter(1, index, best / best.sum(-1, keepdim=True))
        hidden = nn.functional.silu(tokens @ self.gate) * (tokens @ self.up)
        routed = ((hidden @ self.down) * weight.T[:, :, None]).sum(0)
        result: Tensor = self.shared(x) + routed.reshape(x.shape)
        return result


class LatentMixtureLayer(nn.Module):
    """MLA, then a mixture of experts, each on a normalised input and added."""

    def __init__(self, width: int, heads: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.attention_norm, self.forward_norm = RmsNorm(width), RmsNorm(width)
        self.attention = LatentAttention(width, heads, width * 3 // 8, width // 4, 64, 32)
        self.mixture = Mixture(width, hidden, experts, 2)

    def forward(self, x: Tensor) -> Tensor:
        """[N, T, D] -> [N, T, D]."""
        x = x + self.attention(self.attention_norm(x))
        result: Tensor = x + self.mixture(self.forward_norm(x))
        return result


class LatentMixture(nn.Module):
    """Decoder with MLA and MoE, prefill only: int64 [N, T] -> logits of the last position."""

    def __init__(
        self,
        layers: int = 8,
        width: int = 1024,
        heads: int = 16,
        hidden: int = 640,
        experts: int = 8,
        vocabulary: int = 32_000,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(
            LatentMixtureLayer(width, heads, hidden, experts) for _ in range(layers)
        )
        self.norm = RmsNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        """int64 [N, T] -> [N, 1, vocabulary]."""
        x = self.words(input_ids)
        for layer in self.layers:
            x = layer(x)
        result: Tensor = self.head(self.norm(x[:, -1:]))
        return result
