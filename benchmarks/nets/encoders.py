"""Transformer encoders: BERT and ViT, attention written out so that the graph shows it."""

import math

import torch
from torch import Tensor, nn


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence with itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.depth = heads, width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x [N, T, D], bias added to the scores, [N, 1, 1, T] -> [N, T, D]."""
        batch, length, width = x.shape

        def split(y: Tensor) -> Tensor:
            return y.reshape(batch, length, self.heads, self.depth).transpose(1, 2)

        query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = query @ key.transpose(2, 3) / math.sqrt(self.depth)
        if bias is not None:
            scores = scores + bias
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, width)
        result: Tensor = self.out(mixed)
        return result


def feed_forward(width: int, hidden: int) -> nn.Sequential:
    """Linear, exact GELU, linear."""
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


class BertLayer(nn.Module):
    """Attention and feed-forward, each followed by its normalisation."""

    def __init__(self, width: int, heads: int, hidden: int, epsilon: float) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.attention_norm = nn.LayerNorm(width, epsilon)
        self.forward_part = feed_forward(width, hidden)
        self.forward_norm = nn.LayerNorm(width, epsilon)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """[N, T, D] -> [N, T, D]."""
        x = self.attention_norm(x + self.attention(x, bias))
        result: Tensor = self.forward_norm(x + self.forward_part(x))
        return result


class Bert(nn.Module):
    """Devlin et al. 2018; the default sizes are BERT-base."""

    def __init__(
        self,
        layers: int = 12,
        width: int = 768,
        heads: int = 12,
        vocabulary: int = 30_522,
        positions: int = 512,
        epsilon: float = 1e-12,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(positions, width)
        self.kinds = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, epsilon)
        self.layers = nn.ModuleList(
            BertLayer(width, heads, 4 * width, epsilon) for _ in range(layers)
        )
        self.pooler = nn.Linear(width, width)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Three int64 [N, T] -> hidden state [N, T, D] and pooled first token [N, D]."""
        places = torch.arange(input_ids.shape[1])
        x = self.norm(self.words(input_ids) + self.kinds(token_type_ids) + self.places(places))
        bias = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, bias)
        return x, self.pooler(x[:, 0]).tanh()


class VitLayer(nn.Module):
    """Normalise, attend, add; normalise, feed forward, add."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, 1e-6)
        self.attention = SelfAttention(width, heads)
        self.forward_norm = nn.LayerNorm(width, 1e-6)
        self.forward_part = feed_forward(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        """[N, T, D] -> [N, T, D]."""
        x = x + self.attention(self.attention_norm(x), None)
        result: Tensor = x + self.forward_part(self.forward_norm(x))
        return result


class Vit(nn.Module):
    """Dosovitskiy et al. 2020; the default sizes are ViT-B/16 at 224."""

    def __init__(
        self,
        layers: int = 12,
        width: int = 768,
        heads: int = 12,
        edge: int = 224,
        patch: int = 16,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, (edge // patch) ** 2 + 1, width) * 0.02)
        self.layers = nn.ModuleList(VitLayer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, 1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        """[N, 3, edge, edge] -> [N, classes]."""
        x = self.patches(image).flatten(2).transpose(1, 2)
        first = self.first.expand(x.shape[0], -1, -1)
        x = torch.cat([first, x], 1) + self.places
        for layer in self.layers:
            x = layer(x)
        result: Tensor = self.head(self.norm(x[:, 0]))
        return result
